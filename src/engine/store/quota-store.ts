import type { Clock } from "../../core/runtime/clock.ts";
import type { Damage } from "./damage.ts";
import type { DeferredWrites } from "./deferred-writes.ts";
import type { Database } from "./sqlite.ts";
import type { ClockMark, QuotaPause, QuotaSlot, QuotaStore } from "./store.ts";

/** Longest time for which the service counts a request, in milliseconds, with a margin for its clock. */
const COUNTED_MS = 2 * 60_000;
/** Duration of a pause whose end is damaged: as long as one that the service orders without a duration. */
const UNKNOWN_HOLD_MS = 60_000;

/** Names of sources and endpoints contain no blank. */
function clockKey(key: string, boot: string): string {
  return `clock ${key} ${boot}`;
}

/**
 * Stores spent slots and pauses of the quota. A damaged slot counts as spent when it was found, in every bucket,
 * because its bucket may be the damaged column. So a restart never exceeds the quota; it may wait a minute longer.
 */
export function createQuotaStore(
  database: Database,
  soon: DeferredWrites<() => void>,
  clock: Pick<Clock, "now">,
  damage: Damage,
): QuotaStore {
  const unknownSlots = (): readonly QuotaSlot[] =>
    damage
      .foundSince("quota", clock.now() - COUNTED_MS)
      .map(({ id, foundMs }) => ({ id: -id, sentAtMs: foundMs, countedByMs: foundMs }));

  function unknownHold(): QuotaPause | undefined {
    const found = damage.foundSince("quota_hold", clock.now() - UNKNOWN_HOLD_MS).at(-1);
    return found && { saidAtMs: found.foundMs, untilMs: found.foundMs + UNKNOWN_HOLD_MS };
  }

  function put(key: string, slot: QuotaSlot): void {
    database
      .prepare(
        `insert into quota (bucket, id, sent_ms, counted_ms, checksum)
         values (?1, ?2, ?3, ?4, row_checksum(?1, ?2, ?3, ?4)) on conflict do update set
           sent_ms = excluded.sent_ms, counted_ms = excluded.counted_ms, checksum = excluded.checksum`,
      )
      .run(key, slot.id, slot.sentAtMs, slot.countedByMs);
  }

  /** Reads two times of one row: of a pause, or of one moment by two clocks. */
  function pair<T>(key: string, first: keyof T & string, second: keyof T & string): T | undefined {
    const row = database
      .prepare(`select said_ms as ${first}, until_ms as ${second} from quota_hold where bucket = ?`)
      .all<T>(key)[0];
    return row === undefined ? undefined : { ...row };
  }

  function putPair(key: string, first: number, second: number): void {
    database
      .prepare(
        `insert into quota_hold (bucket, said_ms, until_ms, checksum)
         values (?1, ?2, ?3, row_checksum(?1, ?2, ?3)) on conflict do update set
           said_ms = excluded.said_ms, until_ms = excluded.until_ms, checksum = excluded.checksum`,
      )
      .run(key, first, second);
  }

  return {
    async load(key) {
      const known = database
        .prepare(
          "select id, sent_ms as sentAtMs, counted_ms as countedByMs from quota where bucket = ? order by counted_ms",
        )
        .all<QuotaSlot>(key)
        .map((row) => ({ ...row }));
      return [...known, ...unknownSlots()].toSorted((a, b) => a.countedByMs - b.countedByMs);
    },
    async save(key, slot) {
      database.transaction(() => put(key, slot));
    },
    async saveDeferred(key, slot) {
      await soon.write(`slot ${slot.id} ${key}`, () => put(key, slot));
    },
    async forget(key, beforeMs) {
      database.prepare("delete from quota where bucket = ? and counted_ms < ?").run(key, beforeMs);
    },
    async loadHold(key) {
      return pair<QuotaPause>(key, "saidAtMs", "untilMs") ?? unknownHold();
    },
    async saveHold(key, { saidAtMs, untilMs }) {
      putPair(key, saidAtMs, untilMs);
    },
    async loadClock(key, boot) {
      return pair<ClockMark>(clockKey(key, boot), "wallMs", "sinceBootMs");
    },
    async saveClock(key, boot, { wallMs, sinceBootMs }) {
      database.transaction(() => {
        // A mark of an earlier boot is useless.
        database.prepare("delete from quota_hold where substr(bucket, 1, length(?1)) = ?1").run(clockKey(key, ""));
        putPair(clockKey(key, boot), wallMs, sinceBootMs);
      });
    },
  };
}
