import { readFileSync } from "node:fs";
import { join } from "node:path";

// Reads a data folder: metadata.json, alarm_events.csv and series/, as data/README.md describes them.

interface RecordedRow {
  readonly id: number;
  readonly site_id: number;
  readonly display_name: string;
}

export interface RecordedSite {
  readonly id: number;
  readonly key: string;
  readonly display_name: string;
  readonly timezone: string;
}

export interface RecordedGateway extends RecordedRow {
  readonly location: string | null;
}

export interface RecordedHost extends RecordedRow {
  readonly gateway_id: number;
  readonly description: string | null;
  readonly type: string;
  readonly model_name: string | null;
}

export interface RecordedSystem extends RecordedRow {
  readonly code: string;
  readonly discipline: string;
  readonly description: string | null;
  readonly location: string | null;
  readonly manufacturer: string | null;
  readonly installed_year: number | null;
}

export interface RecordedTrigger extends RecordedRow {
  readonly tag_id: string;
  readonly description: string | null;
  readonly priority: string;
  readonly event_type: string;
}

export interface RecordedTag extends Omit<RecordedRow, "id"> {
  readonly id: string;
  readonly host_id: number;
  readonly system_id: number;
  readonly description: string | null;
  readonly unit: string | null;
  readonly kind: "analog" | "boolean";
  readonly resolution_seconds: number;
  readonly file: string;
  readonly column: string;
  readonly first: string;
  readonly last: string;
}

export interface RecordedAlarm {
  readonly id: number;
  readonly triggerId: number;
  readonly siteId: number;
  readonly tagId: string;
  readonly triggeredAtMs: number;
  /** null: still active when the recording ends. */
  readonly resolvedAtMs: number | null;
  readonly value: number | null;
}

interface RecordingMetadata {
  readonly sites: readonly RecordedSite[];
  readonly gateways: readonly RecordedGateway[];
  readonly hosts: readonly RecordedHost[];
  readonly systems: readonly RecordedSystem[];
  readonly triggers: readonly RecordedTrigger[];
  readonly tags: readonly RecordedTag[];
}

export interface Recording extends RecordingMetadata {
  readonly folder: string;
  readonly alarms: readonly RecordedAlarm[];
}

export function loadRecording(folder: string): Recording {
  const metadata: RecordingMetadata = JSON.parse(readFileSync(join(folder, "metadata.json"), "utf8"));
  return { ...metadata, folder, alarms: loadAlarms(join(folder, "alarm_events.csv")) };
}

function loadAlarms(path: string): RecordedAlarm[] {
  const { names, rows } = loadCsv(path);
  return rows.map((row) => {
    const cells = row.split(",");
    const readCell = (name: string) => cells[names.indexOf(name)] ?? "";
    return {
      id: Number(readCell("alarm_id")),
      triggerId: Number(readCell("trigger_id")),
      siteId: Number(readCell("site_id")),
      tagId: readCell("tag_id"),
      triggeredAtMs: Date.parse(readCell("triggered_at")),
      resolvedAtMs: readCell("resolved_at") === "" ? null : Date.parse(readCell("resolved_at")),
      value: readCell("value_at_trigger") === "" ? null : Number(readCell("value_at_trigger")),
    };
  });
}

/** The readings of one file: one column per tag, NaN for an empty cell (null). */
export interface SeriesTable {
  readonly timesMs: Float64Array;
  readonly columns: ReadonlyMap<string, Float64Array>;
}

export function loadSeries(path: string): SeriesTable {
  const { names, rows } = loadCsv(path);
  const timesMs = new Float64Array(rows.length);
  const columns = names.map(() => new Float64Array(rows.length));
  rows.forEach((row, index) => {
    const cells = row.split(",");
    timesMs[index] = Date.parse(cells[0] ?? "");
    for (let n = 1; n < columns.length; n += 1) {
      const column = columns[n];
      if (column !== undefined) column[index] = cells[n] ? Number(cells[n]) : Number.NaN;
    }
  });
  return { timesMs, columns: new Map(columns.map((column, n) => [names[n] ?? "", column])) };
}

/** Returns the index of the last time at or before `timeMs`, or -1. */
export function lastAtOrBefore(timesMs: Float64Array, timeMs: number): number {
  let lowerIndex = 0;
  let upperIndex = timesMs.length;
  while (lowerIndex < upperIndex) {
    const middleIndex = (lowerIndex + upperIndex) >>> 1;
    if ((timesMs[middleIndex] ?? 0) <= timeMs) lowerIndex = middleIndex + 1;
    else upperIndex = middleIndex;
  }
  return lowerIndex - 1;
}

function loadCsv(path: string) {
  const [header = "", ...rows] = readFileSync(path, "utf8").trim().split(/\r?\n/);
  return { names: header.split(","), rows };
}
