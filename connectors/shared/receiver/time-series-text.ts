import type { ConnectorContext, TimeRange, TimeSeries, TimeSeriesPoint } from "../../../src/core/connector.ts";
import type { TagScalar } from "../../../src/core/model/building.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import type { ReceiverConfig } from "./config.ts";
import { isOver, type StoredIncident } from "./stored-incident.ts";
import { cutText, fillPlaceholders, formatDuration, formatTime, type MessagePhrases, toOneLine } from "./text.ts";

const HOUR_MS = 3_600_000;

/** Adds time series to an alarm that is opened or back. The result is stored, so every edit shows the same. */
export function createTimeSeriesText(
  { dossier }: Pick<ReceiverConfig, "dossier">,
  words: MessagePhrases,
  { clock, log, building }: Pick<ConnectorContext, "clock" | "log" | "building">,
): (stored: StoredIncident) => Promise<StoredIncident> {
  return async (stored) => {
    const { alarm, priority, retriggers, source } = stored;
    if (dossier === false || alarm === null || !dossier.priorities.includes(priority) || !needsTimeSeries(stored))
      return stored;
    const toMs = clock.now();
    const timeRange = { fromMs: toMs - dossier.hours * HOUR_MS, toMs };
    try {
      const curves = await building.timeSeries(source, alarm, timeRange);
      const lines = curves.map((curve) => formatSeriesLine(curve, timeRange, words)).filter((line) => line !== null);
      const time = formatTime(isoUtc(toMs), building.timeZone(source));
      const heading = fillPlaceholders(words.valuesUntil, { time });
      return { ...stored, curves: { retriggers, lines: lines.length === 0 ? [] : [heading, ...lines] } };
    } catch (error) {
      log.debug({ err: error }, "how the values of an alarm went could not be read; it is told without");
      return stored;
    }
  };
}

/** Returns true when the alarm is opened or back, is active, and has no time series for this yet. */
function needsTimeSeries({ curves, retriggers, told, ...stored }: StoredIncident): boolean {
  if (isOver(stored) || curves?.retriggers === retriggers) return false;
  return told === null || told.retriggers !== retriggers;
}

const MAX_BLOCKS = 24;
const MAX_NAME_LENGTH = 60;
const MAX_UNIT_LENGTH = 16;

const SPARKLINE_BLOCKS = "▁▂▃▄▅▆▇█";
const FLAT_BLOCK = "▄";
/** Character for a gap: a non-breaking space, because HTML merges ordinary spaces. */
const GAP_CHARACTER = "\u00a0";

/** Returns `VS1-GT11 ▅▅▄▃▂▁▁ 18.2–21.4 °C, last 18.2, 3 h`; null for fewer than two values. */
export function formatSeriesLine(
  { points, tag }: TimeSeries,
  timeRange: TimeRange,
  words: MessagePhrases,
): string | null {
  const knownPoints = keepKnownPoints(points);
  const lastPoint = knownPoints.at(-1);
  if (lastPoint === undefined || knownPoints.length < 2) return null;
  const drawnRange = findDrawnRange(points, timeRange);
  const unit = cutText(toOneLine(tag.unit ?? ""), MAX_UNIT_LENGTH);
  const minutes = Math.round((drawnRange.toMs - drawnRange.fromMs) / 60_000);
  const duration = formatDuration(isoUtc(0), isoUtc(minutes * 60_000));
  const tagName = cutText(toOneLine(tag.displayName), MAX_NAME_LENGTH);
  return [
    [tagName, drawSparkline(points, timeRange), formatRange(knownPoints), unit].filter((part) => part !== "").join(" "),
    fillPlaceholders(words.last, { value: formatValue(lastPoint.value) }),
    ...(duration === "0 s" ? [] : [duration]),
  ].join(", ");
}

/** Draws a sparkline. Each block covers at least 1.5 usual intervals, so a gap means missing values. */
export function drawSparkline(points: readonly TimeSeriesPoint[], timeRange: TimeRange): string {
  const knownPoints = keepKnownPoints(points);
  const drawnRange = findDrawnRange(points, timeRange);
  const rangeMs = drawnRange.toMs - drawnRange.fromMs;
  const blockMs = Math.max(rangeMs / MAX_BLOCKS, computeUsualStepMs(points) * 1.5, 1);
  const count = points.length < 2 ? 1 : Math.max(1, Math.floor(rangeMs / blockMs));
  const blocks = Array<string>(count).fill(GAP_CHARACTER);
  const chooseBlock = createBlockScale(knownPoints);
  for (const { atMs, value } of knownPoints) {
    const index = rangeMs === 0 ? 0 : Math.floor(((atMs - drawnRange.fromMs) / rangeMs) * count);
    blocks[Math.min(index, count - 1)] = chooseBlock(value);
  }
  return blocks.join("");
}

interface KnownPoint {
  readonly atMs: number;
  readonly value: TagScalar;
}

function keepKnownPoints(points: readonly TimeSeriesPoint[]): readonly KnownPoint[] {
  return points.flatMap(({ atMs, value }) =>
    value === null || !Number.isFinite(Number(value)) ? [] : [{ atMs, value }],
  );
}

/** Range from the first value, or from the start if the first value came within 1.5 usual intervals. */
function findDrawnRange(points: readonly TimeSeriesPoint[], { fromMs, toMs }: TimeRange): TimeRange {
  const startMs = keepKnownPoints(points)[0]?.atMs ?? toMs;
  const isFirstValueNearStart = startMs - fromMs < computeUsualStepMs(points) * 1.5;
  return { fromMs: isFirstValueNearStart ? fromMs : startMs, toMs: Math.max(startMs, toMs) };
}

function computeUsualStepMs(points: readonly TimeSeriesPoint[]): number {
  const stepsMs = points.slice(1).map(({ atMs }, index) => atMs - (points[index]?.atMs ?? atMs));
  return stepsMs.sort((a, b) => a - b)[Math.floor(stepsMs.length / 2)] ?? 0;
}

/** Creates a function from value to block. Booleans are the lowest and the highest block. */
function createBlockScale(knownPoints: readonly KnownPoint[]): (value: TagScalar) => string {
  const blockAt = (share: number) => SPARKLINE_BLOCKS[Math.round(share * (SPARKLINE_BLOCKS.length - 1))] ?? FLAT_BLOCK;
  if (areBooleans(knownPoints)) return (value) => blockAt(Number(value));
  // Halves, because the difference of two huge numbers can be more than a number holds.
  const halfValues = knownPoints.map(({ value }) => Number(value) / 2);
  const lowestHalf = Math.min(...halfValues);
  const halfRange = Math.max(...halfValues) - lowestHalf;
  return (value) => (halfRange === 0 ? FLAT_BLOCK : blockAt((Number(value) / 2 - lowestHalf) / halfRange));
}

/** Returns `18.2–21.4`, `21.4` for a constant value, and nothing for booleans. */
function formatRange(knownPoints: readonly KnownPoint[]): string {
  if (areBooleans(knownPoints)) return "";
  const numbers = knownPoints.map(({ value }) => Number(value));
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)].map(formatNumber) as [string, string];
  if (least === most) return least;
  // Separate negative numbers by spaces: `-5.2–-3.1` is hard to read.
  return least.startsWith("-") || most.startsWith("-") ? `${least} – ${most}` : `${least}–${most}`;
}

const areBooleans = (knownPoints: readonly KnownPoint[]): boolean =>
  knownPoints.every(({ value }) => typeof value === "boolean");

const formatValue = (value: TagScalar): string => (typeof value === "boolean" ? String(value) : formatNumber(value));

/** Formats a number with four significant digits: 18.25, 0.0001235, 123457, 1.2e+12. */
function formatNumber(value: number): string {
  const absoluteValue = Math.abs(value);
  if (absoluteValue >= 1e9) return value.toExponential(1);
  return String(absoluteValue >= 1_000 ? Math.round(value) : Number(value.toPrecision(4)));
}
