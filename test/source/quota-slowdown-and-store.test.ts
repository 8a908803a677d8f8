import { describe, expect, test } from "vitest";
import {
  createOtherClientWatch,
  createRefusalSlowdown,
  type OtherClientUse,
} from "#src/engine/source/quota/refusal-slowdown.ts";
import { createSpentRequestSlots } from "#src/engine/source/quota/sent-request-store.ts";
import { createHarness, usedBefore } from "./quota-harness.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

describe("the slowdown of requests after refusals (429)", () => {
  const LIMIT = 20;
  const terms = (changes: object = {}) => ({
    ...{ marginMs: 0, perWindow: LIMIT, isSlowed: false, limitsSpacing: false, suggestsOtherClient: false },
    ...changes,
  });
  const oneLess = (marginMs: number) => terms({ marginMs, perWindow: LIMIT - 1, isSlowed: true });

  test("uses one request slot less and adds a margin of 250 ms for an hour after the first refusal", () => {
    const caution = createRefusalSlowdown(LIMIT);
    expect(caution.currentLimits(0)).toEqual(terms());
    caution.noteRefusal(1_000, 19, true);
    expect(caution.currentLimits(1_000)).toEqual(oneLess(250));
    expect(caution.currentLimits(HOUR_MS + 999)).toEqual(oneLess(250));
    expect(caution.currentLimits(HOUR_MS + 1_000)).toEqual(terms());
  });

  test("doubles the margin up to 4 s for a day after a further refusal", () => {
    const caution = createRefusalSlowdown(LIMIT);
    const margins = [0, 1, 2, 3, 4, 5].map((n) => {
      caution.noteRefusal(n * 30 * MINUTE_MS, 19, true);
      return caution.currentLimits(n * 30 * MINUTE_MS).marginMs;
    });
    expect(margins).toEqual([250, 500, 1_000, 2_000, 4_000, 4_000]);
    const last = 150 * MINUTE_MS;
    expect(caution.currentLimits(last + 24 * HOUR_MS - 1).isSlowed).toBe(true);
    expect(caution.currentLimits(last + 24 * HOUR_MS)).toEqual(terms());
    caution.noteRefusal(last + 25 * HOUR_MS, 19, true);
    expect(caution.currentLimits(last + 25 * HOUR_MS)).toEqual(oneLess(250));
  });

  test("shrinks the margin by a fifth in three hours without a refusal", () => {
    const caution = createRefusalSlowdown(LIMIT);
    caution.noteRefusal(0, 19, true);
    caution.noteRefusal(30 * MINUTE_MS, 19, true);
    const marginAfter = (hours: number) => caution.currentLimits(30 * MINUTE_MS + hours * HOUR_MS).marginMs;
    expect([marginAfter(2.999), marginAfter(3), marginAfter(5.999), marginAfter(6)]).toEqual([500, 400, 400, 320]);
    caution.noteRefusal(30 * MINUTE_MS + 8 * HOUR_MS, 19, true);
    expect(marginAfter(8)).toBe(640);
    expect([marginAfter(10.999), marginAfter(11)]).toEqual([640, 512]);
  });

  test("spaces the requests of all lanes when a refusal comes although two or more slots were unused", () => {
    const spaced = terms({ marginMs: 4_000, perWindow: LIMIT - 1, isSlowed: true, limitsSpacing: true });
    const taught = (used: number, known: boolean) => {
      const caution = createRefusalSlowdown(LIMIT);
      caution.noteRefusal(0, used, known);
      return caution.currentLimits(0);
    };
    expect(taught(18, true)).toEqual(spaced);
    expect(taught(19, true)).toEqual(oneLess(250));
    expect(taught(18, false)).toEqual(oneLess(250));
    const again = createRefusalSlowdown(LIMIT);
    again.noteRefusal(0, 18, true);
    again.noteRefusal(30 * MINUTE_MS, 19, true);
    expect(again.currentLimits(30 * MINUTE_MS + 23 * HOUR_MS)).toEqual(spaced);
  });

  test("cuts the rate by a third for each refusal within half an hour, and recovers", () => {
    const caution = createRefusalSlowdown(LIMIT);
    caution.noteRefusal(0, 19, true);
    caution.noteRefusal(30 * MINUTE_MS - 1, 19, true);
    const at = 30 * MINUTE_MS - 1;
    const cut = (19 * 2) / 3;
    expect(caution.currentLimits(at)).toEqual(
      terms({ marginMs: 250, perWindow: cut, isSlowed: true, suggestsOtherClient: true }),
    );
    expect(caution.currentLimits(at + 10 * MINUTE_MS - 1).perWindow).toBe(cut);
    expect(caution.currentLimits(at + 10 * MINUTE_MS).perWindow).toBe(cut + 1);
    caution.noteRefusal(at + 15 * MINUTE_MS, 19, true);
    expect(caution.currentLimits(at + 15 * MINUTE_MS).perWindow).toBeCloseTo(((cut + 1) * 2) / 3, 9);
    for (let n = 0; n < 20; n += 1) caution.noteRefusal(at + 16 * MINUTE_MS, 19, true);
    expect(caution.currentLimits(at + 16 * MINUTE_MS).perWindow).toBe(2);
    expect(caution.currentLimits(at + 16 * MINUTE_MS + 180 * MINUTE_MS)).toEqual(terms());
  });
});

describe("the quota slots of sent requests", () => {
  const slot = (sentAtMs: number, countedByMs = sentAtMs) => ({
    id: sentAtMs,
    endpoint: "read" as const,
    sentAtMs,
    countedByMs,
  });
  const spentAt = (...times: readonly number[]) => {
    const spent = createSpentRequestSlots(MINUTE_MS);
    for (const time of times) spent.add(slot(time));
    return spent;
  };

  test("are free again one window (60 s) after the service counted the request", () => {
    const spent = spentAt(0, 1_000, 2_000);
    expect([59_999, 60_000, 61_000, 62_000].map((now) => spent.countAt(now))).toEqual([3, 2, 1, 0]);
    expect(spent.slotFreeAtMs(3_000, 4)).toBe(3_000);
    expect(spent.slotFreeAtMs(3_000, 3)).toBe(60_000);
    expect(spent.slotFreeAtMs(3_000, 1)).toBe(62_000);
    expect(spent.slotFreeAtMs(60_000, 3)).toBe(60_000);
    expect(spent.slotFreeAtMs(3_000, 0)).toBe(Number.POSITIVE_INFINITY);
  });

  test("are dropped when the request was never sent, and otherwise after two windows", () => {
    const spent = spentAt(0);
    const other = slot(1_000);
    spent.add(other);
    spent.drop(other);
    expect(spent.slots()).toEqual([slot(0)]);
    spent.add(slot(119_999));
    expect(spent.slots()).toHaveLength(2);
    spent.add(slot(120_000));
    expect(spent.slots().map(({ sentAtMs: sentAt }) => sentAt)).toEqual([119_999, 120_000]);
  });

  test("give another client's requests: the service's count minus Plenum's own, for any usual type of window", () => {
    expect(spentAt(0, 1_000).countUnexplained(2, 2_000)).toBe(0);
    expect(spentAt(0, 1_000).countUnexplained(3, 2_000)).toBe(1);
    expect(spentAt().countUnexplained(4, 0)).toBe(4);
    const before = spentAt(...Array.from({ length: 10 }, () => 0));
    expect(before.countAt(60_000)).toBe(0);
    expect(before.countUnexplained(10, 60_000)).toBe(0);
    expect(before.countUnexplained(11, 60_000)).toBe(1);
    expect(before.countUnexplained(6, 90_000)).toBe(1);
    expect(before.countUnexplained(5, 90_000)).toBe(0);
    expect(before.countUnexplained(1, 120_000)).toBe(1);
  });
});

describe("the detection of another client", () => {
  function watch() {
    const told: OtherClientUse[] = [];
    return { told, foreign: createOtherClientWatch(MINUTE_MS, (use) => told.push(use)) };
  }

  test("reports another client after repeated excess counts over two windows", () => {
    const { told, foreign } = watch();
    const at = 2 * MINUTE_MS;
    foreign.noteExcess(0, 0, 1);
    foreign.noteExcess(at - 1, at - 1, 1);
    foreign.noteExcess(at - 1, at - 1, 1);
    expect(told).toEqual([]);
    foreign.noteExcess(at, at, 1);
    expect(told).toEqual([{ evidence: "remaining", perWindow: 1, sinceMs: at }]);
    foreign.noteExcess(at, at, 5);
    expect(foreign.currentUse(at)).toEqual({ ...told[0], perWindow: 5 });
    expect(told).toHaveLength(1);
    foreign.noteExcess(at + 1, at + 1, 0);
    expect([foreign.slotsUsedByOthers(at + 59_999), foreign.slotsUsedByOthers(at + 60_000)]).toEqual([5, 0]);
  });

  test("reports another client at once when refusals have no other explanation, for half an hour", () => {
    const { told, foreign } = watch();
    expect(foreign.currentUse(0)).toBeNull();
    foreign.noteRefusals(1_000, 5_000);
    expect(told).toEqual([{ evidence: "refusals", perWindow: null, sinceMs: 5_000 }]);
    expect(foreign.currentUse(1_000)).toEqual(told[0]);
    expect(foreign.currentUse(1_000 + HOUR_MS / 2 - 1)).toEqual(told[0]);
    expect(foreign.currentUse(1_000 + HOUR_MS / 2)).toBeNull();
    foreign.noteRefusals(24 * HOUR_MS, 6_000);
    expect(told).toHaveLength(2);
  });
});

describe("limits and pauses stated by the service", () => {
  const ready = async (options: Parameters<typeof createHarness>[0] = {}) => {
    const harness = createHarness(options);
    await harness.quota.start();
    const limits = () => harness.quota.status().buckets.map(({ perMinute }) => perMinute);
    const state = (limit: number | null, remaining = limit) =>
      harness.quota.observeHeaders("read", { limit, remaining }, harness.clock.monotonic());
    return { ...harness, limits, state };
  };

  test("stated limits apply if lower, down to 1, and are ignored if invalid", async () => {
    const { state, limits } = await ready();
    for (const limit of [null, 0, 21, 20]) state(limit, 0);
    state(5, null);
    expect(limits()).toEqual([20]);
    const limitsAfter = [10, 15, 1].map((limit) => {
      state(limit, limit - 1);
      return limits();
    });
    expect(limitsAfter).toEqual([[10], [10], [1]]);
  });

  test("a stated limit is dropped after ten minutes and ten replies without it", async () => {
    const { request, clock, state, limits } = await ready();
    state(2);
    for (let n = 0; n < 9; n++) void request("live");
    await clock.advance(600_000);
    expect(limits()).toEqual([2]);
    void request("live");
    await clock.advance(60_000);
    expect(limits()).toEqual([20]);
  });

  test("keeps a limit that the service states again every five minutes, and if only nine replies follow in nine hours", async () => {
    const { request, clock, state, limits } = await ready();
    for (let minute = 0; minute < 30; minute++) {
      state(minute % 5 === 0 ? 2 : 15);
      void request("live");
      await clock.advance(60_000);
    }
    expect(limits()).toEqual([2]);
    state(2);
    for (let hour = 0; hour < 9; hour++) {
      void request("live");
      await clock.advance(3_600_000);
    }
    expect(limits()).toEqual([2]);
  });

  test.each([
    ["write", ["write"]],
    ["everything", ["read", "write", "history"]],
  ] as const)("with separate quotas, a pause of %s stops the endpoints %j", async (scope, paused) => {
    const { quota } = await ready({ separateEndpoints: true });
    quota.pauseRequests(10_000, scope);
    const { buckets } = quota.status();
    expect(buckets.filter(({ heldUntilMs }) => heldUntilMs !== null).map(({ name }) => name)).toEqual(paused);
  });

  test("rejects a request while the stored quota is unreadable, and reads the quota again for the next request", async () => {
    const store = usedBefore();
    let isBroken = true;
    const load = async (key: string) => (isBroken ? Promise.reject(new Error("The disk is broken.")) : store.load(key));
    const { request, clock } = createHarness({ store: { ...store, load } });
    await expect(request("write")).rejects.toThrow("The disk is broken.");
    isBroken = false;
    const asked = request("write");
    await clock.run(1_000);
    expect(await asked).toBe("write");
  });

  test("a failed save of a quota slot or a pause is logged and stops no request", async () => {
    const told: string[] = [];
    const store = usedBefore();
    let isBroken = false;
    const failing =
      <A extends unknown[]>(save: (...args: A) => Promise<void>) =>
      async (...args: A) =>
        isBroken ? Promise.reject(new Error("The disk is full.")) : save(...args);
    const log = { warn: (_facts: object, text: string) => told.push(text) } as never;
    const { save, saveDeferred, savePause } = store;
    const saves = { save: failing(save), saveDeferred: failing(saveDeferred), savePause: failing(savePause) };
    const { request, clock, quota } = createHarness({ log, store: { ...store, ...saves } });
    const asked = request("write", "asked", { latencyMs: 500 });
    await clock.run(100);
    isBroken = true;
    await clock.run(1_000);
    expect(await asked).toBe("asked");
    expect(told).toEqual(["quota slot not updated"]);
    quota.pauseRequests(1_000, "everything");
    await clock.run(1_100);
    expect(told).toHaveLength(2);
  });
});
