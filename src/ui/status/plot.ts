import { BUCKET_MS, type Resolution } from "../../core/model/building.ts";
import { type Event, sourceUri, subjectOf } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { besides, type Line, lineOf, lineOfHours } from "../plots/fold.ts";
import { HOUR, type Hour, type Samples } from "../plots/samples.ts";
import { type FetchedHistory, type FetchState, NO_SAMPLES } from "./fetched-history.ts";
import type { PageContext } from "./page-context.ts";
import type { PlotQuery } from "./queries.ts";
import type { Columns } from "./sinks.ts";
import type { TagRow } from "./tag-index.ts";

/** GET /api/plot?source&tag&span; with &fetch=1, gaps are requested from the service in its spare quota. */
export interface PlotResponse extends Columns {
  readonly from: string;
  readonly to: string;
  readonly unit: string | null;
  /** Seconds per step; without low and high the usual distance of two points. */
  readonly stepSeconds: number;
  /** Origin of the points: live readings, logged history, or both. */
  readonly origin: "read" | "logged" | "both" | "none";
  readonly history: FetchState;
}

/** Length of each span, log that fills its gaps, and age limit of its response; times in hours and milliseconds. */
const SPANS: Readonly<
  Record<
    PlotQuery["span"],
    { readonly hours: number; readonly log: Resolution; readonly byHour: boolean; readonly maxAgeMs: number }
  >
> = {
  "6h": { hours: 6, log: "5m", byHour: false, maxAgeMs: 3_000 },
  "24h": { hours: 24, log: "5m", byHour: false, maxAgeMs: 10_000 },
  "7d": { hours: 168, log: "1h", byHour: true, maxAgeMs: 60_000 },
  "30d": { hours: 720, log: "1h", byHour: true, maxAgeMs: 60_000 },
};

/** Newest events of the log that are searched, which takes a tenth of a second, and most that are used. */
const SEARCHED_EVENTS = 75_000;
const MOST_EVENTS = 2_000;
/** Lifetime of logged values in the cache, in milliseconds. */
const LOGGED_MS = 60_000;
/** Resolutions of emitted history that describe hours, finest first. */
const EMITTED = ["5m", "1h"] as const satisfies readonly Resolution[];
const HOUR_S = 3_600;

export async function plotResponse(
  context: PageContext,
  fetched: FetchedHistory,
  row: TagRow,
  { fetch, span }: Pick<PlotQuery, "fetch" | "span">,
): Promise<PlotResponse> {
  const { source, tag } = row;
  const { hours, log, maxAgeMs } = SPANS[span];
  const toMs = context.clock.now();
  const range = { source, id: tag.id, fromMs: toMs - hours * HOUR_S * 1_000, toMs, resolution: log };
  const history = fetch ? fetched.request(range) : fetched.state(range);
  const name = `plot ${source} ${tag.id} ${span} ${fetched.version(range)}`;
  const { line, origin } = await context.cache.computed(name, maxAgeMs, () =>
    draw(context, row, span, fetched.samples(range), range.fromMs, toMs),
  );
  const { stepS: stepSeconds, ...columns } = line;
  return { from: isoUtc(range.fromMs), to: isoUtc(toMs), unit: tag.unit, stepSeconds, origin, history, ...columns };
}

async function draw(
  context: PageContext,
  row: TagRow,
  span: PlotQuery["span"],
  fetched: Samples,
  fromMs: number,
  toMs: number,
): Promise<{ readonly line: Line; readonly origin: PlotResponse["origin"] }> {
  const { source, tag } = row;
  const emitted = await Promise.all(EMITTED.map((resolution) => emittedSamples(context, row, resolution, fromMs)));
  const plots = context.plots?.tags(source) ?? null;
  if (SPANS[span].byHour) {
    const read = (await plots?.hours(tag.id, fromMs, toMs)) ?? [];
    const known = new Map(read);
    // Of emitted data the finest resolution comes first.
    for (const [begin, hour] of [...emitted, fetched].flatMap(hoursOf))
      if (!known.has(begin) && begin * 1_000 >= fromMs) known.set(begin, hour);
    const hours = [...known].sort(([one], [other]) => one - other);
    return { line: lineOfHours(hours), origin: originOf(read.length, hours.length - read.length) };
  }
  const [fine = NO_SAMPLES, coarse = NO_SAMPLES] = emitted;
  const bucketS = BUCKET_MS[SPANS[span].log] / 1_000;
  const read = (await plots?.samples(tag.id, fromMs, toMs)) ?? NO_SAMPLES;
  const finer = besides(read, merged(fine, fetched), bucketS);
  const logged = [
    { samples: finer, bucketS },
    { samples: besides(merged(read, finer), coarse, HOUR_S), bucketS: HOUR_S },
  ].filter(({ samples }) => samples.times.length > 0);
  const everyS = (context.live.reading(source, tag.id)?.promisedMs ?? 0) / 1_000;
  const line = lineOf({ read, logged, everyS, fromS: fromMs / 1_000, toS: toMs / 1_000 });
  return { line, origin: originOf(read.times.length, logged.length) };
}

/** Points of the tag in history events of the log. */
function emittedSamples(
  { cache, store }: PageContext,
  { source, siteId, tag }: TagRow,
  resolution: Resolution,
  sinceMs: number,
): Promise<Samples> {
  return cache.computed(`logged ${source} ${tag.id} ${resolution}`, LOGGED_MS, async () => {
    const subjects = [`${subjectOf("tag", siteId, tag.id)}/history/${resolution}`];
    const limits = { sinceMs, within: SEARCHED_EVENTS, limit: MOST_EVENTS };
    const events = await store.outbox.recent({ source: sourceUri(source), subjects }, ["tag-history"], limits);
    const points = events.toReversed().flatMap(({ event }) => (event as Event<"tag-history">).data.points);
    return byTime(
      points.map(({ time, value }) => [Date.parse(time) / 1_000, value === null ? null : Number(value)] as const),
    );
  });
}

/** Sorts points by time. Of equal times the later point counts. */
function byTime(points: readonly (readonly [time: number, value: number | null])[]): Samples {
  const sorted = [...new Map(points)].filter(([time]) => Number.isFinite(time)).sort(([a], [b]) => a - b);
  return { times: sorted.map(([time]) => time), values: sorted.map(([, value]) => value) };
}

function merged(...parts: readonly Samples[]): Samples {
  return byTime(parts.flatMap(({ times, values }) => times.map((time, n) => [time, values[n] ?? null] as const)));
}

/** Groups values by the hour in which they were logged. */
function hoursOf({ times, values }: Samples): readonly (readonly [begin: number, hour: Hour])[] {
  const hours = new Map<number, Hour>();
  for (const [n, time] of times.entries()) {
    const value = values[n] ?? null;
    if (value === null) continue;
    const begin = time - (time % HOUR_S);
    const own = { low: value, high: value, last: value };
    const earlier = hours.get(begin);
    hours.set(begin, earlier === undefined ? own : HOUR.join(earlier, own));
  }
  return [...hours];
}

function originOf(read: number, logged: number): PlotResponse["origin"] {
  if (read > 0 && logged > 0) return "both";
  return read > 0 ? "read" : logged > 0 ? "logged" : "none";
}
