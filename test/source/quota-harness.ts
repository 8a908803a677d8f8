import { createQuota, type Quota, type QuotaOptions } from "#src/engine/source/quota/quota.ts";
import type { OfferedSlot, QueueLane } from "#src/engine/source/source.ts";
import type { BootClockMark, QuotaPause, QuotaSlot, QuotaStore } from "#src/engine/store/store.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";

export interface Harness {
  readonly clock: VirtualClock;
  readonly quota: Quota;
  readonly store: VolatileStore;
  readonly left: { readonly name: string; readonly at: number }[];
  request(lane: QueueLane, name?: string, request?: QuotaRequest): Promise<string>;
}

export interface QuotaRequest {
  readonly endpoint?: "read" | "write" | "history";
  readonly signal?: AbortSignal;
  readonly latencyMs?: number;
  readonly fails?: Error;
  readonly choose?: (offer: OfferedSlot) => number | null;
  readonly remaining?: number;
}

export interface VolatileStore extends QuotaStore {
  readonly slots: Map<string, Map<number, QuotaSlot>>;
  readonly pauses: Map<string, QuotaPause>;
}

export const START_MS = Date.UTC(2024, 0, 1);

export function createVolatileStore(beforeCommit: () => Promise<void> = async () => undefined): VolatileStore {
  const slots = new Map<string, Map<number, QuotaSlot>>();
  const of = (key: string) => {
    const known = slots.get(key) ?? new Map<number, QuotaSlot>();
    slots.set(key, known);
    return known;
  };
  const pauses = new Map<string, QuotaPause>();
  const clocks = new Map<string, BootClockMark>();
  const save = async (key: string, slot: QuotaSlot) => {
    await beforeCommit();
    of(key).set(slot.id, slot);
  };
  return {
    slots,
    pauses,
    loadPause: async (key) => pauses.get(key),
    savePause: async (key, pause) => void pauses.set(key, pause),
    load: async (key) => [...of(key).values()],
    save,
    saveDeferred: save,
    loadClock: async (key, boot) => clocks.get(`${key} ${boot}`),
    saveClock: async (key, boot, mark) => void clocks.set(`${key} ${boot}`, mark),
    async forgetSlots(key, beforeMs) {
      for (const slot of of(key).values()) if (slot.sentAtMs < beforeMs) of(key).delete(slot.id);
    },
  };
}

/** Adds the record of a request long ago, so that the quota counts as used before. */
export function usedBefore(log: VolatileStore = createVolatileStore(), source = "test"): VolatileStore {
  log.slots.set(`${source}/read`, new Map([[1, { id: 1, sentAtMs: 0, countedByMs: 0 }]]));
  return log;
}

export function createHarness(
  options: Partial<QuotaOptions> & { readonly store?: VolatileStore; readonly clock?: VirtualClock } = {},
): Harness {
  const clock = options.clock ?? createVirtualClock(START_MS);
  const store = options.store ?? usedBefore();
  const quota = createQuota({ source: "test", ...options, clock, store });
  const left: { name: string; at: number }[] = [];
  const never = new AbortController().signal;
  return {
    clock,
    quota,
    store,
    left,
    request(lane, name = lane, { endpoint = "read", signal = never, latencyMs = 100, fails, remaining, choose } = {}) {
      const task = async () => {
        const sentMs = clock.monotonic();
        left.push({ name, at: sentMs });
        await clock.sleep(latencyMs);
        if (remaining !== undefined) quota.observeHeaders(endpoint, { limit: 20, remaining }, sentMs);
        if (fails !== undefined) throw fails;
        return name;
      };
      return quota.run(lane, endpoint, task, signal, choose);
    },
  };
}

export function mostInAMinute(left: Harness["left"]): number {
  return Math.max(0, ...left.map(({ at }) => left.filter((each) => each.at >= at && each.at < at + 60_000).length));
}
