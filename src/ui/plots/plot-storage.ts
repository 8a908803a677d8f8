import type { TagValue } from "../../core/model/building.ts";
import { type Event, eventSourceName } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { OrderlyStop, startServiceOnce, type WorkerService } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { endsWithin, runLoop } from "../../core/runtime/waiting.ts";
import type { Store } from "../../engine/store/store.ts";
import {
  createMinuteSeries,
  createRaisedAlarmCounts,
  createRefusedRequests,
  type PackedMinuteSeries,
  type RefusedRequests,
} from "./minute-time-series.ts";
import { CHUNK_SECONDS, createTagPlots, deleteDocumentSet, plotDocumentSet } from "./tag-plots.ts";

export type Plots = ReturnType<typeof createPlots>;

export interface WorkerPlotNumbers {
  currentGaugeValues(): Promise<ReadonlyMap<string, number | null>>;
  /** Counts since the start of the worker; the plots store the increase of each minute. */
  totalCounts(): Promise<ReadonlyMap<string, number>>;
  noteRefusedRequests(addRefusal: RefusedRequests["addRefusal"]): Promise<void>;
}

export const minuteSeriesNames = {
  lag: (sink: string) => `lag ${sink}`,
  accepted: (sink: string) => `accepted ${sink}`,
  requests: (source: string, lane: string) => `requests ${lane} ${source}`,
};

const WORKER_PLOT_SET = "plot-own";
const MINUTE_SERIES_KEY = "minutes";
const MINUTE_MS = 60_000;
const MAX_RECOVERED_EVENTS = 5_000;

/** Stores time series of bounded size for the plots of the status page. A crash may lose some minutes. */
export function createPlots(options: {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "warn">;
  readonly sources: readonly string[];
  readonly numbers: WorkerPlotNumbers;
}) {
  const { store, clock, log, sources, numbers } = options;
  const plotsBySource = new Map(sources.map((source) => [source, createTagPlots({ store, source })]));
  const minuteSeries = createMinuteSeries();
  const raisedAlarmCounts = createRaisedAlarmCounts(WORKER_PLOT_SET, store);
  const refusedRequests = createRefusedRequests(WORKER_PLOT_SET, store);
  const stopController = new AbortController();
  let plotLoop: Promise<void> = Promise.resolve();
  let previousCounts: ReadonlyMap<string, number> = new Map();
  let lastRecordedMinute = Number.NEGATIVE_INFINITY;
  let lastWrittenChunkNumber = chunkNumberAt(clock.now());
  async function loadStoredPlots(): Promise<void> {
    const nowMs = clock.now();
    for (const plots of plotsBySource.values()) await plots.loadTagIndexes(nowMs);
    const packedMinutes = await store.document<PackedMinuteSeries>(WORKER_PLOT_SET, MINUTE_SERIES_KEY);
    if (packedMinutes !== undefined) minuteSeries.load(packedMinutes);
    await raisedAlarmCounts.loadCounts();
    await refusedRequests.loadRefusals();
    await recoverLostReadings();
  }

  async function recoverLostReadings(): Promise<void> {
    const plotsOfEvent = (event: Event) => plotsBySource.get(eventSourceName(event) ?? "");
    const isMissingReading = (event: Event) =>
      Date.parse(event.time) > (plotsOfEvent(event)?.writtenUntilMs() ?? Number.POSITIVE_INFINITY);
    const [lastReading] = await store.outbox.latest(1, ["tag-value"]);
    if (lastReading === undefined || !isMissingReading(lastReading.event)) return;
    for (const { event } of (await store.outbox.latest(MAX_RECOVERED_EVENTS, ["tag-value"])).toReversed()) {
      if (!isMissingReading(event)) continue;
      const { tag, value, time } = (event as Event<"tag-value">).data;
      plotsOfEvent(event)?.addReading(tag.id, value, Date.parse(time));
    }
  }

  async function recordMinuteNumbers(): Promise<void> {
    const finishedMinute = Math.round(clock.now() / MINUTE_MS) - 1;
    if (finishedMinute === lastRecordedMinute) return;
    const counts = await numbers.totalCounts();
    for (const [name, level] of await numbers.currentGaugeValues()) minuteSeries.set(name, finishedMinute, level);
    for (const [name, count] of counts) minuteSeries.set(name, finishedMinute, count - (previousCounts.get(name) ?? 0));
    previousCounts = counts;
    await numbers.noteRefusedRequests(refusedRequests.addRefusal);
    lastRecordedMinute = finishedMinute;
  }

  async function writePlots(includesOpenChunks: boolean): Promise<void> {
    const nowMs = clock.now();
    for (const plots of plotsBySource.values()) await plots.writeChunks({ nowMs, all: includesOpenChunks });
    const packedMinutes = minuteSeries.pack(Math.floor(nowMs / MINUTE_MS));
    await store.commit({ documents: [{ set: WORKER_PLOT_SET, put: [[MINUTE_SERIES_KEY, packedMinutes]] }] });
    await raisedAlarmCounts.writeCounts(nowMs);
    await refusedRequests.writeRefusals();
  }

  async function recordAndWriteMinute(): Promise<number> {
    await recordMinuteNumbers();
    const currentChunkNumber = chunkNumberAt(clock.now());
    if (currentChunkNumber !== lastWrittenChunkNumber) await writePlots(false);
    lastWrittenChunkNumber = currentChunkNumber;
    return msUntilNextMinute(clock);
  }
  const plotService: WorkerService = startServiceOnce({
    name: "plots",
    async start(signal) {
      await loadStoredPlots();
      previousCounts = await numbers.totalCounts();
      const plotStopSignal = AbortSignal.any([signal, stopController.signal]);
      const firstMinuteWaitMs = msUntilNextMinute(clock);
      let isFirstStep = true;
      plotLoop = runLoop({
        clock,
        signal: plotStopSignal,
        async step() {
          if (!isFirstStep) return recordAndWriteMinute();
          isFirstStep = false;
          return firstMinuteWaitMs;
        },
        onFault: (error) => log.warn({ err: error }, "the series for plots could not be written"),
      });
    },
    async stop(deadlineMs) {
      stopController.abort(new OrderlyStop());
      await endsWithin(clock, deadlineMs, plotLoop);
      await writePlots(true);
    },
  });
  return {
    ...plotService,
    addReading: (source: string, id: string, value: TagValue, atMs: number) =>
      plotsBySource.get(source)?.addReading(id, value, atMs),
    tags: (source: string) => plotsBySource.get(source) ?? null,
    minutes: minuteSeries,
    raised: raisedAlarmCounts,
    refused: refusedRequests,
  };
}

const msUntilNextMinute = (clock: Pick<Clock, "now">): number => MINUTE_MS - (clock.now() % MINUTE_MS);

const chunkNumberAt = (atMs: number): number => Math.floor(atMs / 1_000 / CHUNK_SECONDS);

export async function deleteStoredPlots(store: Pick<Store, "commit" | "documents">, sources: readonly string[]) {
  for (const set of [WORKER_PLOT_SET, ...sources.map(plotDocumentSet)]) await deleteDocumentSet(store, set);
}
