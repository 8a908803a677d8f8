import type { DamageQuarantine } from "./damage-quarantine.ts";
import { type Database, rowChecksum, type Statement } from "./sqlite.ts";
import { type DocumentChange, KeyConflict, type LogRecord } from "./store.ts";

interface BodyRow {
  readonly body: string;
  readonly checksum: number | null;
}

export function createDocuments(database: Database, damage: DamageQuarantine) {
  /** Number of changes of each set by this process. Changes by other processes (silences) do not count. */
  const changeCounts = new Map<string, number>();
  const countChange = (set: string) => changeCounts.set(set, (changeCounts.get(set) ?? 0) + 1);

  function quarantineDocuments(where: string, ...values: readonly string[]): void {
    const [set] = values;
    if (set !== undefined) countChange(set);
    if (!database.readOnly) database.transaction(() => damage.quarantineDocuments("document", where, ...values));
  }

  return {
    document<T>(set: string, key: string): T | undefined {
      const row = database
        .prepare("select body, checksum from document where set_name = ? and key = ?")
        .get<BodyRow>(set, key);
      if (row === undefined) return undefined;
      if (rowChecksum(set, key, row.body) === row.checksum) return JSON.parse(row.body) as T;
      quarantineDocuments("set_name = ? and key = ?", set, key);
      return undefined;
    },
    documents<T>(set: string): Map<string, T> {
      const rows = database
        .prepare("select key, body, checksum from document where set_name = ?")
        .all<BodyRow & { readonly key: string }>(set);
      const soundRows = rows.filter(({ key, body, checksum }) => rowChecksum(set, key, body) === checksum);
      if (soundRows.length < rows.length) quarantineDocuments("set_name = ?", set);
      return new Map(soundRows.map((row) => [row.key, JSON.parse(row.body) as T]));
    },
    version: (set: string): number => changeCounts.get(set) ?? 0,
    change({ set, put = [], insert = [], remove = [] }: DocumentChange): void {
      const removal = database.prepare("delete from document where set_name = ? and key = ?");
      const insertion = database.prepare(
        "insert into document (set_name, key, body, checksum) values (?, ?, ?, ?) on conflict do nothing",
      );
      const upsertion = database.prepare(
        `insert into document (set_name, key, body, checksum) values (?, ?, ?, ?)
         on conflict do update set body = excluded.body, checksum = excluded.checksum`,
      );
      let changes = 0;
      for (const key of remove) changes += removal.run(set, key);
      for (const [key, value] of insert) {
        changes += 1;
        if (writeDocument(insertion, set, key, value) === 0) throw new KeyConflict(set, key);
      }
      for (const [key, value] of put) changes += writeDocument(upsertion, set, key, value);
      if (changes > 0) countChange(set);
    },
    append(log: string, body: unknown): void {
      database
        .prepare(
          `insert into record (log, sequence, body, checksum)
           select ?1, next, ?2, row_checksum(?1, next, ?2)
           from (select coalesce(max(sequence), 0) + 1 as next from record where log = ?1)`,
        )
        .run(log, toJson(body));
    },
    records<T>(log: string, after: number, limit: number): readonly LogRecord<T>[] {
      return database
        .prepare("select sequence, body, checksum from record where log = ? and sequence > ? order by sequence limit ?")
        .all<RecordRow>(log, after, limit)
        .map((row) => toRecord<T>(log, row));
    },
    lastRecord<T>(log: string): LogRecord<T> | undefined {
      const row = database
        .prepare("select sequence, body, checksum from record where log = ? order by sequence desc limit 1")
        .get<RecordRow>(log);
      return row === undefined ? undefined : toRecord<T>(log, row);
    },
  };
}

interface RecordRow extends BodyRow {
  readonly sequence: number;
}

/** A damaged record keeps its sequence number and has an empty body. */
function toRecord<T>(log: string, { sequence, body, checksum }: RecordRow): LogRecord<T> {
  if (rowChecksum(log, sequence, body) === checksum) return { sequence, body: JSON.parse(body) as T };
  return { sequence, body: {} as T, damaged: true };
}

function writeDocument(statement: Statement, set: string, key: string, value: unknown): number {
  const body = toJson(value);
  return statement.run(set, key, body, rowChecksum(set, key, body));
}

/** Values that JSON cannot express become null, as inside an array. */
function toJson(value: unknown): string {
  return JSON.stringify(value) ?? "null";
}
