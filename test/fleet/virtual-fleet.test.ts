import { afterEach, describe, expect, test } from "vitest";
import { errorText } from "#src/core/errors/errors.ts";
import { readFleetStatus, setDraining } from "#src/scale/fleet/fleet-status.ts";
import { counts, endVirtualFleet, fleet, SOURCES, started, startNewFleet, takeoversByReason } from "./virtual-fleet.ts";

afterEach(async () => expect(await endVirtualFleet()).toEqual([]));

describe("members of a fleet", () => {
  test("members of a fleet share sources evenly, hand over at a stop, and leave no listener or timer behind", async () => {
    const { clock, tables } = startNewFleet();
    const [a, b] = await started("a", "b");
    expect(counts(a, b)).toEqual([5, 4]);
    expect([takeoversByReason().first?.length, takeoversByReason().joined?.length]).toEqual([9, 4]);
    expect(a.stops.map(([, deadlineMs]) => deadlineMs)).toEqual([5_000, 5_000, 5_000, 5_000]);
    const [c] = await started("c");
    expect(counts(a, b, c)).toEqual([3, 3, 3]);
    expect((await c.metrics.fleetMembers.get()).values[0]?.value).toBe(3);
    await clock.advance(1_000);
    expect((await c.metrics.fleetSources.get()).values[0]?.value).toBe(3);
    const renewedS = (await c.metrics.fleetRenewed.get()).values[0]?.value ?? 0;
    expect(Math.abs(clock.now() / 1_000 - renewedS - 1.5)).toBeLessThanOrEqual(1.6);
    const stopped = clock.monotonic();
    await b.stop(700);
    expect(clock.monotonic() - stopped).toBeLessThan(300);
    expect(b.stops.map(([, deadlineMs]) => deadlineMs)).toEqual([5_000, 700, 700, 700]);
    expect(tables.members.get("b")).toMatchObject({ gone: "left", leaving: false });
    await clock.advance(100);
    expect([...counts(a, c).toSorted(), takeoversByReason().left?.length]).toEqual([4, 5, 3]);
    await a.stop();
    await c.stop();
    expect([...tables.sources.values()].filter(({ holder }) => holder !== null)).toEqual([]);
    await clock.advance(600_000);
    expect([clock.sleepers(), tables.listeners()]).toEqual([0, 0]);
  });

  test("members of a fleet hand over the next source once the previous source has been taken", async () => {
    const { clock } = startNewFleet();
    const [a] = await started("a");
    a.does.stopMs = 2_000;
    const b = fleet.member("b");
    await b.start();
    for (const given of [1, 2, 3, 4]) {
      await clock.advance(500);
      await b.link.database.transact([b.link.database.notify("fleet")]);
      await clock.advance(500);
      expect([a.stops.length, b.holding().length]).toEqual([given, given - 1]);
      await clock.advance(1_000);
    }
    await clock.advance(100);
    expect([...counts(a, b), a.stops.length]).toEqual([5, 4, 4]);
    expect(a.warnings()).toBeLessThan(30);
  });

  test("members of a fleet start at most eight sources at the same time", async () => {
    const { clock } = startNewFleet(Array.from({ length: 20 }, (_, n) => `s${String(n).padStart(2, "0")}`));
    const a = fleet.member("a");
    a.does.startMs = 1_000;
    await a.start();
    const begun: number[] = [];
    for (let n = 0; n < 4; n += 1) {
      begun.push(a.leases.length);
      await clock.advance(1_000);
    }
    expect(begun).toEqual([8, 16, 20, 20]);
    expect(a.holding()).toHaveLength(20);
  });

  test("members of a fleet read the fleet tables every 30 s when they receive no notifications", async () => {
    const { clock } = startNewFleet();
    const [a] = await started("a");
    a.link.hears = false;
    const requests = a.link.requests;
    const b = fleet.member("b");
    await b.start();
    await clock.advance(28_000);
    // Nine renewals, and one look at the heartbeats every second.
    expect([a.link.requests - requests, a.holding().length]).toEqual([9 + 28, 9]);
    await clock.advance(2_000);
    expect(a.stops.length).toBeGreaterThan(0);
  });

  test("members of a fleet drain on request, also across a restart, and receive sources again afterwards", async () => {
    const { clock } = startNewFleet();
    const [a, b] = await started("a", "b");
    await setDraining(b.link.database, "a", true);
    await clock.advance(100);
    expect(counts(a, b)).toEqual([0, 9]);
    expect([takeoversByReason().drained?.length, takeoversByReason().joined?.length]).toEqual([5, 4]);
    const notice = "This member is drained and takes no source; plenum fleet undrain a ends that.";
    expect([a.fleet.notices(), b.fleet.notices()]).toEqual([[notice], []]);
    await a.stop();
    const [again] = await started("a");
    expect([again.fleet.notices(), again.holding()]).toEqual([[notice], []]);
    await b.stop();
    await clock.advance(100);
    expect(again.holding()).toEqual([]);
    expect(again.fleet.notices()).toEqual([
      notice,
      `No member polls ${SOURCES.join(", ")}: every member is drained, is stopping or could not start them.`,
    ]);
    await setDraining(b.link.database, "a", false);
    await clock.advance(100);
    expect([again.holding().length, again.fleet.notices()]).toEqual([9, []]);
    const refused = await setDraining(b.link.database, "c", true).catch(errorText);
    expect(refused).toBe("The fleet has no member with the name c. Use one of: a, b.");
  });
});

describe("a registration", () => {
  test("a registration is rejected for a second member with the name of a member that has renewed its lease", async () => {
    const { clock } = startNewFleet();
    const [a] = await started("a");
    const second = fleet.member("a");
    const fromMs = clock.monotonic();
    expect(errorText(await second.refused())).toMatch(/^Another member with the name a runs in this fleet already/);
    expect(clock.monotonic() - fromMs).toBeLessThan(4_200);
    expect(second.link.requests).toBeLessThanOrEqual(20);
    expect(a.holding()).toHaveLength(9);
  });

  test("a registration is accepted for a restarted member once the lease of the killed process has expired", async () => {
    const { clock } = startNewFleet();
    const [a] = await started("a");
    a.link.state = "stalls";
    const killed = a.stop(0);
    const again = fleet.member("a");
    await again.start();
    await killed;
    await clock.advance(100);
    expect(again.holding()).toHaveLength(9);
  });

  test("a registration succeeds once a database that was unavailable at the start responds", async () => {
    const { clock } = startNewFleet();
    const a = fleet.member("a");
    a.link.state = "fails";
    await a.start();
    expect(a.fleet.notices()).toHaveLength(1);
    await clock.advance(5_000);
    a.link.state = "well";
    await clock.advance(1_100);
    expect([a.fleet.notices(), a.holding().length]).toEqual([[], 9]);
  });

  test("a registration reports that another member has taken the name in the meantime", async () => {
    const { clock, tables } = startNewFleet();
    const [a] = await started("a");
    Object.assign(tables.members.get("a") ?? {}, { incarnation: "other" });
    for (let n = 0; n < 50; n += 1) {
      await clock.advance(200);
      const member = tables.members.get("a");
      if (member !== undefined) member.renewals += 1;
    }
    expect(a.fleet.notices()[0]).toMatch(/^Another member with the name a runs in this fleet already/);
    expect(a.holding()).toEqual([]);
  });
});

test("the fleet status contains holders of sources, and members that are leaving, draining or lost", async () => {
  const { clock, tables } = startNewFleet();
  const [a, b] = await started("a", "b");
  const status = await a.fleet.status();
  expect(status).toMatchObject({ self: "a", trouble: null, database: { name: "in memory", doubts: [] } });
  expect(status.members).toMatchObject([
    { name: "a", state: "alive", sources: 5, page: "http://a.example:9850", unable: [] },
    { name: "b", state: "alive", sources: 4, digest: "0123456789abcdef" },
  ]);
  expect(status.sources.find(({ holder }) => holder === "b")).toMatchObject({ epoch: 2, reason: "joined" });
  expect(status.takeovers[0]).toMatchObject({ from: "a", to: "b", epoch: 2, reason: "joined" });
  const seen = await readFleetStatus(a.link.database);
  expect([seen.self, seen.sources.length]).toEqual([null, 9]);

  const stateOf = async (change: object) => {
    const row = tables.members.get("b");
    const before = { ...row };
    Object.assign(row ?? {}, change);
    const { members, sources } = await readFleetStatus(a.link.database);
    Object.assign(row ?? {}, before);
    return [members[1]?.state, sources.filter(({ holder }) => holder === "b").length];
  };
  expect(await stateOf({ draining: true })).toEqual(["draining", 4]);
  expect(await stateOf({ draining: true, leaving: true })).toEqual(["leaving", 4]);
  expect(await stateOf({ seenMs: clock.now() - 9_000 })).toEqual(["lost", 4]);
  expect(await stateOf({ seenMs: clock.now() - 8_999 })).toEqual(["alive", 4]);
  expect(await stateOf({ gone: "left" })).toEqual(["left", 0]);
  expect((await readFleetStatus(a.link.database)).sources.every(({ since }) => since !== null)).toBe(true);
  await a.stop();
  await b.stop();
  const { sources } = await readFleetStatus(a.link.database);
  expect(sources[0]).toEqual({ source: "s0", holder: null, epoch: sources[0]?.epoch, since: null, reason: null });
});
