import { describe, expect, test } from "vitest";
import { createHarness, sampleAlarm } from "./receiver-harness.ts";
import { createReceiverStub } from "./receiver-stub.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

async function minutesUntilSent(sinkTest: ReturnType<typeof createHarness>): Promise<number | null> {
  for (let minutes = 0; minutes <= 1_440; minutes += 1) {
    if (sinkTest.stub.incidents.length > 0) return minutes;
    await sinkTest.passTime(MINUTE, MINUTE);
  }
  return null;
}

const alarmAhead = (aheadMin: number) => sampleAlarm(1, { at: aheadMin });

describe.each([-60, 0, 60])("a receiver with hold: 5m and a service whose clock is %i min ahead", (aheadMin) => {
  test("gets an alarm 5 min after the worker received the event", async () => {
    const sinkTest = createHarness(undefined, { hold: "5m" });
    await sinkTest.offer(alarmAhead(aheadMin).raised());
    expect(await minutesUntilSent(sinkTest)).toBe(5);
  });

  test("gets an already ended alarm only if it lasted longer than hold by the service's clock", async () => {
    for (const [lasted, things] of [
      [4, 0],
      [6, 1],
    ] as const) {
      const sinkTest = createHarness(undefined, { hold: "5m" });
      await sinkTest.offer(alarmAhead(aheadMin).raised());
      await sinkTest.passTime(lasted * MINUTE);
      await sinkTest.offer(alarmAhead(aheadMin).resolved(aheadMin + lasted));
      expect(sinkTest.stub.incidents).toHaveLength(things);
    }
  });
});

describe("the time from which a receiver waits before it sends an alarm", () => {
  test("is ignored for an ended alarm that began in the future and has no end time, so the alarm is sent", async () => {
    const sinkTest = createHarness(undefined, { hold: "5m" });
    await sinkTest.offer(alarmAhead(60).raised());
    await sinkTest.clock.advance(10 * MINUTE);
    await sinkTest.offer(alarmAhead(60).resolved(10, { resolvedAt: null }));
    expect(sinkTest.stub.incidents).toHaveLength(1);
  });

  test.each([
    ["the commit time of the event when the sink receives the event late", 3 * MINUTE, 2],
    ["the current time when the commit time is in the future", -HOUR, 5],
  ])("is %s", async (_, committedAgoMs, minutes) => {
    const sinkTest = createHarness(undefined, { hold: "5m" });
    await sinkTest.offerLate(sampleAlarm(1).raised(), committedAgoMs);
    expect(await minutesUntilSent(sinkTest)).toBe(minutes);
  });

  test.each([
    ["the alarm's beginning when the event comes from a first poll", sampleAlarm(1).raised(true), 2],
    ["the alarm's beginning in a state snapshot", { ...sampleAlarm(1).raised(), snapshot: true as const }, 2],
    ["the current time when the first poll shows a beginning in the future", alarmAhead(60).raised(true), 5],
  ])("is %s", async (_, event, minutes) => {
    const sinkTest = createHarness(undefined, { hold: "5m", initial: true });
    await sinkTest.clock.advance(3 * MINUTE);
    await sinkTest.offer(event);
    expect(await minutesUntilSent(sinkTest)).toBe(minutes);
  });
});

describe("a wall clock that is set back by a day", () => {
  test("does not make an alarm wait longer than its hold period", async () => {
    const sinkTest = createHarness(undefined, { hold: "5m" });
    await sinkTest.offer(sampleAlarm(1).raised());
    await sinkTest.passTime(3 * MINUTE);
    sinkTest.clock.stepWall(-24 * HOUR);
    expect(await minutesUntilSent(sinkTest)).toBe(2);
  });

  test("restarts the hold period at the first restart of the worker, and not at the next one", async () => {
    const sinkTest = createHarness(undefined, { hold: "5m" });
    await sinkTest.offer(sampleAlarm(1).raised());
    sinkTest.clock.stepWall(-24 * HOUR);
    sinkTest.restart();
    await sinkTest.open();
    await sinkTest.passTime(3 * MINUTE);
    sinkTest.restart();
    expect(await minutesUntilSent(sinkTest)).toBe(2);
  });

  test("does not stop updates of a storm's list, also after a restart", async () => {
    const sinkTest = createHarness(undefined, { fold: { storm: { openings: 2, within: "5m" } } });
    await sinkTest.offer(...[1, 2, 3].map((n) => sampleAlarm(n).raised()));
    sinkTest.clock.stepWall(-24 * HOUR);
    sinkTest.restart();
    await sinkTest.open();
    await sinkTest.offer(sampleAlarm(4).raised());
    await sinkTest.passTime(MINUTE);
    expect(sinkTest.stub.calls.at(-1)).toMatch(/^update active 2 alarms/);
  });

  test("does not combine a new alarm with alarms from ten minutes earlier into a storm", async () => {
    const sinkTest = createHarness(undefined, { fold: { storm: { openings: 2, within: "5m" } } });
    await sinkTest.offer(...[1, 2].map((n) => sampleAlarm(n).raised()));
    await sinkTest.passTime(10 * MINUTE);
    sinkTest.clock.stepWall(-24 * HOUR);
    await sinkTest.offer(sampleAlarm(3).raised());
    expect(sinkTest.stub.calls.at(-1)).toBe("open active Alarm 3, Building 1");
  });

  test.each([false, true])("does not stop the resending of incidents (worker restarted: %s)", async (isRestarted) => {
    const sinkTest = createHarness(createReceiverStub("same", { resendIntervalMs: MINUTE }));
    await sinkTest.offer(sampleAlarm(1).raised());
    sinkTest.clock.stepWall(-24 * HOUR);
    if (isRestarted) sinkTest.restart();
    await sinkTest.open();
    await sinkTest.passTime(5 * MINUTE);
    expect(sinkTest.stub.calls).toHaveLength(6);
  });

  test("does not stop the search for an incident whose opening is unverified, also after a restart", async () => {
    const sinkTest = createHarness();
    const { find } = sinkTest.stub;
    let isSearched = false;
    sinkTest.stub.find = async (message, sinceMs, signal) => {
      if (isSearched && find !== undefined) return find(message, sinceMs, signal);
      isSearched = true;
      return { retryInMs: MINUTE };
    };
    await sinkTest.offerUnanswered(sampleAlarm(1).raised());
    await sinkTest.reoffer([sampleAlarm(1).raised()]);
    sinkTest.clock.stepWall(-24 * HOUR);
    sinkTest.restart();
    await sinkTest.open();
    await sinkTest.passTime(2 * MINUTE);
    await sinkTest.offer(sampleAlarm(1).resolved(5));
    expect(sinkTest.stub.incidents.map(({ isOpen }) => isOpen)).toEqual([false]);
  });
});
