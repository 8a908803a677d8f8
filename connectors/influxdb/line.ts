import { Point } from "@influxdata/influxdb-client";
import type { TagValue } from "../../src/building.ts";
import { fieldText, tagText } from "./text.ts";

/** What a point may carry. Null and undefined are left out, which in line protocol is the only honest null. */
export interface PointParts {
  readonly measurement: string;
  readonly tags: Readonly<Record<string, string | number | null | undefined>>;
  readonly fields: Readonly<Record<string, string | number | boolean | null | undefined>>;
  /** Milliseconds since 1970. */
  readonly timeMs: number;
}

/** A point as an event gives it: its time as text. */
export type Parts = Omit<PointParts, "timeMs"> & { readonly time: string };

/** The point as a line with a timestamp in milliseconds. Numbers are always floats, so no type ever conflicts. */
export function lineOf(parts: PointParts): string {
  const point = new Point(parts.measurement).timestamp(String(parts.timeMs));
  for (const [name, value] of Object.entries(parts.tags)) {
    const text = value === null || value === undefined ? null : tagText(String(value));
    if (text !== null) point.tag(name, text);
  }
  for (const [name, value] of Object.entries(parts.fields)) {
    if (typeof value === "number") point.floatField(name, value);
    else if (typeof value === "boolean") point.booleanField(name, value);
    else if (typeof value === "string") point.stringField(name, fieldText(value));
  }
  const line = point.toLineProtocol({ convertTime: (time) => String(time) });
  if (line === undefined) throw new Error(`A point of ${parts.measurement} has no field.`);
  return line;
}

/** A tag's value as fields: numbers under `name`, booleans under `name_bool`, null under neither. */
export function valueFields(name: string, value: TagValue): PointParts["fields"] {
  if (typeof value === "number") return { [name]: value };
  if (typeof value === "boolean") return { [`${name}_bool`]: value };
  return {};
}

/**
 * Milliseconds of an ISO 8601 text; null when there is no such moment. A text without an offset, where the
 * service stated none, is read as UTC: the same everywhere, whatever zone this machine is in.
 */
export function millisecondsOf(text: string): number | null {
  const ms = Date.parse(/(Z|[+-]\d{2}:?\d{2})$/i.test(text) ? text : `${text}Z`);
  return Number.isNaN(ms) ? null : ms;
}

/** The same, where there has to be one: throws an Error with a sentence. */
export function momentOf(text: string): number {
  const timeMs = millisecondsOf(text);
  if (timeMs === null) throw new Error(`"${text.slice(0, 60)}" is not a time.`);
  return timeMs;
}
