import { TagPoints } from "../../core/codec/points.ts";
import { errorText, Malformed } from "../../core/errors/errors.ts";
import { BUCKET_MS, type Resolution, type TagLog, type TagValue } from "../../core/model/building.ts";
import { type Event, eventSubject, sourceUri } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { plotLineOfHours, plotLineOfReadings, samplesInGaps } from "../plots/plot-lines.ts";
import {
  HOUR_FORMAT,
  type HourSummary,
  pairsOfSamples,
  type Samples,
  samplesOfPairs,
  type TimeValuePair,
} from "../plots/tag-samples.ts";
import type { PlotQuery } from "./query-parameters.ts";
import type { FetchHistory, ResponseContext } from "./response-context.ts";
import type { TagRow } from "./tag-index.ts";

/** State of the request for the missing history of a plot. `asked`: the page should poll again. */
export interface HistoryFetchState {
  readonly state: "idle" | "asked" | "refused" | "off";
  readonly why: string | null;
}

export interface HistoryRange {
  readonly source: string;
  readonly id: string;
  readonly fromMs: number;
  readonly toMs: number;
  readonly resolution: Resolution;
}

interface CachedSeries extends HistoryRange {
  readonly state: "asked" | "fetched" | "refused";
  readonly why: string | null;
  readonly atMs: number;
  readonly samples: Samples;
  readonly version: number;
}

const MAX_OPEN_REQUESTS = 3;
const MAX_CACHED_SERIES = 50;
const HISTORY_CACHE_LIFETIME_MS = 600_000;
const MAX_QUOTA_WAIT_MS = 300_000;
const NO_FREE_SLOT_MESSAGE = "The quota had no free slot within five minutes: live reads and history used all slots.";
const EMPTY_SAMPLES: Samples = { times: [], values: [] };
const WAITING_STATE: HistoryFetchState = { state: "asked", why: "The request waits until the quota has a free slot." };

/** Uses spare quota to request history that plots lack, and caches it in memory; no sink receives it. */
export function createFetchedHistory(clock: Clock, fetchHistory: FetchHistory) {
  const cachedSeriesByKey = new Map<string, CachedSeries>();
  const stopController = new AbortController();
  let versionCount = 0;
  const seriesKey = ({ id, resolution, source }: HistoryRange) => JSON.stringify([source, id, resolution]);
  const samplesOfRange = (range: HistoryRange) => cachedSeriesByKey.get(seriesKey(range))?.samples ?? EMPTY_SAMPLES;
  function putSeries(range: HistoryRange, state: CachedSeries["state"], why: string | null, samples: Samples): void {
    const key = seriesKey(range);
    versionCount += 1;
    cachedSeriesByKey.delete(key);
    cachedSeriesByKey.set(key, { ...range, state, why, samples, atMs: clock.monotonic(), version: versionCount });
    for (const [cachedKey, series] of cachedSeriesByKey) {
      if (cachedSeriesByKey.size <= MAX_CACHED_SERIES) break;
      if (series.state !== "asked") cachedSeriesByKey.delete(cachedKey);
    }
  }

  function cachedFetchState(range: HistoryRange): HistoryFetchState | null {
    const series = cachedSeriesByKey.get(seriesKey(range));
    if (series === undefined) return null;
    const { atMs, fromMs, state, why } = series;
    if (state === "asked") return WAITING_STATE;
    const isRangeCovered = state === "refused" || fromMs <= range.fromMs + HISTORY_CACHE_LIFETIME_MS;
    if (!isRangeCovered || clock.monotonic() - atMs >= HISTORY_CACHE_LIFETIME_MS) return null;
    return state === "fetched" ? { state: "idle", why: null } : { state, why };
  }

  async function receiveHistory(range: HistoryRange, response: Promise<readonly TagLog[]>): Promise<void> {
    try {
      const tagLog = (await response).find(({ id }) => id === range.id);
      if (tagLog?.unreadable?.timesMs === null) throw new Malformed(tagLog.unreadable.said, "");
      putSeries(range, "fetched", null, toSamples(TagPoints.fromMeasurements(tagLog?.measurements ?? [])));
    } catch (error) {
      if (!stopController.signal.aborted) putSeries(range, "refused", errorText(error), samplesOfRange(range));
    }
  }

  function quotaWaitDeadline(): AbortSignal {
    const deadlineController = new AbortController();
    clock.sleep(MAX_QUOTA_WAIT_MS, stopController.signal).then(
      () => deadlineController.abort(new Error(NO_FREE_SLOT_MESSAGE)),
      () => {},
    );
    return deadlineController.signal;
  }
  return {
    /** Requests history unless it is cached or requested already; at most one request per tag. */
    requestHistory(range: HistoryRange): HistoryFetchState {
      const state = cachedFetchState(range);
      if (state !== null) return state;
      const { fromMs, id, resolution, source, toMs } = range;
      const openRequests = [...cachedSeriesByKey.values()].filter((series) => series.state === "asked");
      if (openRequests.some((series) => series.source === source && series.id === id))
        return { state: "asked", why: "Plenum is already requesting another span of this tag." };
      if (openRequests.length >= MAX_OPEN_REQUESTS)
        return { state: "asked", why: "Requests for other tags come first." };
      const query = { tagIds: [id], from: wholeSecondIso(fromMs), to: wholeSecondIso(toMs), resolution };
      const response = fetchHistory(source, query, AbortSignal.any([stopController.signal, quotaWaitDeadline()]));
      if (response === null) return { state: "off", why: "No worker reads this source." };
      putSeries(range, "asked", null, samplesOfRange(range));
      void receiveHistory(range, response);
      return WAITING_STATE;
    },
    stateOf: (range: HistoryRange): HistoryFetchState => cachedFetchState(range) ?? { state: "idle", why: null },
    samples: samplesOfRange,
    /** Returns a number that changes whenever the history of the range changes. */
    version: (range: HistoryRange) => cachedSeriesByKey.get(seriesKey(range))?.version ?? 0,
    stop: () => stopController.abort(new Error("stopping")),
  };
}

function toSamples(points: Iterable<{ readonly time: string; readonly value: TagValue }>): Samples {
  return sortByTime(
    [...points].map(({ time, value }) => [Date.parse(time) / 1_000, value === null ? null : Number(value)]),
  );
}

const wholeSecondIso = (timeMs: number): string => `${isoUtc(timeMs).slice(0, 19)}Z`;

export type PlotResponse = Awaited<ReturnType<typeof plotResponse>>;

/** Time spans of a plot. `log`: resolution of the history that fills gaps between readings. */
const PLOT_SPANS = {
  "6h": { hours: 6, log: "5m", byHour: false, maxAgeMs: 3_000 },
  "24h": { hours: 24, log: "5m", byHour: false, maxAgeMs: 10_000 },
  "7d": { hours: 168, log: "1h", byHour: true, maxAgeMs: 60_000 },
  "30d": { hours: 720, log: "1h", byHour: true, maxAgeMs: 60_000 },
} as const;

/** Maximum number of events that a plot searches in the event log; searching them takes 0.1 s. */
const MAX_SEARCHED_EVENTS = 75_000;
const MAX_HISTORY_EVENTS = 2_000;
const LOGGED_SAMPLES_CACHE_MS = 60_000;
const EMITTED_RESOLUTIONS = ["5m", "1h"] as const satisfies readonly Resolution[];
const HOUR_SECONDS = 3_600;

/** GET /api/plot?source&tag&span; with &fetch=1, gaps are requested from the service. */
export async function plotResponse(
  context: ResponseContext,
  fetchedHistory: ReturnType<typeof createFetchedHistory>,
  row: TagRow,
  { fetch, span }: Pick<PlotQuery, "fetch" | "span">,
) {
  const { source, tag } = row;
  const { hours, log: resolution, maxAgeMs } = PLOT_SPANS[span];
  const toMs = context.clock.now();
  const plotRange = { source, id: tag.id, fromMs: toMs - hours * HOUR_SECONDS * 1_000, toMs, resolution };
  const history = fetch ? fetchedHistory.requestHistory(plotRange) : fetchedHistory.stateOf(plotRange);
  const cacheName = `plot ${source} ${tag.id} ${span} ${fetchedHistory.version(plotRange)}`;
  const { line, origin } = await context.cache.memoize(cacheName, maxAgeMs, () =>
    computePlotLine(context, row, span, fetchedHistory.samples(plotRange), plotRange.fromMs, toMs),
  );
  const { stepS: stepSeconds, ...columns } = line;
  return { from: isoUtc(plotRange.fromMs), to: isoUtc(toMs), unit: tag.unit, stepSeconds, origin, history, ...columns };
}

async function computePlotLine(
  context: ResponseContext,
  row: TagRow,
  span: PlotQuery["span"],
  fetchedSamples: Samples,
  fromMs: number,
  toMs: number,
) {
  const { source, tag } = row;
  const emittedHistory = await Promise.all(
    EMITTED_RESOLUTIONS.map((resolution) => emittedSamples(context, row, resolution, fromMs)),
  );
  const tagPlots = context.plots?.tags(source) ?? null;
  if (PLOT_SPANS[span].byHour) {
    const liveHours = (await tagPlots?.hours(tag.id, fromMs, toMs)) ?? [];
    const hoursByStart = new Map(liveHours);
    // The emitted history starts with the finest resolution, so its values take precedence over coarser ones.
    for (const [hourStartS, hour] of [...emittedHistory, fetchedSamples].flatMap(summarizeHours))
      if (!hoursByStart.has(hourStartS) && hourStartS * 1_000 >= fromMs) hoursByStart.set(hourStartS, hour);
    const hours = [...hoursByStart].sort(([firstStart], [secondStart]) => firstStart - secondStart);
    return { line: plotLineOfHours(hours), origin: plotOrigin(liveHours.length, hours.length - liveHours.length) };
  }
  const [fineSamples = EMPTY_SAMPLES, coarse = EMPTY_SAMPLES] = emittedHistory;
  const bucketS = BUCKET_MS[PLOT_SPANS[span].log] / 1_000;
  const liveSamples = (await tagPlots?.samples(tag.id, fromMs, toMs)) ?? EMPTY_SAMPLES;
  const finerSamples = samplesInGaps(liveSamples, mergeSamples(fineSamples, fetchedSamples), bucketS);
  const logged = [
    { samples: finerSamples, bucketS },
    { samples: samplesInGaps(mergeSamples(liveSamples, finerSamples), coarse, HOUR_SECONDS), bucketS: HOUR_SECONDS },
  ].filter(({ samples }) => samples.times.length > 0);
  const everyS = (context.live.findReadClass(source, tag.id)?.promisedMs ?? 0) / 1_000;
  const line = plotLineOfReadings({ read: liveSamples, logged, everyS, fromS: fromMs / 1_000, toS: toMs / 1_000 });
  return { line, origin: plotOrigin(liveSamples.times.length, logged.length) };
}

function emittedSamples(
  { cache, store }: ResponseContext,
  { source, siteId, tag }: TagRow,
  resolution: Resolution,
  sinceMs: number,
): Promise<Samples> {
  return cache.memoize(`logged ${source} ${tag.id} ${resolution}`, LOGGED_SAMPLES_CACHE_MS, async () => {
    const subjects = [`${eventSubject("tag", siteId, tag.id)}/history/${resolution}`];
    const searchLimits = { sinceMs, maxSearched: MAX_SEARCHED_EVENTS, limit: MAX_HISTORY_EVENTS };
    const events = await store.outbox.recent({ source: sourceUri(source), subjects }, ["tag-history"], searchLimits);
    const points = events.toReversed().flatMap(({ event }) => (event as Event<"tag-history">).data.points);
    return toSamples(points);
  });
}

/** Sorts points by time; of points with equal times, keeps the last. */
function sortByTime(points: readonly TimeValuePair[]): Samples {
  return samplesOfPairs([...new Map(points)].filter(([time]) => Number.isFinite(time)).sort(([a], [b]) => a - b));
}

const mergeSamples = (...parts: readonly Samples[]): Samples => sortByTime(parts.flatMap(pairsOfSamples));

function summarizeHours(samples: Samples): readonly (readonly [begin: number, hour: HourSummary])[] {
  const hours = new Map<number, HourSummary>();
  for (const [time, value] of pairsOfSamples(samples)) {
    const hourStartS = time - (time % HOUR_SECONDS);
    if (value !== null) hours.set(hourStartS, HOUR_FORMAT.addReading(hours.get(hourStartS), time, value));
  }
  return [...hours];
}

function plotOrigin(readCount: number, loggedCount: number) {
  if (readCount > 0) return loggedCount > 0 ? "both" : "read";
  return loggedCount > 0 ? "logged" : "none";
}
