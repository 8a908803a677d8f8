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
    const rig = createPostgresFleet(server());
    const database = await rig.database();
    return {
      service: rig.createMember("a", database).fleet,
      async quiet() {
        expect(rig.held()).toEqual([]);
        const { members } = await readFleetStatus(database);
        expect(members.filter(({ state }) => state !== "left")).toEqual([]);
      },
      dispose: rig.close,
    };
  });

  test("a fleet assigns all sources to its first member, and redistributes the sources when members join or stop", async () => {
    const rig = begin();
    const takeovers = () =>
      rig.ask("select from_member, to_member, reason, count(*)::int from takeover group by 1, 2, 3 order by 1, 2, 3");
    const count = (where: string) => rig.ask(`select count(*)::int from ${where}`);
    const a = await rig.member("a");
    await rig.settled(a);
    expect(await takeovers()).toEqual([[null, "a", "first", 9]]);
    const b = await rig.member("b");
    await rig.settled(a, b);
    const c = await rig.member("c");
    await rig.settled(a, b, c);
    expect(await takeovers()).toContainEqual(["a", "b", "joined", 4]);
    const { takeovers: reported } = await readFleetStatus(await rig.database());
    expect(reported).toContainEqual(expect.objectContaining({ from: "a", to: "b", reason: "joined" }));
    expect(await count("takeover where reason = 'joined'")).toEqual([[7]]);
    await b.stop();
    await rig.settled(a, c);
    expect(await count("takeover where reason = 'left'")).toEqual([[3]]);
    expect(await rig.ask("select gone from member where name = 'b'")).toEqual([["left"]]);
    await a.stop();
    await rig.settled(c);
    await c.stop();
    expect(rig.held()).toEqual([]);
    expect(await count("source where holder is not null")).toEqual([[0]]);
  });

  test("a fleet rejects a member with a running member's name or with another configuration until the running member has ended", async () => {
    const rig = begin();
    const refusal = (...options: Parameters<typeof rig.member>) => rig.member(...options).catch(errorText);
    const a = await rig.member("a");
    await rig.settled(a);
    const other = { configDigest: "fedcba9876543210" };
    expect(await refusal("a")).toMatch(
      /^Another member with the name a runs in this fleet already, on .+\. Give each member a name of its own, or stop the other one\.$/,
    );
    expect(await refusal("b", other)).toMatch(
      /^The fleet runs with another configuration than this member: that of a on .+ differs in sources, sinks, commands or the bounds of the state\. Start this member with the same file, or stop all members before any is started with a new one\.$/,
    );
    await rig.settled(a);
    await a.crash();
    const again = await rig.member("a");
    await rig.settled(again);
    await again.stop();
    await rig.settled(await rig.member("b", other));
    expect(await rig.ask("select digest from meta")).toEqual([[other.configDigest]]);
  });

  test("a fleet retains the newest 1,000 takeovers and deletes members that left long ago", async () => {
    const rig = begin();
    const a = await rig.member("a");
    await rig.settled(a);
    await rig.ask(
      "insert into takeover (source, to_member, epoch, at, reason) select 'x', 'y', n, now(), 'joined' from generate_series(1, 1200) n",
    );
    await rig.ask(
      `insert into member (name, incarnation, host, version, page, started_at, seen_at, gone, digest)
       select 'old', incarnation, host, version, page, started_at, now() - interval '2 days', 'lost', digest from member where name = 'a'`,
    );
    expect((await a.fleet.status()).members.map(({ name }) => name)).toEqual(["a"]);
    const b = await rig.member("b");
    await rig.settled(a, b);
    expect(await rig.ask("select count(*)::int from takeover")).toEqual([[1_000]]);
    expect(await rig.ask("select name from member order by name")).toEqual([["a"], ["b"]]);
  });

  test("all members read the same fleet document, and can remove only the version that they have read", async () => {
    const rig = begin();
    const key = "approvers";
    const open = async () => openFleetDocument<{ readonly at: number }>({ database: await rig.database(), key, log });
    const [first, second] = [await open(), await open()];
    expect([first.read(), first.version(), await first.remove()]).toEqual([null, "", true]);
    await first.write({ at: 1 });
    expect([first.read(), first.version()]).toEqual([{ at: 1 }, '{"at":1}']);
    await expect.poll(() => second.read(), { interval: 5 }).toEqual({ at: 1 });
    const listeners = "from pg_stat_activity where query like 'listen%'";
    expect(await rig.ask(`select count(pg_terminate_backend(pid))::int ${listeners}`)).not.toEqual([[0]]);
    await expect.poll(() => rig.ask(`select 1 ${listeners}`)).not.toEqual([]);
    await rig.ask("update fleet_document set body = '{\"at\":2}'");
    expect(await first.remove()).toBe(false);
    expect(first.read()).toEqual({ at: 2 });
    await second.refresh();
    expect(await second.remove()).toBe(true);
    await expect.poll(() => first.read(), { interval: 5 }).toBeNull();
    for (const each of [first, second]) each.close();
  });
});
