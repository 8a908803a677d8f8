import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sentence } from "#src/core/errors/errors.ts";
import { readFleet, setDraining } from "#src/scale/fleet/status.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";
import { absent } from "../real-servers.ts";
import { describeService } from "../suites/service-suite.ts";
import { createRig, fleetsOfTheirOwn, type Rig, SOURCES } from "./rig.ts";

describe.skipIf(absent("postgres"))("a fleet", () => {
  const { server, begin } = fleetsOfTheirOwn();
  let rig: Rig;

  const takeovers = () =>
    rig.ask("select from_member, to_member, reason, count(*)::int from takeover group by 1, 2, 3 order by 1, 2, 3");

  describe("members that run one after the other in the same schema", () => {
    let own: Rig;
    let database: StateDatabase;
    let members = 0;
    beforeAll(async () => {
      own = createRig(server());
      database = await own.database();
    });
    afterAll(() => own.close());

    describeService("a fleet", async () => {
      members += 1;
      const name = `member${members}`;
      return {
        service: own.fleet(name, database),
        async quiet() {
          expect(own.held()).toEqual([]);
          const { members: seen } = await readFleet(database);
          expect(seen.filter(({ state }) => state !== "left")).toEqual([]);
        },
      };
    });
  });

  test("assigns all sources to its first member, and redistributes the sources when members join or stop", async () => {
    rig = begin();
    const a = await rig.member("a");
    await rig.settled(a);
    expect(await takeovers()).toEqual([[null, "a", "first", 9]]);
    const b = await rig.member("b");
    await rig.settled(a, b);
    const c = await rig.member("c");
    await rig.settled(a, b, c);
    expect(await takeovers()).toEqual(
      expect.arrayContaining([
        ["a", "b", "joined", 4],
        [null, "a", "first", 9],
      ]),
    );
    expect(await rig.ask("select count(*)::int from takeover where reason = 'joined'")).toEqual([[7]]);
    await b.stop();
    await rig.settled(a, c);
    expect(await rig.ask("select count(*)::int from takeover where reason = 'left'")).toEqual([[3]]);
    expect(await rig.ask("select gone from member where name = 'b'")).toEqual([["left"]]);
    await a.stop();
    await rig.settled(c);
    await c.stop();
    expect(rig.held()).toEqual([]);
    expect(await rig.ask("select count(*)::int from source where holder is not null")).toEqual([[0]]);
  });

  test("hands over one source at a time, each after the new holder has taken the previous source", async () => {
    rig = begin();
    const a = await rig.member("a");
    await rig.settled(a);
    let most = 0;
    const watch = setInterval(() => {
      most = Math.max(most, SOURCES.length - rig.held().length);
    }, 2);
    const b = await rig.member("b");
    await rig.settled(a, b);
    clearInterval(watch);
    // The one that is given, and the one that was taken a moment ago and begins just now.
    expect(most).toBeLessThanOrEqual(2);
  });

  test("rejects a second member with the same name, but accepts a restart after a kill", async () => {
    rig = begin();
    const a = await rig.member("a");
    await rig.settled(a);
    const refused = await rig.member("a").catch((error: unknown) => sentence(error));
    expect(refused).toMatch(
      /^Another member with the name a runs in this fleet already, on .+\. Give each member a name of its own, or stop the other one\.$/,
    );
    await rig.settled(a);
    await a.crash();
    const again = await rig.member("a");
    await rig.settled(again);
  });

  test("rejects another configuration while members run, and accepts it once all members have stopped", async () => {
    rig = begin();
    const a = await rig.member("a");
    const other = { digest: "fedcba9876543210" };
    const refused = await rig.member("b", other).catch((error: unknown) => sentence(error));
    expect(refused).toMatch(
      /^The fleet runs with another configuration than this member: that of a on .+ differs in sources, sinks, commands or the bounds of the state\. Start this member with the same file, or stop all members before any is started with a new one\.$/,
    );
    await a.stop();
    const b = await rig.member("b", other);
    await rig.settled(b);
    expect(await rig.ask("select digest from meta")).toEqual([[other.digest]]);
  });

  test("assigns no source to a draining member, also across its restart", async () => {
    rig = begin();
    const [a, b] = [await rig.member("a"), await rig.member("b")];
    await rig.settled(a, b);
    const operator = await rig.database();
    const had = a.holding().length;
    await setDraining(operator, "a", true);
    await rig.settled(b);
    expect(await rig.ask("select count(*)::int from takeover where reason = 'drained'")).toEqual([[had]]);
    const drained = ["This member is drained and takes no source; plenum fleet undrain a ends that."];
    await expect.poll(() => a.fleet.notices()).toEqual(drained);
    await a.stop();
    const again = await rig.member("a");
    // It has looked, and taken nothing.
    await expect.poll(() => again.fleet.notices()).toEqual(drained);
    expect(again.holding()).toEqual([]);
    await setDraining(operator, "a", false);
    await rig.settled(again, b);
    const refused = await setDraining(operator, "c", true).catch((error: unknown) => sentence(error));
    expect(refused).toBe("The fleet has no member with the name c. Use one of: a, b.");
  });

  test("moves a source that one member cannot start to another member", async () => {
    rig = begin();
    const tried: string[] = [];
    const a = await rig.member("a", {
      async hold({ source }) {
        tried.push(source);
        throw new Error("no way to it from here");
      },
    });
    await expect.poll(() => tried.length).toBe(SOURCES.length);
    const b = await rig.member("b");
    await rig.settled(b);
    expect(new Set(tried).size).toBe(tried.length);
    expect(a.fleet.notices()).toContain(
      "The source building0 could not be started here, and is left to other members: no way to it from here",
    );
    const { members } = await b.fleet.status();
    expect(members.map(({ unable }) => unable.length)).toEqual([SOURCES.length, 0]);
    expect(await rig.ask("select distinct reason from takeover where to_member = 'b'")).toEqual([["could-not-start"]]);
  });

  test("retains the newest 1,000 takeovers and deletes members that left long ago", async () => {
    rig = begin();
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

  test("reports holder, start and reason of each source to members and to the command line", async () => {
    rig = begin();
    const a = await rig.member("a");
    await rig.settled(a);
    const b = await rig.member("b");
    await rig.settled(a, b);
    const told = await a.fleet.status();
    const seen = await readFleet(await rig.database());
    const { database: _, ...rest } = told;
    expect(seen).toMatchObject({ ...rest, self: null, members: seen.members });
    expect(told.self).toBe("a");
    expect(told.members.map(({ name, state, sources }) => [name, state, sources])).toEqual([
      ["a", "alive", a.holding().length],
      ["b", "alive", b.holding().length],
    ]);
    expect(told.sources.filter(({ holder }) => holder === "b").map(({ source }) => source)).toEqual(b.holding());
    const [handed] = told.takeovers;
    expect(handed).toMatchObject({ from: "a", to: "b", epoch: 2, reason: "joined" });
    expect(Date.parse(handed?.at ?? "")).toBeLessThanOrEqual(Date.now());
    expect(told.database?.server).toContain("PostgreSQL");
    const metrics = await a.metrics.registry.metrics();
    expect(metrics).toContain("plenum_fleet_members 2");
    expect(metrics).toContain('plenum_fleet_takeovers_total{reason="first"} 9');
    await expect.poll(() => a.metrics.registry.metrics()).toContain(`plenum_fleet_sources ${a.holding().length}`);
  });
});
