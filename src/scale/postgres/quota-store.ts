import type { ClockMark, QuotaPause, QuotaSlot, QuotaStore } from "../../engine/store/store.ts";
import type { RunQuery } from "./documents.ts";
import type { Query } from "./state-database.ts";
import type { Writer } from "./writer.ts";

/** Stores requests of one source that may still count against a quota. */
export function createQuotaStore(source: string, query: RunQuery, writer: Writer): QuotaStore {
  /** Time before which slots are ignored, by bucket. The next save deletes them. */
  const forgotten = new Map<string, number>();

  const put = (bucket: string, { id, sentAtMs, countedByMs }: QuotaSlot): Query => ({
    text: `insert into quota (source, bucket, id, sent_ms, counted_ms)
      values ($1, $2, $3::bigint, $4::double precision, $5::double precision)
      on conflict (source, bucket, id) do update set sent_ms = excluded.sent_ms, counted_ms = excluded.counted_ms`,
    values: [source, bucket, String(id), String(sentAtMs), String(countedByMs)],
    name: "put_slot",
  });

  function forget(bucket: string): readonly Query[] {
    const beforeMs = forgotten.get(bucket);
    if (beforeMs === undefined) return [];
    return [
      {
        text: "delete from quota where source = $1 and bucket = $2 and counted_ms < $3::double precision",
        values: [source, bucket, String(beforeMs)],
        name: "forget_slots",
      },
    ];
  }

  return {
    async load(key): Promise<readonly QuotaSlot[]> {
      const { rows } = await query(
        `select id::double precision, sent_ms, counted_ms from quota
         where source = $1 and bucket = $2 and counted_ms >= $3::double precision order by counted_ms`,
        [source, key, String(forgotten.get(key) ?? 0)],
      );
      return rows.map(([id, sentAtMs, countedByMs]) => ({
        id: Number(id),
        sentAtMs: Number(sentAtMs),
        countedByMs: Number(countedByMs),
      }));
    },

    async save(key, slot) {
      await writer.commit([...forget(key), put(key, slot)]);
    },

    saveDeferred: (key, slot) => writer.soon.write(`slot ${slot.id} ${key}`, () => put(key, slot)),

    async forget(key, beforeMs) {
      forgotten.set(key, Math.max(beforeMs, forgotten.get(key) ?? 0));
    },

    async loadHold(key): Promise<QuotaPause | undefined> {
      const { rows } = await query("select said_ms, until_ms from quota_hold where source = $1 and bucket = $2", [
        source,
        key,
      ]);
      return rows.map(([said, until]) => ({ saidAtMs: Number(said), untilMs: Number(until) }))[0];
    },

    async saveHold(key, { saidAtMs, untilMs }) {
      await writer.commit([
        {
          text: `insert into quota_hold (source, bucket, said_ms, until_ms)
            values ($1, $2, $3::double precision, $4::double precision)
            on conflict (source, bucket) do update set said_ms = excluded.said_ms, until_ms = excluded.until_ms`,
          values: [source, key, String(saidAtMs), String(untilMs)],
        },
      ]);
    },

    async loadClock(key, boot): Promise<ClockMark | undefined> {
      const { rows } = await query(
        "select wall_ms, since_boot_ms from quota_clock where source = $1 and bucket = $2 and boot = $3",
        [source, key, boot],
      );
      return rows.map(([wall, sinceBoot]) => ({ wallMs: Number(wall), sinceBootMs: Number(sinceBoot) }))[0];
    },

    /** Replaces the mark of another boot or machine, which is useless. */
    async saveClock(key, boot, { wallMs, sinceBootMs }) {
      await writer.commit([
        {
          text: `insert into quota_clock (source, bucket, boot, wall_ms, since_boot_ms)
            values ($1, $2, $3, $4::double precision, $5::double precision)
            on conflict (source, bucket) do update set boot = excluded.boot, wall_ms = excluded.wall_ms,
              since_boot_ms = excluded.since_boot_ms`,
          values: [source, key, boot, String(wallMs), String(sinceBootMs)],
        },
      ]);
    },
  };
}
