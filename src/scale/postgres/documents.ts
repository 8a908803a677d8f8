import { textList } from "../../core/postgres/sql-text.ts";
import { Conflict, type DocumentChange, type LogRecord } from "../../engine/store/store.ts";
import { shownDocument, storedBody, storedKey } from "./keys.ts";
import type { Query, QueryResult, Values } from "./state-database.ts";

/** Runs a query that changes nothing. */
export type RunQuery = (text: string, values?: Values, withinMs?: number) => Promise<QueryResult>;

/** Stores sets of JSON values by key, and append-only logs of JSON records, for one source. */
export function createDocuments(source: string, query: RunQuery) {
  /** Queries of the current moment, by set: 20 tags of a reply take one round trip, not 20. */
  const batches = new Map<string, { readonly keys: Set<string>; readonly bodies: Promise<Bodies> }>();

  type Bodies = ReadonlyMap<string, string>;

  async function bodiesOf(set: string, keys: ReadonlySet<string>): Promise<Bodies> {
    // Callers of the same moment still add keys.
    await Promise.resolve();
    batches.delete(set);
    const { rows } = await query(
      "select key, body from document where source = $1 and set_name = $2 and key = any($3::text[])",
      [source, set, textList([...keys])],
    );
    return new Map(rows.map(([key, body]) => [String(key), String(body)]));
  }

  return {
    async document<T>(set: string, key: string): Promise<T | undefined> {
      const stored = storedKey(key);
      let asked = batches.get(set);
      if (asked === undefined) {
        const keys = new Set<string>();
        asked = { keys, bodies: bodiesOf(set, keys) };
        batches.set(set, asked);
      }
      asked.keys.add(stored);
      const body = (await asked.bodies).get(stored);
      return body === undefined ? undefined : (shownDocument(stored, body)[1] as T);
    },

    async documents<T>(set: string): Promise<Map<string, T>> {
      const { rows } = await query("select key, body from document where source = $1 and set_name = $2 order by key", [
        source,
        set,
      ]);
      return new Map(
        rows.map(([stored, body]) => shownDocument(String(stored), String(body)) as [key: string, value: T]),
      );
    },

    async records<T>(log: string, after: number, limit: number): Promise<readonly LogRecord<T>[]> {
      const { rows } = await query(
        `select sequence::double precision, body from record
         where source = $1 and log = $2 and sequence > $3::bigint order by sequence limit $4::bigint`,
        [source, log, String(after), String(limit)],
      );
      return rows.map(toRecord<T>);
    },

    async lastRecord<T>(log: string): Promise<LogRecord<T> | undefined> {
      const { rows } = await query(
        `select sequence::double precision, body from record
         where source = $1 and log = $2 order by sequence desc limit 1`,
        [source, log],
      );
      return rows.map(toRecord<T>)[0];
    },
  };
}

function toRecord<T>([sequence, body]: QueryResult["rows"][number]): LogRecord<T> {
  return { sequence: Number(sequence), body: JSON.parse(String(body)) as T };
}

/** Net effect of a commit on one document. */
interface NetChange {
  readonly set: string;
  readonly key: string;
  /** Null where it is removed. */
  body: string | null;
  /** The key must be free. */
  readonly isClaimed: boolean;
}

/** Statements for changes of documents: at most three, whatever their number. Throws `Conflict`. */
export function changeDocuments(source: string, changes: readonly DocumentChange[]): readonly Query[] {
  const fates = [...netChangesOf(changes).values()];
  const claimed = fates.filter(({ isClaimed }) => isClaimed);
  const put = fates.filter(({ body, isClaimed }) => body !== null && !isClaimed);
  const removed = fates.filter(({ body }) => body === null);
  const names = (some: readonly NetChange[]) => [
    source,
    textList(some.map(({ set }) => set)),
    textList(some.map(({ key }) => key)),
  ];
  const bodies = (some: readonly NetChange[]) => textList(some.map(({ body }) => body ?? "null"));
  return [
    ...(claimed.length === 0
      ? []
      : [
          {
            text: "select claim($1, $2::text[], $3::text[], $4::text[])",
            values: [...names(claimed), bodies(claimed)],
            name: "claim",
          },
        ]),
    ...(put.length === 0 ? [] : [{ text: PUT, values: [...names(put), bodies(put)], name: "put" }]),
    ...(removed.length === 0 ? [] : [{ text: REMOVE, values: names(removed), name: "remove" }]),
  ];
}

/** Statement that stores one document. */
export function putDocument(source: string, set: string, key: string, value: unknown): Query {
  const [put] = changeDocuments(source, [{ set, put: [[key, value]] }]);
  if (put === undefined) throw new RangeError("A document that is put is a statement.");
  return put;
}

const PUT = `insert into document (source, set_name, key, body)
  select $1, told.* from unnest($2::text[], $3::text[], $4::text[]) as told
  on conflict (source, set_name, key) do update set body = excluded.body`;

const REMOVE = `delete from document using unnest($2::text[], $3::text[]) as told (set_name, key)
  where document.source = $1 and document.set_name = told.set_name and document.key = told.key`;

/** Applies changes in order: the last value of each document counts, and whether an insert came first. */
function netChangesOf(changes: readonly DocumentChange[]): ReadonlyMap<string, NetChange> {
  const fates = new Map<string, NetChange>();
  for (const { set, put = [], insert = [], remove = [] } of changes) {
    const decide = (key: string, body: string | null, isInsert = false) => {
      const place = JSON.stringify([set, key]);
      const known = fates.get(place);
      if (known === undefined) {
        fates.set(place, { set, key: storedKey(key), body, isClaimed: isInsert });
        return;
      }
      if (isInsert && known.body !== null) throw new Conflict(set, key);
      known.body = body;
    };
    for (const key of remove) decide(key, null);
    for (const [key, value] of insert) decide(key, storedBody(key, json(value)), true);
    for (const [key, value] of put) decide(key, storedBody(key, json(value)));
  }
  return fates;
}

/** Statement that appends records to their logs. */
export function appendRecords(
  source: string,
  records: readonly { readonly log: string; readonly body: unknown }[],
): readonly Query[] {
  if (records.length === 0) return [];
  const text = `insert into record (source, log, sequence, body)
    select $1, log, (select coalesce(max(sequence), 0) from record where source = $1 and record.log = told.log)
      + row_number() over (partition by log order by n), body
    from unnest($2::text[], $3::text[]) with ordinality as told (log, body, n)`;
  const values = [source, textList(records.map(({ log }) => log)), textList(records.map(({ body }) => json(body)))];
  return [{ text, values, name: "append_records" }];
}

/** Values that JSON cannot express become null, as inside an array. */
function json(value: unknown): string {
  return JSON.stringify(value) ?? "null";
}
