import { hash } from "node:crypto";
import { Point } from "@influxdata/influxdb-client";
import type { TagValue } from "../../src/core/model/building.ts";

/** Content of a point. Null and undefined are left out: line protocol has no null. */
export interface PointParts {
  readonly measurement: string;
  readonly tags: Readonly<Record<string, string | number | null | undefined>>;
  readonly fields: Readonly<Record<string, string | number | boolean | null | undefined>>;
  /** Milliseconds since 1970. */
  readonly timeMs: number;
  /**
   * Event id that keeps the point apart from others of its series and millisecond: it decides the nanoseconds below the
   * millisecond, so the same event stays the same point without a further series. Absent where a later point replaces an
   * earlier one.
   */
  readonly apartBy?: string;
}

/** A point with its time as the event's text. */
export type Parts = Omit<PointParts, "timeMs"> & { readonly time: string };

/** The point as a line with a timestamp in nanoseconds. Numbers are always floats, so types never conflict. */
export function lineOf({ measurement, tags, fields, timeMs, apartBy }: PointParts): string {
  const point = new Point(measurement).timestamp(`${timeMs}${apartBy === undefined ? WHOLE_MS : nanosOf(apartBy)}`);
  for (const [name, value] of Object.entries(tags)) {
    const text = value === null || value === undefined ? null : tagText(String(value));
    if (text !== null) point.tag(name, text);
  }
  for (const [name, value] of Object.entries(fields)) {
    if (typeof value === "boolean") point.booleanField(name, value);
    else if (typeof value === "string") point.stringField(name, oneLine(value, MAX_FIELD));
    else if (typeof value === "number") {
      if (!Number.isFinite(value)) throw new Error(`${value} is no number for the field ${name}.`);
      point.floatField(name, value);
    }
  }
  const line = point.toLineProtocol();
  if (line === undefined) throw new Error(`A point of ${measurement} has no field.`);
  return line;
}

/** Nanoseconds of a time in whole milliseconds. */
export const WHOLE_MS = "000000";

/** Six digits from a hash of the id: the same for the same id, and hardly ever the same for another. */
function nanosOf(id: string): string {
  const nanoseconds = Number.parseInt(hash("sha256", id).slice(0, 12), 16) % 1_000_000;
  return String(nanoseconds).padStart(WHOLE_MS.length, "0");
}

/** Control characters and Unicode line breaks, which end a line or confuse a terminal. */
const BREAKS = /[\p{Cc}\u2028\u2029]+/gu;

/** Longest tag value, in UTF-16 units; InfluxDB 3 and VictoriaMetrics allow more. */
const MAX_TAG = 256;

/** Longest string field, in UTF-16 units: at most 48 kB of UTF-8, below the 64 kB of InfluxDB. */
const MAX_FIELD = 16_000;

/**
 * A tag value that all servers read alike; null when it is empty, because an empty tag breaks the line.
 * A backslash becomes a slash: line protocol has no escape for it, at the end of a value it swallows the separator,
 * and servers disagree about one before a comma.
 */
function tagText(text: string): string | null {
  const clean = oneLine(text, MAX_TAG).replaceAll("\\", "/").trim();
  return clean === "" ? null : clean;
}

/** VictoriaMetrics ends a point at a line break, even inside quotes. */
function oneLine(text: string, max: number): string {
  return text.slice(0, max).toWellFormed().replace(BREAKS, " ");
}

/** A tag's value as fields: numbers under `name`, booleans under `name_bool`, null under neither. */
export function valueFields(name: string, value: TagValue): PointParts["fields"] {
  if (typeof value === "number") return { [name]: value };
  if (typeof value === "boolean") return { [`${name}_bool`]: value };
  return {};
}

/**
 * Milliseconds of an ISO 8601 text; throws an Error for another text. A text without an offset is read as UTC, so that
 * the time zone of this machine does not matter.
 */
export function momentOf(text: string): number {
  const timeMs = Date.parse(/(Z|[+-]\d{2}:?\d{2})$/i.test(text) ? text : `${text}Z`);
  if (Number.isNaN(timeMs)) throw new Error(`"${text.slice(0, 60)}" is not a time.`);
  return timeMs;
}
