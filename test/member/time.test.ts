import { expect, test } from "vitest";
import type { Clock } from "#src/clock.ts";
import { createLog } from "#src/log.ts";
import { inDatabaseTime, openDatabaseTime } from "#src/member-time.ts";
import type { StateDatabase } from "#src/store/postgres/state-database.ts";
import type { QuotaHold, QuotaMemory, QuotaSlot } from "#src/store/store.ts";

const NOW = Date.UTC(2026, 5, 1);

/** A machine whose wall clock is wrong by so much; `passes` moves measured and wall time. */
function machine(wrongByMs: number) {
  let ms = 0;
  const clock: Clock = {
    now: () => NOW + wrongByMs + ms,
    monotonic: () => ms,
    sleep: () => new Promise(() => {}),
  };
  return {
    clock,
    passes(by: number) {
      ms += by;
    },
  };
}

/** Answers its time after `wayMs` there and as long back. */
function databaseFor({ clock, passes }: ReturnType<typeof machine>, wayMs: number): StateDatabase {
  return {
    async query() {
      passes(wayMs);
      const rows = [[String(NOW + clock.monotonic())]];
      passes(wayMs);
      return { rows };
    },
  } as unknown as StateDatabase;
}

function memory(): QuotaMemory {
  const slots = new Map<string, QuotaSlot[]>();
  const holds = new Map<string, QuotaHold>();
  const save = async (key: string, slot: QuotaSlot) => void slots.set(key, [...(slots.get(key) ?? []), slot]);
  return {
    load: async (key) => slots.get(key) ?? [],
    save,
    saveSoon: save,
    async forget() {},
    loadHold: async (key) => holds.get(key),
    saveHold: async (key, hold) => void holds.set(key, hold),
    loadClock: async () => ({ wallMs: 0, sinceBootMs: 0 }),
    async saveClock() {},
  };
}

const WAY_MS = 40;
/** What two looks over the network may differ by. */
const VAGUE_MS = 4 * WAY_MS;

async function quotaOf(wrongByMs: number, shared: QuotaMemory) {
  const own = machine(wrongByMs);
  const log = createLog({ level: "silent" });
  const time = await openDatabaseTime({ database: databaseFor(own, WAY_MS), clock: own.clock, log });
  return { clock: own.clock, quota: inDatabaseTime(shared, time, own.clock) };
}

test.each([
  [-300_000, 0],
  [300_000, 0],
  [300_000, -300_000],
])(
  "a slot that was spent by a clock wrong by %i ms is as old by one wrong by %i ms, or younger",
  async (one, other) => {
    const shared = memory();
    const [before, after] = [await quotaOf(one, shared), await quotaOf(other, shared)];
    const spent = { id: 1, sentAtMs: before.clock.now(), countedByMs: before.clock.now() + 3_000 };
    await before.quota.save("north/read", spent);
    const [slot] = await after.quota.load("north/read");
    const leftMs = (slot?.countedByMs ?? 0) - after.clock.now();
    expect(leftMs).toBeGreaterThanOrEqual(3_000);
    expect(leftMs).toBeLessThanOrEqual(3_000 + VAGUE_MS);

    const saidAtMs = before.clock.now();
    await before.quota.saveHold("north/everything", { saidAtMs, untilMs: saidAtMs + 60_000 });
    const hold = await after.quota.loadHold("north/everything");
    expect((hold?.untilMs ?? 0) - after.clock.now()).toBeGreaterThanOrEqual(60_000);
    expect((hold?.untilMs ?? 0) - after.clock.now()).toBeLessThanOrEqual(60_000 + VAGUE_MS);
    // Each machine's own clock says nothing of stamps by the database's.
    expect(await after.quota.loadClock("north", "boot")).toBeUndefined();
  },
);
