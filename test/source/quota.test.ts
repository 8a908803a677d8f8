import { describe, expect, test } from "vitest";
import { Retryable, Throttled } from "#src/core/errors/errors.ts";
import type { QueueLane } from "#src/engine/source/source.ts";
import type { QuotaSlot } from "#src/engine/store/store.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import {
  createHarness,
  createVolatileStore,
  type Harness,
  mostInAMinute,
  type QuotaRequest,
  START_MS,
  usedBefore,
  type VolatileStore,
} from "./quota-harness.ts";

const asked = (
  harness: Harness,
  count: number,
  lane: QueueLane = "on-demand",
  name: string = lane,
  more: QuotaRequest = {},
) => {
  for (let i = 0; i < count; i += 1) void harness.request(lane, name, more);
};
/** Number of requests that have left at a time. */
async function sentUntil(harness: Harness, atMs: number): Promise<number> {
  await harness.clock.run(atMs);
  return harness.left.length;
}
const names = (harness: Harness) => harness.left.map(({ name }) => name);
const times = (harness: Harness) => harness.left.map(({ at }) => Math.round(at / 100) / 10);

describe("the rate of requests and the limit of 20 a minute", () => {
  test("sends a poll about every three seconds, and never 21 requests in a minute", async () => {
    const harness = createHarness();
    asked(harness, 60, "live");
    await harness.clock.run(180_000);
    expect(times(harness).slice(0, 4)).toEqual([0, 3, 6, 9]);
    expect(harness.left.length).toBeGreaterThanOrEqual(59);
    expect(mostInAMinute(harness.left)).toBeLessThanOrEqual(20);
  });

  test("sends urgent requests at once, but never more than 20 in a minute", async () => {
    const harness = createHarness();
    asked(harness, 25, "on-demand");
    expect(await sentUntil(harness, 59_000)).toBe(20);
    expect(await sentUntil(harness, 61_000)).toBe(25);
    expect(mostInAMinute(harness.left)).toBeLessThanOrEqual(20);
  });

  test.each([
    ["for one minute after its response", { latencyMs: 2_000 }, 62_000],
    ["for at most 3 s longer than the window when the response is slow", { latencyMs: 30_000 }, 63_000],
    ["for 3 s longer without a response", { latencyMs: 10, fails: new Retryable("cut") }, 63_000],
  ])("keeps the slot of a request in use %s", async (_until, request, freeMs) => {
    const harness = createHarness({ concurrency: 40 });
    const first = Promise.allSettled(Array.from({ length: 20 }, () => harness.request("on-demand", "first", request)));
    void harness.request("on-demand", "next");
    await harness.clock.run(freeMs - 100);
    expect(names(harness)).not.toContain("next");
    await harness.clock.run(freeMs + 100);
    expect(names(harness)).toContain("next");
    await first;
  });

  test("never sends more requests at the same time than it has connections", async () => {
    const harness = createHarness({ concurrency: 3 });
    asked(harness, 6, "on-demand", "each", { latencyMs: 5_000 });
    expect(await sentUntil(harness, 4_000)).toBe(3);
    expect(await sentUntil(harness, 9_000)).toBe(6);
  });
});

describe("lanes", () => {
  test("lanes are served in the order write, on-demand, live, history", async () => {
    const harness = createHarness({ perMinute: 4 });
    asked(harness, 4, "on-demand", "filler");
    await harness.clock.run(1_000);
    for (const lane of ["history", "live", "on-demand", "write"] as const) void harness.request(lane);
    await harness.clock.run(90_000);
    expect(names(harness).slice(4)).toEqual(["write", "on-demand", "live", "history"]);
  });

  test("a flood of writes leaves every tenth slot to polls, also when slots are reserved for writes", async () => {
    for (const reserve of [0, 1]) {
      const harness = createHarness({ reserve });
      asked(harness, 300, "write", "write", { endpoint: "write" });
      asked(harness, 50, "live");
      await harness.clock.run(600_000);
      const polls = names(harness).filter((name) => name === "live").length;
      expect(polls).toBeGreaterThanOrEqual(18);
      expect(polls).toBeLessThanOrEqual(21);
    }
  });

  test("an aborted request leaves its queue at once and uses no slot", async () => {
    const harness = createHarness();
    asked(harness, 20, "on-demand");
    const caller = new AbortController();
    const waiting = harness.request("on-demand", "aborted", { signal: caller.signal });
    const rejection = expect(waiting).rejects.toThrow("enough");
    void harness.request("on-demand", "next");
    await harness.clock.run(10_000);
    expect(harness.quota.status().buckets[0]?.waiting["on-demand"]).toBe(2);
    caller.abort(new Error("enough"));
    await rejection;
    expect(harness.quota.status().buckets[0]?.waiting["on-demand"]).toBe(1);
    await harness.clock.run(70_000);
    expect(names(harness).filter((name) => name === "aborted" || name === "next")).toEqual(["next"]);
    expect(harness.clock.sleepers()).toBe(0);
  });
});

describe("pauses after a refusal", () => {
  test("a pause after a 429 or a 503 applies to all lanes, and the status states its end", async () => {
    for (const scope of ["read", "everything"] as const) {
      const harness = createHarness();
      void harness.request("live");
      await harness.clock.run(500);
      harness.quota.pauseRequests(31_000, scope);
      for (const lane of ["write", "live"] as const) void harness.request(lane);
      expect(await sentUntil(harness, 31_400)).toBe(1);
      const status = harness.quota.status();
      expect(status.buckets[0]?.heldUntilMs).toBe(START_MS + 31_500);
      expect(status.heldUntilMs).toBe(scope === "everything" ? START_MS + 31_500 : null);
      expect(status.buckets[0]?.throttled).toBe(scope === "read" ? 1 : 0);
      await harness.clock.run(31_600);
      expect(names(harness)).toContain("write");
    }
  });

  test("a pause lasts 1 s when the service states 0 s", async () => {
    const harness = createHarness();
    await harness.quota.start();
    harness.quota.pauseRequests(0, "read");
    void harness.request("write");
    expect(await sentUntil(harness, 900)).toBe(0);
    expect(await sentUntil(harness, 1_100)).toBe(1);
  });

  test("repeated refusals cause one report of another client", async () => {
    const told: string[] = [];
    const harness = createHarness({ onOtherClient: ({ evidence }) => told.push(evidence) });
    const refuse = async () => {
      const request = harness.request("live", "refused", { fails: new Throttled("refused", 2_000) });
      const outcome = expect(request).rejects.toThrow("refused");
      await harness.clock.advance(5_000);
      harness.quota.pauseRequests(2_000, "read");
      await outcome;
    };
    await refuse();
    expect(harness.quota.status().buckets[0]?.foreign).toBeNull();
    await harness.clock.advance(60_000);
    await refuse();
    await harness.clock.advance(60_000);
    await refuse();
    expect(told).toEqual(["refusals"]);
    expect(harness.quota.status().buckets[0]?.foreign?.evidence).toBe("refusals");
  });
});

describe("one request counter for all endpoints, or three separate counters", () => {
  const useSeparateCounters = async (harness: Harness) => {
    const taken = { read: 0, history: 0 };
    for (let i = 0; i < 30; i += 1) {
      const endpoint = i % 5 === 4 ? "history" : "read";
      taken[endpoint] += 1;
      const remaining = 20 - Math.min(20, taken[endpoint]);
      void harness.request("live", endpoint, { endpoint, remaining });
      await harness.clock.advance(3_100);
      if (harness.clock.monotonic() % 60_000 < 3_100) Object.assign(taken, { read: 0, history: 0 });
    }
  };

  test("begins with one counter, and uses three when the service's remaining counts prove separate counters", async () => {
    const harness = createHarness();
    await harness.quota.start();
    expect(harness.quota.status().buckets.map(({ name }) => name)).toEqual(["tags"]);
    await useSeparateCounters(harness);
    expect(harness.quota.status().buckets.map(({ name }) => name)).toEqual(["read", "write", "history"]);
    harness.quota.pauseRequests(2_000, "history");
    expect(harness.quota.status().buckets.map(({ name }) => name)).toEqual(["tags"]);
  });

  test("moves waiting requests to the new counters when one counter becomes three", async () => {
    const harness = createHarness();
    const waiting = Array.from({ length: 30 }, () => harness.request("history", "waiting"));
    const answers = Promise.all(waiting);
    await useSeparateCounters(harness);
    expect(harness.quota.status().buckets).toHaveLength(3);
    await harness.clock.advance(200_000);
    expect(await answers).toHaveLength(30);
  });

  test("sends three times as many requests when separate counters are configured", async () => {
    const harness = createHarness({ separateEndpoints: true, concurrency: 20 });
    for (const endpoint of ["read", "write", "history"] as const)
      asked(harness, 25, "on-demand", endpoint, { endpoint });
    expect(await sentUntil(harness, 59_000)).toBe(60);
  });
});

describe("the stored quota after restarts", () => {
  const stored = (harness: Harness) => [...harness.store.slots.values()].flatMap((slots) => [...slots.values()]);

  test("stores a slot, with the latest time at which the service can count it, before the request is sent", async () => {
    const clock = createVirtualClock(START_MS);
    const store = usedBefore(createVolatileStore(() => clock.sleep(50)));
    const harness = createHarness({ clock, store });
    void harness.request("write", "write", { latencyMs: 1_000 });
    await clock.run(40);
    expect(harness.left).toHaveLength(0);
    await clock.run(60);
    expect(harness.left).toHaveLength(1);
    const slot = stored(harness).find(({ id }) => id === 2);
    expect(slot?.countedByMs).toBeGreaterThanOrEqual(START_MS + 50 + 3_000);
    await clock.run(2_000);
    expect(stored(harness).find(({ id }) => id === 2)?.countedByMs).toBe(START_MS + 1_050);
  });

  test("stores a slot again when storing it took longer than assumed", async () => {
    const clock = createVirtualClock(START_MS);
    let commitMs = 5_000;
    const store = usedBefore(createVolatileStore(() => clock.sleep(commitMs)));
    const harness = createHarness({ clock, store });
    void harness.request("write");
    await clock.run(4_000);
    commitMs = 10;
    await clock.run(6_000);
    const sentAt = harness.left[0]?.at ?? Number.NaN;
    expect(sentAt).toBeGreaterThan(5_000);
    expect(stored(harness).find(({ id }) => id === 2)?.countedByMs).toBeGreaterThanOrEqual(START_MS + sentAt);
  });

  test("sends no request when the slot cannot be stored", async () => {
    const store = usedBefore(createVolatileStore(() => Promise.reject(new Error("disk full"))));
    const harness = createHarness({ store });
    await expect(harness.request("write")).rejects.toThrow("disk full");
    expect(harness.left).toHaveLength(0);
    expect(harness.quota.status().buckets[0]?.used).toBe(0);
  });

  function countingSaves(more: Partial<VolatileStore> = {}) {
    const clock = createVirtualClock(START_MS);
    const memory = usedBefore();
    const savedAtMs: number[] = [];
    const save = (key: string, slot: QuotaSlot) => {
      savedAtMs.push(clock.monotonic());
      return memory.save(key, slot);
    };
    return { clock, savedAtMs, harness: createHarness({ clock, store: { ...memory, save, ...more } }) };
  }

  async function requestEvery3s(harness: Harness, times: number): Promise<void> {
    for (let n = 0; n < times; n += 1) {
      void harness.request("on-demand");
      await harness.clock.advance(3_000);
    }
  }

  test("with a request every 3 s, stores the slot of the next request in advance, in the transaction of a reply", async () => {
    const { harness, savedAtMs } = countingSaves();
    await requestEvery3s(harness, 10);
    expect(harness.left.map(({ at }) => at)).toEqual([0, 3, 6, 9, 12, 15, 18, 21, 24, 27].map((s) => s * 1_000));
    expect(savedAtMs).toEqual([0, 3_000]);
    for (const { at } of harness.left)
      expect(stored(harness).some(({ countedByMs }) => countedByMs === START_MS + at + 100)).toBe(true);
  });

  test("stores a slot again that was stored in advance more than 10 s before its use", async () => {
    const { clock, harness, savedAtMs } = countingSaves();
    await requestEvery3s(harness, 3);
    await clock.advance(11_000);
    void harness.request("on-demand");
    await clock.advance(50);
    expect(savedAtMs).toEqual([0, 3_000, 20_000]);
    expect(stored(harness).at(-1)?.countedByMs).toBeGreaterThanOrEqual(START_MS + 23_000);
  });

  test("stores a slot again that was stored in advance before the clock was set", async () => {
    for (const stepMs of [-3_600_000, 3_600_000]) {
      const { clock, harness, savedAtMs } = countingSaves();
      await requestEvery3s(harness, 3);
      const before = savedAtMs.length;
      clock.stepWall(stepMs);
      void harness.request("on-demand", "stepped", { latencyMs: 1_000_000 });
      await clock.advance(50);
      expect(savedAtMs.length).toBeGreaterThan(before);
      const late = stored(harness).filter(({ countedByMs }) => countedByMs >= START_MS + 9_000 + stepMs + 3_000);
      expect(late.length).toBeGreaterThan(0);
    }
  });

  test("does not use a slot stored in advance before that write is durable", async () => {
    const never = new Promise<void>(() => undefined);
    const { harness, savedAtMs } = countingSaves({ saveDeferred: () => never });
    await requestEvery3s(harness, 4);
    expect(savedAtMs).toEqual([0, 3_000, 6_000, 9_000]);
  });

  test("after a kill, counts only the slot stored in advance as used in addition to the sent requests", async () => {
    const before = createHarness();
    await requestEvery3s(before, 18);
    const clock = createVirtualClock(before.clock.now());
    const after = createHarness({ clock, store: before.store });
    for (let n = 0; n < 3; n += 1) void after.request("on-demand");
    await clock.run(100);
    expect(after.left).toHaveLength(1);
    await clock.run(60_000);
    expect(after.left).toHaveLength(3);
  });

  const restart = async (stepMs: number, isSameMachine: boolean): Promise<number> => {
    const first = createVirtualClock(START_MS);
    const before = createHarness({ clock: first, concurrency: 20 });
    asked(before, 20, "on-demand", "before", { latencyMs: 1_000_000 });
    await first.advance(10_000);
    first.stepWall(stepMs);
    const clock = isSameMachine ? first : createVirtualClock(first.now());
    const startedMs = clock.monotonic();
    const after = createHarness({ clock, store: before.store });
    void after.request("write");
    await clock.advance(120_000);
    return (after.left[0]?.at ?? Number.NaN) - startedMs;
  };

  test.each([
    ["another machine", 0, false, 53_000, 54_000],
    ["another machine whose clock is behind: one complete window", -3_600_000, false, 60_000, 64_000],
    ["the same machine", 0, true, 53_000, 54_000],
    ["the same machine whose clock was set forward", 461_924, true, 53_000, 54_000],
    ["the same machine whose clock was set a day forward", 86_400_000, true, 53_000, 54_000],
    ["the same machine whose clock was set back", -3_600_000, true, 53_000, 54_000],
  ])(
    "makes a new process wait until the slots of the old process are free: %s",
    async (_where, stepMs, isSameMachine, least, most) => {
      const waited = await restart(stepMs, isSameMachine);
      expect(waited).toBeGreaterThanOrEqual(least);
      expect(waited).toBeLessThan(most);
    },
  );

  test("makes a new process wait for old slots although the clock was set twice between processes", async () => {
    const clock = createVirtualClock(START_MS);
    const store = usedBefore();
    const first = createHarness({ clock, store, concurrency: 20 });
    asked(first, 20, "on-demand");
    await clock.advance(1_000);
    for (const stepMs of [3_600_000, -7_200_000]) {
      clock.stepWall(stepMs);
      await createHarness({ clock, store }).quota.start();
      await clock.advance(1_000);
    }
    const last = createHarness({ clock, store });
    void last.request("write");
    await clock.advance(120_000);
    expect(last.left[0]?.at).toBeGreaterThanOrEqual(60_000);
    expect(last.left[0]?.at).toBeLessThan(61_000);
  });

  test("continues a pause after a restart and ends the pause on time for any clock step", async () => {
    for (const stepMs of [0, 461_924, -3_600_000]) {
      const clock = createVirtualClock(START_MS);
      const before = createHarness({ clock });
      await before.quota.start();
      before.quota.pauseRequests(300_000, "everything");
      await clock.advance(10_000);
      clock.stepWall(stepMs);
      const after = createHarness({ clock, store: before.store });
      void after.request("write");
      await clock.advance(400_000);
      expect(after.left.map(({ at }) => Math.round(at / 1_000))).toEqual([300]);
    }
  });

  test("a stored pause that has ended delays no request; a pause whose stored start is in the future starts again", async () => {
    const store = usedBefore();
    await store.savePause("test/read", { orderedAtMs: START_MS - 60_000, untilMs: START_MS - 1_000 });
    await store.savePause("test/everything", { orderedAtMs: START_MS + 3_600_000, untilMs: START_MS + 3_620_000 });
    const harness = createHarness({ store });
    void harness.request("on-demand");
    expect(await sentUntil(harness, 19_000)).toBe(0);
    expect(await sentUntil(harness, 21_000)).toBe(1);
  });

  test("shifts stored timestamps when the clock is stepped while the process runs", async () => {
    for (const stepMs of [-1_800_000, 1_800_000]) {
      const before = createHarness();
      asked(before, 19, "on-demand");
      await before.clock.run(10_000);
      before.clock.stepWall(stepMs);
      void before.request("on-demand");
      await before.clock.run(11_000);
      const clock = createVirtualClock(before.clock.now());
      const after = createHarness({ clock, store: before.store });
      void after.request("write");
      await clock.run(120_000);
      const waited = after.left[0]?.at ?? Number.NaN;
      expect(waited).toBeGreaterThanOrEqual(49_000);
      expect(waited).toBeLessThan(50_000);
    }
  });

  test("without a stored quota, allows at most 17 requests in the first minute", async () => {
    const first = createHarness({ store: createVolatileStore() });
    asked(first, 40, "on-demand");
    await first.clock.run(60_000);
    expect(first.left[0]?.at).toBe(0);
    expect(first.left.length).toBeLessThanOrEqual(17);
  });

  test("the status states the reduced rate of the first minute and the lasting rate", async () => {
    const harness = createHarness({ store: createVolatileStore() });
    asked(harness, 40, "live");
    await harness.clock.run(30_000);
    const [first, second] = harness.left.map(({ at }) => at);
    const [allowance] = harness.quota.status().buckets;
    expect(60_000 / ((second ?? 0) - (first ?? 0))).toBeCloseTo(allowance?.pacedPerMinute ?? 0, 1);
    expect([allowance?.pacedPerMinute, allowance?.lastingPerMinute]).toEqual([16, 20]);
    await harness.clock.run(64_000);
    expect(harness.quota.status().buckets[0]).toMatchObject({ pacedPerMinute: 20, lastingPerMinute: 20 });
  });
});

describe("requests that choose their content when a slot is free", () => {
  test("a free slot is offered to these requests lane by lane, until one of them uses the slot", async () => {
    const harness = createHarness();
    const decidedAt: string[] = [];
    const wants = { live: false, history: false };
    const stand = (lane: "live" | "history" | "spare") =>
      harness.request(lane, lane, {
        choose() {
          decidedAt.push(`${lane} ${Math.round(harness.clock.monotonic() / 100) / 10}`);
          return lane === "spare" || wants[lane] ? null : 10_000;
        },
      });
    void harness.request("live", "filler");
    await harness.clock.run(1_000);
    void stand("live");
    void stand("history");
    await harness.clock.run(2_000);
    expect(decidedAt).toEqual([]);
    expect(harness.quota.status().buckets[0]?.waiting).toMatchObject({ live: 1, history: 1 });
    await harness.clock.run(4_000);
    expect(decidedAt).toEqual(["live 3", "history 3"]);
    expect(harness.quota.status().buckets[0]?.waiting).toMatchObject({ live: 0, history: 0 });
    wants.live = true;
    void stand("spare");
    await harness.clock.run(4_500);
    expect(names(harness)).toEqual(["filler", "live"]);
    wants.history = true;
    await harness.clock.run(7_500);
    expect(names(harness)).toEqual(["filler", "live", "history"]);
    await harness.clock.run(11_000);
    expect(names(harness)).toEqual(["filler", "live", "history", "spare"]);
    expect(harness.clock.sleepers()).toBe(0);
  });

  test("a lane gets its own slot after nine slots went to other lanes", async () => {
    const harness = createHarness();
    const offers: boolean[] = [];
    const choose = ({ isLaneOverdue }: { readonly isLaneOverdue: boolean }) => {
      offers.push(isLaneOverdue);
      return isLaneOverdue ? null : 1_000;
    };
    void harness.request("history", "history", { choose });
    asked(harness, 12, "live");
    await harness.clock.run(40_000);
    expect(names(harness).indexOf("history")).toBe(9);
    expect(offers).toEqual([false, true]);
  });

  test("a request whose choice of content throws is rejected and uses no slot", async () => {
    const harness = createHarness();
    const choose = () => {
      throw new Error("cannot decide");
    };
    await expect(harness.request("live", "failing", { choose })).rejects.toThrow("cannot decide");
    void harness.request("live");
    await harness.clock.run(100);
    expect(names(harness)).toEqual(["live"]);
    expect(harness.quota.status().buckets[0]?.used).toBe(1);
  });
});

describe("the option polite", () => {
  test.each([
    [0.8, 16],
    [0.5, 10],
    [0.83, 16.6],
  ])("polite %d allows %d requests a minute, including urgent requests", async (polite, perMinute) => {
    const harness = createHarness({ polite });
    for (let i = 0; i < 300; i += 1) void harness.request(i % 5 === 0 ? "on-demand" : "live");
    await harness.clock.run(600_000);
    expect(mostInAMinute(harness.left)).toBeLessThanOrEqual(Math.ceil(perMinute));
    expect(harness.left.length / 10).toBeGreaterThan(perMinute * 0.97);
    expect(harness.quota.status().buckets[0]?.pacedPerMinute).toBeCloseTo(perMinute, 1);
  });

  test("with polite and a reserve, the status states the rate of polls", async () => {
    const { quota } = createHarness({ polite: 0.8, reserve: 1 });
    await quota.start();
    expect(quota.status().buckets[0]?.pacedPerMinute).toBeCloseTo(15, 5);
  });
});

describe("a changed share of the quota", () => {
  test("a lower share of the quota applies at once", async () => {
    const harness = createHarness();
    asked(harness, 20);
    await harness.clock.run(10_000);
    harness.quota.setShare({ perMinute: 10, polite: 1, reserve: 0 });
    asked(harness, 15);
    expect(await sentUntil(harness, 59_000)).toBe(20);
    expect(await sentUntil(harness, 119_000)).toBe(30);
    expect(await sentUntil(harness, 181_000)).toBe(35);
  });

  test("a higher share of the quota applies at once, up to the service's 20 a minute including the used slots", async () => {
    const harness = createHarness({ perMinute: 10 });
    asked(harness, 30);
    expect(await sentUntil(harness, 30_000)).toBe(10);
    harness.quota.setShare({ perMinute: 100, polite: 1, reserve: 0 });
    expect(await sentUntil(harness, 31_000)).toBe(20);
    expect(await sentUntil(harness, 180_000)).toBe(30);
    expect(mostInAMinute(harness.left)).toBeLessThanOrEqual(20);
  });

  test("a changed share keeps the reserve for writes free, unless writes have a separate request counter", async () => {
    for (const separateEndpoints of [false, true]) {
      const harness = createHarness({ separateEndpoints });
      const first = harness.request("live");
      await harness.clock.run(1_000);
      await first;
      harness.quota.setShare({ perMinute: 20, polite: 1, reserve: 5 });
      asked(harness, 25);
      expect(await sentUntil(harness, 30_000)).toBe(separateEndpoints ? 20 : 15);
      void harness.request("write", "write", { endpoint: "write" });
      await harness.clock.run(31_000);
      expect(names(harness)).toContain("write");
    }
  });
});
