import { describe, expect, test } from "vitest";
import { createHarness, sampleAlarm } from "./receiver-harness.ts";
import { createStub } from "./receiver-stub.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

async function minutesUntilSent(harness: ReturnType<typeof createHarness>): Promise<number | null> {
  for (let minutes = 0; minutes <= 1_440; minutes += 1) {
    if (harness.stub.incidents.length > 0) return minutes;
    await harness.passTime(MINUTE, MINUTE);
  }
  return null;
}

const alarmAhead = (aheadMin: number) => sampleAlarm(1, { at: aheadMin });

describe.each([-60, 0, 60])("a receiver with hold: 5m and a service whose clock is %i min ahead", (aheadMin) => {
  test("gets an alarm 5 min after the worker received the event", async () => {
    const harness = createHarness(undefined, { hold: "5m" });
    await harness.offer(alarmAhead(aheadMin).raised());
    expect(await minutesUntilSent(harness)).toBe(5);
  });

  test("gets an already ended alarm only if it lasted longer than hold by the service's clock", async () => {
    for (const [lasted, things] of [
      [4, 0],
      [6, 1],
    ] as const) {
      const harness = createHarness(undefined, { hold: "5m" });
      await harness.offer(alarmAhead(aheadMin).raised());
      await harness.passTime(lasted * MINUTE);
      await harness.offer(alarmAhead(aheadMin).resolved(aheadMin + lasted));
      expect(harness.stub.incidents).toHaveLength(things);
    }
  });
});

describe("the time from which a receiver waits before it sends an alarm", () => {
  test("is ignored for an ended alarm that began in the future and has no end time, so the alarm is sent", async () => {
    const harness = createHarness(undefined, { hold: "5m" });
    await harness.offer(alarmAhead(60).raised());
    await harness.clock.advance(10 * MINUTE);
    await harness.offer(alarmAhead(60).resolved(10, { resolvedAt: null }));
    expect(harness.stub.incidents).toHaveLength(1);
  });

  test.each([
    ["the commit time of the event when the sink receives the event late", 3 * MINUTE, 2],
    ["the current time when the commit time is in the future", -HOUR, 5],
  ])("is %s", async (_, committedAgoMs, minutes) => {
    const harness = createHarness(undefined, { hold: "5m" });
    await harness.offerLate(sampleAlarm(1).raised(), committedAgoMs);
    expect(await minutesUntilSent(harness)).toBe(minutes);
  });

  test.each([
    ["the alarm's beginning when the event comes from a first poll", sampleAlarm(1).raised(true), 2],
    ["the alarm's beginning in a state snapshot", { ...sampleAlarm(1).raised(), snapshot: true as const }, 2],
    ["the current time when the first poll shows a beginning in the future", alarmAhead(60).raised(true), 5],
  ])("is %s", async (_, event, minutes) => {
    const harness = createHarness(undefined, { hold: "5m", initial: true });
    await harness.clock.advance(3 * MINUTE);
    await harness.offer(event);
    expect(await minutesUntilSent(harness)).toBe(minutes);
  });
});

describe("a wall clock that is set back by a day", () => {
  test("does not make an alarm wait longer than its hold period", async () => {
    const harness = createHarness(undefined, { hold: "5m" });
    await harness.offer(sampleAlarm(1).raised());
    await harness.passTime(3 * MINUTE);
    harness.clock.stepWall(-24 * HOUR);
    expect(await minutesUntilSent(harness)).toBe(2);
  });

  test("restarts the hold period at the first restart of the worker, and not at the next one", async () => {
    const harness = createHarness(undefined, { hold: "5m" });
    await harness.offer(sampleAlarm(1).raised());
    harness.clock.stepWall(-24 * HOUR);
    harness.restart();
    await harness.open();
    await harness.passTime(3 * MINUTE);
    harness.restart();
    expect(await minutesUntilSent(harness)).toBe(2);
  });

  test("does not stop updates of the message that lists all alarms of a storm, also after a restart", async () => {
    const harness = createHarness(undefined, { fold: { storm: { openings: 2, within: "5m" } } });
    await harness.offer(...[1, 2, 3].map((n) => sampleAlarm(n).raised()));
    harness.clock.stepWall(-24 * HOUR);
    harness.restart();
    await harness.open();
    await harness.offer(sampleAlarm(4).raised());
    await harness.passTime(MINUTE);
    expect(harness.stub.calls.at(-1)).toMatch(/^update active 2 alarms/);
  });

  test("does not combine a new alarm with alarms from ten minutes earlier into a storm", async () => {
    const harness = createHarness(undefined, { fold: { storm: { openings: 2, within: "5m" } } });
    await harness.offer(...[1, 2].map((n) => sampleAlarm(n).raised()));
    await harness.passTime(10 * MINUTE);
    harness.clock.stepWall(-24 * HOUR);
    await harness.offer(sampleAlarm(3).raised());
    expect(harness.stub.calls.at(-1)).toBe("open active Alarm 3, Building 1");
  });

  test.each([false, true])("does not stop the resending of incidents (worker restarted: %s)", async (isRestarted) => {
    const harness = createHarness(createStub("same", { resendIntervalMs: MINUTE }));
    await harness.offer(sampleAlarm(1).raised());
    harness.clock.stepWall(-24 * HOUR);
    if (isRestarted) harness.restart();
    await harness.open();
    await harness.passTime(5 * MINUTE);
    expect(harness.stub.calls).toHaveLength(6);
  });

  test("does not stop the search for an incident whose opening is unverified, also after a restart", async () => {
    const harness = createHarness();
    const { find } = harness.stub;
    let isSearched = false;
    harness.stub.find = async (message, sinceMs, signal) => {
      if (isSearched && find !== undefined) return find(message, sinceMs, signal);
      isSearched = true;
      return { retryInMs: MINUTE };
    };
    await harness.offerUnanswered(sampleAlarm(1).raised());
    await harness.reoffer([sampleAlarm(1).raised()]);
    harness.clock.stepWall(-24 * HOUR);
    harness.restart();
    await harness.open();
    await harness.passTime(2 * MINUTE);
    await harness.offer(sampleAlarm(1).resolved(5));
    expect(harness.stub.incidents.map(({ isOpen }) => isOpen)).toEqual([false]);
  });
});
