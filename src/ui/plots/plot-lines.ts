import type { Hour, Samples } from "./tag-samples.ts";

/** Columns of a plot. A null marks a gap: two points are further apart than either of them covers. */
export interface Line {
  readonly t: readonly number[];
  readonly value: readonly (number | null)[];
  /** Absent when each step has one value. */
  readonly low?: readonly (number | null)[];
  readonly high?: readonly (number | null)[];
  /** Seconds that a point covers; without low and high the median distance of two points. */
  readonly stepS: number;
}

interface Point {
  readonly t: number;
  readonly value: number | null;
  readonly low: number | null;
  readonly high: number | null;
  /** Seconds that the point covers: until then the next point is expected. */
  readonly validS: number;
}

const MOST_POINTS = 1_500;
const HOUR_S = 3_600;
/** A reading covers this many median distances, a logged value this many buckets. */
const READING_VALID_INTERVALS = 3;
const BUCKET_VALID_INTERVALS = 1.5;

/** Line of all readings, or of steps when the plot has too many points. */
export function readingsLine(options: {
  readonly read: Samples;
  /** Logged values for times without readings, and the seconds that each value covers. */
  readonly logged: readonly { readonly samples: Samples; readonly bucketS: number }[];
  /** Read interval of the class in seconds; 0 for a tag that is not read. */
  readonly everyS: number;
  readonly fromS: number;
  readonly toS: number;
}): Line {
  const { everyS, fromS, logged, read, toS } = options;
  const distanceS = medianDistance(read.times);
  const all = [
    ...logged.flatMap(({ bucketS, samples }) => samplesToPoints(samples, BUCKET_VALID_INTERVALS * bucketS)),
    ...samplesToPoints(read, Math.max(READING_VALID_INTERVALS * distanceS, 2 * everyS)),
  ];
  // The clock may have been set back. Of equal times the last point counts.
  const points = all
    .filter(({ t }) => t >= fromS && t <= toS)
    .toSorted((a, b) => a.t - b.t)
    .filter(({ t }, n, rising) => rising[n + 1]?.t !== t);
  if (points.length <= MOST_POINTS) {
    const stepS = points.length > 1 ? medianDistance(points.map(({ t }) => t)) : (logged[0]?.bucketS ?? distanceS);
    const { t, value } = lineFromPoints(insertGapPoints(points), stepS);
    return { t, value, stepS };
  }
  const stepS = Math.ceil((toS - fromS) / MOST_POINTS);
  return lineFromPoints(insertGapPoints(groupPointsIntoSteps(points, fromS, stepS)), stepS);
}

export function hoursLine(hours: readonly (readonly [begin: number, hour: Hour])[]): Line {
  const points = hours.map(([t, { high, last, low }]): Point => ({ t, value: last, low, high, validS: HOUR_S }));
  return lineFromPoints(insertGapPoints(points), HOUR_S);
}

/** Logged values at times without readings. `bucketS`: seconds that a logged value covers. */
export function loggedInGaps(read: Samples, logged: Samples, bucketS: number): Samples {
  const times: number[] = [];
  const values: (number | null)[] = [];
  const sortedReadTimes = read.times.toSorted((a, b) => a - b);
  let at = 0;
  for (const [n, time] of logged.times.entries()) {
    while (at < sortedReadTimes.length && (sortedReadTimes[at] ?? 0) < time) at += 1;
    const nextReading = sortedReadTimes[at];
    if (nextReading !== undefined && nextReading < time + bucketS) continue;
    times.push(time);
    values.push(logged.values[n] ?? null);
  }
  return { times, values };
}

function samplesToPoints({ times, values }: Samples, validS: number): readonly Point[] {
  return times
    .map((t, n) => [t, values[n] ?? null] as const)
    .map(([t, value]) => ({ t, value, low: value, high: value, validS }));
}

function groupPointsIntoSteps(points: readonly Point[], fromS: number, stepS: number): readonly Point[] {
  const pointsByStep = Map.groupBy(points, ({ t }) => fromS + Math.floor((t - fromS) / stepS) * stepS);
  return [...pointsByStep].map(([t, all]) => {
    const validS = Math.max(stepS, ...all.map((point) => point.validS));
    const readValues = all.map(({ value }) => value).filter((value) => value !== null);
    if (readValues.length === 0) return { t, value: null, low: null, high: null, validS };
    return { t, value: readValues.at(-1) ?? null, low: Math.min(...readValues), high: Math.max(...readValues), validS };
  });
}

function medianDistance(times: readonly number[]): number {
  const timeDistances = times.slice(1).map((t, n) => t - (times[n] ?? t));
  const sortedDistances = timeDistances.toSorted((a, b) => a - b);
  return Math.max(1, sortedDistances[Math.floor(sortedDistances.length / 2)] ?? 1);
}

function insertGapPoints(points: readonly Point[]): readonly Point[] {
  return points.flatMap((point, n) => {
    const prevPoint = points[n - 1];
    if (prevPoint === undefined || point.t - prevPoint.t <= Math.max(point.validS, prevPoint.validS)) return [point];
    const t = Math.floor((prevPoint.t + point.t) / 2);
    return [{ t, value: null, low: null, high: null, validS: 0 }, point];
  });
}

function lineFromPoints(points: readonly Point[], stepS: number): Line {
  return {
    t: points.map(({ t }) => t),
    value: points.map(({ value }) => value),
    low: points.map(({ low }) => low),
    high: points.map(({ high }) => high),
    stepS,
  };
}
