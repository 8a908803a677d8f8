import { errorText } from "../core/errors/errors.ts";
import type { Clock } from "../core/runtime/clock.ts";
import { elapsedMs, readClocks } from "../core/runtime/elapsed-time.ts";
import type { Log } from "../core/runtime/log.ts";
import { runLoop } from "../core/runtime/waiting.ts";
import type { QuotaPause, QuotaSlot, QuotaStore } from "../engine/store/store.ts";
import type { StateDatabase } from "./postgres/state-database.ts";

const CLOCK_READ_INTERVAL_MS = 1_000;
/** A smaller difference between wall clock and measured time does not count as a clock step. */
const MIN_CLOCK_STEP_MS = 500;
/** A member reads the clock five times before it replaces a clock step that another member stored. */
const CLOCK_READS_UNTIL_SETTLED = 5;
/** After storing a clock step, a member corrects stored steps only after this number of clock reads. */
const CLOCK_READS_AFTER_OWN_STEP = 10;
/** A larger difference between the clocks of this machine and of the database is shown as a warning. */
const CLOCK_DIFFERENCE_NOTICE_MS = 30_000;

/**
 * Clocks that all members of a fleet share: the database's wall clock, and a steady clock that ignores steps of the wall
 * clock. It timestamps used quota slots, so that a clock step does not free them early.
 *
 *   database's clock   12:00:00 ── set back 10 min ── 11:50:01
 *   clock_set_by_ms           0                       −600,000
 *   steady clock       12:00:00 ───────────────────── 12:00:01
 */
export async function openDatabaseTime(options: {
  readonly database: StateDatabase;
  readonly clock: Clock;
  readonly log: Log;
}) {
  const { clock, database, log } = options;
  let lastReading = await readDatabaseClock();
  let wallClockOffsetMs = lastReading.wallMs - lastReading.answeredAt.monotonicMs;
  let readCount = 0;
  let readCountAtOwnStep = Number.NEGATIVE_INFINITY;

  async function readDatabaseClock() {
    const sentAt = readClocks(clock);
    const { rows } = await database.query(
      `select (extract(epoch from clock_timestamp()) * 1000)::double precision, clock_set_by_ms from ${database.table("meta")}`,
    );
    const [wallMs, totalStepMs] = rows[0] ?? [];
    return { wallMs: Number(wallMs), totalStepMs: Number(totalStepMs), sentAt, answeredAt: readClocks(clock) };
  }

  /** Stores the total clock step, unless another member stored one first, and returns the stored value. */
  async function storeTotalClockStep(previousStepMs: number, totalStepMs: number): Promise<number> {
    const updateClockStepSql = `update ${database.table("meta")} set clock_set_by_ms = $2::double precision
      where clock_set_by_ms = $1::double precision returning 1`;
    const { rows } = await database.query(updateClockStepSql, [String(previousStepMs), String(totalStepMs)]);
    return rows.length > 0 ? totalStepMs : (await readDatabaseClock()).totalStepMs;
  }

  const earliestWallMs = () => lastReading.wallMs + elapsedMs(clock, lastReading.answeredAt);
  const latestWallMs = () => lastReading.wallMs + elapsedMs(clock, lastReading.sentAt);
  const earliestSteadyMs = () => earliestWallMs() - lastReading.totalStepMs;
  const latestSteadyMs = () => latestWallMs() - lastReading.totalStepMs;

  async function readAndCorrectClock(): Promise<void> {
    const [fromWallMs, fromMs] = [earliestWallMs(), earliestSteadyMs()];
    const clockReading = await readDatabaseClock();
    const wasWallClockSet = distanceOutsideRange(clockReading.wallMs, fromWallMs, latestWallMs()) !== 0;
    const clockStepMs = distanceOutsideRange(clockReading.wallMs - clockReading.totalStepMs, fromMs, latestSteadyMs());
    // If the wall clock did not step, a member that was suspended has stored a wrong clock step.
    const hasEnoughClockReads =
      readCount >= CLOCK_READS_UNTIL_SETTLED && readCount - readCountAtOwnStep > CLOCK_READS_AFTER_OWN_STEP;
    let { totalStepMs } = clockReading;
    if (clockStepMs !== 0 && (wasWallClockSet || hasEnoughClockReads)) {
      readCountAtOwnStep = readCount;
      totalStepMs = await storeTotalClockStep(totalStepMs, totalStepMs + clockStepMs);
      log.info(
        { seconds: Math.round(clockStepMs / 1_000), setByMs: totalStepMs },
        "the clock of the fleet's database was set; quota and leases are measured without it",
      );
    }
    readCount += 1;
    lastReading = { ...clockReading, totalStepMs };
    const { answeredAt, sentAt, wallMs } = clockReading;
    wallClockOffsetMs = Math.min(
      Math.max(wallClockOffsetMs, wallMs - answeredAt.monotonicMs),
      wallMs - sentAt.monotonicMs,
    );
  }

  const now = () => Math.floor(wallClockOffsetMs + clock.monotonic());

  return {
    now,
    earliestSteadyMs,
    latestSteadyMs,
    notices(): readonly string[] {
      const machineClockAheadMs = clock.now() - now();
      if (Math.abs(machineClockAheadMs) <= CLOCK_DIFFERENCE_NOTICE_MS) return [];
      const directionText = machineClockAheadMs > 0 ? "ahead of" : "behind";
      return [
        `The clock of this machine is ${Math.round(Math.abs(machineClockAheadMs) / 1_000)} s ${directionText} the database's. Plenum uses the database's clock; set the clock of the machine that is wrong.`,
      ];
    },
    readAndCorrectClock,
    watchClock: (signal: AbortSignal) =>
      runLoop({
        clock,
        signal,
        alignSleeps: true,
        async step() {
          await readAndCorrectClock();
          return CLOCK_READ_INTERVAL_MS;
        },
        onFault: (error) => log.debug({ reason: errorText(error) }, "the database's time could not be asked for"),
      }),
  };
}

export type DatabaseTime = Awaited<ReturnType<typeof openDatabaseTime>>;

/** Returns the milliseconds by which a time is outside a range; 0 if fewer than `MIN_CLOCK_STEP_MS`. */
function distanceOutsideRange(ms: number, fromMs: number, toMs: number): number {
  if (ms < fromMs - MIN_CLOCK_STEP_MS) return ms - fromMs;
  return ms > toMs + MIN_CLOCK_STEP_MS ? ms - toMs : 0;
}

/** Converts quota times between the store's steady clock and `clock`. Prefers later times: no slot is freed early. */
export function storeQuotaInSteadyTime(
  store: QuotaStore,
  time: Pick<DatabaseTime, "earliestSteadyMs" | "latestSteadyMs">,
  clock: Pick<Clock, "now">,
): QuotaStore {
  const toSteadyMs = (ms: number) => ms - clock.now() + time.latestSteadyMs();
  const fromSteadyMs = (ms: number) => ms - time.earliestSteadyMs() + clock.now();
  const convertSlot = (convert: (ms: number) => number, { id, sentAtMs, countedByMs }: QuotaSlot): QuotaSlot => {
    return { id, sentAtMs: Math.floor(convert(sentAtMs)), countedByMs: Math.ceil(convert(countedByMs)) };
  };
  const convertPause = (convert: (ms: number) => number, { orderedAtMs, untilMs }: QuotaPause): QuotaPause => {
    return { orderedAtMs: Math.floor(convert(orderedAtMs)), untilMs: Math.ceil(convert(untilMs)) };
  };
  return {
    load: async (key) => (await store.load(key)).map((slot) => convertSlot(fromSteadyMs, slot)),
    save: (key, slot) => store.save(key, convertSlot(toSteadyMs, slot)),
    saveDeferred: (key, slot) => store.saveDeferred(key, convertSlot(toSteadyMs, slot)),
    forgetSlots: (key, beforeMs) => store.forgetSlots(key, Math.floor(toSteadyMs(beforeMs))),
    async loadPause(key) {
      const pause = await store.loadPause(key);
      return pause && convertPause(fromSteadyMs, pause);
    },
    savePause: (key, pause) => store.savePause(key, convertPause(toSteadyMs, pause)),
    // Clock steps of this machine do not affect stamps of the steady clock.
    loadClock: async () => undefined,
    saveClock: async () => undefined,
  };
}
