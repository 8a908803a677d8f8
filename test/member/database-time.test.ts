import { expect, test } from "vitest";
import type { SqlValues } from "#src/core/postgres/session.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import { createLog } from "#src/core/runtime/log.ts";
import type { QuotaPause, QuotaSlot, QuotaStore } from "#src/engine/store/store.ts";
import { openDatabaseTime, storeQuotaInSteadyTime } from "#src/scale/database-time.ts";
import type { StateDatabase } from "#src/scale/postgres/state-database.ts";

const NOW = Date.UTC(2026, 5, 1);
/** Duration of a query to the database, one way. */
const WAY_MS = 40;
/** Largest difference between two measurements over the network. */
const VAGUE_MS = 4 * WAY_MS;

function world() {
  let trueMs = 0;
  let setByMs = 0;
  const meta = { clock_set_by_ms: 0 };
  const quota = memory();

  function run(text: string, values: SqlValues): readonly (readonly unknown[])[] {
    if (text.startsWith("select")) return [[NOW + trueMs + setByMs, meta.clock_set_by_ms]];
    if (String(meta.clock_set_by_ms) !== values[0]) return [];
    meta.clock_set_by_ms = Number(values[1]);
    return [[1]];
  }

  const database = {
    table: (name: string) => name,
    async query(text: string, values: SqlValues = []) {
      trueMs += WAY_MS;
      const rows = run(text, values);
      trueMs += WAY_MS;
      return { rows };
    },
  } as unknown as StateDatabase;

  async function member(wrongByMs = 0) {
    let suspendedMs = 0;
    const own: Clock = {
      now: () => NOW + wrongByMs + trueMs,
      monotonic: () => trueMs - suspendedMs,
      sleep: () => new Promise(() => {}),
    };
    const time = await openDatabaseTime({ database, clock: own, log: createLog({ level: "silent" }) });
    return {
      time,
      quota: storeQuotaInSteadyTime(quota, time, time),
      /** No clock of the machine advances meanwhile. */
      suspend(ms: number) {
        trueMs += ms;
        suspendedMs += ms;
      },
    };
  }

  return {
    member,
    meta,
    passes: (ms: number) => {
      trueMs += ms;
    },
    setDatabaseClock: (byMs: number) => {
      setByMs += byMs;
    },
    databaseMs: () => NOW + trueMs + setByMs,
  };
}

type Member = Awaited<ReturnType<ReturnType<typeof world>["member"]>>;

function memory(): QuotaStore {
  const slots = new Map<string, QuotaSlot[]>();
  const holds = new Map<string, QuotaPause>();
  const save = async (key: string, slot: QuotaSlot) => void slots.set(key, [...(slots.get(key) ?? []), slot]);
  return {
    load: async (key) => slots.get(key) ?? [],
    save,
    saveDeferred: save,
    async forgetSlots() {},
    loadPause: async (key) => holds.get(key),
    savePause: async (key, pause) => void holds.set(key, pause),
    loadClock: async () => ({ wallMs: 0, sinceBootMs: 0 }),
    async saveClock() {},
  };
}

const spend = ({ quota, time }: Member) =>
  quota.save("north/read", { id: 1, sentAtMs: time.now(), countedByMs: time.now() + 3_000 });

/** Time for which the latest slot is still under way, as the member sees it. */
async function leftMs({ quota, time }: Member): Promise<number> {
  const slots = await quota.load("north/read");
  return (slots.at(-1)?.countedByMs ?? Number.NaN) - time.now();
}

async function lookOften({ time }: Member, passes: (ms: number) => void, times = 10): Promise<void> {
  for (let n = 0; n < times; n += 1) {
    passes(1_000);
    await time.readAndCorrectClock();
  }
}

test.each([
  [-300_000, 0],
  [300_000, 0],
  [300_000, -300_000],
])(
  "members whose clocks are wrong by %i ms and %i ms write the same timestamps and agree on the age of requests that count against the quota",
  async (one, other) => {
    const { member, databaseMs } = world();
    const [before, after] = [await member(one), await member(other)];
    for (const { time } of [before, after]) expect(Math.abs(time.now() - databaseMs())).toBeLessThanOrEqual(VAGUE_MS);
    await spend(before);
    expect(await leftMs(after)).toBeGreaterThanOrEqual(3_000);
    expect(await leftMs(after)).toBeLessThanOrEqual(3_000 + VAGUE_MS);

    const saidAtMs = before.time.now();
    await before.quota.savePause("north/everything", { orderedAtMs: saidAtMs, untilMs: saidAtMs + 60_000 });
    const pause = await after.quota.loadPause("north/everything");
    expect((pause?.untilMs ?? 0) - after.time.now()).toBeGreaterThanOrEqual(60_000);
    expect((pause?.untilMs ?? 0) - after.time.now()).toBeLessThanOrEqual(60_000 + VAGUE_MS);
    expect(await after.quota.loadClock("north", "boot")).toBeUndefined();
    expect(before.time.notices()).toEqual([
      expect.stringMatching(
        one > 0
          ? /^The clock of this machine is (300|299) s ahead of the database's\./
          : /^The clock of this machine is 300 s behind the database's\./,
      ),
    ]);
  },
);

test.each([-600_000, 600_000])(
  "timestamps follow a step of the database's clock by %i ms, and the age of requests in the quota does not change",
  async (byMs) => {
    const { databaseMs, member, passes, setDatabaseClock } = world();
    const [holder, heir] = [await member(), await member()];
    await lookOften(holder, passes, 1);
    await heir.time.readAndCorrectClock();
    await spend(holder);
    setDatabaseClock(byMs);
    passes(1_000);
    await heir.time.readAndCorrectClock();
    await holder.time.readAndCorrectClock();
    expect(Math.abs(holder.time.now() - databaseMs())).toBeLessThanOrEqual(VAGUE_MS);
    expect(Math.abs(heir.time.now() - databaseMs())).toBeLessThanOrEqual(VAGUE_MS);
    const late = await member();
    for (const each of [holder, heir, late]) {
      const left = await leftMs(each);
      expect(Math.abs(left - 2_000)).toBeLessThanOrEqual(3 * VAGUE_MS);
    }
    setDatabaseClock(-byMs);
    await late.time.readAndCorrectClock();
    await spend(late);
    await holder.time.readAndCorrectClock();
    expect(Math.abs((await leftMs(holder)) - 3_000)).toBeLessThanOrEqual(3 * VAGUE_MS);
    expect(Math.abs(holder.time.now() - databaseMs())).toBeLessThanOrEqual(VAGUE_MS);
  },
);

test("a member that starts between a clock step of the database and its detection uses the stored step", async () => {
  const { member, passes, setDatabaseClock } = world();
  const old = await member();
  await lookOften(old, passes);
  setDatabaseClock(600_000);
  const young = await member();
  await young.time.readAndCorrectClock();
  await old.time.readAndCorrectClock();
  await young.time.readAndCorrectClock();
  await spend(old);
  expect(Math.abs((await leftMs(young)) - 3_000)).toBeLessThanOrEqual(3 * VAGUE_MS);
});

test("a false clock step stored by a suspended member is corrected", async () => {
  const { member, meta, passes } = world();
  const [suspended, awake] = [await member(), await member()];
  await lookOften(awake, passes);
  await suspended.time.readAndCorrectClock();
  suspended.suspend(60_000);
  await awake.time.readAndCorrectClock();
  await suspended.time.readAndCorrectClock();
  expect(meta.clock_set_by_ms).toBeGreaterThan(59_000);
  await awake.time.readAndCorrectClock();
  await suspended.time.readAndCorrectClock();
  expect(Math.abs(meta.clock_set_by_ms)).toBeLessThan(1_000);
  await spend(awake);
  expect(Math.abs((await leftMs(suspended)) - 3_000)).toBeLessThanOrEqual(3 * VAGUE_MS);
});
