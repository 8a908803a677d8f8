import type { TagValue } from "../../core/model/building.ts";
import { type Event, sourceName } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type Service, Stopping, startedOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { loop, within } from "../../core/runtime/waiting.ts";
import type { Store } from "../../engine/store/store.ts";
import { createMinutes, type Minutes, type PackedMinutes } from "./minutes.ts";
import { createRaisedAlarms, type RaisedAlarms } from "./raised.ts";
import { createRefusals, type Refusals } from "./refused.ts";
import { createTagPlots, PIECE_S, plotSet, type TagPlots } from "./tag-plots.ts";

/**
 * Time series for the page's plots, small and bounded: values of tags, and numbers about the worker. They are no record: the events
 * hold the data, and a crash may lose some minutes.
 */
export interface Plots extends Service {
  /** A tag was read. */
  read(source: string, id: string, value: TagValue, atMs: number): void;
  /** Null for a source that is not configured. */
  tags(source: string): TagPlots | null;
  /** One number a minute, see `minuteNames`. */
  readonly minutes: Pick<Minutes, "of">;
  readonly raised: Pick<RaisedAlarms, "all">;
  readonly refused: Pick<Refusals, "of">;
}

export interface PlotsOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "warn">;
  readonly sources: readonly string[];
  readonly facts: OwnFacts;
}

/** Numbers about the worker, read every minute. */
export interface OwnFacts {
  /** By name: numbers of this moment, and null where one is not known. */
  levels(): Promise<ReadonlyMap<string, number | null>>;
  /** By name: counts since the start, of which the minute's share is kept. */
  counts(): Promise<ReadonlyMap<string, number>>;
  /** Notes what was refused since it was asked last. */
  refused(note: Refusals["note"]): Promise<void>;
}

export const minuteNames = {
  lag: (sink: string) => `lag ${sink}`,
  accepted: (sink: string) => `accepted ${sink}`,
  requests: (source: string, lane: string) => `requests ${lane} ${source}`,
};

const OWN = "plot-own";
const MINUTES = "minutes";
const MINUTE_MS = 60_000;
/** After a crash so many values at most are taken out of the log again: what ten minutes of one quota bring. */
const RECOVERED = 5_000;

export function createPlots({ store, clock, log, sources, facts }: PlotsOptions): Plots {
  const bySource = new Map(sources.map((source) => [source, createTagPlots({ store, source })]));
  const minutes = createMinutes();
  const raised = createRaisedAlarms(OWN, store);
  const refused = createRefusals(OWN, store);
  const stopping = new AbortController();
  let running: Promise<void> = Promise.resolve();
  let before: ReadonlyMap<string, number> = new Map();
  let notedMinute = Number.NEGATIVE_INFINITY;
  let writtenPiece = pieceOf(clock.now());

  async function load(): Promise<void> {
    const nowMs = clock.now();
    for (const plots of bySource.values()) await plots.load(nowMs);
    const held = await store.document<PackedMinutes>(OWN, MINUTES);
    if (held !== undefined) minutes.load(held);
    await raised.load();
    await refused.load();
    await recover();
  }

  /** Restores readings after the last write, before a crash, from the log. */
  async function recover(): Promise<void> {
    const isMissing = (event: Event) =>
      Date.parse(event.time) > (bySource.get(sourceName(event) ?? "")?.writtenMs() ?? Number.POSITIVE_INFINITY);
    const [last] = await store.outbox.latest(1, ["tag-value"]);
    if (last === undefined || !isMissing(last.event)) return;
    for (const { event } of (await store.outbox.latest(RECOVERED, ["tag-value"])).toReversed()) {
      if (!isMissing(event)) continue;
      const { tag, value, time } = (event as Event<"tag-value">).data;
      bySource.get(sourceName(event) ?? "")?.add(tag.id, value, Date.parse(time));
    }
  }

  /** Notes the minute that is just over. */
  async function note(): Promise<void> {
    const minute = Math.round(clock.now() / MINUTE_MS) - 1;
    // After a fault it is still the same one.
    if (minute === notedMinute) return;
    const counts = await facts.counts();
    for (const [name, level] of await facts.levels()) minutes.set(name, minute, level);
    for (const [name, count] of counts) minutes.set(name, minute, count - (before.get(name) ?? 0));
    before = counts;
    await facts.refused(refused.note);
    notedMinute = minute;
  }

  async function write(all: boolean): Promise<void> {
    const nowMs = clock.now();
    for (const plots of bySource.values()) await plots.write({ nowMs, all });
    const packed = minutes.pack(Math.floor(nowMs / MINUTE_MS));
    await store.commit({ documents: [{ set: OWN, put: [[MINUTES, packed]] }] });
    await raised.write(nowMs);
    await refused.write();
  }

  async function turn(): Promise<number> {
    await note();
    const piece = pieceOf(clock.now());
    if (piece !== writtenPiece) await write(false);
    writtenPiece = piece;
    return untilNextMinute(clock);
  }

  const service = startedOnce({
    name: "plots",
    async start(signal) {
      await load();
      before = await facts.counts();
      const ending = AbortSignal.any([signal, stopping.signal]);
      const first = untilNextMinute(clock);
      running = loop({
        clock,
        signal: ending,
        turn: afterRest(first, turn),
        fault: (error) => log.warn({ err: error }, "the series for plots could not be written"),
      });
    },
    async stop(deadlineMs) {
      stopping.abort(new Stopping());
      await within(clock, deadlineMs, running);
      await write(true);
    },
  });

  return {
    ...service,
    read: (source, id, value, atMs) => bySource.get(source)?.add(id, value, atMs),
    tags: (source) => bySource.get(source) ?? null,
    minutes,
    raised,
    refused,
  };
}

/** The first turn only waits. */
function afterRest(firstMs: number, turn: () => Promise<number>): () => Promise<number> {
  let isFirst = true;
  return async () => {
    if (!isFirst) return turn();
    isFirst = false;
    return firstMs;
  };
}

function untilNextMinute(clock: Pick<Clock, "now">): number {
  return MINUTE_MS - (clock.now() % MINUTE_MS);
}

function pieceOf(ms: number): number {
  return Math.floor(ms / 1_000 / PIECE_S);
}

/** With `state.plots: false`: nothing is noted, and what was kept before is cleared away. */
export async function clearPlots(store: Pick<Store, "commit" | "documents">, sources: readonly string[]) {
  for (const set of [OWN, ...sources.map(plotSet)]) {
    const keys = [...(await store.documents(set)).keys()];
    if (keys.length > 0) await store.commit({ documents: [{ set, remove: keys }] });
  }
}
