import type { Database } from "./sqlite.ts";
import { Conflict, type DocumentChange, type LogRecord } from "./store.ts";

interface BodyRow {
  readonly body: string;
}

/** Sets of JSON values by key, and append-only logs of JSON records. Changes belong inside a transaction. */
export function createDocuments(database: Database) {
  return {
    document<T>(set: string, key: string): T | undefined {
      const row = database
        .prepare("select body from document where set_name = ? and key = ?")
        .get<BodyRow>(set, key);
      return row === undefined ? undefined : (JSON.parse(row.body) as T);
    },

    documents<T>(set: string): Map<string, T> {
      const rows = database
        .prepare("select key, body from document where set_name = ?")
        .all<BodyRow & { readonly key: string }>(set);
      return new Map(rows.map((row) => [row.key, JSON.parse(row.body) as T]));
    },

    change({ set, put = [], insert = [], remove = [] }: DocumentChange): void {
      const removal = database.prepare("delete from document where set_name = ? and key = ?");
      const insertion = database.prepare(
        "insert into document (set_name, key, body) values (?, ?, ?) on conflict do nothing",
      );
      const upsertion = database.prepare(
        "insert into document (set_name, key, body) values (?, ?, ?) on conflict do update set body = excluded.body",
      );
      for (const key of remove) removal.run(set, key);
      for (const [key, value] of insert) {
        if (insertion.run(set, key, json(value)) === 0) throw new Conflict(set, key);
      }
      for (const [key, value] of put) upsertion.run(set, key, json(value));
    },

    append(log: string, body: unknown): void {
      database
        .prepare(
          `insert into record (log, sequence, body)
           select ?1, coalesce(max(sequence), 0) + 1, ?2 from record where log = ?1`,
        )
        .run(log, json(body));
    },

    records<T>(log: string, after: number, limit: number): readonly LogRecord<T>[] {
      return database
        .prepare("select sequence, body from record where log = ? and sequence > ? order by sequence limit ?")
        .all<RecordRow>(log, after, limit)
        .map(toRecord<T>);
    },

    lastRecord<T>(log: string): LogRecord<T> | undefined {
      const row = database
        .prepare("select sequence, body from record where log = ? order by sequence desc limit 1")
        .get<RecordRow>(log);
      return row === undefined ? undefined : toRecord<T>(row);
    },
  };
}

interface RecordRow extends BodyRow {
  readonly sequence: number;
}

function toRecord<T>(row: RecordRow): LogRecord<T> {
  return { sequence: row.sequence, body: JSON.parse(row.body) as T };
}

/** What JSON has no word for becomes null, as inside an array. */
function json(value: unknown): string {
  return JSON.stringify(value) ?? "null";
}
