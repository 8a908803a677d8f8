import { afterEach, describe, expect, test } from "vitest";
import {
  counts,
  endVirtualFleet,
  fleet,
  started,
  startNewFleet,
  takeoversByReason,
  type VirtualMember,
} from "./virtual-fleet.ts";

afterEach(async () => expect(await endVirtualFleet()).toEqual([]));

type Polls = (member: VirtualMember, source: string) => boolean;

const asChecked: Polls = (member, source) => member.network.reaches(source);

/** Polls each held source every 3 s and reports to its lease whether the service answered. */
async function live(seconds: number, members: readonly VirtualMember[], polls: Polls = asChecked) {
  for (let n = 0; n < seconds; n += 1) {
    if (n % 3 === 0)
      for (const member of members)
        for (const lease of member.leases) if (lease.remainingMs() > 0) lease.noteReached(polls(member, lease.source));
    await fleet.clock.advance(1_000);
  }
}

const takeoversOf = (source: string) => fleet.tables.takeovers.filter(([of, from]) => of === source && from !== null);

describe("a member that cannot reach the services", () => {
  test("a member that cannot reach the services hands over one source, then all, and regains some after recovery", async () => {
    startNewFleet();
    const members = await started("a", "b", "c");
    const [a, b, c] = members;
    await live(6, members);
    expect([counts(a, b, c), a.network.checks]).toEqual([[3, 3, 3], 0]);
    a.network.reaches = () => false;
    await live(1, members);
    expect(counts(a, b, c)).toEqual([3, 3, 3]);
    await live(2, members);
    expect(counts(a, b, c).toSorted()).toEqual([2, 3, 4]);
    await live(9, members);
    expect([a.holding().length, ...counts(b, c).toSorted()]).toEqual([0, 4, 5]);
    expect(takeoversByReason().unreachable?.length).toBe(3);
    expect(a.stops.slice(-3).map(([, deadlineMs]) => deadlineMs)).toEqual([1_000, 1_000, 1_000]);
    expect(a.fleet.notices().join()).toContain("This member does not reach the services of ");
    await live(120, members);
    expect([a.holding().length, fleet.tables.takeovers.length]).toEqual([0, 9 + 4 + 3 + 3]);
    a.network.reaches = () => true;
    await live(70, members);
    expect(counts(a, b, c)).toEqual([3, 3, 3]);
    expect(a.fleet.notices()).toEqual([]);
  });

  test("a member that cannot reach the services keeps a source whose service no member can reach", async () => {
    startNewFleet();
    const members = await started("a", "b", "c");
    const [a] = members;
    const before = fleet.tables.takeovers.length;
    const away = a.holding()[0] ?? "";
    for (const { network } of members) network.reaches = (source) => source !== away;
    await live(600, members);
    expect(fleet.tables.takeovers.length).toBe(before);
    expect(a.fleet.notices()).toEqual([]);
    expect(members.map(({ network }) => network.checks > 25)).toEqual([false, false, false]);
  });

  test("a member that cannot reach the services repeats failed handovers of a source after growing waits", async () => {
    startNewFleet();
    const members = await started("a", "b", "c");
    const source = members[0]?.holding()[0] ?? "";
    await live(3_600, members, (_, of) => of !== source);
    const times = takeoversOf(source).map(([, , , , at]) => Date.parse(at));
    const waits = times.slice(1).map((at, n) => (at - (times[n] ?? 0)) / 1_000);
    expect(times.length, waits.join()).toBeGreaterThan(2);
    expect(times.length, waits.join()).toBeLessThan(25);
    const lateHalf = times.filter((at) => at > fleet.clock.now() - 1_800_000);
    expect(lateHalf.length, waits.join()).toBeLessThan(times.length / 2);
  });

  test("a member that cannot reach the services takes no source, except when it is the only member", async () => {
    startNewFleet();
    const members = await started("a", "b", "c");
    const [a, b, c] = members;
    a.network.reaches = () => false;
    await live(30, members);
    expect(a.holding()).toEqual([]);
    await b.stop();
    await live(10, [a, c]);
    expect(counts(a, c)).toEqual([0, 9]);
    await c.stop();
    await live(10, [a]);
    expect(a.holding()).toHaveLength(9);
  });

  test("a member ignores a single failed request that no health check confirms", async () => {
    startNewFleet();
    const members = await started("a", "b");
    const before = fleet.tables.takeovers.length;
    let failures = 0;
    await live(60, members, (member, source) => {
      const fails = member === members[0] && source === member.holding()[0] && failures++ % 2 === 0;
      return !fails;
    });
    expect([fleet.tables.takeovers.length, failures > 5]).toEqual([before, true]);
  });
});
