import { describe, expect, it } from "vitest";
import { createListRateLimit, type ListLane } from "#src/engine/source/list-rate-limit.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { never } from "./source-harness.ts";

/** A service that opens a window of 60 s at the first request and allows `limit` in it. */
function firstHitWindow(limit: number, clock: { monotonic(): number }) {
  let openedMs = Number.NEGATIVE_INFINITY;
  let count = 0;
  return () => {
    const nowMs = clock.monotonic();
    if (nowMs - openedMs >= 60_000) [openedMs, count] = [nowMs, 0];
    return ++count <= limit ? null : Math.floor((openedMs + 60_000 - nowMs) / 1000);
  };
}

function limited(perMinute = 30) {
  const clock = createVirtualClock(0);
  const pace = createListRateLimit(perMinute, clock);
  const starts: number[] = [];
  const ask = (count: number, lane?: ListLane, task: () => unknown = () => undefined) => {
    const run = async () => {
      starts.push(clock.monotonic());
      await task();
    };
    for (let i = 0; i < count; i++) void pace.run(run, never(), lane);
  };
  const pollAlarms = async (polls: number, everyMs: number) => {
    const waited: number[] = [];
    for (let poll = 0; poll < polls; poll++) {
      const wishedMs = clock.monotonic();
      void pace.run(async () => waited.push(clock.monotonic() - wishedMs), never(), "alarms");
      await clock.run(wishedMs + everyMs);
    }
    return waited;
  };
  return { clock, pace, starts, ask, pollAlarms };
}

describe("the rate limit of lists", () => {
  it("does not delay an alarm list during a long inventory", async () => {
    const { ask, pollAlarms } = limited();
    ask(200);
    const waited = await pollAlarms(32, 15_000);
    expect(waited).toEqual(Array(32).fill(0));
  });

  it("lets an inventory use nine tenths of the rate while no alarm list and no urgent list is requested", async () => {
    const { ask, clock, starts } = limited();
    ask(400);
    await clock.run(10 * 61_000 - 1);
    expect(starts.length).toBe(270);
    expect(starts.filter((ms) => ms === 0)).toHaveLength(20);
    expect(starts.slice(20, 27).map((ms) => Math.round(ms / 1_000))).toEqual([8, 15, 23, 31, 38, 46, 53]);
  });

  it("sends an urgent list at once and each further urgent list within 8 s during an inventory", async () => {
    for (let atMs = 60_000; atMs < 190_000; atMs += 1_700) {
      const { ask, clock, pace } = limited();
      for (let i = 0; i < 200; i++) ask(1, i % 2 ? "tags" : "other");
      await clock.run(atMs);
      const waited: number[] = [];
      const wait = async () => waited.push(clock.monotonic() - atMs);
      for (let i = 0; i < 5; i++) void pace.run(wait, never(), "urgent");
      await clock.run(atMs + 60_000);
      expect(waited).toHaveLength(5);
      for (const [n, ms] of waited.entries()) expect(ms, `request ${n + 1} at ${atMs}`).toBeLessThan(n * 8_000 + 1);
    }
  });

  it("sends two short lists per list of tags while both wait, and either type alone at the full rate", async () => {
    const counts = async (shortLists: number, tagLists: number) => {
      const { clock, pace } = limited();
      const count = { other: 0, tags: 0 };
      const replied = (lane: "other" | "tags") => async () => {
        await clock.sleep(50);
        count[lane] += 1;
      };
      const inTurn = async (lane: "other" | "tags", lists: number) => {
        for (let i = 0; i < lists; i++) await pace.run(replied(lane), never(), lane);
      };
      void inTurn("tags", tagLists);
      void inTurn("other", shortLists);
      await clock.run(10 * 61_000 - 1);
      return count;
    };
    expect(await counts(400, 400)).toEqual({ other: 180, tags: 90 });
    expect(await counts(0, 400)).toEqual({ other: 0, tags: 270 });
    expect(await counts(400, 0)).toEqual({ other: 270, tags: 0 });
    expect(await counts(60, 400)).toEqual({ other: 60, tags: 210 });
  });

  it("does not delay a list of tags during a slow short list", async () => {
    const { ask, clock, starts } = limited();
    ask(1, "other", () => clock.sleep(300_000));
    ask(3, "tags");
    await clock.run(10_000);
    expect(starts).toEqual([0, 1_000, 1_000, 1_000]);
  });

  it("sends some inventory requests although alarm lists are always waiting", async () => {
    const { ask, clock, starts } = limited();
    let other = 0;
    ask(900, "alarms");
    ask(60, "other", () => other++);
    await clock.run(1_200_000);
    expect(other).toBeGreaterThanOrEqual(8);
    expect(starts.length - other).toBeGreaterThan(500);
  });

  it("never sends more than 30 requests in any minute", async () => {
    const { ask, clock, starts } = limited();
    ask(100, "urgent");
    await clock.run(600_000);
    expect(starts).toHaveLength(100);
    for (const startedMs of starts)
      expect(starts.filter((ms) => ms >= startedMs && ms < startedMs + 60_000).length).toBeLessThanOrEqual(30);
    expect(Math.max(...starts)).toBeLessThan(200_000);
  });

  it("adapts after at most three refusals to a service that allows 10 a minute", async () => {
    const { clock, pace } = limited();
    const service = firstHitWindow(10, clock);
    let refusals = 0;
    let answered = 0;
    const ask = async () => {
      const startedMs = clock.monotonic();
      await clock.sleep(100);
      const retryAfter = service();
      if (retryAfter === null) answered++;
      else {
        refusals++;
        pace.noteRefusal(startedMs, (Math.max(1, retryAfter) + 1) * 1000);
      }
    };
    let running = true;
    const keepRequesting = async () => {
      while (running) await pace.run(ask, never(), "urgent");
    };
    const askers = [keepRequesting(), keepRequesting(), keepRequesting()];
    await clock.run(20 * 3_600_000);
    running = false;
    await clock.run(20 * 3_600_000 + 300_000);
    await Promise.all(askers);
    expect(refusals).toBeLessThanOrEqual(3);
    expect(answered).toBeGreaterThan(20 * 60 * 7);
  });

  it("does not reduce the rate for a day after one early refusal", async () => {
    const { ask, clock, pace, starts } = limited();
    ask(33, "urgent", () => starts.length === 3 && pace.noteRefusal(clock.monotonic(), 5_000));
    await clock.run(180_000);
    expect(starts).toHaveLength(33);
  });

  it("halves the rate once for all refusals within a minute", async () => {
    const { clock, pace } = limited();
    for (const atMs of [0, 5_000, 30_000]) {
      await clock.run(atMs);
      pace.noteRefusal(atMs, 1_000);
    }
    expect(pace.rate()).toEqual({ perMinute: 15, configured: 30 });
    await clock.run(60_001);
    pace.noteRefusal(60_001, 1_000);
    expect(pace.rate().perMinute).toBe(7);
  });

  it("halves the rate for refusals with a wait of 0 s only in the third consecutive minute of refusals", async () => {
    const { clock, pace } = limited();
    for (const atMs of [0, 10_000, 20_000, 70_000, 80_000]) {
      await clock.run(atMs);
      pace.noteRefusal(atMs, 2_000, true);
      expect(pace.rate().perMinute).toBe(30);
    }
    await clock.run(135_000);
    pace.noteRefusal(135_000, 2_000, true);
    expect(pace.rate().perMinute).toBe(15);
  });

  it.each([3, 12, 30])(
    "reserves two requests a minute for the active alarms at %i requests a minute",
    async (perMinute) => {
      const { ask, pollAlarms, starts } = limited(perMinute);
      for (let i = 0; i < 500; i++) ask(1, i % 2 === 0 ? "urgent" : "other");
      const waited = await pollAlarms(20, 30_000);
      expect(waited).toHaveLength(20);
      expect(Math.max(...waited)).toBeLessThanOrEqual(10_000);
      expect(starts.length).toBeGreaterThanOrEqual((perMinute - 2) * 9);
    },
  );

  it("sends one list other than the alarms in two minutes when the rate only suffices for the alarms", async () => {
    const { ask, clock, starts } = limited(2);
    ask(30, "urgent");
    await clock.run(20 * 60_000);
    expect(starts).toHaveLength(10);
  });

  it("permits one trial request during a pause, and sends all waiting requests after the pause ends", async () => {
    const { ask, clock, pace, starts } = limited();
    pace.pause(3_600_000);
    ask(3, "urgent");
    await clock.run(60_000);
    pace.permitTrial(true);
    await clock.run(120_000);
    expect(starts).toEqual([60_000]);
    pace.permitTrial(true);
    pace.permitTrial(false);
    await clock.run(180_000);
    expect(starts).toEqual([60_000]);
    pace.endPause();
    await clock.run(240_000);
    expect(starts).toEqual([60_000, 180_000, 180_000]);
  });

  it.each([
    [5, 6, [0, 0, 0, 0, 0, 61_000]],
    [0, 30, Array(30).fill(0)],
  ])(
    "applies limit %i and the remaining count of response headers, and ignores limit 0",
    async (limit, count, expected) => {
      const { ask, clock, pace, starts } = limited();
      ask(count, "alarms", () => pace.observeRateLimit({ limit, remaining: Math.max(0, limit - starts.length) }));
      await clock.run(120_000);
      expect(starts).toEqual(expected);
    },
  );

  it("runs one request per lane at a time and none during a pause", async () => {
    const { ask, clock, pace, starts } = limited();
    pace.pause(5_000);
    ask(1, "urgent", () => clock.sleep(10_000));
    ask(2, "other", () => clock.sleep(10_000));
    await clock.run(60_000);
    expect(starts).toEqual([5_000, 5_000, 15_000]);
  });

  it("removes a waiting request when its signal aborts", async () => {
    const { clock, pace } = limited(1);
    await pace.run(async () => {}, never());
    const blockers = [1, 2].map(() => pace.run(async () => {}, never()));
    const controller = new AbortController();
    const reason = new Error("stopping");
    const waiting = pace.run(async () => "ran", controller.signal);
    controller.abort(reason);
    await expect(waiting).rejects.toBe(reason);
    await clock.run(300_000);
    await Promise.all(blockers);
  });
});
