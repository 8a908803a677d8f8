import type { SqlDriver, SqlStatement } from "./sql-driver.ts";
import type { QuotaPause, QuotaSlot, QuotaStore } from "./store.ts";

export interface DamagedQuota {
  unknownSlots(): readonly QuotaSlot[];
  unknownPause(): QuotaPause | undefined;
}

/** Stores the requests and pauses that count against the quota; `clockStore` stores readings of the clocks. */
export function createQuotaStore(
  sql: SqlDriver,
  clockStore: Pick<QuotaStore, "loadClock" | "saveClock">,
  damagedQuota?: DamagedQuota,
): QuotaStore {
  const { dialect, query } = sql;
  /** For each quota bucket, stored requests before this time are ignored; the next save deletes them. */
  const ignoredBeforeMs = new Map<string, number>();

  const slotColumnValues = { bucket: "$2::text", id: "$3::bigint", sent_ms: "$4::float8", counted_ms: "$5::float8" };
  const putSlotSql = dialect.upsert("quota", ["bucket", "id"], slotColumnValues);

  const buildSlotPut = (bucket: string, { id, sentAtMs, countedByMs }: QuotaSlot): SqlStatement => ({
    text: putSlotSql,
    values: [bucket, id, sentAtMs, countedByMs],
    name: "put_slot",
  });

  return {
    ...clockStore,
    async load(key) {
      const slots = await query<QuotaSlot>(
        `select id, sent_ms as "sentAtMs", counted_ms as "countedByMs" from quota
         where source = $1 and bucket = $2 and counted_ms >= $3 order by counted_ms`,
        key,
        ignoredBeforeMs.get(key) ?? 0,
      );
      const damagedSlots = damagedQuota?.unknownSlots() ?? [];
      return [...slots.map((slot) => ({ ...slot })), ...damagedSlots].toSorted((a, b) => a.countedByMs - b.countedByMs);
    },
    async save(key, slot) {
      const beforeMs = ignoredBeforeMs.get(key);
      const text = "delete from quota where source = $1 and bucket = $2 and counted_ms < $3";
      const forgetSlots = beforeMs === undefined ? [] : [{ text, values: [key, beforeMs], name: "forget_slots" }];
      await sql.commit([...forgetSlots, buildSlotPut(key, slot)]);
    },
    saveDeferred: (key, slot) => sql.defer(`slot ${slot.id} ${key}`, () => buildSlotPut(key, slot)),
    async forgetSlots(key, beforeMs) {
      ignoredBeforeMs.set(key, Math.max(beforeMs, ignoredBeforeMs.get(key) ?? 0));
    },
    async loadPause(key) {
      const text = `select said_ms as "orderedAtMs", until_ms as "untilMs" from quota_hold where source = $1 and bucket = $2`;
      const [pause] = await query<QuotaPause>(text, key);
      return pause === undefined ? damagedQuota?.unknownPause() : { ...pause };
    },
    async savePause(key, { orderedAtMs, untilMs }) {
      const pauseColumnValues = { bucket: "$2::text", said_ms: "$3::float8", until_ms: "$4::float8" };
      await sql.commit([
        { text: dialect.upsert("quota_hold", ["bucket"], pauseColumnValues), values: [key, orderedAtMs, untilMs] },
      ]);
    },
  };
}
