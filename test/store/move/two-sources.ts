import { type Event, makeEvent, sourceUri } from "#src/core/model/event.ts";
import { openStore } from "#src/engine/store/open.ts";
import { openDatabase } from "#src/engine/store/sqlite.ts";
import type { Store } from "#src/engine/store/store.ts";
import { valueEvent } from "../../sample-events.ts";
import { CLOCK, createFilledState, type Furnished } from "../filled-state.ts";

export interface TwoSources extends Furnished {
  /** Ids of the undelivered events of each sink in use, by source. */
  readonly bySource: ReadonlyMap<string, ReadonlyMap<string, ReadonlySet<string>>>;
  readonly end: number;
}

export function annexEvent(n: number): Event<"tag-value"> {
  const event = valueEvent(1000 + n);
  const source = sourceUri("annex");
  return makeEvent({ ...event, source, siteId: 6, subject: "site/6/tag/20001", facts: [event.time] });
}

const command = (id: string, source: string) => ({ id, source, siteId: 1, tagId: "10042", value: 21 });

const incident = (source: string, kind: string, into: string | null = null) => ({
  ...{ kind, source, episode: `${kind} of ${source}`, into, through: 7 },
});

/** Documents of the worker itself: one or more in every set. */
export const OWN: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  command: {
    open: { state: "sending", changedAt: "2026-11-02T07:00:00.000Z", command: command("open", "annex") },
    over: { state: "confirmed", changedAt: "2026-11-02T07:00:00.000Z" },
    foreign: { state: "accepted", changedAt: "2026-11-02T07:00:00.000Z", command: command("foreign", "sold") },
  },
  "command-wear": { "main/10042": { sentAtMs: [1] }, "annex/20001": { sentAtMs: [2] } },
  "command-wear-rehearsal": { "annex/20001": { sentAtMs: [3] } },
  "command-restore": {
    "annex/20001": { command: command("open", "annex"), before: 19, dueAt: "2026-11-02T09:00:00Z" },
  },
  "command-not-restored": { "main/10042": { source: "main", commandId: "old" } },
  "command-lock": { "main/tag/10042": { source: "main", scope: "tag", id: "10042", owner: "anna" } },
  "command-armed": { writing: { at: "2026-11-01T08:00:00.000Z", by: "a person", damaged: 0 } },
  "command-audit": { size: { bytes: 100, through: 2 } },
  silence: { all: { id: "all", source: null, isTold: true }, one: { id: "one", source: "annex", isTold: false } },
  "sink-ended-at": { gone: { farEnd: "somewhere" } },
  "sink-life": { behind: { nowMs: 5, life: "x", seenMs: 4, points: [{ atMs: 1, position: 8 }], again: [] } },
  snapshot: { behind: { askedAt: "2026-11-02T07:00:00.000Z", part: "tag", after: "annex 20001", sent: 3 } },
  "plot-own": {
    raised: { through: 40, alarms: [alarms("main", 2), alarms("annex", 1)] },
    refused: { annex: [{ at: "2026-11-02T07:00:00Z", what: "values", words: "no" }] },
    minutes: { last: 29_893_000, columns: { "lag behind": "abc" } },
  },
  "memory/pages": {
    a1: incident("main", "alarm", "storm"),
    a2: incident("annex", "alarm", "storm"),
    a3: incident("annex", "alarm"),
    storm: incident("main", "storm"),
  },
  "memory/lake": { life: { id: "l1", through: 30 } },
};

function alarms(source: string, count: number) {
  return { source, site: 1, day: "2026-11-02", priority: "A", count };
}

export async function createTwoSourceState(folder: string): Promise<TwoSources> {
  const furnished = await createFilledState(folder);
  const annex = Array.from({ length: 20 }, (_, n) => annexEvent(n));
  const store = await openStore({ folder, clock: CLOCK });
  await store.commit({
    documents: [
      ...Object.entries(OWN).map(([set, entries]) => ({ set, put: Object.entries(entries) })),
      { set: "tag/annex", put: [["20001", { name: "Annex" }]] },
      { set: "alarm/sold", put: [["1", { name: "of a building that was sold" }]] },
    ],
  });
  for (const event of annex) await store.commit({ events: [event] });
  for (const bucket of ["annex/values", "annex/lists"]) {
    await store.quotaStore.save(bucket, { id: 9, sentAtMs: CLOCK.now() + 0.125, countedByMs: CLOCK.now() + 1 });
  }
  await store.quotaStore.saveClock("annex", "boot-1", { wallMs: CLOCK.now(), sinceBootMs: 1234.5 });
  const end = await lastPosition(store);
  await store.close();
  // A copied file must count as the original, and be complete without its log.
  const raw = openDatabase(`${folder}/plenum.db`);
  raw.exec("delete from document where set_name = 'state-file'; pragma wal_checkpoint(truncate)");
  raw.close();
  const ids = (events: Iterable<Event>) => new Set([...events].map(({ id }) => id));
  return {
    ...furnished,
    end,
    bySource: new Map(
      [...furnished.outstanding].map(([sink, main]) => [
        sink,
        new Map([
          ["main", main],
          ["annex", ids(annex)],
        ]),
      ]),
    ),
  };
}

async function lastPosition(store: Store): Promise<number> {
  return (await store.commit({})).lastPosition;
}
