import { describe, expect, test } from "vitest";
import { errorText } from "#src/core/errors/errors.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { readFleetStatus } from "#src/scale/fleet/fleet-status.ts";
import { openFleetDocument } from "#src/scale/fleet/shared-json-document.ts";
import { absent } from "../real-servers.ts";
import { describeService } from "../suites/service-suite.ts";
import { createPostgresFleet, fleetsInPostgres } from "./postgres-fleet.ts";

const log = createLog({ level: "silent" });

describe.skipIf(absent("postgres"))("a fleet in PostgreSQL", () => {
  const { begin, server } = fleetsInPostgres();

  describeService("a fleet", async () => {
    const harness = createPostgresFleet(server());
    const database = await harness.database();
    return {
      service: harness.createMember("a", database).fleet,
      async quiet() {
        expect(harness.owned()).toEqual([]);
        const { members } = await readFleetStatus(database);
        expect(members.filter(({ state }) => state !== "left")).toEqual([]);
      },
      dispose: harness.close,
    };
  });

  test("a fleet assigns all sources to its first member, and redistributes the sources when members join or stop", async () => {
    const harness = begin();
    const takeovers = () =>
      harness.query(
        "select from_member, to_member, reason, count(*)::int from takeover group by 1, 2, 3 order by 1, 2, 3",
      );
    const count = (where: string) => harness.query(`select count(*)::int from ${where}`);
    const a = await harness.member("a");
    await harness.settled(a);
    expect(await takeovers()).toEqual([[null, "a", "first", 9]]);
    const b = await harness.member("b");
    await harness.settled(a, b);
    const c = await harness.member("c");
    await harness.settled(a, b, c);
    expect(await takeovers()).toContainEqual(["a", "b", "joined", 4]);
    const { takeovers: reported } = await readFleetStatus(await harness.database());
    expect(reported).toContainEqual(expect.objectContaining({ from: "a", to: "b", reason: "joined" }));
    expect(await count("takeover where reason = 'joined'")).toEqual([[7]]);
    await b.stop();
    await harness.settled(a, c);
    expect(await count("takeover where reason = 'left'")).toEqual([[3]]);
    expect(await harness.query("select gone from member where name = 'b'")).toEqual([["left"]]);
    await a.stop();
    await harness.settled(c);
    await c.stop();
    expect(harness.owned()).toEqual([]);
    expect(await count("source where holder is not null")).toEqual([[0]]);
  });

  test("a fleet rejects a member with a running member's name or with another configuration until the running member has ended", async () => {
    const harness = begin();
    const refusal = (...options: Parameters<typeof harness.member>) => harness.member(...options).catch(errorText);
    const a = await harness.member("a");
    await harness.settled(a);
    const other = { configDigest: "fedcba9876543210" };
    expect(await refusal("a")).toMatch(
      /^Another member with the name a runs in this fleet already, on .+\. Give each member a name of its own, or stop the other one\.$/,
    );
    expect(await refusal("b", other)).toMatch(
      /^The fleet runs with another configuration than this member: that of a on .+ differs in sources, sinks, commands or the bounds of the state\. Start this member with the same file, or stop all members before any is started with a new one\.$/,
    );
    await harness.settled(a);
    await a.crash();
    const again = await harness.member("a");
    await harness.settled(again);
    await again.stop();
    await harness.settled(await harness.member("b", other));
    expect(await harness.query("select digest from meta")).toEqual([[other.configDigest]]);
  });

  test("a fleet retains the newest 1,000 takeovers and deletes members that left long ago", async () => {
    const harness = begin();
    const a = await harness.member("a");
    await harness.settled(a);
    await harness.query(
      "insert into takeover (source, to_member, epoch, at, reason) select 'x', 'y', n, now(), 'joined' from generate_series(1, 1200) n",
    );
    await harness.query(
      `insert into member (name, incarnation, host, version, page, started_at, seen_at, gone, digest)
       select 'old', incarnation, host, version, page, started_at, now() - interval '2 days', 'lost', digest from member where name = 'a'`,
    );
    expect((await a.fleet.status()).members.map(({ name }) => name)).toEqual(["a"]);
    const b = await harness.member("b");
    await harness.settled(a, b);
    expect(await harness.query("select count(*)::int from takeover")).toEqual([[1_000]]);
    expect(await harness.query("select name from member order by name")).toEqual([["a"], ["b"]]);
  });

  test("all members read the same fleet document, and can remove only the version that they have read", async () => {
    const harness = begin();
    const key = "approvers";
    const open = async () =>
      openFleetDocument<{ readonly at: number }>({ database: await harness.database(), key, log });
    const [first, second] = [await open(), await open()];
    expect([first.read(), first.version(), await first.remove()]).toEqual([null, "", true]);
    await first.write({ at: 1 });
    expect([first.read(), first.version()]).toEqual([{ at: 1 }, '{"at":1}']);
    await expect.poll(() => second.read(), { interval: 5 }).toEqual({ at: 1 });
    const listeners = "from pg_stat_activity where query like 'listen%'";
    expect(await harness.query(`select count(pg_terminate_backend(pid))::int ${listeners}`)).not.toEqual([[0]]);
    await expect.poll(() => harness.query(`select 1 ${listeners}`)).not.toEqual([]);
    await harness.query("update fleet_document set body = '{\"at\":2}'");
    expect(await first.remove()).toBe(false);
    expect(first.read()).toEqual({ at: 2 });
    await second.refresh();
    expect(await second.remove()).toBe(true);
    await expect.poll(() => first.read(), { interval: 5 }).toBeNull();
    for (const each of [first, second]) each.close();
  });
});
