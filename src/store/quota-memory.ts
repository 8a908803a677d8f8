import type { Database } from "./sqlite.ts";
import type { QuotaHold, QuotaMemory, QuotaSlot } from "./store.ts";

export function createQuotaMemory(database: Database): QuotaMemory {
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
    async loadHold(bucket) {
      const row = database
        .prepare("select said_ms as saidAtMs, until_ms as untilMs from quota_hold where bucket = ?")
        .all<QuotaHold>(bucket)[0];
      return row && { ...row };
    },
    async saveHold(bucket, { saidAtMs, untilMs }) {
      database
        .prepare(
          `insert into quota_hold (bucket, said_ms, until_ms) values (?, ?, ?)
           on conflict do update set said_ms = excluded.said_ms, until_ms = excluded.until_ms`,
        )
        .run(bucket, saidAtMs, untilMs);
    },
  };
}
