import type { Clock } from "#src/core/runtime/clock.ts";
import type { QuotaPause, QuotaSlot, QuotaStore } from "#src/engine/store/store.ts";
import type { VirtualClock } from "../../virtual-clock.ts";

/** A process that can be killed: its pending waits never end after that. */
export interface KillableProcess {
  readonly clock: Clock;
  kill(): void;
  readonly dead: () => boolean;
}

/** `ppm`: how much faster than true time the monotonic clock runs. A time server corrects the wall clock. */
export function createKillableProcess(truth: VirtualClock, ppm: number): KillableProcess {
  const rate = 1 + ppm * 1e-6;
  let isDead = false;
  return {
    clock: {
      now: () => truth.now(),
      monotonic: () => truth.monotonic() * rate,
      async sleep(ms, signal) {
        try {
          await truth.sleep(ms / rate, signal);
        } finally {
          if (isDead) await forEver();
        }
      },
    },
    kill() {
      isDead = true;
    },
    dead: () => isDead,
  };
}

export function forEver(): Promise<never> {
  return new Promise(() => undefined);
}

export interface QuotaDisk {
  readonly slots: Map<string, Map<number, QuotaSlot>>;
  readonly pauses: Map<string, QuotaPause>;
}

/** A quota store on a disk that outlives the process; `commitMs` returns the duration of a commit. */
export function createDiskQuotaStore(disk: QuotaDisk, clock: Clock, commitMs: () => number): QuotaStore {
  const waitMs = async (ms: number) => {
    if (ms > 0) await clock.sleep(ms);
  };
  const getSlots = (key: string) => {
    const slots = disk.slots.get(key) ?? new Map<number, QuotaSlot>();
    disk.slots.set(key, slots);
    return slots;
  };
  return {
    load: async (key) => [...getSlots(key).values()],
    loadPause: async (key) => disk.pauses.get(key),
    async savePause(key, pause) {
      await waitMs(commitMs());
      disk.pauses.set(key, pause);
    },
    async save(key, slot) {
      const halfMs = commitMs() / 2;
      await waitMs(halfMs);
      getSlots(key).set(slot.id, slot);
      await waitMs(halfMs);
    },
    async saveDeferred(key, slot) {
      await waitMs(20 * commitMs());
      getSlots(key).set(slot.id, slot);
    },
    loadClock: async () => undefined,
    saveClock: async () => undefined,
    async forgetSlots(key, beforeMs) {
      const slots = getSlots(key);
      for (const slot of slots.values()) if (slot.sentAtMs < beforeMs) slots.delete(slot.id);
    },
  };
}
