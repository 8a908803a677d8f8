import type { Clock } from "../../core/runtime/clock.ts";
import type { Damage } from "./damage.ts";
import type { QuotaDamage } from "./quota-store.ts";
import type { Database } from "./sqlite.ts";
import type { ClockMark, QuotaStore } from "./store.ts";

/** Longest time for which the service counts a request, in milliseconds, with a margin for its clock. */
const COUNTED_MS = 2 * 60_000;
/** Duration of a pause whose end is damaged: as long as one that the service orders without a duration. */
const UNKNOWN_PAUSE_MS = 60_000;

/**
 * Replaces damaged rows of the quota. A damaged slot counts as spent when it was found, in every bucket, because its
 * bucket may be the damaged column. So a restart never exceeds the quota; it may wait a minute longer.
 */
export function damagedQuota(damage: Damage, clock: Pick<Clock, "now">): QuotaDamage {
  return {
    unknownSlots: () =>
      damage
        .foundSince("quota", clock.now() - COUNTED_MS)
        .map(({ id, foundMs }) => ({ id: -id, sentAtMs: foundMs, countedByMs: foundMs })),
    unknownPause() {
      const found = damage.foundSince("quota_hold", clock.now() - UNKNOWN_PAUSE_MS).at(-1);
      return found && { saidAtMs: found.foundMs, untilMs: found.foundMs + UNKNOWN_PAUSE_MS };
    },
  };
}

/** Stores clock marks among the pauses; the names of sources and endpoints contain no blank. */
export function quotaClocks(database: Database): Pick<QuotaStore, "loadClock" | "saveClock"> {
  const clockKey = (key: string, boot: string) => `clock ${key} ${boot}`;
  return {
    async loadClock(key, boot) {
      const mark = database
        .prepare("select said_ms as wallMs, until_ms as sinceBootMs from quota_hold where bucket = ?")
        .get<ClockMark>(clockKey(key, boot));
      return mark && { ...mark };
    },
    async saveClock(key, boot, { wallMs, sinceBootMs }) {
      database.transaction(() => {
        // A mark of an earlier boot is useless.
        database.prepare("delete from quota_hold where substr(bucket, 1, length(?1)) = ?1").run(clockKey(key, ""));
        database
          .prepare(
            "insert into quota_hold (bucket, said_ms, until_ms, checksum) values (?1, ?2, ?3, row_checksum(?1, ?2, ?3))",
          )
          .run(clockKey(key, boot), wallMs, sinceBootMs);
      });
    },
  };
}
