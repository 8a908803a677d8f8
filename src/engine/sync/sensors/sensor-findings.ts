import { BUCKET_MS, type Resolution } from "../../../core/model/building.ts";
import type { SensorFinding, SensorFindingKind } from "../../../core/model/tag-event-data.ts";
import { formatSeconds } from "../../../core/values/duration.ts";
import type { SiteTag } from "../inventory/requestable-tags.ts";
import type { SensorRow } from "./sensor-statistics.ts";

export interface WatchedSensor {
  readonly siteTag: SiteTag;
  readonly row: SensorRow;
}

export interface SensorRules {
  readonly periodHours: number;
  readonly mayStayConstant: (siteTag: SiteTag) => boolean;
}

/** A sensor is judged only if it was read in at least 12 hours, or in a quarter of a shorter period. */
const MIN_HOURS_READ = 12;
const MIN_READING_SPAN_SHARE = 5 / 7;
const MIN_COMPARED_VALUE_PAIRS = 6;
const MIN_LOG_REPLIES = 3;
const MIN_SERIES_FOR_MEDIAN = 5;
/** Minimum difference between live values and history: 5 % of the size or of the range of the values. */
const MIN_RELATIVE_LOG_DIFFERENCE = 0.05;
/** Minimum share of compared pairs that differ, before Plenum reports that history and live values differ. */
const MIN_DIFFERING_SHARE = 0.75;
const MIN_BOOLEAN_DIFFERENCE = 0.2;
const MIN_STANDARD_ERRORS = 4;
const MIN_UNUSUAL_LOG_LAG_MS = 30 * 60_000;
const TEMPERATURE_UNITS: ReadonlySet<string> = new Set(["°C", "ºC", "C", "degC", "K", "°F", "F", "degF"]);

export function findSensorFindings(sensors: readonly WatchedSensor[], rules: SensorRules): readonly SensorFinding[] {
  const usualLogLags = computeUsualLogLags(sensors);
  return sensors.flatMap((sensor) => {
    const { row } = sensor;
    const isSensorReadEnough = hasEnoughReadings(row, rules.periodHours);
    return [
      ...(isSensorReadEnough ? [...findNeverMovedSensor(sensor, rules), ...findAlwaysNullSensor(sensor)] : []),
      ...findDifferingLog(sensor),
      ...findLogWithUnusualLag(sensor, row.log === null ? undefined : usualLogLags.get(row.log.resolution)),
    ];
  });
}

export function hasEnoughReadings({ hours, spanHours }: SensorRow, periodHours: number): boolean {
  return hours >= Math.min(MIN_HOURS_READ, periodHours / 4) && spanHours >= MIN_READING_SPAN_SHARE * periodHours;
}

function findNeverMovedSensor({ siteTag, row }: WatchedSensor, rules: SensorRules): readonly SensorFinding[] {
  const { readings, nulls, min, max, type } = row;
  if (type !== "number" || min !== max || nulls > readings / 2) return [];
  if (isRestingValue(min, siteTag.tag.unit) || rules.mayStayConstant(siteTag)) return [];
  const unitText = siteTag.tag.unit === null ? "" : ` ${siteTag.tag.unit}`;
  const message = `It was ${min}${unitText} at each of ${readings - nulls} readings.`;
  return [makeFinding(siteTag, row, "never-moved", message, { value: min })];
}

function isRestingValue(value: number, unit: string | null): boolean {
  if (value === 0) return !TEMPERATURE_UNITS.has(unit ?? "");
  return value === 100 && unit === "%";
}

function findAlwaysNullSensor({ siteTag, row }: WatchedSensor): readonly SensorFinding[] {
  if (row.nulls < row.readings) return [];
  const message = `The gateway could not read it at any of ${row.readings} readings.`;
  return [makeFinding(siteTag, row, "always-null", message, {})];
}

function findDifferingLog({ siteTag, row }: WatchedSensor): readonly SensorFinding[] {
  const { log } = row;
  if (log === null || log.pairs < MIN_COMPARED_VALUE_PAIRS) return [];
  const { pairs, off } = log;
  const meanDelta = log.sumOff / pairs;
  const differenceVariance = Math.max(0, log.sumOffSquared / pairs - meanDelta * meanDelta);
  const standardError = Math.sqrt(differenceVariance / pairs);
  const minDelta = MIN_RELATIVE_LOG_DIFFERENCE * Math.max(log.sumSize / pairs, row.max - row.min);
  const doesLogDiffer =
    row.type === "boolean"
      ? off >= MIN_DIFFERING_SHARE * pairs && Math.abs(log.sumLive - log.sumLogged) > MIN_BOOLEAN_DIFFERENCE * pairs
      : off >= pairs / 2 && Math.abs(meanDelta) > minDelta && Math.abs(meanDelta) > MIN_STANDARD_ERRORS * standardError;
  const isLogConstant = log.min === log.max && row.min !== row.max && off >= MIN_DIFFERING_SHARE * pairs;
  if (!doesLogDiffer && !isLogConstant) return [];
  const [value, logged] = [roundToSixDigits(log.sumLive / pairs), roundToSixDigits(log.sumLogged / pairs)];
  const message = isLogConstant
    ? `Its log stands at ${logged} while its live value goes from ${row.min} to ${row.max}.`
    : `At ${pairs} times its live value was ${value} on average and its log ${logged}.`;
  return [makeFinding(siteTag, row, "log-differs", message, { value, logged, pairs, resolution: log.resolution })];
}

/** Finds series with an unusual lag. All series of a site share requests, so their shortest lags are similar. */
function findLogWithUnusualLag({ siteTag, row }: WatchedSensor, usualMs: number | undefined): readonly SensorFinding[] {
  const { log } = row;
  if (log === null || usualMs === undefined || log.replies < MIN_LOG_REPLIES) return [];
  const unusualLagMs = Math.round(log.leastLagMs - usualMs);
  if (Math.abs(unusualLagMs) <= Math.max(MIN_UNUSUAL_LOG_LAG_MS, 1.5 * BUCKET_MS[log.resolution])) return [];
  const lag = formatSeconds(Math.abs(unusualLagMs) / 1_000);
  const side = unusualLagMs > 0 ? "behind" : "ahead of";
  const message = `The newest value of its log was never less than ${lag} ${side} those of the other tags of the site.`;
  return [makeFinding(siteTag, row, "log-clock-off", message, { lagMs: unusualLagMs, resolution: log.resolution })];
}

function computeUsualLogLags(sensors: readonly WatchedSensor[]): ReadonlyMap<Resolution, number> {
  const logs = sensors.flatMap(({ row: { log } }) => (log === null || log.replies < MIN_LOG_REPLIES ? [] : [log]));
  return new Map(
    [...Map.groupBy(logs, ({ resolution }) => resolution)].flatMap(([resolution, logsOfResolution]) => {
      const sortedLags = logsOfResolution.map(({ leastLagMs }) => leastLagMs).sort((a, b) => a - b);
      const median = sortedLags[Math.floor(sortedLags.length / 2)];
      return sortedLags.length < MIN_SERIES_FOR_MEDIAN || median === undefined ? [] : [[resolution, median] as const];
    }),
  );
}

function makeFinding(
  { tag }: SiteTag,
  { readings }: SensorRow,
  kind: SensorFindingKind,
  message: string,
  extraFields: Partial<SensorFinding>,
): SensorFinding {
  const emptyFindingFields = { value: null, logged: null, pairs: null, lagMs: null, resolution: null };
  return { finding: kind, tag, message, readings, ...emptyFindingFields, ...extraFields };
}

const roundToSixDigits = (value: number): number => Number(value.toPrecision(6));
