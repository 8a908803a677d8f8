import type { ConnectorContext, TimeRange, TimeSeries, TimeSeriesPoint } from "../../../src/core/connector.ts";
import type { Alarm, TagScalar } from "../../../src/core/model/building.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import type { ReceiverConfig } from "./config.ts";
import {
  createSharedTextCache,
  cutText,
  fillPlaceholders,
  formatDuration,
  formatTimeInZone,
  type MessagePhrases,
  toOneLine,
} from "./message-texts.ts";
import { isResolved, type StoredIncident } from "./stored-incident.ts";

const HOUR_MS = 3_600_000;
/** Time for which all receivers reuse the same time series. Shorter than a sparkline block: 7.5 min of three hours. */
const MAX_SHARED_SERIES_AGE_MS = 300_000;

const getSharedTimeSeries = createSharedTextCache<{ readMs: number; readonly lines: Promise<readonly string[]> }>();

/** Adds time series to an alarm's message when the alarm begins or comes back. Later edits repeat the same series. */
export function createTimeSeriesText(
  { dossier }: Pick<ReceiverConfig, "dossier">,
  phrases: MessagePhrases,
  { clock, log, building }: Pick<ConnectorContext, "clock" | "log" | "building">,
): (storedIncident: StoredIncident) => Promise<StoredIncident> {
  async function readTimeSeriesLines(source: string, alarm: Alarm, hours: number): Promise<readonly string[]> {
    const toMs = clock.now();
    const timeRange = { fromMs: toMs - hours * HOUR_MS, toMs };
    const tagSeries = await building.timeSeries(source, alarm, timeRange);
    const lines = tagSeries.flatMap((series) => formatTimeSeriesLine(series, timeRange, phrases) ?? []);
    const time = formatTimeInZone(isoUtc(toMs), building.timeZone(source));
    return lines.length === 0 ? [] : [fillPlaceholders(phrases.valuesUntil, { time }), ...lines];
  }

  return async (incident) => {
    const { alarm, priority, retriggers, source } = incident;
    if (dossier === false || alarm === null || !dossier.priorities.includes(priority) || !needsTimeSeries(incident))
      return incident;
    const { hours } = dossier;
    // Searching 75,000 events takes 0.1 s of processor time, so the receivers share the result.
    const timeSeries = getSharedTimeSeries(
      building,
      JSON.stringify([source, alarm, retriggers, hours, phrases.last, phrases.valuesUntil]),
      () => ({ readMs: clock.monotonic(), lines: readTimeSeriesLines(source, alarm, hours) }),
      ({ readMs }) => clock.monotonic() - readMs < MAX_SHARED_SERIES_AGE_MS,
    );
    try {
      return { ...incident, curves: { retriggers, lines: await timeSeries.lines } };
    } catch (error) {
      // Expire the shared result, so that the next receiver reads the store again.
      timeSeries.readMs = Number.NEGATIVE_INFINITY;
      log.debug({ err: error }, "the time series of an alarm could not be read; its message is sent without them");
      return incident;
    }
  };
}

/** Returns true for an active alarm that began or came back since its time series were last read. */
function needsTimeSeries({ curves, retriggers, told, ...stored }: StoredIncident): boolean {
  if (isResolved(stored) || curves?.retriggers === retriggers) return false;
  return told === null || told.retriggers !== retriggers;
}

const MAX_SPARKLINE_BLOCKS = 24;
const MAX_TAG_NAME_LENGTH = 60;
const MAX_UNIT_LENGTH = 16;

const SPARKLINE_BLOCKS = "▁▂▃▄▅▆▇█";
const FLAT_SPARKLINE_BLOCK = "▄";
/** Character for a gap: a non-breaking space, because HTML merges ordinary spaces. */
const SPARKLINE_GAP_CHARACTER = "\u00a0";

/** Returns `VS1-GT11 ▅▅▄▃▂▁▁ 18.2–21.4 °C, last 18.2, 3 h`; null for fewer than two values. */
export function formatTimeSeriesLine(
  { points, tag }: TimeSeries,
  timeRange: TimeRange,
  phrases: MessagePhrases,
): string | null {
  const knownPoints = keepKnownSeriesPoints(points);
  const lastSeriesPoint = knownPoints.at(-1);
  if (lastSeriesPoint === undefined || knownPoints.length < 2) return null;
  const drawnTimeRange = findDrawnTimeRange(points, timeRange);
  const tagUnit = cutText(toOneLine(tag.unit ?? ""), MAX_UNIT_LENGTH);
  const minutes = Math.round((drawnTimeRange.toMs - drawnTimeRange.fromMs) / 60_000);
  const duration = formatDuration(isoUtc(0), isoUtc(minutes * 60_000));
  const tagName = cutText(toOneLine(tag.displayName), MAX_TAG_NAME_LENGTH);
  return [
    [tagName, drawSparkline(points, timeRange), formatValueRange(knownPoints), tagUnit]
      .filter((textPart) => textPart !== "")
      .join(" "),
    fillPlaceholders(phrases.last, { value: formatTagValue(lastSeriesPoint.value) }),
    ...(duration === "0 s" ? [] : [duration]),
  ].join(", ");
}

/** Draws a sparkline. A block covers at least 1.5 times the usual interval of values, so a gap means missing values. */
export function drawSparkline(points: readonly TimeSeriesPoint[], timeRange: TimeRange): string {
  const knownPoints = keepKnownSeriesPoints(points);
  const drawnTimeRange = findDrawnTimeRange(points, timeRange);
  const timeRangeMs = drawnTimeRange.toMs - drawnTimeRange.fromMs;
  const sparklineBlockMs = Math.max(timeRangeMs / MAX_SPARKLINE_BLOCKS, computeUsualIntervalMs(points) * 1.5, 1);
  const blockCount = points.length < 2 ? 1 : Math.max(1, Math.floor(timeRangeMs / sparklineBlockMs));
  const sparklineBlocks = Array<string>(blockCount).fill(SPARKLINE_GAP_CHARACTER);
  const chooseSparklineBlock = createSparklineScale(knownPoints);
  for (const { atMs, value } of knownPoints) {
    const blockIndex = timeRangeMs === 0 ? 0 : Math.floor(((atMs - drawnTimeRange.fromMs) / timeRangeMs) * blockCount);
    sparklineBlocks[Math.min(blockIndex, blockCount - 1)] = chooseSparklineBlock(value);
  }
  return sparklineBlocks.join("");
}

interface KnownSeriesPoint {
  readonly atMs: number;
  readonly value: TagScalar;
}

function keepKnownSeriesPoints(points: readonly TimeSeriesPoint[]): readonly KnownSeriesPoint[] {
  return points.flatMap(({ atMs, value }) =>
    value === null || !Number.isFinite(Number(value)) ? [] : [{ atMs, value }],
  );
}

/** Returns the range to draw. It includes a gap before the first value only if shorter than 1.5 usual intervals. */
function findDrawnTimeRange(points: readonly TimeSeriesPoint[], { fromMs, toMs }: TimeRange): TimeRange {
  const firstValueMs = keepKnownSeriesPoints(points)[0]?.atMs ?? toMs;
  const isFirstValueNearStart = firstValueMs - fromMs < computeUsualIntervalMs(points) * 1.5;
  return { fromMs: isFirstValueNearStart ? fromMs : firstValueMs, toMs: Math.max(firstValueMs, toMs) };
}

function computeUsualIntervalMs(points: readonly TimeSeriesPoint[]): number {
  const pointIntervalsMs = points.slice(1).map(({ atMs }, index) => atMs - (points[index]?.atMs ?? atMs));
  return pointIntervalsMs.sort((a, b) => a - b)[Math.floor(pointIntervalsMs.length / 2)] ?? 0;
}

/** Creates a function that maps a value to a block character: lowest block for false, highest block for true. */
function createSparklineScale(knownPoints: readonly KnownSeriesPoint[]): (value: TagScalar) => string {
  const getBlock = (fraction: number) =>
    SPARKLINE_BLOCKS[Math.round(fraction * (SPARKLINE_BLOCKS.length - 1))] ?? FLAT_SPARKLINE_BLOCK;
  if (areBooleanPoints(knownPoints)) return (value) => getBlock(Number(value));
  // Halve the values: the difference of two huge numbers can overflow.
  const halfValues = knownPoints.map(({ value }) => Number(value) / 2);
  const lowestHalf = Math.min(...halfValues);
  const halfRange = Math.max(...halfValues) - lowestHalf;
  return (value) => (halfRange === 0 ? FLAT_SPARKLINE_BLOCK : getBlock((Number(value) / 2 - lowestHalf) / halfRange));
}

/** Returns `18.2–21.4`, `21.4` for a constant value, and nothing for booleans. */
function formatValueRange(knownPoints: readonly KnownSeriesPoint[]): string {
  if (areBooleanPoints(knownPoints)) return "";
  const pointValues = knownPoints.map(({ value }) => Number(value));
  const [lowest, highest] = [Math.min(...pointValues), Math.max(...pointValues)].map(formatNumber) as [string, string];
  if (lowest === highest) return lowest;
  // Separate negative numbers by spaces: `-5.2–-3.1` is hard to read.
  return lowest.startsWith("-") || highest.startsWith("-") ? `${lowest} – ${highest}` : `${lowest}–${highest}`;
}

const areBooleanPoints = (knownPoints: readonly KnownSeriesPoint[]): boolean =>
  knownPoints.every(({ value }) => typeof value === "boolean");

const formatTagValue = (value: TagScalar): string => (typeof value === "boolean" ? String(value) : formatNumber(value));

/** Formats a number with four significant digits: 18.25, 0.0001235, 123457, 1.2e+12. */
function formatNumber(value: number): string {
  const absoluteValue = Math.abs(value);
  if (absoluteValue >= 1e9) return value.toExponential(1);
  return String(absoluteValue >= 1_000 ? Math.round(value) : Number(value.toPrecision(4)));
}
