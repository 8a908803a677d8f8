import type { TagValue } from "../../core/model/building.ts";
import { type Event, eventSourceName } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { OrderlyStop, startServiceOnce, type WorkerService } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { endsWithin, runLoop } from "../../core/runtime/waiting.ts";
import type { Store } from "../../engine/store/store.ts";
import { CHUNK_S, createTagPlots, plotSet } from "./tag-plots.ts";
import {
  createMinutes,
  createRaisedAlarms,
  createRefusals,
  type PackedMinutes,
  type Refusals,
} from "./worker-series.ts";

export type Plots = ReturnType<typeof createPlots>;

export interface WorkerNumbers {
  /** Current numbers by name; null for unknown ones. */
  levels(): Promise<ReadonlyMap<string, number | null>>;
  /** Counts since the start by name; the plots store the increase of each minute. */
  counts(): Promise<ReadonlyMap<string, number>>;
  refused(note: Refusals["note"]): Promise<void>;
}

export const minuteSeriesNames = {
  lag: (sink: string) => `lag ${sink}`,
  accepted: (sink: string) => `accepted ${sink}`,
  requests: (source: string, lane: string) => `requests ${lane} ${source}`,
};

const WORKER_PLOTS = "plot-own";
const MINUTES = "minutes";
const MINUTE_MS = 60_000;
/** Most values that are restored from the event log after a crash: ten minutes of one quota. */
const MAX_RECOVERED_EVENTS = 5_000;

/** Time series for the page's plots, of bounded size. The events are the record of the data; a crash may lose minutes of plots. */
export function createPlots(options: {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "warn">;
  readonly sources: readonly string[];
  readonly numbers: WorkerNumbers;
}) {
  const { store, clock, log, sources, numbers } = options;
  const bySource = new Map(sources.map((source) => [source, createTagPlots({ store, source })]));
  const minutes = createMinutes();
  const raisedAlarms = createRaisedAlarms(WORKER_PLOTS, store);
  const refusals = createRefusals(WORKER_PLOTS, store);
  const stopController = new AbortController();
  let running: Promise<void> = Promise.resolve();
  let previousCounts: ReadonlyMap<string, number> = new Map();
  let notedMinute = Number.NEGATIVE_INFINITY;
  let writtenChunk = chunkNumber(clock.now());
  async function load(): Promise<void> {
    const nowMs = clock.now();
    for (const plots of bySource.values()) await plots.load(nowMs);
    const packedMinutes = await store.document<PackedMinutes>(WORKER_PLOTS, MINUTES);
    if (packedMinutes !== undefined) minutes.load(packedMinutes);
    await raisedAlarms.load();
    await refusals.load();
    await recover();
  }

  /** Restores readings between the last write and a crash from the event log. */
  async function recover(): Promise<void> {
    const eventPlots = (event: Event) => bySource.get(eventSourceName(event) ?? "");
    const isMissing = (event: Event) =>
      Date.parse(event.time) > (eventPlots(event)?.writtenMs() ?? Number.POSITIVE_INFINITY);
    const [lastReading] = await store.outbox.latest(1, ["tag-value"]);
    if (lastReading === undefined || !isMissing(lastReading.event)) return;
    for (const { event } of (await store.outbox.latest(MAX_RECOVERED_EVENTS, ["tag-value"])).toReversed()) {
      if (!isMissing(event)) continue;
      const { tag, value, time } = (event as Event<"tag-value">).data;
      eventPlots(event)?.add(tag.id, value, Date.parse(time));
    }
  }

  async function recordMinute(): Promise<void> {
    const minute = Math.round(clock.now() / MINUTE_MS) - 1;
    if (minute === notedMinute) return;
    const counts = await numbers.counts();
    for (const [name, level] of await numbers.levels()) minutes.set(name, minute, level);
    for (const [name, count] of counts) minutes.set(name, minute, count - (previousCounts.get(name) ?? 0));
    previousCounts = counts;
    await numbers.refused(refusals.note);
    notedMinute = minute;
  }

  async function write(all: boolean): Promise<void> {
    const nowMs = clock.now();
    for (const plots of bySource.values()) await plots.write({ nowMs, all });
    const packedMinutes = minutes.pack(Math.floor(nowMs / MINUTE_MS));
    await store.commit({ documents: [{ set: WORKER_PLOTS, put: [[MINUTES, packedMinutes]] }] });
    await raisedAlarms.write(nowMs);
    await refusals.write();
  }

  async function runMinute(): Promise<number> {
    await recordMinute();
    const chunk = chunkNumber(clock.now());
    if (chunk !== writtenChunk) await write(false);
    writtenChunk = chunk;
    return untilNextMinute(clock);
  }
  const service: WorkerService = startServiceOnce({
    name: "plots",
    async start(signal) {
      await load();
      previousCounts = await numbers.counts();
      const endSignal = AbortSignal.any([signal, stopController.signal]);
      const firstMs = untilNextMinute(clock);
      let isFirst = true;
      running = runLoop({
        clock,
        signal: endSignal,
        async turn() {
          if (!isFirst) return runMinute();
          isFirst = false;
          return firstMs;
        },
        fault: (error) => log.warn({ err: error }, "the series for plots could not be written"),
      });
    },
    async stop(deadlineMs) {
      stopController.abort(new OrderlyStop());
      await endsWithin(clock, deadlineMs, running);
      await write(true);
    },
  });
  return {
    ...service,
    read: (source: string, id: string, value: TagValue, atMs: number) => bySource.get(source)?.add(id, value, atMs),
    /** Null for a source that is not configured. */
    tags: (source: string) => bySource.get(source) ?? null,
    minutes,
    raised: raisedAlarms,
    refused: refusals,
  };
}

function untilNextMinute(clock: Pick<Clock, "now">): number {
  return MINUTE_MS - (clock.now() % MINUTE_MS);
}

function chunkNumber(ms: number): number {
  return Math.floor(ms / 1_000 / CHUNK_S);
}

/** Deletes all stored plots, for `state.plots: false`. */
export async function clearPlots(store: Pick<Store, "commit" | "documents">, sources: readonly string[]) {
  for (const set of [WORKER_PLOTS, ...sources.map(plotSet)]) {
    const keys = [...(await store.documents(set)).keys()];
    if (keys.length > 0) await store.commit({ documents: [{ set, remove: keys }] });
  }
}
