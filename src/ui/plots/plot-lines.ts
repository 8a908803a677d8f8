import { type HourSummary, pairsOfSamples, type Samples, samplesOfPairs, type TimeValuePair } from "./tag-samples.ts";

/** Columns of a plot; a null value is a gap in the line. */
export interface PlotLine {
  readonly t: readonly number[];
  readonly value: readonly (number | null)[];
  readonly low?: readonly (number | null)[];
  readonly high?: readonly (number | null)[];
  /** Seconds between two points; their median distance for readings at irregular times. */
  readonly stepS: number;
}

interface PlotPoint {
  readonly t: number;
  readonly value: number | null;
  readonly low: number | null;
  readonly high: number | null;
  /** Seconds after which the line has a gap if no further point follows. */
  readonly validS: number;
}

const MAX_PLOT_POINTS = 1_500;
const HOUR_SECONDS = 3_600;
/** A plot line has a gap where a tag has no reading for three of its usual reading intervals. */
const GAP_AFTER_READING_INTERVALS = 3;
const GAP_AFTER_BUCKET_INTERVALS = 1.5;

/** Builds a plot line. Its points are readings or, for more than 1,500 readings, summaries of equal time steps. */
export function plotLineOfReadings(options: {
  readonly read: Samples;
  readonly logged: readonly { readonly samples: Samples; readonly bucketS: number }[];
  readonly everyS: number;
  readonly fromS: number;
  readonly toS: number;
}): PlotLine {
  const { everyS, fromS, logged, read, toS } = options;
  const intervalS = medianInterval(read.times);
  const allPoints = [
    ...logged.flatMap(({ bucketS, samples }) => samplesToPlotPoints(samples, GAP_AFTER_BUCKET_INTERVALS * bucketS)),
    ...samplesToPlotPoints(read, Math.max(GAP_AFTER_READING_INTERVALS * intervalS, 2 * everyS)),
  ];
  // Sort, because the clock may have been set back. Of several points with the same time, keep the last.
  const points = allPoints
    .filter(({ t }) => t >= fromS && t <= toS)
    .toSorted((a, b) => a.t - b.t)
    .filter(({ t }, n, sortedPoints) => sortedPoints[n + 1]?.t !== t);
  if (points.length <= MAX_PLOT_POINTS) {
    const stepS = points.length > 1 ? medianInterval(points.map(({ t }) => t)) : (logged[0]?.bucketS ?? intervalS);
    const { t, value } = plotLineFromPoints(insertGapPoints(points), stepS);
    return { t, value, stepS };
  }
  const stepS = Math.ceil((toS - fromS) / MAX_PLOT_POINTS);
  return plotLineFromPoints(insertGapPoints(groupPointsIntoSteps(points, fromS, stepS)), stepS);
}

export function plotLineOfHours(hours: readonly (readonly [begin: number, hour: HourSummary])[]): PlotLine {
  const points = hours.map(
    ([t, { high, last, low }]): PlotPoint => ({ t, value: last, low, high, validS: HOUR_SECONDS }),
  );
  return plotLineFromPoints(insertGapPoints(points), HOUR_SECONDS);
}

/** Returns the history values (`logged`) at times without readings. `bucketS`: seconds that one value covers. */
export function samplesInGaps(readings: Samples, logged: Samples, bucketS: number): Samples {
  const readTimes = readings.times.toSorted((a, b) => a - b);
  let nextIndex = 0;
  const isInGap = ([time]: TimeValuePair) => {
    while ((readTimes[nextIndex] ?? Number.POSITIVE_INFINITY) < time) nextIndex += 1;
    return (readTimes[nextIndex] ?? Number.POSITIVE_INFINITY) >= time + bucketS;
  };
  return samplesOfPairs(pairsOfSamples(logged).filter(isInGap));
}

function samplesToPlotPoints(samples: Samples, validS: number): readonly PlotPoint[] {
  return pairsOfSamples(samples).map(([t, value]) => ({ t, value, low: value, high: value, validS }));
}

function groupPointsIntoSteps(points: readonly PlotPoint[], fromS: number, stepS: number): readonly PlotPoint[] {
  const pointsByStep = Map.groupBy(points, ({ t }) => fromS + Math.floor((t - fromS) / stepS) * stepS);
  return [...pointsByStep].map(([t, stepPoints]) => {
    const validS = Math.max(stepS, ...stepPoints.map((point) => point.validS));
    const numbers = stepPoints.map(({ value }) => value).filter((value) => value !== null);
    if (numbers.length === 0) return { t, value: null, low: null, high: null, validS };
    return { t, value: numbers.at(-1) ?? null, low: Math.min(...numbers), high: Math.max(...numbers), validS };
  });
}

function medianInterval(times: readonly number[]): number {
  const timeDistances = times.slice(1).map((t, n) => t - (times[n] ?? t));
  const sortedDistances = timeDistances.toSorted((a, b) => a - b);
  return Math.max(1, sortedDistances[Math.floor(sortedDistances.length / 2)] ?? 1);
}

function insertGapPoints(points: readonly PlotPoint[]): readonly PlotPoint[] {
  return points.flatMap((point, n) => {
    const prevPoint = points[n - 1];
    if (prevPoint === undefined || point.t - prevPoint.t <= Math.max(point.validS, prevPoint.validS)) return [point];
    const t = Math.floor((prevPoint.t + point.t) / 2);
    return [{ t, value: null, low: null, high: null, validS: 0 }, point];
  });
}

function plotLineFromPoints(points: readonly PlotPoint[], stepS: number): PlotLine {
  return {
    t: points.map(({ t }) => t),
    value: points.map(({ value }) => value),
    low: points.map(({ low }) => low),
    high: points.map(({ high }) => high),
    stepS,
  };
}
