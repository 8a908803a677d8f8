import { afterEach, describe, expect, test } from "vitest";
import { describeService } from "../suites/service-suite.ts";
import { counts, endVirtualFleet, fleet, SOURCES, started, startNewFleet, takeoversByReason } from "./virtual-fleet.ts";

afterEach(async () => expect(await endVirtualFleet()).toEqual([]));

describeService("a fleet whose database is unavailable", async () => {
  const { clock } = startNewFleet();
  const a = fleet.member("a");
  a.link.state = "fails";
  return {
    service: a.fleet,
    async quiet() {
      await clock.advance(60_000);
      expect(clock.sleepers()).toBe(0);
    },
  };
});

describe("a member without renewals", () => {
  test.each([
    ["fails", "The database is away."],
    ["stalls", "The database has not answered within 3 s."],
  ] as const)(
    "a member without renewals retries with waits, and reports the cause when the database %s for an hour",
    async (state, cause) => {
      const { clock } = startNewFleet();
      const a = fleet.member("a");
      a.link.state = state;
      await a.start();
      await clock.advance(3_600_000);
      expect(a.link.requests).toBeGreaterThan(800);
      expect(a.link.requests).toBeLessThan(7_200);
      expect(a.warnings()).toBe(1);
      expect(a.fleet.notices()).toEqual([
        `The fleet's database in memory cannot be asked: ${cause} Nothing is polled here, because nothing could be committed; it goes on by itself.`,
      ]);
      const status = a.fleet.status();
      await clock.advance(2_000);
      expect(await status).toMatchObject({ self: "a", members: [], database: null });
      await a.stop();
      expect(clock.sleepers()).toBe(0);
    },
  );

  test("a member without renewals ends its work one second before another member takes its sources", async () => {
    const { clock, tables } = startNewFleet();
    const [a, b] = await started("a", "b");
    const renewed = tables.members.get("a")?.seenMs ?? 0;
    a.link.state = "stalls";
    const sinceMs = () => clock.now() - renewed;
    await clock.advance(7_990 - sinceMs());
    expect([...counts(a, b), a.stops.length]).toEqual([5, 4, 4]);
    await clock.advance(20);
    expect(counts(a, b)).toEqual([0, 4]);
    expect(a.leases.every(({ signal }) => signal.aborted)).toBe(true);
    expect(a.stops.slice(4).map(([, deadlineMs]) => deadlineMs)).toEqual([5_000, 5_000, 5_000, 5_000, 5_000]);
    // An observer looks every second, and counts from the look that has seen the last renewal.
    await clock.advance(9_000 - sinceMs());
    expect(counts(a, b)).toEqual([0, 4]);
    await clock.advance(1_030);
    expect(counts(a, b)).toEqual([0, 9]);
    expect(takeoversByReason()["lease-ran-out"]?.length).toBe(5);
    expect(a.fleet.notices()).toEqual([
      "The fleet's database in memory cannot be asked: The database has not answered within 3 s. Nothing is polled here, because nothing could be committed; it goes on by itself.",
    ]);
    a.link.state = "well";
    await clock.advance(6_000);
    expect([counts(a, b).toSorted(), a.fleet.notices()]).toEqual([[4, 5], []]);
    expect(tables.members.get("a")?.gone).toBeNull();
  });

  test.each([-600_000, 600_000, -86_400_000])(
    "a member without renewals is the only member replaced, within 11 s, when the wall clock steps by %i ms",
    async (byMs) => {
      const { clock } = startNewFleet();
      const [a, b, c] = await started("a", "b", "c");
      a.link.state = "stalls";
      clock.stepWall(byMs);
      const before = [b.stops.length, c.stops.length];
      await clock.advance(11_000);
      expect(counts(a, b, c).toSorted()).toEqual([0, 4, 5]);
      expect([b.stops.length, c.stops.length]).toEqual(before);
      clock.stepWall(-byMs);
      await clock.advance(30_000);
      expect([b.stops.length, c.stops.length]).toEqual(before);
    },
  );

  test("a member without renewals is replaced by a newly started member only after a complete lease duration", async () => {
    const { clock } = startNewFleet();
    const [a] = await started("a");
    a.link.state = "stalls";
    await clock.advance(30_000);
    const b = fleet.member("b");
    await b.start();
    await clock.advance(8_700);
    expect(b.holding()).toEqual([]);
    await clock.advance(500);
    expect(b.holding()).toEqual(SOURCES);
  });

  test("a member without renewals does not block members with another configuration after one lease duration", async () => {
    const { clock, tables } = startNewFleet();
    const [a, b] = await started("a", "b");
    for (const { link } of [a, b]) link.state = "stalls";
    const c = fleet.member("c", { configDigest: "fedcba9876543210" });
    await c.start();
    await clock.advance(100);
    expect([c.holding().length, tables.digest()]).toEqual([9, "fedcba9876543210"]);
  });

  test("a member without renewals keeps its sources during a short outage of the database, and reports the outage", async () => {
    const { clock } = startNewFleet();
    const [a] = await started("a");
    await clock.advance(2_700);
    const warnings = a.warnings();
    a.link.state = "fails";
    await clock.advance(5_000);
    expect([a.holding().length, a.warnings() - warnings]).toEqual([9, 1]);
    expect(a.fleet.notices()).toEqual(["The fleet's database in memory cannot be asked: The database is away."]);
    const status = await a.fleet.status();
    expect(status).toMatchObject({ self: "a", database: null, takeovers: [], trouble: "The database is away." });
    expect(status.sources.map(({ holder }) => holder)).toEqual(SOURCES.map(() => "a"));
    a.link.state = "well";
    await clock.advance(2_000);
    expect([a.holding().length, a.stops, a.fleet.notices()]).toEqual([9, [], []]);
    expect((await a.fleet.status()).trouble).toBeNull();
  });

  test("a member loses at once only the source that another member has fenced", async () => {
    const { clock, tables } = startNewFleet();
    const [a] = await started("a");
    const [lease] = a.leases;
    Object.assign(tables.sources.get("s0") ?? {}, { epoch: 7, holder: "x", incarnation: "x" });
    lease?.noteLeaseFenced();
    expect([lease?.remainingMs(), a.holding().length]).toEqual([0, 8]);
    await clock.advance(100);
    expect(a.stops).toEqual([["s0", 5_000]]);
    // No member is named x, so the source is free and is taken again with a higher epoch.
    await clock.advance(100);
    expect(a.leases.at(-1)).toMatchObject({ source: "s0", epoch: 8 });
    lease?.noteLeaseFenced();
    await clock.advance(100);
    expect(a.holding()).toHaveLength(9);
  });

  test("a member releases and retakes sources after the database's response to the takeover was lost", async () => {
    const { clock, tables } = startNewFleet();
    const a = fleet.member("a");
    const wellTransact = a.link.database.transact;
    let lost = 0;
    Object.assign(a.link.database, {
      transact: (requests: Parameters<typeof wellTransact>[0]) => {
        const isTake = requests[0]?.text.includes("with free as") === true;
        const answer = wellTransact(requests);
        if (!isTake || lost > 0) return answer;
        lost += 1;
        return Promise.reject(new Error("The response was lost."));
      },
    });
    await a.start();
    await clock.advance(5_000);
    expect(a.holding()).toHaveLength(9);
    expect(tables.sources.get("s0")).toMatchObject({ epoch: 2, holder: "a", reason: "lease-ran-out" });
  });
});

describe("a source of the fleet", () => {
  test("a source is left to other members after a failed start, and is retried after growing waits", async () => {
    const { clock, tables } = startNewFleet(["one", "two"]);
    const a = fleet.member("a");
    a.does.startFails = new Error("no way to it from here");
    await a.start();
    await clock.advance(100);
    expect(a.leases).toHaveLength(2);
    expect(a.fleet.notices()).toEqual([
      "The source one could not be started here, and is left to other members: no way to it from here",
      "The source two could not be started here, and is left to other members: no way to it from here",
      "No member polls one, two: every member is drained, is stopping or could not start them.",
    ]);
    expect(tables.members.get("a")?.unable).toBe('["one","two"]');
    expect([...tables.sources.values()].map(({ holder, reason }) => [holder, reason])).toEqual([
      [null, "could-not-start"],
      [null, "could-not-start"],
    ]);
    await clock.advance(9_000);
    expect(a.leases).toHaveLength(2);
    await clock.advance(1_500);
    expect(a.leases).toHaveLength(4);
    await clock.advance(19_000);
    expect(a.leases).toHaveLength(4);
    a.does.startFails = null;
    await clock.advance(2_000);
    expect([a.holding(), a.fleet.notices()]).toEqual([["one", "two"], []]);
    expect(tables.members.get("a")?.unable).toBe("[]");
    expect(a.stops).toEqual([]);
  });

  test("a source is stopped right after a slow start when the lease expired during the start", async () => {
    const { clock } = startNewFleet(["one"]);
    const a = fleet.member("a");
    a.does.startMs = 60_000;
    await a.start();
    await clock.advance(500);
    expect(a.leases).toHaveLength(1);
    a.link.state = "stalls";
    await clock.advance(20_000);
    expect([a.leases[0]?.signal.aborted, a.stops]).toEqual([true, []]);
    await clock.advance(60_000);
    expect(a.stops).toEqual([["one", 0]]);
    expect(a.holding()).toEqual([]);
    a.link.state = "well";
    a.does.startMs = 0;
    await clock.advance(15_000);
    expect(a.holding()).toEqual(["one"]);
  });

  test("a source has its start aborted at a handover, and starts on the new holder only after that start has ended", async () => {
    const { clock } = startNewFleet(["one", "two"]);
    const a = fleet.member("a");
    a.does.startMs = 3_000;
    await a.start();
    await clock.advance(100);
    const b = fleet.member("b");
    await b.start();
    await clock.advance(100);
    const handed = a.leases.find(({ signal }) => signal.aborted);
    expect([a.leases.length, handed === undefined]).toEqual([2, false]);
    expect(b.holding()).toEqual([]);
    await clock.advance(3_000);
    expect(b.holding()).toEqual([handed?.source]);
    expect(a.stops).toEqual([[handed?.source, 2_200]]);
  });

  test("a source starts on the next member even if the first member stops it late or with an error", async () => {
    const { clock } = startNewFleet(["one", "two"]);
    const [a] = await started("a");
    a.does.stopMs = 1e9;
    const b = fleet.member("b");
    await b.start();
    await clock.advance(5_300);
    expect(b.holding()).toEqual([]);
    await clock.advance(300);
    expect(b.holding()).toHaveLength(1);
    a.does.stopMs = 0;
    a.does.stopFails = new Error("unclean");
    const warnings = a.warnings();
    await a.stop();
    expect(a.warnings()).toBeGreaterThan(warnings);
    await clock.advance(100);
    expect(b.holding()).toEqual(["one", "two"]);
  });

  test("a source is stopped when its member stops, also without the database", async () => {
    const { clock } = startNewFleet();
    const [a] = await started("a");
    a.link.state = "stalls";
    const fromMs = clock.monotonic();
    await a.stop(1_000);
    expect(clock.sleepers()).toBe(0);
    const tookMs = clock.monotonic() - fromMs;
    // One second to sign off, and three for the response to the current renewal.
    expect(tookMs).toBeGreaterThan(2_900);
    expect(tookMs).toBeLessThan(6_100);
    expect([a.stops.length, a.holding()]).toEqual([9, []]);
    await clock.advance(600_000);
    expect(clock.sleepers()).toBe(0);
  });
});
