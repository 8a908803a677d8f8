import { BUCKET_MS, type Resolution } from "../../core/model/building.ts";
import { type Event, sourceUri, subjectOf } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Store } from "../../engine/store/store.ts";
import type { TagReading } from "../../engine/sync/work.ts";
import { besides, type Line, lineOf, lineOfHours } from "../plots/fold.ts";
import type { Plots } from "../plots/plots.ts";
import { HOUR, type Hour, type Samples } from "../plots/samples.ts";
import type { CachedDocuments } from "./cached-documents.ts";
import type { FetchedHistory } from "./fetched-history.ts";
import type { PlotResponse, TagRow } from "./responses.ts";

export interface PlotParts {
  readonly store: { readonly outbox: Pick<Store["outbox"], "recent"> };
  readonly clock: Pick<Clock, "now">;
  readonly remembered: CachedDocuments;
  /** Null where no series are kept. */
  readonly plots: Pick<Plots, "tags"> | null;
  readonly fetched: FetchedHistory;
  /** Null where a tag is not read. */
  readonly readingOf: (source: string, id: string) => TagReading | null;
}

export const SPANS = ["6h", "24h", "7d", "30d"] as const;
export type Span = (typeof SPANS)[number];

const HOUR_MS = 3_600_000;
/** How far back, which log fills what was not read, and how old an answer may be, milliseconds. */
const RULES: Readonly<
  Record<Span, { readonly ms: number; readonly log: Resolution; readonly byHour: boolean; readonly ageMs: number }>
> = {
  "6h": { ms: 6 * HOUR_MS, log: "5m", byHour: false, ageMs: 3_000 },
  "24h": { ms: 24 * HOUR_MS, log: "5m", byHour: false, ageMs: 10_000 },
  "7d": { ms: 168 * HOUR_MS, log: "1h", byHour: true, ageMs: 60_000 },
  "30d": { ms: 720 * HOUR_MS, log: "1h", byHour: true, ageMs: 60_000 },
};

/** As for the curves of alarms: of the log the newest 75,000 events are looked through, a tenth of a second. */
const PASSED_OVER = 75_000;
const EVENTS = 2_000;
/** Lifetime of logged values in the cache, in milliseconds. */
const LOGGED_MS = 60_000;
/** Resolutions of emitted history that describe hours, finest first. */
const TOLD = ["5m", "1h"] as const satisfies readonly Resolution[];
const HOUR_S = 3_600;
const NOTHING: Samples = { times: [], values: [] };

export async function plotAnswer(parts: PlotParts, row: TagRow, span: Span, mayFetch: boolean): Promise<PlotResponse> {
  const { source, tag } = row;
  const { ageMs, log, ms } = RULES[span];
  const toMs = parts.clock.now();
  const fromMs = toMs - ms;
  const asked = { source, id: tag.id, fromMs, toMs, resolution: log };
  const history = mayFetch ? parts.fetched.order(asked) : parts.fetched.state(asked);
  const name = `plot ${source} ${tag.id} ${span} ${parts.fetched.version(asked)}`;
  const drawn = await parts.remembered.made(name, ageMs, () => draw(parts, row, span, fromMs, toMs));
  const { line, origin } = drawn;
  const { stepS, ...columns } = line;
  return {
    from: isoUtc(fromMs),
    to: isoUtc(toMs),
    unit: tag.unit,
    stepSeconds: stepS,
    origin,
    history,
    ...columns,
  };
}

async function draw(
  parts: PlotParts,
  row: TagRow,
  span: Span,
  fromMs: number,
  toMs: number,
): Promise<{ readonly line: Line; readonly origin: PlotResponse["origin"] }> {
  const { source, tag } = row;
  const { byHour, log } = RULES[span];
  const bucketS = BUCKET_MS[log] / 1_000;
  const fetched = parts.fetched.samples({ source, id: tag.id, fromMs, toMs, resolution: log });
  const told = await Promise.all(TOLD.map((resolution) => loggedOf(parts, row, resolution, fromMs)));
  const plots = parts.plots?.tags(source) ?? null;
  if (byHour) {
    const read = (await plots?.hours(tag.id, fromMs, toMs)) ?? [];
    const known = new Map(read);
    // Fetched data has hours; of emitted data the finest resolution comes first.
    for (const [begin, hour] of [...told, fetched].flatMap(hoursOf))
      if (!known.has(begin) && begin * 1_000 >= fromMs) known.set(begin, hour);
    const hours = [...known].sort(([one], [other]) => one - other);
    return { line: lineOfHours(hours), origin: originOf(read.length, hours.length - read.length) };
  }
  const [fine = NOTHING, coarse = NOTHING] = told;
  const read = (await plots?.samples(tag.id, fromMs, toMs)) ?? NOTHING;
  const finer = besides(read, joined(fine, fetched), bucketS);
  const hourly = besides(joined(read, finer), coarse, HOUR_S);
  const logged = [
    { samples: finer, bucketS },
    { samples: hourly, bucketS: HOUR_S },
  ].filter(({ samples }) => samples.times.length > 0);
  const everyS = (parts.readingOf(source, tag.id)?.promisedMs ?? 0) / 1_000;
  const [fromS, toS] = [fromMs / 1_000, toMs / 1_000];
  const line = lineOf({ read, logged, everyS, fromS, toS });
  return { line, origin: originOf(read.times.length, logged.length) };
}

/** Points of the tag in history events of the log. */
function loggedOf(
  { remembered, store }: PlotParts,
  { source, siteId, tag }: TagRow,
  resolution: Resolution,
  fromMs: number,
): Promise<Samples> {
  return remembered.made(`logged ${source} ${tag.id} ${resolution}`, LOGGED_MS, async () => {
    const subject = `${subjectOf("tag", siteId, tag.id)}/history/${resolution}`;
    const events = await store.outbox.recent({ source: sourceUri(source), subjects: [subject] }, ["tag-history"], {
      sinceMs: fromMs,
      within: PASSED_OVER,
      limit: EVENTS,
    });
    const byTime = new Map<number, number | null>();
    for (const { event } of events.toReversed()) {
      for (const { time, value } of (event as Event<"tag-history">).data.points)
        byTime.set(Date.parse(time) / 1_000, value === null ? null : Number(value));
    }
    const known = [...byTime].filter(([time]) => Number.isFinite(time)).sort(([a], [b]) => a - b);
    return { times: known.map(([time]) => time), values: known.map(([, value]) => value) };
  });
}

/** For equal times the later value counts. */
function joined(one: Samples, other: Samples): Samples {
  const byTime = new Map<number, number | null>();
  for (const { times, values } of [one, other])
    for (const [n, time] of times.entries()) byTime.set(time, values[n] ?? null);
  const all = [...byTime].sort(([a], [b]) => a - b);
  return { times: all.map(([time]) => time), values: all.map(([, value]) => value) };
}

/** By the hour in which each value was logged: of an hour of one value that is all that is known of it. */
function hoursOf({ times, values }: Samples): readonly (readonly [begin: number, hour: Hour])[] {
  const hours = new Map<number, Hour>();
  for (const [n, time] of times.entries()) {
    const value = values[n] ?? null;
    if (value === null) continue;
    const begin = time - (time % HOUR_S);
    const now = { low: value, high: value, last: value };
    const before = hours.get(begin);
    hours.set(begin, before === undefined ? now : HOUR.join(before, now));
  }
  return [...hours];
}

function originOf(read: number, logged: number): PlotResponse["origin"] {
  if (read > 0 && logged > 0) return "both";
  return read > 0 ? "read" : logged > 0 ? "logged" : "none";
}
