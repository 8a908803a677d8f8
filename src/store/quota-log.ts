import type { Database } from "./sqlite.ts";
import type { QuotaSlot, StoredQuotaLog } from "./store.ts";

export function createQuotaLog(database: Database): StoredQuotaLog {
  return {
    async load(bucket) {
      return database
        .prepare(
          "select id, sent_ms as sentAtMs, counted_ms as countedByMs from quota where bucket = ? order by counted_ms",
        )
        .all<QuotaSlot>(bucket)
        .map((row) => ({ ...row }));
    },
    async save(bucket, slot) {
      database
        .prepare(
          `insert into quota (bucket, id, sent_ms, counted_ms) values (?, ?, ?, ?)
           on conflict do update set sent_ms = excluded.sent_ms, counted_ms = excluded.counted_ms`,
        )
        .run(bucket, slot.id, slot.sentAtMs, slot.countedByMs);
    },
    async forget(bucket, beforeMs) {
      database.prepare("delete from quota where bucket = ? and counted_ms < ?").run(bucket, beforeMs);
    },
  };
}
