import { BUCKET_MS, type Resolution } from "../../../core/model/building.ts";
import type { SensorFinding, SensorFindingKind } from "../../../core/model/tag-facts.ts";
import { durationText } from "../../../core/values/duration.ts";
import type { LocatedTag } from "../inventory/located-tags.ts";
import type { SensorRow } from "./sensor-table.ts";

export interface WatchedSensor {
  readonly located: LocatedTag;
  readonly row: SensorRow;
}

export interface SensorRules {
  readonly periodHours: number;
  readonly mayRest: (located: LocatedTag) => boolean;
}

/** Least hours with readings (or a quarter of the period, if less), and least share of the period from first to last. */
const ENOUGH_HOURS = 12;
const ENOUGH_SPAN = 5 / 7;
const ENOUGH_PAIRS = 6;
const ENOUGH_REPLIES = 3;
const ENOUGH_OTHERS = 5;
/** Least difference of live value and log, relative to their size and to the range of the live values. */
const DIFFERENCE = 0.05;
/** Least share of differing pairs, and least difference of the share of time in `true`, of a boolean. */
const MOST_PAIRS = 0.75;
const BOOLEAN_DIFFERENCE = 0.2;
/** A mean this many standard errors from 0 is not chance: one tag in 30,000. */
const STANDARD_ERRORS = 4;
const LAG_MS = 30 * 60_000;
const TEMPERATURES: ReadonlySet<string> = new Set(["°C", "ºC", "C", "degC", "K", "°F", "F", "degF"]);

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

export function isJudged({ hours, spanHours }: SensorRow, periodHours: number): boolean {
  return hours >= Math.min(ENOUGH_HOURS, periodHours / 4) && spanHours >= ENOUGH_SPAN * periodHours;
}

/** Finds measured numbers that never changed; switches, set points and values at rest may stay constant. */
function neverMoved({ located, row }: WatchedSensor, rules: SensorRules): readonly SensorFinding[] {
  const { readings, nulls, min, max, type } = row;
  if (type !== "number" || min !== max || nulls > readings / 2) return [];
  if (isAtRest(min, located.tag.unit) || rules.mayRest(located)) return [];
  const unit = located.tag.unit === null ? "" : ` ${located.tag.unit}`;
  const message = `It was ${min}${unit} at each of ${readings - nulls} readings.`;
  return [finding(located, row, "never-moved", message, { value: min })];
}

/** True for off, closed or fully open; 0 °C is none of these. */
function isAtRest(value: number, unit: string | null): boolean {
  if (value === 0) return !TEMPERATURES.has(unit ?? "");
  return value === 100 && unit === "%";
}

function alwaysNull({ located, row }: WatchedSensor): readonly SensorFinding[] {
  if (row.nulls < row.readings) return [];
  const message = `The gateway could not read it at any of ${row.readings} readings.`;
  return [finding(located, row, "always-null", message, {})];
}

/** Finds logs whose mean differs, or that stand still. A log of averages may differ from each single value. */
function logDiffers({ located, row }: WatchedSensor): readonly SensorFinding[] {
  const { log } = row;
  if (log === null || log.pairs < ENOUGH_PAIRS) return [];
  const { pairs, off } = log;
  const mean = log.sumOff / pairs;
  const variance = Math.max(0, log.sumOffSquared / pairs - mean * mean);
  const standardError = Math.sqrt(variance / pairs);
  const leastOff = DIFFERENCE * Math.max(log.sumSize / pairs, row.max - row.min);
  const isBeside =
    row.type === "boolean"
      ? off >= MOST_PAIRS * pairs && Math.abs(log.sumLive - log.sumLogged) > BOOLEAN_DIFFERENCE * pairs
      : off >= pairs / 2 && Math.abs(mean) > leastOff && Math.abs(mean) > STANDARD_ERRORS * standardError;
  const isStanding = log.min === log.max && row.min !== row.max && off >= MOST_PAIRS * pairs;
  if (!isBeside && !isStanding) return [];
  const [value, logged] = [rounded(log.sumLive / pairs), rounded(log.sumLogged / pairs)];
  const message = isStanding
    ? `Its log stands at ${logged} while its live value goes from ${row.min} to ${row.max}.`
    : `At ${pairs} times its live value was ${value} on average and its log ${logged}.`;
  return [finding(located, row, "log-differs", message, { value, logged, pairs, resolution: log.resolution })];
}

/** Finds logs with an unusual lag. All series of a site are in the same requests, so their least lags are similar. */
function logClockOff({ located, row }: WatchedSensor, usualMs: number | undefined): readonly SensorFinding[] {
  const { log } = row;
  if (log === null || usualMs === undefined || log.replies < ENOUGH_REPLIES) return [];
  const lagMs = Math.round(log.leastLagMs - usualMs);
  if (Math.abs(lagMs) <= Math.max(LAG_MS, 1.5 * BUCKET_MS[log.resolution])) return [];
  const away = durationText(Math.abs(lagMs) / 1_000);
  const side = lagMs > 0 ? "behind" : "ahead of";
  const message = `The newest value of its log was never less than ${away} ${side} those of the other tags of the site.`;
  return [finding(located, row, "log-clock-off", message, { lagMs, resolution: log.resolution })];
}

function usualLags(sensors: readonly WatchedSensor[]): ReadonlyMap<Resolution, number> {
  const logs = sensors.flatMap(({ row: { log } }) => (log === null || log.replies < ENOUGH_REPLIES ? [] : [log]));
  return new Map(
    [...Map.groupBy(logs, ({ resolution }) => resolution)].flatMap(([resolution, all]) => {
      const lags = all.map(({ leastLagMs }) => leastLagMs).sort((one, other) => one - other);
      const median = lags[Math.floor(lags.length / 2)];
      return lags.length < ENOUGH_OTHERS || median === undefined ? [] : [[resolution, median] as const];
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

function rounded(value: number): number {
  return Number(value.toPrecision(6));
}
