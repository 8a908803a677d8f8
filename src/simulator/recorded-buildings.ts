import { readFileSync } from "node:fs";
import { join } from "node:path";

// Reads a data folder: metadata.json, alarm_events.csv and series/, as data/README.md describes them.

interface RecordedObject {
  readonly id: number;
  readonly site_id: number;
  readonly display_name: string;
}

interface RecordedSite {
  readonly id: number;
  readonly key: string;
  readonly display_name: string;
  readonly timezone: string;
}

export interface RecordedGateway extends RecordedObject {
  readonly location: string | null;
}

export interface RecordedHost extends RecordedObject {
  readonly gateway_id: number;
  readonly description: string | null;
  readonly type: string;
  readonly model_name: string | null;
}

export interface RecordedSystem extends RecordedObject {
  readonly code: string;
  readonly discipline: string;
  readonly description: string | null;
  readonly location: string | null;
  readonly manufacturer: string | null;
  readonly installed_year: number | null;
}

export interface RecordedTrigger extends RecordedObject {
  readonly tag_id: string;
  readonly description: string | null;
  readonly priority: string;
  readonly event_type: string;
}

export interface RecordedTag extends Omit<RecordedObject, "id"> {
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

interface BuildingRecordingMetadata {
  readonly sites: readonly RecordedSite[];
  readonly gateways: readonly RecordedGateway[];
  readonly hosts: readonly RecordedHost[];
  readonly systems: readonly RecordedSystem[];
  readonly triggers: readonly RecordedTrigger[];
  readonly tags: readonly RecordedTag[];
}

export type BuildingRecording = ReturnType<typeof loadBuildingRecording>;

export function loadBuildingRecording(folder: string) {
  const recordingMetadata: BuildingRecordingMetadata = JSON.parse(readFileSync(join(folder, "metadata.json"), "utf8"));
  return { ...recordingMetadata, folder, alarms: loadRecordedAlarms(join(folder, "alarm_events.csv")) };
}

function loadRecordedAlarms(path: string) {
  const { columnNames, rows } = loadCsvFile(path);
  return rows.map((row) => {
    const csvCells = row.split(",");
    const readCsvCell = (name: string) => csvCells[columnNames.indexOf(name)] ?? "";
    return {
      id: Number(readCsvCell("alarm_id")),
      triggerId: Number(readCsvCell("trigger_id")),
      siteId: Number(readCsvCell("site_id")),
      tagId: readCsvCell("tag_id"),
      triggeredAtMs: Date.parse(readCsvCell("triggered_at")),
      /** null if the alarm is still active when the recording ends. */
      resolvedAtMs: readCsvCell("resolved_at") === "" ? null : Date.parse(readCsvCell("resolved_at")),
      value: readCsvCell("value_at_trigger") === "" ? null : Number(readCsvCell("value_at_trigger")),
    };
  });
}

/** Readings of one CSV file: one column per tag, NaN for an empty cell. */
export type RecordedSeriesTable = ReturnType<typeof loadRecordedSeries>;

export function loadRecordedSeries(path: string) {
  const { columnNames, rows } = loadCsvFile(path);
  const timesMs = new Float64Array(rows.length);
  const seriesColumns = columnNames.map(() => new Float64Array(rows.length));
  rows.forEach((row, index) => {
    const csvCells = row.split(",");
    timesMs[index] = Date.parse(csvCells[0] ?? "");
    for (let n = 1; n < seriesColumns.length; n += 1) {
      const seriesColumn = seriesColumns[n];
      if (seriesColumn !== undefined) seriesColumn[index] = csvCells[n] ? Number(csvCells[n]) : Number.NaN;
    }
  });
  return { timesMs, columns: new Map(seriesColumns.map((column, n) => [columnNames[n] ?? "", column])) };
}

/** Returns the index of the last time that is not after `timeMs`; -1 without such a time. */
export function lastIndexUpTo(timesMs: Float64Array, timeMs: number): number {
  let lowerIndex = 0;
  let upperIndex = timesMs.length;
  while (lowerIndex < upperIndex) {
    const middleIndex = (lowerIndex + upperIndex) >>> 1;
    if ((timesMs[middleIndex] ?? 0) <= timeMs) lowerIndex = middleIndex + 1;
    else upperIndex = middleIndex;
  }
  return lowerIndex - 1;
}

function loadCsvFile(path: string) {
  const [header = "", ...rows] = readFileSync(path, "utf8").trim().split(/\r?\n/);
  return { columnNames: header.split(","), rows };
}
