import type { Event } from "#src/core/model/event.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { openDatabase } from "#src/engine/store/sqlite.ts";
import type { Store } from "#src/engine/store/store.ts";
import { sampleOfEveryKind, valueEvent } from "../sample-events.ts";

export interface Furnished {
  readonly documents: ReadonlyMap<string, ReadonlyMap<string, unknown>>;
  readonly records: readonly unknown[];
  readonly events: ReadonlyMap<string, Event>;
  /** Ids of the undelivered events of each sink in use. */
  readonly outstanding: ReadonlyMap<string, ReadonlySet<string>>;
  readonly letters: ReadonlyMap<string, ReadonlySet<string>>;
}

let monotonicMs = 0;

/** Elapsed time grows by a minute each time it is read, so the first pruning checks the log. */
export const CLOCK: Clock = {
  now: () => Date.parse("2026-11-02T08:00:00Z"),
  monotonic: () => (monotonicMs += 60_000),
  sleep: () => Promise.reject(new Error("The store must not wait.")),
};

const VALUES = 40;
const BUCKETS = ["main", "spare"];

export async function createFilledState(folder: string): Promise<Furnished> {
  const store = await openStore({ folder, clock: CLOCK });
  const { outbox } = store;
  for (const sink of ["ahead", "behind", "gone"]) await outbox.register(sink, "beginning");
  const documents = new Map(
    ["tag/main", "value/main"].map((set) => [
      set,
      new Map(Array.from({ length: 10 }, (_, n) => [`1000${n}`, { set, n, name: `Tag ${n} – "söder"` }])),
    ]),
  );
  const records = Array.from({ length: 5 }, (_, n) => ({ n, previous: `hash ${n}` }));
  const events = [...sampleOfEveryKind(), ...Array.from({ length: VALUES }, (_, n) => valueEvent(n))];
  await store.commit({
    documents: [...documents].map(([set, put]) => ({ set, put })),
    records: records.map((body) => ({ log: "audit", body })),
  });
  for (const event of events) await store.commit({ events: [event] });
  await settle(store, "ahead", 30, [3, 4, 5, 6]);
  await settle(store, "behind", 8, [2]);
  await outbox.setEnded("gone", "410 Gone");
  const letters = await outbox.deadLetters("ahead");
  await outbox.resendDeadLetters("ahead", [letters[0]?.id ?? 0]);
  for (const bucket of BUCKETS) {
    for (let id = 1; id <= 3; id += 1)
      await store.quotaStore.save(bucket, { id, sentAtMs: CLOCK.now() + 0.25, countedByMs: CLOCK.now() + 0.5 });
    await store.quotaStore.savePause(bucket, { orderedAtMs: CLOCK.now(), untilMs: CLOCK.now() + 30_000 });
  }
  await outbox.prune({ maxBytes: 2 ** 30, maxAgeMs: 2 ** 40, ranMs: 60_000, replayMs: 2 ** 40 });
  await store.close();
  addGap(folder);
  const idsFrom = (position: number) => new Set(events.slice(position).map(({ id }) => id));
  const idsAt = (positions: readonly number[]) => new Set(positions.map((at) => events[at - 1]?.id ?? ""));
  return {
    documents,
    records,
    events: new Map(events.map((event) => [event.id, event])),
    outstanding: new Map([
      ["ahead", idsFrom(30).add(events[5]?.id ?? "")],
      ["behind", idsFrom(8)],
    ]),
    letters: new Map([
      ["ahead", idsAt([3, 4, 5])],
      ["behind", idsAt([2])],
    ]),
  };
}

async function settle(store: Store, sink: string, through: number, refused: readonly number[]): Promise<void> {
  const rejected = refused.map((position) => ({ position, reason: `refused by ${sink}` }));
  await store.outbox.settle(sink, { isRepeat: false, through, rejected });
}

/** Inserts the gap directly: a real loss would remove the events. */
function addGap(folder: string): void {
  const database = openDatabase(`${folder}/plenum.db`);
  const columns = "'behind', 'age', '2026-11-02T06:00:00Z', '2026-11-02T07:00:00Z', 3, 1793599200000, 1793599200000";
  database.exec(
    `insert into gap (sink, reason, first_time, last_time, count, at_ms, told_ms, checksum)
     values (${columns}, row_checksum(${columns}))`,
  );
  // Copy all into one file, which tests copy.
  database.exec("pragma wal_checkpoint(truncate)");
  database.close();
}
