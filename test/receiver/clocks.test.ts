import { describe, expect, test } from "vitest";
import { failAfter, noticeBoard } from "./notice-board.ts";
import { alarm, receiving } from "./trial.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

async function toldAfter(trial: ReturnType<typeof receiving>): Promise<number | null> {
  for (let minutes = 0; minutes <= 1_440; minutes += 1) {
    if (trial.board.notes.length > 0) return minutes;
    await trial.pass(MINUTE, MINUTE);
  }
  return null;
}

const begun = (aheadMin: number) => alarm(1, { at: aheadMin });

describe.each([-60, 0, 60])("a service whose clock is %i min ahead", (aheadMin) => {
  test("sends an alarm when the option hold has passed since its receipt", async () => {
    const trial = receiving(undefined, { hold: "5m" });
    await trial.offer(begun(aheadMin).raised());
    expect(await toldAfter(trial)).toBe(5);
  });

  test("sends an ended alarm only when it lasted for the option hold by the service's clock", async () => {
    for (const [lasted, things] of [
      [4, 0],
      [6, 1],
    ] as const) {
      const trial = receiving(undefined, { hold: "5m" });
      await trial.offer(begun(aheadMin).raised());
      await trial.pass(lasted * MINUTE);
      await trial.offer(begun(aheadMin).resolved(aheadMin + lasted));
      expect(trial.board.notes).toHaveLength(things);
    }
  });

  test("sends an alarm whose end has no time if no option delays the alarm", async () => {
    const trial = receiving();
    await trial.offer(begun(aheadMin).raised(), begun(aheadMin).resolved(2, { resolvedAt: null }));
    expect(trial.board.said.at(-1)).toBe("close resolved Alarm 1, Building 1");
  });
});

describe("the start of the option hold of a receiver", () => {
  test("sends an alarm whose end has no time and seems to precede its beginning by the local clock", async () => {
    const trial = receiving(undefined, { hold: "5m" });
    await trial.offer(begun(60).raised());
    await trial.clock.advance(10 * MINUTE);
    await trial.offer(begun(60).resolved(10, { resolvedAt: null }));
    expect(trial.board.notes).toHaveLength(1);
  });

  test.each([
    ["the commit when the sink receives the event late", 3 * MINUTE, 2],
    ["now when the commit time is in the future", -HOUR, 5],
  ])("is %s", async (_, committedAgoMs, minutes) => {
    const trial = receiving(undefined, { hold: "5m" });
    await trial.offerLate(alarm(1).raised(), committedAgoMs);
    expect(await toldAfter(trial)).toBe(minutes);
  });

  test.each([
    ["the alarm's beginning when the event comes from a first poll", alarm(1).raised(true), 2],
    ["the alarm's beginning in a state snapshot", { ...alarm(1).raised(), snapshot: true as const }, 2],
    ["now when the first poll shows a beginning in the future", begun(60).raised(true), 5],
  ])("is %s", async (_, event, minutes) => {
    const trial = receiving(undefined, { hold: "5m", initial: true });
    await trial.clock.advance(3 * MINUTE);
    await trial.offer(event);
    expect(await toldAfter(trial)).toBe(minutes);
  });
});

describe("a wall clock that is set back by a day", () => {
  test("does not prolong the option hold for an alarm", async () => {
    const trial = receiving(undefined, { hold: "5m" });
    await trial.offer(alarm(1).raised());
    await trial.pass(3 * MINUTE);
    trial.clock.stepWall(-24 * HOUR);
    expect(await toldAfter(trial)).toBe(2);
  });

  test("restarts the option hold with the first restart of the worker and keeps that start at the next", async () => {
    const trial = receiving(undefined, { hold: "5m" });
    await trial.offer(alarm(1).raised());
    trial.clock.stepWall(-24 * HOUR);
    trial.restart();
    await trial.open();
    await trial.pass(3 * MINUTE);
    trial.restart();
    expect(await toldAfter(trial)).toBe(2);
  });

  test("does not stop updates of a storm's list, also after a restart", async () => {
    const trial = receiving(undefined, { fold: { storm: { openings: 2, within: "5m" } } });
    await trial.offer(...[1, 2, 3].map((n) => alarm(n).raised()));
    trial.clock.stepWall(-24 * HOUR);
    trial.restart();
    await trial.open();
    await trial.offer(alarm(4).raised());
    await trial.pass(MINUTE);
    expect(trial.board.said.at(-1)).toMatch(/^update active 2 alarms/);
  });

  test("does not combine a new alarm with alarms of ten minutes ago into a storm", async () => {
    const trial = receiving(undefined, { fold: { storm: { openings: 2, within: "5m" } } });
    await trial.offer(...[1, 2].map((n) => alarm(n).raised()));
    await trial.pass(10 * MINUTE);
    trial.clock.stepWall(-24 * HOUR);
    await trial.offer(alarm(3).raised());
    expect(trial.board.said.at(-1)).toBe("open active Alarm 3, Building 1");
  });

  test.each([false, true])("does not stop the repetition of incidents (worker restarted: %s)", async (isRestarted) => {
    const trial = receiving(noticeBoard("same", { repeatMs: MINUTE }));
    await trial.offer(alarm(1).raised());
    trial.clock.stepWall(-24 * HOUR);
    if (isRestarted) trial.restart();
    await trial.open();
    await trial.pass(5 * MINUTE);
    expect(trial.board.said).toHaveLength(6);
  });

  test("does not stop the search for an unverified opening, also after a restart", async () => {
    const trial = receiving();
    const { find } = trial.board;
    let isSearched = false;
    trial.board.find = async (told, sinceMs, signal) => {
      if (isSearched && find !== undefined) return find(told, sinceMs, signal);
      isSearched = true;
      return { againInMs: MINUTE };
    };
    trial.board.trouble = failAfter(new Error("The answer was lost."));
    await expect(trial.offer(alarm(1).raised())).rejects.toThrow("lost");
    trial.board.trouble = () => undefined;
    await trial.offerAgain([alarm(1).raised()]);
    trial.clock.stepWall(-24 * HOUR);
    trial.restart();
    await trial.open();
    await trial.pass(2 * MINUTE);
    await trial.offer(alarm(1).resolved(5));
    expect(trial.board.notes.map(({ isOpen }) => isOpen)).toEqual([false]);
  });
});
