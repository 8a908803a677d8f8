import type { Database } from "./sqlite.ts";
import type { QuotaHold, QuotaMemory, QuotaSlot } from "./store.ts";

export function createQuotaMemory(database: Database): QuotaMemory {
  return {
    async load(key) {
      return database
        .prepare(
          "select id, sent_ms as sentAtMs, counted_ms as countedByMs from quota where bucket = ? order by counted_ms",
        )
        .all<QuotaSlot>(key)
        .map((row) => ({ ...row }));
    },
    async save(key, slot) {
      database
        .prepare(
          `insert into quota (bucket, id, sent_ms, counted_ms) values (?, ?, ?, ?)
           on conflict do update set sent_ms = excluded.sent_ms, counted_ms = excluded.counted_ms`,
        )
        .run(key, slot.id, slot.sentAtMs, slot.countedByMs);
    },
    async forget(key, beforeMs) {
      database.prepare("delete from quota where bucket = ? and counted_ms < ?").run(key, beforeMs);
    },
    async loadHold(key) {
      const row = database
        .prepare("select said_ms as saidAtMs, until_ms as untilMs from quota_hold where bucket = ?")
        .all<QuotaHold>(key)[0];
      return row && { ...row };
    },
    async saveHold(key, { saidAtMs, untilMs }) {
      database
        .prepare(
          `insert into quota_hold (bucket, said_ms, until_ms) values (?, ?, ?)
           on conflict do update set said_ms = excluded.said_ms, until_ms = excluded.until_ms`,
        )
        .run(key, saidAtMs, untilMs);
    },
  };
}
