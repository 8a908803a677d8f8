import { describe, expect, test } from "vitest";
import { noticeBoard } from "./notice-board.ts";
import { alarm, receiving } from "./trial.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

/** After how many minutes of measured time it is told; null where not within a day. */
async function toldAfter(trial: ReturnType<typeof receiving>): Promise<number | null> {
  for (let minutes = 0; minutes <= 1_440; minutes += 1) {
    if (trial.board.notes.length > 0) return minutes;
    await trial.pass(MINUTE, MINUTE);
  }
  return null;
}

/** An alarm that begins now by the service's clock, which is so many minutes ahead of ours (or behind it). */
const begun = (aheadMin: number) => alarm(1, { at: aheadMin });

describe.each([-60, -1, 0, 1, 60])("the service's clock is %i min ahead of ours", (aheadMin) => {
  test.each(["same", "findable", "another"] as const)("an alarm is told at once (%s)", async (sort) => {
    const trial = receiving(noticeBoard(sort));
    await trial.offer(begun(aheadMin).raised());
    expect(trial.board.said).toEqual(["open active Alarm 1, Building 1"]);
  });

  test("and with `hold` when it has lasted for that since it was met", async () => {
    const trial = receiving(undefined, { hold: "5m" });
    await trial.offer(begun(aheadMin).raised());
    expect(await toldAfter(trial)).toBe(5);
  });

  test("one that ended within `hold` by the service's clock is not told, and one that lasted is", async () => {
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

  test("one whose end has no time of the service's is told where nothing holds it back", async () => {
    const trial = receiving();
    await trial.offer(begun(aheadMin).raised(), begun(aheadMin).resolved(2, { resolvedAt: null }));
    expect(trial.board.said.at(-1)).toBe("close resolved Alarm 1, Building 1");
  });
});

describe("since when `hold` is counted", () => {
  test("one that ends without a time, by our clock before it began, may have lasted", async () => {
    const trial = receiving(undefined, { hold: "5m" });
    await trial.offer(begun(60).raised());
    await trial.clock.advance(10 * MINUTE);
    await trial.offer(begun(60).resolved(10, { resolvedAt: null }));
    expect(trial.board.notes).toHaveLength(1);
  });

  test("of one that was met when the worker was back", async () => {
    const trial = receiving(undefined, { hold: "5m" });
    await trial.clock.advance(3 * HOUR);
    await trial.offer(alarm(1).raised());
    expect(await toldAfter(trial)).toBe(5);
  });

  test("of one that the worker knew before the sink heard of it", async () => {
    const trial = receiving(undefined, { hold: "5m" });
    await trial.offerLate(alarm(1).raised(), 3 * MINUTE);
    expect(await toldAfter(trial)).toBe(2);
  });

  test("a time of the commit that is ahead of now keeps nothing back", async () => {
    const trial = receiving(undefined, { hold: "5m" });
    await trial.offerLate(alarm(1).raised(), -HOUR);
    expect(await toldAfter(trial)).toBe(5);
  });

  test.each([
    ["a first look", alarm(1).raised(true)],
    ["the state", { ...alarm(1).raised(), snapshot: true as const }],
  ])("of one that is told out of %s, from its own beginning on", async (_, event) => {
    const trial = receiving(undefined, { hold: "5m", initial: true });
    await trial.clock.advance(3 * MINUTE);
    await trial.offer(event);
    expect(await toldAfter(trial)).toBe(2);
  });

  test("a beginning at a first look that is ahead of our clock counts as now", async () => {
    const trial = receiving(undefined, { hold: "5m", initial: true });
    await trial.offer(begun(60).raised(true));
    expect(await toldAfter(trial)).toBe(5);
  });
});

describe("the wall clock is set back by a day", () => {
  test("while an alarm waits for its `hold`, it waits no longer", async () => {
    const trial = receiving(undefined, { hold: "5m" });
    await trial.offer(alarm(1).raised());
    await trial.pass(3 * MINUTE);
    trial.clock.stepWall(-24 * HOUR);
    expect(await toldAfter(trial)).toBe(2);
  });

  test("with a restart it waits for its `hold` from then, however often there is one", async () => {
    const trial = receiving(undefined, { hold: "5m" });
    await trial.offer(alarm(1).raised());
    trial.clock.stepWall(-24 * HOUR);
    trial.restart();
    await trial.open();
    await trial.pass(3 * MINUTE);
    trial.restart();
    expect(await toldAfter(trial)).toBe(2);
  });

  test.each([false, true])("a list is edited as before (restart: %s)", async (isRestarted) => {
    const trial = receiving(undefined, { fold: { storm: { openings: 2, within: "5m" } } });
    await trial.offer(...[1, 2, 3].map((n) => alarm(n).raised()));
    trial.clock.stepWall(-24 * HOUR);
    if (isRestarted) trial.restart();
    await trial.open();
    await trial.offer(alarm(4).raised());
    await trial.pass(MINUTE);
    expect(trial.board.said.at(-1)).toMatch(/^update active 2 alarms/);
  });

  test("an alarm is no part of a storm that was long before it", async () => {
    const trial = receiving(undefined, { fold: { storm: { openings: 2, within: "5m" } } });
    await trial.offer(...[1, 2].map((n) => alarm(n).raised()));
    await trial.pass(10 * MINUTE);
    trial.clock.stepWall(-24 * HOUR);
    await trial.offer(alarm(3).raised());
    expect(trial.board.said.at(-1)).toBe("open active Alarm 3, Building 1");
  });

  test.each([false, true])("what the far end forgets is said again (restart: %s)", async (isRestarted) => {
    const trial = receiving(noticeBoard("same", { repeatMs: MINUTE }));
    await trial.offer(alarm(1).raised());
    trial.clock.stepWall(-24 * HOUR);
    if (isRestarted) trial.restart();
    await trial.open();
    await trial.pass(5 * MINUTE);
    expect(trial.board.said).toHaveLength(6);
  });

  test.each([false, true])("an opening in doubt is looked for (restart: %s)", async (isRestarted) => {
    const trial = receiving();
    const { find } = trial.board;
    let isSearched = false;
    trial.board.find = async (told, sinceMs, signal) => {
      if (isSearched && find !== undefined) return find(told, sinceMs, signal);
      isSearched = true;
      return { againInMs: MINUTE };
    };
    trial.board.trouble = (isDone) => {
      if (isDone) throw new Error("The answer was lost.");
    };
    await expect(trial.offer(alarm(1).raised())).rejects.toThrow("lost");
    trial.board.trouble = () => undefined;
    await trial.offerAgain([alarm(1).raised()]);
    trial.clock.stepWall(-24 * HOUR);
    if (isRestarted) trial.restart();
    await trial.open();
    await trial.pass(2 * MINUTE);
    await trial.offer(alarm(1).resolved(5));
    expect(trial.board.notes.map(({ isOpen }) => isOpen)).toEqual([false]);
  });
});
