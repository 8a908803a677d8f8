import type { DamagedRowQuarantine } from "./damage-quarantine.ts";
import { type Database, rowChecksum, type SqliteStatement } from "./sqlite.ts";
import { type DocumentChange, DocumentKeyConflict, type LogRecord } from "./store.ts";

interface DocumentBodyRow {
  readonly body: string;
  readonly checksum: number | null;
}

export function createDocumentStore(database: Database, quarantine: DamagedRowQuarantine) {
  /** Counts changes of each document set by this process; other processes change only silences. */
  const changeCountBySet = new Map<string, number>();
  const countSetChange = (setName: string) => changeCountBySet.set(setName, (changeCountBySet.get(setName) ?? 0) + 1);

  function quarantineDamagedDocuments(whereSql: string, ...values: readonly string[]): void {
    const [setName] = values;
    if (setName !== undefined) countSetChange(setName);
    if (!database.readOnly) database.transaction(() => quarantine.quarantineRows("document", whereSql, ...values));
  }

  return {
    document<T>(setName: string, key: string): T | undefined {
      const row = database
        .prepare("select body, checksum from document where set_name = ? and key = ?")
        .get<DocumentBodyRow>(setName, key);
      if (row === undefined) return undefined;
      if (rowChecksum(setName, key, row.body) === row.checksum) return JSON.parse(row.body) as T;
      quarantineDamagedDocuments("set_name = ? and key = ?", setName, key);
      return undefined;
    },
    documents<T>(setName: string): Map<string, T> {
      const rows = database
        .prepare("select key, body, checksum from document where set_name = ?")
        .all<DocumentBodyRow & { readonly key: string }>(setName);
      const intactRows = rows.filter(({ key, body, checksum }) => rowChecksum(setName, key, body) === checksum);
      if (intactRows.length < rows.length) quarantineDamagedDocuments("set_name = ?", setName);
      return new Map(intactRows.map((row) => [row.key, JSON.parse(row.body) as T]));
    },
    version: (setName: string): number => changeCountBySet.get(setName) ?? 0,
    change({ set, put = [], insert = [], remove = [] }: DocumentChange): void {
      const deleteStatement = database.prepare("delete from document where set_name = ? and key = ?");
      const insertStatement = database.prepare(
        "insert into document (set_name, key, body, checksum) values (?, ?, ?, ?) on conflict do nothing",
      );
      const upsertStatement = database.prepare(
        `insert into document (set_name, key, body, checksum) values (?, ?, ?, ?)
         on conflict do update set body = excluded.body, checksum = excluded.checksum`,
      );
      let changeCount = 0;
      for (const key of remove) changeCount += deleteStatement.run(set, key);
      for (const [key, value] of insert) {
        changeCount += 1;
        if (writeDocument(insertStatement, set, key, value) === 0) throw new DocumentKeyConflict(set, key);
      }
      for (const [key, value] of put) changeCount += writeDocument(upsertStatement, set, key, value);
      if (changeCount > 0) countSetChange(set);
    },
    appendRecord(log: string, body: unknown): void {
      database
        .prepare(
          `insert into record (log, sequence, body, checksum)
           select ?1, next, ?2, row_checksum(?1, next, ?2)
           from (select coalesce(max(sequence), 0) + 1 as next from record where log = ?1)`,
        )
        .run(log, toJson(body));
    },
    records<T>(log: string, afterSequence: number, limit: number): readonly LogRecord<T>[] {
      return database
        .prepare("select sequence, body, checksum from record where log = ? and sequence > ? order by sequence limit ?")
        .all<LogRecordRow>(log, afterSequence, limit)
        .map((row) => toLogRecord<T>(log, row));
    },
    lastRecord<T>(log: string): LogRecord<T> | undefined {
      const row = database
        .prepare("select sequence, body, checksum from record where log = ? order by sequence desc limit 1")
        .get<LogRecordRow>(log);
      return row === undefined ? undefined : toLogRecord<T>(log, row);
    },
  };
}

interface LogRecordRow extends DocumentBodyRow {
  readonly sequence: number;
}

/** A damaged record keeps its sequence number and has an empty body. */
function toLogRecord<T>(log: string, { sequence, body, checksum }: LogRecordRow): LogRecord<T> {
  if (rowChecksum(log, sequence, body) === checksum) return { sequence, body: JSON.parse(body) as T };
  return { sequence, body: {} as T, damaged: true };
}

function writeDocument(statement: SqliteStatement, setName: string, key: string, value: unknown): number {
  const body = toJson(value);
  return statement.run(setName, key, body, rowChecksum(setName, key, body));
}

/** Values that JSON cannot express become null, as JSON does inside an array. */
export function toJson(value: unknown): string {
  return JSON.stringify(value) ?? "null";
}
