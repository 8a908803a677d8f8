import type { Clock } from "./clock.ts";
import { sentence } from "./errors.ts";
import type { Log } from "./log.ts";
import { elapsedMs, type Moment, momentOf } from "./moment.ts";
import type { StateDatabase } from "./store/postgres/state-database.ts";
import type { QuotaMemory, QuotaSlot } from "./store/store.ts";
import { loop } from "./waiting.ts";

/**
 * The database's wall clock, by measured time since the last look at it. All members write down by this one clock when
 * they spent a slot of the quota: by their own ones, a member whose clock is five minutes ahead would take the slots of
 * the member before it for spent long ago, and spend them again.
 */
export interface DatabaseTime {
  /** Milliseconds since 1970: it is as late as this already. */
  earliest(): number;
  /** And not later than this: the answer was under way for so long. */
  latest(): number;
  /** Looks again and again until the signal aborts, because clocks do not go alike. */
  watch(signal: AbortSignal): Promise<void>;
}

const LOOK_EVERY_MS = 30_000;

/** Throws where the database cannot be asked. */
export async function openDatabaseTime(options: {
  readonly database: StateDatabase;
  readonly clock: Clock;
  readonly log: Log;
}): Promise<DatabaseTime> {
  const { clock, database, log } = options;
  let seen = await look();

  async function look(): Promise<{
    readonly atMs: number;
    readonly sent: Moment;
    readonly answered: Moment;
  }> {
    const sent = momentOf(clock);
    const { rows } = await database.query(
      "select (extract(epoch from clock_timestamp()) * 1000)::double precision",
    );
    return { atMs: Number(rows[0]?.[0]), sent, answered: momentOf(clock) };
  }

  return {
    earliest: () => seen.atMs + elapsedMs(clock, seen.answered),
    latest: () => seen.atMs + elapsedMs(clock, seen.sent),
    watch: (signal) =>
      loop({
        clock,
        signal,
        looks: true,
        async turn() {
          seen = await look();
          return LOOK_EVERY_MS;
        },
        fault: (error) =>
          log.debug({ reason: sentence(error) }, "the database's time could not be asked for"),
      }),
  };
}

/** The same memory with its stamps by the database's clock; who asks sees them by ours. What is in doubt is taken for later. */
export function inDatabaseTime(memory: QuotaMemory, time: DatabaseTime, clock: Clock): QuotaMemory {
  const written = (ms: number) => ms - clock.now() + time.latest();
  const read = (ms: number) => ms - time.earliest() + clock.now();
  const put = ({ id, sentAtMs, countedByMs }: QuotaSlot): QuotaSlot => ({
    id,
    sentAtMs: Math.floor(written(sentAtMs)),
    countedByMs: Math.ceil(written(countedByMs)),
  });
  return {
    async load(key) {
      const slots = await memory.load(key);
      return slots.map(({ id, sentAtMs, countedByMs }) => ({
        id,
        sentAtMs: Math.floor(read(sentAtMs)),
        countedByMs: Math.ceil(read(countedByMs)),
      }));
    },
    save: (key, slot) => memory.save(key, put(slot)),
    saveSoon: (key, slot) => memory.saveSoon(key, put(slot)),
    forget: (key, beforeMs) => memory.forget(key, Math.floor(written(beforeMs))),
    async loadHold(key) {
      const hold = await memory.loadHold(key);
      return hold && { saidAtMs: Math.floor(read(hold.saidAtMs)), untilMs: Math.ceil(read(hold.untilMs)) };
    },
    saveHold: (key, { saidAtMs, untilMs }) =>
      memory.saveHold(key, {
        saidAtMs: Math.floor(written(saidAtMs)),
        untilMs: Math.ceil(written(untilMs)),
      }),
    // How our own clock was set meanwhile says nothing of stamps by another clock.
    loadClock: async () => undefined,
    saveClock: async () => undefined,
  };
}
