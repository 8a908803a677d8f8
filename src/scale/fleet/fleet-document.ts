import { sentence } from "../../core/errors/errors.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { StateDatabase } from "../postgres/state-database.ts";

/** JSON document of the whole fleet. `read` returns the last known state; notifications refresh it within 30 s. */
export interface FleetDocument<T> {
  read(): T | null;
  /** Changes when the document does; empty without a document. */
  mark(): string;
  write(value: T): Promise<void>;
  /** Removes the document if it still is what `read` returns; false when another member was quicker. */
  remove(): Promise<boolean>;
  /** Throws when the database does not respond. */
  refresh(): Promise<void>;
  close(): void;
}

interface FleetDocumentOptions {
  readonly database: StateDatabase;
  readonly key: string;
  readonly log: Log;
}

export async function openFleetDocument<T>(options: FleetDocumentOptions): Promise<FleetDocument<T>> {
  const document = createFleetDocument<T>(options);
  try {
    await document.refresh();
  } catch (error) {
    document.close();
    throw error;
  }
  return document;
}

/** Opens a document without reading it: `read` returns null until the first `refresh`. */
export function createFleetDocument<T>({ database, key, log }: FleetDocumentOptions): FleetDocument<T> {
  let body: string | null = null;
  let value: T | null = null;
  let asked = 0;
  let applied = 0;

  /** Applies the response of the latest request: responses may arrive in another order. */
  function apply(order: number, next: string | null): void {
    if (order < applied) return;
    applied = order;
    if (next === body) return;
    body = next;
    value = next === null ? null : (JSON.parse(next) as T);
  }

  async function refresh(): Promise<void> {
    asked += 1;
    const order = asked;
    apply(order, await readBody(database, key));
  }

  const close = database.onNotified(topicOf(key), () => {
    refresh().catch((error: unknown) =>
      log.warn({ key, reason: sentence(error) }, "what holds for the whole fleet could not be read"),
    );
  });

  return {
    read: () => value,
    mark: () => body ?? "",
    async write(next) {
      const text = JSON.stringify(next);
      await writeBody(database, key, text);
      asked += 1;
      apply(asked, text);
    },
    async remove() {
      if (body === null) return true;
      const removed = await removeBody(database, key, body);
      await refresh();
      return removed;
    },
    refresh,
    close,
  };
}

export async function readBody(database: StateDatabase, key: string): Promise<string | null> {
  const { rows } = await database.query(`select body from ${database.table("fleet_document")} where key = $1`, [key]);
  const [body] = rows[0] ?? [];
  return body === undefined ? null : String(body);
}

export async function writeBody(database: StateDatabase, key: string, body: string): Promise<void> {
  const text = `insert into ${database.table("fleet_document")} (key, body) values ($1, $2)
    on conflict (key) do update set body = excluded.body`;
  await database.transact([{ text, values: [key, body] }, database.notify(topicOf(key))]);
}

/** Writes the body unless the document exists, and returns the stored body. */
export async function readOrWriteBody(database: StateDatabase, key: string, body: string): Promise<string> {
  const text = `insert into ${database.table("fleet_document")} (key, body) values ($1, $2) on conflict (key) do nothing`;
  await database.transact([{ text, values: [key, body] }, database.notify(topicOf(key))]);
  const stored = await readBody(database, key);
  if (stored === null) throw new Error(`The document ${key} was taken away while it was written.`);
  return stored;
}

export async function removeBody(database: StateDatabase, key: string, body: string): Promise<boolean> {
  const text = `delete from ${database.table("fleet_document")} where key = $1 and body = $2 returning 1`;
  const [removed] = await database.transact([{ text, values: [key, body] }, database.notify(topicOf(key))]);
  return (removed?.rows.length ?? 0) > 0;
}

const topicOf = (key: string) => `document ${key}`;
