import { describe, expect, test } from "vitest";
import type { EventBatch } from "#src/engine/delivery/batches.ts";
import { createFilteredEventTracker } from "#src/engine/delivery/unsettled-events.ts";
import type { SettledBatch } from "#src/engine/store/store.ts";
import { seededRandom } from "../commands/seeded-random.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const batchThrough = (through: number, seen: number, again = false): EventBatch => ({
  isRepeat: again,
  events: [],
  lastPosition: through,
  passedCount: seen,
  counted: undefined,
});
const past = (through: number, again = false): SettledBatch => ({ isRepeat: again, through, rejected: [] });

async function createHarness() {
  const clock = createVirtualClock(0);
  await clock.advance(100_000);
  const settled: SettledBatch[] = [];
  const filtered = createFilteredEventTracker(clock, async (settlement) => void settled.push(settlement));
  return { clock, settled, filtered };
}

describe("the tracker of events that a sink's filter excludes", () => {
  test("settles 1,000 excluded events together", async () => {
    const { settled, filtered } = await createHarness();
    await filtered.addBatch(batchThrough(999, 999));
    expect(settled).toEqual([]);
    await filtered.addBatch(batchThrough(1_000, 1));
    expect(settled).toEqual([past(1_000)]);
    expect(filtered.dueInMs()).toBe(Number.POSITIVE_INFINITY);
  });

  test("settles five seconds after the first excluded event, and returns the remaining time", async () => {
    const { clock, settled, filtered } = await createHarness();
    expect(filtered.dueInMs()).toBe(Number.POSITIVE_INFINITY);
    await filtered.addBatch(batchThrough(1, 1));
    await clock.advance(4_000);
    await filtered.addBatch(batchThrough(2, 1));
    expect(filtered.dueInMs()).toBe(1_000);
    await filtered.settleIfDue();
    expect(settled).toEqual([]);
    await clock.advance(1_000);
    await filtered.settleIfDue();
    expect(settled).toEqual([past(2)]);
  });

  test("settles once the remaining time that it returned has passed, at any fraction of a millisecond", async () => {
    const random = seededRandom(17);
    for (let n = 0; n < 3_000; n += 1) {
      const { clock, settled, filtered } = await createHarness();
      // Thirds, so that no sum is exact.
      await clock.advance((random() * 1e6) / 3);
      await filtered.addBatch(batchThrough(1, 1));
      await clock.advance((random() * 5_000) / 3);
      for (let rests = 0; rests < 3 && filtered.dueInMs() > 0 && settled.length === 0; rests += 1)
        await clock.advance(filtered.dueInMs());
      await filtered.settleIfDue();
      expect(settled).toHaveLength(1);
    }
  });

  test("settles excluded replayed events at once and leaves other excluded events waiting", async () => {
    const { settled, filtered } = await createHarness();
    await filtered.addBatch(batchThrough(7, 1));
    await filtered.addBatch(batchThrough(9, 1, true));
    expect(settled).toEqual([past(9, true)]);
    expect(filtered.lastPosition()).toBe(7);
  });

  test("drops excluded events that another settlement includes, unless that settlement is of earlier or replayed events", async () => {
    const { settled, filtered } = await createHarness();
    await filtered.addBatch(batchThrough(5, 1));
    filtered.forgetSettled(past(4));
    filtered.forgetSettled(past(9, true));
    await filtered.settle();
    expect(settled).toEqual([past(5)]);
    await filtered.addBatch(batchThrough(6, 1));
    filtered.forgetSettled(past(6));
    await filtered.settle();
    expect(settled).toHaveLength(1);
  });
});
