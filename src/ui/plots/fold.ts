import type { Hour, Samples } from "./samples.ts";

/**
 * Builds the columns of a plot from readings, logged values and hours. Pure. Unknown times become a null in the line: one between two
 * points that are further apart than either of them covers.
 */
export interface Line {
  /** Seconds since 1970, rising. */
  readonly t: readonly number[];
  readonly value: readonly (number | null)[];
  /** Left out where each step holds one value. */
  readonly low?: readonly (number | null)[];
  readonly high?: readonly (number | null)[];
  /** Seconds that each point stands for; without low and high the usual distance of two points. */
  readonly stepS: number;
}

interface Point {
  readonly t: number;
  readonly value: number | null;
  readonly low: number | null;
  readonly high: number | null;
  /** Seconds in which the next one is expected. */
  readonly reachS: number;
}

/** More are not drawn on any screen. */
const MOST_POINTS = 1_500;
const HOUR_S = 3_600;
/** A reading covers this many usual distances; a bucket covers the time to the next one. */
const REACH = 3;
const BUCKET_REACH = 1.5;

export interface LineParts {
  readonly read: Samples;
  /** Logged values for times without readings, and the seconds that each of them stands for. */
  readonly logged: readonly { readonly samples: Samples; readonly bucketS: number }[];
  /** How often it is read by its class, seconds; 0 where it is not. */
  readonly everyS: number;
  readonly fromS: number;
  readonly toS: number;
}

/** Readings as they are, or in steps where there are more of them than a plot shows. */
export function lineOf({ everyS, fromS, logged, read, toS }: LineParts): Line {
  const distanceS = usualDistance(read.times);
  const all = [
    ...logged.flatMap(({ bucketS, samples }) => pointsOf(samples, BUCKET_REACH * bucketS)),
    ...pointsOf(read, Math.max(REACH * distanceS, 2 * everyS)),
  ];
  const points = inOrder(all.filter(({ t }) => t >= fromS && t <= toS));
  if (points.length <= MOST_POINTS) {
    const whole = withGaps(points);
    const stepS = points.length > 1 ? usualDistance(points.map(({ t }) => t)) : (logged[0]?.bucketS ?? distanceS);
    return { t: whole.map(({ t }) => t), value: whole.map(({ value }) => value), stepS };
  }
  const stepS = Math.ceil((toS - fromS) / MOST_POINTS);
  return withRange(withGaps(inSteps(points, fromS, stepS)), stepS);
}

/** Hours, by the begin of each, ascending. */
export function lineOfHours(hours: readonly (readonly [begin: number, hour: Hour])[]): Line {
  const points = hours.map(([t, { high, last, low }]): Point => ({ t, value: last, low, high, reachS: HOUR_S }));
  return withRange(withGaps(points), HOUR_S);
}

/** Logged values at times without readings. Both ascending; `bucketS`: seconds that a logged value stands for. */
export function besides(read: Samples, logged: Samples, bucketS: number): Samples {
  const times: number[] = [];
  const values: (number | null)[] = [];
  const known = read.times.toSorted((a, b) => a - b);
  let at = 0;
  for (const [n, time] of logged.times.entries()) {
    while (at < known.length && (known[at] ?? 0) < time) at += 1;
    const next = known[at];
    if (next !== undefined && next < time + bucketS) continue;
    times.push(time);
    values.push(logged.values[n] ?? null);
  }
  return { times, values };
}

function pointsOf({ times, values }: Samples, reachS: number): readonly Point[] {
  return times.map((t, n): Point => {
    const value = values[n] ?? null;
    return { t, value, low: value, high: value, reachS };
  });
}

/** The clock was set back, or two say the same time: of one time the later word counts. */
function inOrder(points: readonly Point[]): readonly Point[] {
  return points.toSorted((a, b) => a.t - b.t).filter(({ t }, n, all) => all[n + 1]?.t !== t);
}

function inSteps(points: readonly Point[], fromS: number, stepS: number): readonly Point[] {
  const steps = Map.groupBy(points, ({ t }) => fromS + Math.floor((t - fromS) / stepS) * stepS);
  return [...steps].map(([t, all]) => {
    const reachS = Math.max(stepS, ...all.map((point) => point.reachS));
    const known = all.map(({ value }) => value).filter((value) => value !== null);
    if (known.length === 0) return { t, value: null, low: null, high: null, reachS };
    return { t, value: known.at(-1) ?? null, low: Math.min(...known), high: Math.max(...known), reachS };
  });
}

/** The median, at least a second. */
function usualDistance(times: readonly number[]): number {
  const distances = times.slice(1).map((t, n) => t - (times[n] ?? t));
  const sorted = distances.toSorted((a, b) => a - b);
  return Math.max(1, sorted[Math.floor(sorted.length / 2)] ?? 1);
}

function withGaps(points: readonly Point[]): readonly Point[] {
  return points.flatMap((point, n) => {
    const before = points[n - 1];
    if (before === undefined || point.t - before.t <= Math.max(point.reachS, before.reachS)) return [point];
    const t = Math.floor((before.t + point.t) / 2);
    return [{ t, value: null, low: null, high: null, reachS: 0 }, point];
  });
}

function withRange(points: readonly Point[], stepS: number): Line {
  return {
    t: points.map(({ t }) => t),
    value: points.map(({ value }) => value),
    low: points.map(({ low }) => low),
    high: points.map(({ high }) => high),
    stepS,
  };
}
