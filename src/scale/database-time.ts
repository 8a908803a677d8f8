import { sentence } from "../core/errors/errors.ts";
import type { Clock } from "../core/runtime/clock.ts";
import type { Log } from "../core/runtime/log.ts";
import { elapsedMs, type Moment, momentOf } from "../core/runtime/moment.ts";
import { loop } from "../core/runtime/waiting.ts";
import type { QuotaSlot, QuotaStore } from "../engine/store/store.ts";
import type { StateDatabase } from "./postgres/state-database.ts";

const LOOK_EVERY_MS = 1_000;
/** A difference to measured time, beyond the duration of the query, that counts as a step of the clock. */
const STEP_MS = 500;
/** Looks after which a member knows the steady clock well enough to correct another member. */
const LOOKS_UNTIL_SETTLED = 5;
/** Looks for which a member accepts corrections of what it has stored itself. */
const LOOKS_AFTER_OWN_STEP = 10;
/** Difference of this machine's clock that is worth a notice. */
const DIFFERENCE_MS = 30_000;

interface ClockReading {
  readonly wallMs: number;
  readonly setByMs: number;
  readonly sent: Moment;
  readonly answered: Moment;
}

/**
 * Two clocks that all members of a fleet share. The wall clock is the database's and follows its steps within a second. The
 * steady clock never follows a step and stamps spent quota slots: after a step of ten minutes, a member would consider its
 * predecessor's slots long spent and spend them again. The member that notices a step first stores it.
 *
 *   database's clock   12:00:00 ── set back 10 min ── 11:50:01
 *   clock_set_by_ms           0                       −600,000
 *   steady clock       12:00:00 ───────────────────── 12:00:01
 */
export async function openDatabaseTime(options: {
  readonly database: StateDatabase;
  /** The machine's own clock. */
  readonly clock: Clock;
  readonly log: Log;
}) {
  const { clock, database, log } = options;
  let seen = await read();
  let offsetMs = seen.wallMs - seen.answered.monotonicMs;
  let looks = 0;
  let storedAtLook = Number.NEGATIVE_INFINITY;

  async function read(): Promise<ClockReading> {
    const sent = momentOf(clock);
    const { rows } = await database.query(
      `select (extract(epoch from clock_timestamp()) * 1000)::double precision, clock_set_by_ms from ${database.table("meta")}`,
    );
    const [wallMs, setByMs] = rows[0] ?? [];
    return { wallMs: Number(wallMs), setByMs: Number(setByMs), sent, answered: momentOf(clock) };
  }

  /** Stores by how much the clock was set, unless another member was quicker, and returns the stored value. */
  async function store(before: number, setByMs: number): Promise<number> {
    const text = `update ${database.table("meta")} set clock_set_by_ms = $2::double precision
      where clock_set_by_ms = $1::double precision returning 1`;
    const { rows } = await database.query(text, [String(before), String(setByMs)]);
    return rows.length > 0 ? setByMs : (await read()).setByMs;
  }

  const earliestWallMs = () => seen.wallMs + elapsedMs(clock, seen.answered);
  const latestWallMs = () => seen.wallMs + elapsedMs(clock, seen.sent);
  const earliest = () => earliestWallMs() - seen.setByMs;
  /** The response may have been under way for as long as the request took. */
  const latest = () => latestWallMs() - seen.setByMs;

  async function look(): Promise<void> {
    const [fromWallMs, fromMs] = [earliestWallMs(), earliest()];
    const found = await read();
    const wasSet = distanceOutside(found.wallMs, fromWallMs, latestWallMs()) !== 0;
    const byMs = distanceOutside(found.wallMs - found.setByMs, fromMs, latest());
    // Without a step, the stored value is wrong: the member that stored it was suspended and took that for a step.
    const isSettled = looks >= LOOKS_UNTIL_SETTLED && looks - storedAtLook > LOOKS_AFTER_OWN_STEP;
    let { setByMs } = found;
    if (byMs !== 0 && (wasSet || isSettled)) {
      storedAtLook = looks;
      setByMs = await store(setByMs, setByMs + byMs);
      log.info(
        { seconds: Math.round(byMs / 1_000), setByMs },
        "the clock of the fleet's database was set; quota and leases are measured without it",
      );
    }
    looks += 1;
    seen = { ...found, setByMs };
    const { answered, sent, wallMs } = found;
    offsetMs = Math.min(Math.max(offsetMs, wallMs - answered.monotonicMs), wallMs - sent.monotonicMs);
  }

  /** The database's wall clock, milliseconds since 1970. */
  const now = () => Math.floor(offsetMs + clock.monotonic());

  return {
    now,
    earliest,
    latest,
    notices(): readonly string[] {
      const aheadMs = clock.now() - now();
      if (Math.abs(aheadMs) <= DIFFERENCE_MS) return [];
      const way = aheadMs > 0 ? "ahead of" : "behind";
      return [
        `The clock of this machine is ${Math.round(Math.abs(aheadMs) / 1_000)} s ${way} the database's. Plenum goes by the database's; set the clock of the machine that is wrong.`,
      ];
    },
    look,
    watch: (signal: AbortSignal) =>
      loop({
        clock,
        signal,
        looks: true,
        async turn() {
          await look();
          return LOOK_EVERY_MS;
        },
        fault: (error) => log.debug({ reason: sentence(error) }, "the database's time could not be asked for"),
      }),
  };
}

export type DatabaseTime = Awaited<ReturnType<typeof openDatabaseTime>>;

/** Returns by how much a time lies outside a range; 0 below the size of a step. */
function distanceOutside(ms: number, fromMs: number, toMs: number): number {
  if (ms < fromMs - STEP_MS) return ms - fromMs;
  return ms > toMs + STEP_MS ? ms - toMs : 0;
}

/** Stores quota times by the steady clock; the caller sees them by `clock`. An uncertain time counts as later. */
export function inSteadyTime(
  store: QuotaStore,
  time: Pick<DatabaseTime, "earliest" | "latest">,
  clock: Pick<Clock, "now">,
): QuotaStore {
  const written = (ms: number) => ms - clock.now() + time.latest();
  const read = (ms: number) => ms - time.earliest() + clock.now();
  const slotIn = (convert: (ms: number) => number, { id, sentAtMs, countedByMs }: QuotaSlot): QuotaSlot => ({
    ...{ id, sentAtMs: Math.floor(convert(sentAtMs)), countedByMs: Math.ceil(convert(countedByMs)) },
  });
  return {
    load: async (key) => (await store.load(key)).map((slot) => slotIn(read, slot)),
    save: (key, slot) => store.save(key, slotIn(written, slot)),
    saveDeferred: (key, slot) => store.saveDeferred(key, slotIn(written, slot)),
    forget: (key, beforeMs) => store.forget(key, Math.floor(written(beforeMs))),
    async loadPause(key) {
      const hold = await store.loadPause(key);
      return hold && { orderedAtMs: Math.floor(read(hold.orderedAtMs)), untilMs: Math.ceil(read(hold.untilMs)) };
    },
    savePause: (key, { orderedAtMs: saidAtMs, untilMs }) =>
      store.savePause(key, { orderedAtMs: Math.floor(written(saidAtMs)), untilMs: Math.ceil(written(untilMs)) }),
    // A step of our own clock does not affect stamps of another clock.
    loadClock: async () => undefined,
    saveClock: async () => undefined,
  };
}
