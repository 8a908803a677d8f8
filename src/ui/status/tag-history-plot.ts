import { TagPoints } from "../../core/codec/points.ts";
import { errorText, Malformed } from "../../core/errors/errors.ts";
import { BUCKET_MS, type Resolution, type TagLog, type TagValue } from "../../core/model/building.ts";
import { type Event, eventSubject, sourceUri } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { hoursLine, loggedInGaps, readingsLine } from "../plots/plot-lines.ts";
import { HOUR_FORMAT, type Hour, type Samples } from "../plots/tag-samples.ts";
import type { PlotQuery } from "./query-parameters.ts";
import type { FetchHistory, PageContext } from "./response-context.ts";
import type { TagRow } from "./tag-index.ts";

/** State of filling gaps from history: idle | asked (poll again) | refused, with the reason | off. */
export interface FetchState {
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

interface CachedSeries {
  readonly source: string;
  readonly id: string;
  readonly state: "asked" | "fetched" | "refused";
  readonly why: string | null;
  readonly atMs: number;
  readonly fromMs: number;
  readonly samples: Samples;
  readonly version: number;
}

const MOST_OPEN = 3;
/** 720 points of a series take 12 kB. */
const MOST_CACHED = 50;
/** Lifetime of fetched data and of a rejection. */
const CACHE_LIFETIME_MS = 600_000;
const MAX_SLOT_WAIT_MS = 300_000;
const EMPTY_SAMPLES: Samples = { times: [], values: [] };
const WAITING_STATE: FetchState = { state: "asked", why: "The request waits until the quota has a free slot." };

class NoSlotInTime extends Error {}

/** Logged history that a plot requested in spare slots. It is only displayed: no event is emitted, and a restart deletes it. */
export function createFetchedHistory(clock: Clock, fetch: FetchHistory) {
  const entries = new Map<string, CachedSeries>();
  const stopController = new AbortController();
  let versionCount = 0;
  const rangeKey = ({ id, resolution, source }: HistoryRange) => JSON.stringify([source, id, resolution]);
  const samples = (range: HistoryRange) => entries.get(rangeKey(range))?.samples ?? EMPTY_SAMPLES;
  function save(range: HistoryRange, state: CachedSeries["state"], why: string | null, values: Samples): void {
    const { fromMs, id, source } = range;
    const version = ++versionCount;
    entries.delete(rangeKey(range));
    entries.set(rangeKey(range), { source, id, state, why, atMs: clock.monotonic(), fromMs, samples: values, version });
    for (const [old, series] of entries) {
      if (entries.size <= MOST_CACHED) break;
      if (series.state !== "asked") entries.delete(old);
    }
  }

  function cachedState(range: HistoryRange): FetchState | null {
    const series = entries.get(rangeKey(range));
    if (series === undefined) return null;
    const { atMs, fromMs, state, why } = series;
    if (state === "asked") return WAITING_STATE;
    const isInRange = state === "refused" || fromMs <= range.fromMs + CACHE_LIFETIME_MS;
    if (!isInRange || clock.monotonic() - atMs >= CACHE_LIFETIME_MS) return null;
    return state === "fetched" ? { state: "idle", why: null } : { state, why };
  }

  async function receive(range: HistoryRange, response: Promise<readonly TagLog[]>): Promise<void> {
    try {
      const log = (await response).find(({ id }) => id === range.id);
      if (log?.unreadable?.timesMs === null) throw new Malformed(log.unreadable.said, "");
      save(range, "fetched", null, log === undefined ? EMPTY_SAMPLES : toSamples(TagPoints.of(log.measurements)));
    } catch (error) {
      if (!stopController.signal.aborted) save(range, "refused", failureReason(error), samples(range));
    }
  }

  function slotDeadline(): AbortSignal {
    const controller = new AbortController();
    clock.sleep(MAX_SLOT_WAIT_MS, stopController.signal).then(
      () => controller.abort(new NoSlotInTime()),
      () => {},
    );
    return controller.signal;
  }
  return {
    /** Requests a range unless it is cached or requested already; at most one request per tag. */
    request(range: HistoryRange): FetchState {
      const state = cachedState(range);
      if (state !== null) return state;
      const { fromMs, id, resolution, source, toMs } = range;
      const openRequests = [...entries.values()].filter((series) => series.state === "asked");
      if (openRequests.some((series) => series.source === source && series.id === id))
        return { state: "asked", why: "Plenum is already requesting another span of this tag." };
      if (openRequests.length >= MOST_OPEN) return { state: "asked", why: "Requests for other tags come first." };
      const query = { tagIds: [id], from: wholeSecond(fromMs), to: wholeSecond(toMs), resolution };
      const response = fetch(source, query, AbortSignal.any([stopController.signal, slotDeadline()]));
      if (response === null) return { state: "off", why: "No worker reads this source." };
      save(range, "asked", null, samples(range));
      void receive(range, response);
      return WAITING_STATE;
    },
    state: (range: HistoryRange): FetchState => cachedState(range) ?? { state: "idle", why: null },
    samples,
    /** Changes whenever `samples` changes. */
    version: (range: HistoryRange) => entries.get(rangeKey(range))?.version ?? 0,
    stop: () => stopController.abort(new Error("stopping")),
  };
}

function failureReason(error: unknown): string {
  if (error instanceof NoSlotInTime)
    return "The quota had no free slot within five minutes: live reads and history used all slots.";
  return errorText(error);
}

function toSamples(points: Iterable<{ readonly time: string; readonly value: TagValue }>): Samples {
  const pairs = [...points].map(
    ({ time, value }) => [Date.parse(time) / 1_000, value === null ? null : Number(value)] as const,
  );
  return byTime(pairs);
}

function wholeSecond(ms: number): string {
  return `${isoUtc(ms).slice(0, 19)}Z`;
}

export type PlotResponse = Awaited<ReturnType<typeof plotResponse>>;

/** `log`: resolution that fills the gaps of the span. */
const PLOT_SPANS = {
  "6h": { hours: 6, log: "5m", byHour: false, maxAgeMs: 3_000 },
  "24h": { hours: 24, log: "5m", byHour: false, maxAgeMs: 10_000 },
  "7d": { hours: 168, log: "1h", byHour: true, maxAgeMs: 60_000 },
  "30d": { hours: 720, log: "1h", byHour: true, maxAgeMs: 60_000 },
} as const;

/** Newest events of the log that are searched, which takes 0.1 s. */
const SEARCHED_EVENTS = 75_000;
const MOST_EVENTS = 2_000;
const LOGGED_SAMPLES_CACHE_MS = 60_000;
const EMITTED = ["5m", "1h"] as const satisfies readonly Resolution[];
const HOUR_S = 3_600;

/** GET /api/plot?source&tag&span; with &fetch=1, gaps are requested from the service in its spare quota. */
export async function plotResponse(
  context: PageContext,
  fetched: ReturnType<typeof createFetchedHistory>,
  row: TagRow,
  { fetch, span }: Pick<PlotQuery, "fetch" | "span">,
) {
  const { source, tag } = row;
  const { hours, log, maxAgeMs } = PLOT_SPANS[span];
  const toMs = context.clock.now();
  const range = { source, id: tag.id, fromMs: toMs - hours * HOUR_S * 1_000, toMs, resolution: log };
  const history = fetch ? fetched.request(range) : fetched.state(range);
  const name = `plot ${source} ${tag.id} ${span} ${fetched.version(range)}`;
  const { line, origin } = await context.cache.computed(name, maxAgeMs, () =>
    drawPlot(context, row, span, fetched.samples(range), range.fromMs, toMs),
  );
  const { stepS: stepSeconds, ...columns } = line;
  return { from: isoUtc(range.fromMs), to: isoUtc(toMs), unit: tag.unit, stepSeconds, origin, history, ...columns };
}

async function drawPlot(
  context: PageContext,
  row: TagRow,
  span: PlotQuery["span"],
  fetched: Samples,
  fromMs: number,
  toMs: number,
) {
  const { source, tag } = row;
  const emitted = await Promise.all(EMITTED.map((resolution) => emittedSamples(context, row, resolution, fromMs)));
  const plots = context.plots?.tags(source) ?? null;
  if (PLOT_SPANS[span].byHour) {
    const readHours = (await plots?.hours(tag.id, fromMs, toMs)) ?? [];
    const hoursByBegin = new Map(readHours);
    // Of emitted data the finest resolution comes first.
    for (const [begin, hour] of [...emitted, fetched].flatMap(groupByHour))
      if (!hoursByBegin.has(begin) && begin * 1_000 >= fromMs) hoursByBegin.set(begin, hour);
    const hours = [...hoursByBegin].sort(([one], [other]) => one - other);
    return { line: hoursLine(hours), origin: plotOrigin(readHours.length, hours.length - readHours.length) };
  }
  const [fine = EMPTY_SAMPLES, coarse = EMPTY_SAMPLES] = emitted;
  const bucketS = BUCKET_MS[PLOT_SPANS[span].log] / 1_000;
  const readSamples = (await plots?.samples(tag.id, fromMs, toMs)) ?? EMPTY_SAMPLES;
  const finerSamples = loggedInGaps(readSamples, mergeSamples(fine, fetched), bucketS);
  const logged = [
    { samples: finerSamples, bucketS },
    { samples: loggedInGaps(mergeSamples(readSamples, finerSamples), coarse, HOUR_S), bucketS: HOUR_S },
  ].filter(({ samples }) => samples.times.length > 0);
  const everyS = (context.live.reading(source, tag.id)?.promisedMs ?? 0) / 1_000;
  const line = readingsLine({ read: readSamples, logged, everyS, fromS: fromMs / 1_000, toS: toMs / 1_000 });
  return { line, origin: plotOrigin(readSamples.times.length, logged.length) };
}

function emittedSamples(
  { cache, store }: PageContext,
  { source, siteId, tag }: TagRow,
  resolution: Resolution,
  sinceMs: number,
): Promise<Samples> {
  return cache.computed(`logged ${source} ${tag.id} ${resolution}`, LOGGED_SAMPLES_CACHE_MS, async () => {
    const subjects = [`${eventSubject("tag", siteId, tag.id)}/history/${resolution}`];
    const limits = { sinceMs, maxSearched: SEARCHED_EVENTS, limit: MOST_EVENTS };
    const events = await store.outbox.recent({ source: sourceUri(source), subjects }, ["tag-history"], limits);
    const points = events.toReversed().flatMap(({ event }) => (event as Event<"tag-history">).data.points);
    return toSamples(points);
  });
}

/** Sorts points by time. Of equal times the later point counts. */
function byTime(points: readonly (readonly [time: number, value: number | null])[]): Samples {
  const sortedPoints = [...new Map(points)].filter(([time]) => Number.isFinite(time)).sort(([a], [b]) => a - b);
  return { times: sortedPoints.map(([time]) => time), values: sortedPoints.map(([, value]) => value) };
}

function mergeSamples(...parts: readonly Samples[]): Samples {
  return byTime(parts.flatMap(({ times, values }) => times.map((time, n) => [time, values[n] ?? null] as const)));
}

function groupByHour({ times, values }: Samples): readonly (readonly [begin: number, hour: Hour])[] {
  const hours = new Map<number, Hour>();
  for (const [n, time] of times.entries()) {
    const value = values[n] ?? null;
    if (value === null) continue;
    const begin = time - (time % HOUR_S);
    const hourOfValue = { low: value, high: value, last: value };
    const earlierHour = hours.get(begin);
    hours.set(begin, earlierHour === undefined ? hourOfValue : HOUR_FORMAT.join(earlierHour, hourOfValue));
  }
  return [...hours];
}

function plotOrigin(read: number, logged: number) {
  if (read > 0) return logged > 0 ? "both" : "read";
  return logged > 0 ? "logged" : "none";
}
