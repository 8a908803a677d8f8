import { DatabaseSync } from "node:sqlite";
import type { Event } from "#src/core/model/event.ts";
import { openDatabase } from "#src/engine/store/sqlite.ts";
import type { LoggedEvent, SettledBatch, Store } from "#src/engine/store/store.ts";
import { valueEvent } from "../sample-events.ts";

export const values = (from: number, count: number) => Array.from({ length: count }, (_, n) => valueEvent(from + n));
export const ids = (events: readonly Event[]) => events.map(({ id }) => id);
export const idsOf = (logged: readonly LoggedEvent[]) => ids(logged.map(({ event }) => event));
export const positionsOf = (logged: readonly LoggedEvent[]) => logged.map(({ position }) => position);

export function settle({ outbox }: Store, sink: string, through: number, more: Partial<SettledBatch> = {}) {
  return outbox.settle(sink, { isRepeat: false, through, rejected: [], ...more });
}

/** Rejects all events of the next offer; returns how many. */
export async function rejectAll(store: Store, sink: string, reason: string): Promise<number> {
  const { isRepeat: again, events } = await store.outbox.next(sink, 200);
  const rejected = events.map(({ position }) => ({ position, reason }));
  await settle(store, sink, events.at(-1)?.position ?? 0, { isRepeat: again, rejected });
  return events.length;
}

/** Yields the events of a sink, in offers of up to `limit`, and settles each offer. */
export async function* eventsOf(store: Store, sink: string, limit = 100): AsyncGenerator<Event> {
  for (;;) {
    const { isRepeat: again, events } = await store.outbox.next(sink, limit);
    const last = events.at(-1);
    if (last === undefined) return;
    for (const { event } of events) yield event;
    await settle(store, sink, last.position, { isRepeat: again });
  }
}

export const drain = (store: Store, sink: string, limit?: number) => Array.fromAsync(eventsOf(store, sink, limit));

/** Changes a state behind the store's back. */
export function editState(folder: string, sql: string): void {
  const database = openDatabase(`${folder}/plenum.db`);
  database.exec(sql);
  database.close();
}

/** The value of a pragma of a state; null without a row. */
export function pragmaOf(folder: string, name: string): unknown {
  const database = new DatabaseSync(`${folder}/plenum.db`, { readOnly: true });
  const [value = null] = Object.values(database.prepare(`pragma ${name}`).get() ?? {});
  database.close();
  return value;
}
