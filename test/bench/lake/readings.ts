import { readFileSync } from "node:fs";
import { join } from "node:path";
import { FALSE, NULL, Points, TRUE } from "#src/core/codec/points.ts";
import type { Resolution, Tag } from "#src/core/model/building.ts";
import metadata from "#src/simulator/data/metadata.json" with { type: "json" };

/** A tag and all its readings, as they were recorded in a real building. */
export interface Readings {
  readonly siteId: number;
  readonly timeZone: string;
  readonly tag: Tag;
  /** The coarsest that has each reading in a bucket of its own. */
  readonly resolution: Resolution;
  /** Ascending. */
  readonly points: Points;
}

const DATA = join(import.meta.dirname, "../../../src/simulator/data");
const HOUR_SECONDS = 3_600;

/** The readings of all buildings, tag by tag: a million of 316 tags. */
export function readReadings(): readonly Readings[] {
  const files = new Set(metadata.tags.map(({ file }) => file));
  const columns = new Map([...files].map((file) => [file, readColumns(file)]));
  return metadata.tags.map((tag): Readings => {
    const points = columns.get(tag.file)?.get(tag.column);
    if (points === undefined) throw new Error(`The file ${tag.file} has no column ${tag.column}.`);
    return {
      siteId: tag.site_id,
      timeZone: metadata.sites.find(({ id }) => id === tag.site_id)?.timezone ?? "UTC",
      tag: { id: tag.id, displayName: tag.display_name, description: tag.description, unit: tag.unit },
      resolution: tag.resolution_seconds >= HOUR_SECONDS ? "1h" : "5m",
      points,
    };
  });
}

const BOOLEANS = new Set(metadata.tags.filter(({ kind }) => kind === "boolean").map(({ column }) => column));

/** Line by line, so that what is measured begins with a small heap. */
function readColumns(file: string): ReadonlyMap<string, Points> {
  const [head = "", ...lines] = readFileSync(join(DATA, file), "utf8").trim().split("\n");
  const columns = head
    .split(",")
    .slice(1)
    .map((name) => ({ points: new Points(), isBoolean: BOOLEANS.has(name), name }));
  for (const line of lines) {
    const [time = "", ...cells] = line.split(",");
    const timeMs = Date.parse(time);
    for (const [n, { points, isBoolean }] of columns.entries()) {
      const cell = cells[n] ?? "";
      const code = isBoolean ? (cell === "1" ? TRUE : FALSE) : Number(cell);
      points.push(timeMs, cell === "" ? NULL : code);
    }
  }
  return new Map(columns.map(({ name, points }) => [name, points]));
}
