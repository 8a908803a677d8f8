import { sentence } from "../../core/errors/errors.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { StateDatabase } from "../postgres/state-database.ts";

/**
 * A small document that holds for the whole fleet, such as who approved last. Read at once, from what was there at the
 * last look: another member's change is seen when it is notified, half a minute later at most.
 */
export interface FleetDocument<T> {
  /** Null where there is none. */
  read(): T | null;
  /** Changes when the document does; empty where there is none. */
  mark(): string;
  /** Durable for all when it resolves, and read here from then on. */
  write(value: T): Promise<void>;
  /** Takes it away, if it still is what was read here; false where somebody was quicker. */
  remove(): Promise<boolean>;
  /** Looks now. Throws where the database cannot be asked. */
  refresh(): Promise<void>;
  /** Hears of no more changes. */
  close(): void;
}

export interface FleetDocumentOptions {
  readonly database: StateDatabase;
  readonly key: string;
  readonly log: Log;
}

/** Looks once before it resolves. Nothing else writes under the key, so what is read has the type that was written. */
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

/** The same without a look: it reads as if there were none. */
export function createFleetDocument<T>({ database, key, log }: FleetDocumentOptions): FleetDocument<T> {
  let body: string | null = null;
  let value: T | null = null;
  let asked = 0;
  let applied = 0;

  /** Answers of several looks may come in another order: the one that was asked last counts. */
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

  const stop = database.onNotified(topicOf(key), () => {
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
    close: stop,
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

/** Writes the document only where there is none. Answers what is there afterwards. */
export async function readOrWriteBody(database: StateDatabase, key: string, body: string): Promise<string> {
  const table = database.table("fleet_document");
  const insert = `insert into ${table} (key, body) values ($1, $2) on conflict (key) do nothing`;
  await database.transact([{ text: insert, values: [key, body] }, database.notify(topicOf(key))]);
  const there = await readBody(database, key);
  if (there === null) throw new Error(`The document ${key} was taken away while it was written.`);
  return there;
}

/** Only what has this body. */
export async function removeBody(database: StateDatabase, key: string, body: string): Promise<boolean> {
  const text = `delete from ${database.table("fleet_document")} where key = $1 and body = $2 returning 1`;
  const [removed] = await database.transact([{ text, values: [key, body] }, database.notify(topicOf(key))]);
  return (removed?.rows.length ?? 0) > 0;
}

const topicOf = (key: string) => `document ${key}`;
