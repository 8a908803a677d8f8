import { BUCKET_MS, type Resolution } from "../../../core/model/building.ts";
import type { SensorFinding, SensorFindingKind } from "../../../core/model/tag-facts.ts";
import { durationText } from "../../../core/values/duration.ts";
import type { LocatedTag } from "../inventory/held.ts";
import type { SensorRow } from "./sensor-table.ts";

/** A tag with what the period has shown of it. */
export interface WatchedSensor {
  readonly placed: LocatedTag;
  readonly row: SensorRow;
}

export interface SensorRules {
  readonly periodHours: number;
  /** Returns true if the value of this tag may stay constant. */
  readonly mayRest: (placed: LocatedTag) => boolean;
}

/** Read in so many hours at least, or a quarter of the period where that is less; and over 5 of 7 days of it. */
const ENOUGH_HOURS = 12;
const ENOUGH_SPAN = 5 / 7;
const ENOUGH_PAIRS = 6;
const ENOUGH_REPLIES = 3;
/** So many logs of a site say where "now" is. */
const ENOUGH_OTHERS = 5;
/** A difference of live value and log is one from this part of their size, and of the range of the live values, on. */
const DIFFERENCE = 0.05;
/**
 * Least share of differing pairs for booleans; in addition the share of time in `true` must differ. Averages are not
 * booleans.
 */
const MOSTLY = 0.75;
const BOOLEAN_DIFFERENCE = 0.2;
/** How many standard errors a mean lies from 0 before chance does not explain it: one tag in 30,000. */
const STANDARD_ERRORS = 4;
const LAG_MS = 30 * 60_000;
const TEMPERATURES: ReadonlySet<string> = new Set(["°C", "ºC", "C", "degC", "K", "°F", "F", "degF"]);

/** Returns the findings for the rows of one site's tags, in the order of the tags. Pure. */
export function findingsIn(sensors: readonly WatchedSensor[], rules: SensorRules): readonly SensorFinding[] {
  const usual = usualLags(sensors);
  return sensors.flatMap((sensor) => {
    const { row } = sensor;
    const isRead = isJudged(row, rules.periodHours);
    return [
      ...(isRead ? [...neverMoved(sensor, rules), ...alwaysNull(sensor)] : []),
      ...logDiffers(sensor),
      ...logClockOff(sensor, row.log === null ? undefined : usual.get(row.log.resolution)),
    ];
  });
}

/** Whether a tag was read often enough, and for long enough, to say that nothing happened. */
export function isJudged({ hours, spanHours }: SensorRow, periodHours: number): boolean {
  return hours >= Math.min(ENOUGH_HOURS, periodHours / 4) && spanHours >= ENOUGH_SPAN * periodHours;
}

/** A measured number moves; a switch, a set point and what is off rest. */
function neverMoved({ placed, row }: WatchedSensor, rules: SensorRules): readonly SensorFinding[] {
  const { readings, nulls, min, max, type } = row;
  if (type !== "number" || min !== max || nulls > readings / 2) return [];
  if (isAtRest(min, placed.tag.unit) || rules.mayRest(placed)) return [];
  const unit = placed.tag.unit === null ? "" : ` ${placed.tag.unit}`;
  return [
    finding(placed, row, "never-moved", `It was ${min}${unit} at each of ${readings - nulls} readings.`, {
      value: min,
    }),
  ];
}

/** Off, closed, or fully open; nothing is off at 0 °C. */
function isAtRest(value: number, unit: string | null): boolean {
  if (value === 0) return !TEMPERATURES.has(unit ?? "");
  return value === 100 && unit === "%";
}

function alwaysNull({ placed, row }: WatchedSensor): readonly SensorFinding[] {
  if (row.nulls < row.readings) return [];
  const message = `The gateway could not read it at any of ${row.readings} readings.`;
  return [finding(placed, row, "always-null", message, {})];
}

/**
 * The mean of the differences is not 0, and chance does not explain it: a log of averages differs from each live value of
 * a pump that goes on and off, and yet not on the whole. Or the log stands still while the live value moves.
 */
function logDiffers({ placed, row }: WatchedSensor): readonly SensorFinding[] {
  const { log } = row;
  if (log === null || log.pairs < ENOUGH_PAIRS) return [];
  const { pairs, off } = log;
  const mean = log.sumOff / pairs;
  const variance = Math.max(0, log.sumOffSquared / pairs - mean * mean);
  const standardError = Math.sqrt(variance / pairs);
  const leastOff = DIFFERENCE * Math.max(log.sumSize / pairs, row.max - row.min);
  const isBeside =
    row.type === "boolean"
      ? off >= MOSTLY * pairs && Math.abs(log.sumLive - log.sumLogged) > BOOLEAN_DIFFERENCE * pairs
      : off >= pairs / 2 && Math.abs(mean) > leastOff && Math.abs(mean) > STANDARD_ERRORS * standardError;
  const isStanding = log.min === log.max && row.min !== row.max && off >= MOSTLY * pairs;
  if (!isBeside && !isStanding) return [];
  const [value, logged] = [rounded(log.sumLive / pairs), rounded(log.sumLogged / pairs)];
  const message = isStanding
    ? `Its log stands at ${logged} while its live value goes from ${row.min} to ${row.max}.`
    : `At ${pairs} times its live value was ${value} on average and its log ${logged}.`;
  return [finding(placed, row, "log-differs", message, { value, logged, pairs, resolution: log.resolution })];
}

/** All of a site are asked for in the same requests, so in a period the least lag of each is about the same. */
function logClockOff({ placed, row }: WatchedSensor, usualMs: number | undefined): readonly SensorFinding[] {
  const { log } = row;
  if (log === null || usualMs === undefined || log.replies < ENOUGH_REPLIES) return [];
  const lagMs = Math.round(log.leastLagMs - usualMs);
  if (Math.abs(lagMs) <= Math.max(LAG_MS, 1.5 * BUCKET_MS[log.resolution])) return [];
  const away = durationText(Math.abs(lagMs) / 1_000);
  const side = lagMs > 0 ? "behind" : "ahead of";
  const message = `The newest value of its log was never less than ${away} ${side} those of the other tags of the site.`;
  return [finding(placed, row, "log-clock-off", message, { lagMs, resolution: log.resolution })];
}

/** By resolution, the middle of the least lags of a site's logs, where there are enough of them. */
function usualLags(sensors: readonly WatchedSensor[]): ReadonlyMap<Resolution, number> {
  const lags = new Map<Resolution, number[]>();
  for (const { log } of sensors.map(({ row }) => row)) {
    if (log === null || log.replies < ENOUGH_REPLIES) continue;
    const known = lags.get(log.resolution) ?? [];
    lags.set(log.resolution, known);
    known.push(log.leastLagMs);
  }
  return new Map(
    [...lags].flatMap(([resolution, all]) => {
      const middle = all.toSorted((a, b) => a - b)[Math.floor(all.length / 2)];
      return all.length < ENOUGH_OTHERS || middle === undefined ? [] : [[resolution, middle] as const];
    }),
  );
}

function finding(
  { tag }: LocatedTag,
  { readings }: SensorRow,
  kind: SensorFindingKind,
  message: string,
  more: Partial<SensorFinding>,
): SensorFinding {
  const none = { value: null, logged: null, pairs: null, lagMs: null, resolution: null };
  return { finding: kind, tag, message, readings, ...none, ...more };
}

/** To six digits: a mean has no more. */
function rounded(value: number): number {
  return Number(value.toPrecision(6));
}
