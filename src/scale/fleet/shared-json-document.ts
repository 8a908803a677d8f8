import { errorText } from "../../core/errors/errors.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { StateDatabase } from "../postgres/state-database.ts";

interface FleetDocumentOptions {
  readonly database: StateDatabase;
  readonly key: string;
  readonly log: Log;
}

export async function openFleetDocument<T>(options: FleetDocumentOptions) {
  const fleetDocument = createFleetDocument<T>(options);
  try {
    await fleetDocument.refresh();
  } catch (error) {
    fleetDocument.close();
    throw error;
  }
  return fleetDocument;
}

/**
 * JSON document shared by the fleet. `read` returns the last known value, null until the first `refresh`; notifications
 * refresh the value within 30 s.
 */
export function createFleetDocument<T>({ database, key, log }: FleetDocumentOptions) {
  let body: string | null = null;
  let value: T | null = null;
  let readRequestCount = 0;
  let appliedRequestNumber = 0;

  /** Ignores the response of an earlier read, because responses may arrive in another order than the reads. */
  function applyDocumentBody(requestNumber: number, newBody: string | null): void {
    if (requestNumber < appliedRequestNumber) return;
    appliedRequestNumber = requestNumber;
    if (newBody === body) return;
    body = newBody;
    value = newBody === null ? null : (JSON.parse(newBody) as T);
  }

  /** Reads the document again. Throws when the database does not respond. */
  async function refreshDocument(): Promise<void> {
    readRequestCount += 1;
    const requestNumber = readRequestCount;
    applyDocumentBody(requestNumber, await readFleetDocument(database, key));
  }

  const stopListening = database.onNotified(documentTopic(key), () => {
    refreshDocument().catch((error: unknown) =>
      log.warn({ key, reason: errorText(error) }, "what holds for the whole fleet could not be read"),
    );
  });

  return {
    read: () => value,
    /** Returns a version that changes with the document; empty without a document. */
    version: () => body ?? "",
    async write(newValue: T): Promise<void> {
      const newBody = JSON.stringify(newValue);
      await writeFleetDocument(database, key, newBody);
      readRequestCount += 1;
      applyDocumentBody(readRequestCount, newBody);
    },
    /** Removes the document if `read` returned its latest value; false if another member changed the document first. */
    async remove(): Promise<boolean> {
      if (body === null) return true;
      const isDocumentRemoved = await removeFleetDocument(database, key, body);
      await refreshDocument();
      return isDocumentRemoved;
    },
    refresh: refreshDocument,
    close: stopListening,
  };
}

export async function readFleetDocument(database: StateDatabase, key: string): Promise<string | null> {
  const { rows } = await database.query(`select body from ${database.table("fleet_document")} where key = $1`, [key]);
  const [body] = rows[0] ?? [];
  return body === undefined ? null : String(body);
}

export async function writeFleetDocument(database: StateDatabase, key: string, body: string): Promise<void> {
  const text = `insert into ${database.table("fleet_document")} (key, body) values ($1, $2)
    on conflict (key) do update set body = excluded.body`;
  await database.transact([{ text, values: [key, body] }, database.notify(documentTopic(key))]);
}

/** Writes the body unless the document exists, and returns the stored body. */
export async function readOrWriteFleetDocument(database: StateDatabase, key: string, body: string): Promise<string> {
  const text = `insert into ${database.table("fleet_document")} (key, body) values ($1, $2) on conflict (key) do nothing`;
  await database.transact([{ text, values: [key, body] }, database.notify(documentTopic(key))]);
  const storedBody = await readFleetDocument(database, key);
  if (storedBody === null) throw new Error(`The document ${key} was taken away while it was written.`);
  return storedBody;
}

export async function removeFleetDocument(database: StateDatabase, key: string, body: string): Promise<boolean> {
  const text = `delete from ${database.table("fleet_document")} where key = $1 and body = $2 returning 1`;
  const [deleteResult] = await database.transact([{ text, values: [key, body] }, database.notify(documentTopic(key))]);
  return (deleteResult?.rows.length ?? 0) > 0;
}

const documentTopic = (key: string) => `document ${key}`;
