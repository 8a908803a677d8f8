import { createHash } from "node:crypto";
import { textArray } from "../../core/postgres/sql-quoting.ts";
import { toJson } from "../../engine/store/documents.ts";
import { type DocumentChange, DocumentKeyConflict, type LogRecord } from "../../engine/store/store.ts";
import type { SqlQuery, SqlResult, SqlValues } from "./state-database.ts";

/** Start of a stored key that was encoded because PostgreSQL would reject it (U+E000 is a private character). */
const ENCODED_KEY_PREFIX = "\ue000";
const HASHED_KEY_PREFIX = `${ENCODED_KEY_PREFIX}#`;

/** Longest key in characters, because an index row of PostgreSQL holds 2,704 bytes. */
const MAX_KEY_LENGTH = 500;

export type RunPostgresQuery = (text: string, values?: SqlValues, timeoutMs?: number) => Promise<SqlResult>;

/** Stores sets of JSON values by key, and append-only logs of JSON records, for one source. */
export function createDocumentStore(source: string, query: RunPostgresQuery) {
  /** Batches of document reads by set, so that 20 tags of a reply take one round trip, not 20. */
  const openBatches = new Map<string, { readonly keys: Set<string>; readonly bodies: Promise<DocumentBodyByKey> }>();
  type DocumentBodyByKey = ReadonlyMap<string, string>;

  async function readDocumentBodies(setName: string, keys: ReadonlySet<string>): Promise<DocumentBodyByKey> {
    // Wait one microtask, so that simultaneous callers add their keys.
    await Promise.resolve();
    openBatches.delete(setName);
    const { rows } = await query(
      "select key, body from document where source = $1 and set_name = $2 and key = any($3::text[])",
      [source, setName, textArray([...keys])],
    );
    return new Map(rows.map(([key, body]) => [String(key), String(body)]));
  }

  async function readLogRecords<T>(conditionSql: string, log: string, ...values: readonly number[]) {
    const { rows } = await query(
      `select sequence::double precision, body from record where source = $1 and log = $2 ${conditionSql}`,
      [source, log, ...values.map(String)],
    );
    return rows.map(
      ([sequence, body]): LogRecord<T> => ({ sequence: Number(sequence), body: JSON.parse(String(body)) as T }),
    );
  }

  return {
    async document<T>(setName: string, key: string): Promise<T | undefined> {
      const storedKey = encodeKeyForPostgres(key);
      let batch = openBatches.get(setName);
      if (batch === undefined) {
        const keyParameters = new Set<string>();
        batch = { keys: keyParameters, bodies: readDocumentBodies(setName, keyParameters) };
        openBatches.set(setName, batch);
      }
      batch.keys.add(storedKey);
      const body = (await batch.bodies).get(storedKey);
      return body === undefined ? undefined : (decodeDocument(storedKey, body)[1] as T);
    },
    async documents<T>(setName: string): Promise<Map<string, T>> {
      const { rows } = await query("select key, body from document where source = $1 and set_name = $2 order by key", [
        source,
        setName,
      ]);
      return new Map(
        rows.map(([storedKey, body]) => decodeDocument(String(storedKey), String(body)) as [key: string, value: T]),
      );
    },
    async records<T>(log: string, afterSequence: number, limit: number): Promise<readonly LogRecord<T>[]> {
      return readLogRecords("and sequence > $3::bigint order by sequence limit $4::bigint", log, afterSequence, limit);
    },
    async lastRecord<T>(log: string): Promise<LogRecord<T> | undefined> {
      return (await readLogRecords<T>("order by sequence desc limit 1", log))[0];
    },
  };
}

interface MergedDocumentChange {
  readonly set: string;
  readonly key: string;
  body: string | null;
  readonly isInsertOnly: boolean;
}

/** Returns at most three statements for any number of document changes. Throws `DocumentKeyConflict`. */
export function buildDocumentChanges(source: string, changes: readonly DocumentChange[]): readonly SqlQuery[] {
  const mergedChanges = [...mergeDocumentChanges(changes).values()];
  const buildStatement = (
    name: string,
    text: string,
    selectedChanges: readonly MergedDocumentChange[],
    hasBodies = true,
  ) => {
    if (selectedChanges.length === 0) return [];
    const keyParameters = [
      textArray(selectedChanges.map(({ set }) => set)),
      textArray(selectedChanges.map(({ key }) => key)),
    ];
    const documentBodies = hasBodies ? [textArray(selectedChanges.map(({ body }) => body ?? "null"))] : [];
    return [{ name, text, values: [source, ...keyParameters, ...documentBodies] }];
  };
  return [
    ...buildStatement(
      "claim",
      "select claim($1, $2::text[], $3::text[], $4::text[])",
      mergedChanges.filter(({ isInsertOnly }) => isInsertOnly),
    ),
    ...buildStatement(
      "put",
      `insert into document (source, set_name, key, body)
       select $1, given.* from unnest($2::text[], $3::text[], $4::text[]) as given
       on conflict (source, set_name, key) do update set body = excluded.body`,
      mergedChanges.filter(({ body, isInsertOnly }) => body !== null && !isInsertOnly),
    ),
    ...buildStatement(
      "remove",
      `delete from document using unnest($2::text[], $3::text[]) as given (set_name, key)
       where document.source = $1 and document.set_name = given.set_name and document.key = given.key`,
      mergedChanges.filter(({ body }) => body === null),
      false,
    ),
  ];
}

/** Merges changes to one per document: the last value counts, and whether the first change was an insert. */
function mergeDocumentChanges(changes: readonly DocumentChange[]): ReadonlyMap<string, MergedDocumentChange> {
  const changesByDocument = new Map<string, MergedDocumentChange>();
  for (const { set, put = [], insert = [], remove = [] } of changes) {
    const mergeDocumentChange = (key: string, body: string | null, isInsert = false) => {
      const id = JSON.stringify([set, key]);
      const mergedChange = changesByDocument.get(id);
      if (mergedChange === undefined) {
        changesByDocument.set(id, { set, key: encodeKeyForPostgres(key), body, isInsertOnly: isInsert });
        return;
      }
      if (isInsert && mergedChange.body !== null) throw new DocumentKeyConflict(set, key);
      mergedChange.body = body;
    };
    for (const key of remove) mergeDocumentChange(key, null);
    for (const [key, value] of insert) mergeDocumentChange(key, encodeDocumentBody(key, toJson(value)), true);
    for (const [key, value] of put) mergeDocumentChange(key, encodeDocumentBody(key, toJson(value)));
  }
  return changesByDocument;
}

export function appendRecords(
  source: string,
  records: readonly { readonly log: string; readonly body: unknown }[],
): readonly SqlQuery[] {
  if (records.length === 0) return [];
  const text = `insert into record (source, log, sequence, body)
    select $1, log, (select coalesce(max(sequence), 0) from record where source = $1 and record.log = given.log)
      + row_number() over (partition by log order by n), body
    from unnest($2::text[], $3::text[]) with ordinality as given (log, body, n)`;
  const values = [source, textArray(records.map(({ log }) => log)), textArray(records.map(({ body }) => toJson(body)))];
  return [{ text, values, name: "append_records" }];
}

/** Encodes a document key: PostgreSQL rejects U+0000 and half surrogates, and a long key becomes its SHA-256. */
export function encodeKeyForPostgres(key: string): string {
  if (key.length > MAX_KEY_LENGTH) return HASHED_KEY_PREFIX + createHash("sha256").update(key, "utf16le").digest("hex");
  const isKeyUnencoded = !key.includes("\0") && !key.startsWith(ENCODED_KEY_PREFIX) && key.isWellFormed();
  return isKeyUnencoded ? key : ENCODED_KEY_PREFIX + JSON.stringify(key);
}

export function decodeKeyFromPostgres(storedKey: string): string {
  if (!storedKey.startsWith(ENCODED_KEY_PREFIX) || storedKey.startsWith(HASHED_KEY_PREFIX)) return storedKey;
  return JSON.parse(storedKey.slice(ENCODED_KEY_PREFIX.length)) as string;
}

/** Encodes the body of a document; with a hashed key, the body contains the key. */
export function encodeDocumentBody(key: string, json: string): string {
  return key.length > MAX_KEY_LENGTH ? `[${JSON.stringify(key)},${json}]` : json;
}

function decodeDocument(storedKey: string, body: string): readonly [key: string, value: unknown] {
  const value: unknown = JSON.parse(body);
  if (storedKey.startsWith(HASHED_KEY_PREFIX)) return value as [string, unknown];
  return [decodeKeyFromPostgres(storedKey), value];
}

/** Replaces characters that PostgreSQL rejects by U+FFFD, for texts such as the reason of a dead letter. */
export const encodePostgresText = (text: string): string => text.toWellFormed().replaceAll("\0", "\ufffd");
