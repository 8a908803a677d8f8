import { hash } from "node:crypto";
import { escape as escaping } from "@influxdata/influxdb-client";
import type { TagValue } from "../../src/core/model/building.ts";
import { fieldText, tagText } from "./text.ts";

/** What a point may carry. Null and undefined are left out, which in line protocol is the only honest null. */
export interface PointParts {
  readonly measurement: string;
  readonly tags: Readonly<Record<string, string | number | null | undefined>>;
  readonly fields: Readonly<Record<string, string | number | boolean | null | undefined>>;
  /** Milliseconds since 1970. */
  readonly timeMs: number;
  /**
   * What tells the point from another of the same series and millisecond: the event's id. Its place within the millisecond
   * comes of it, so that the same event stays the same point, and nothing of it makes a new series. Absent where a later
   * point is to take the place of an earlier one.
   */
  readonly apartBy?: string;
}

/** A point as an event gives it: its time as text. */
export type Parts = Omit<PointParts, "timeMs"> & { readonly time: string };

/**
 * The point as a line with a timestamp in nanoseconds: what the library's `Point` would write, without the objects that
 * it makes on the way. Numbers are always floats, so no type ever conflicts.
 */
export function lineOf({ measurement, tags, fields, timeMs, apartBy }: PointParts): string {
  pieces.length = 0;
  pieces.push(escaping.measurement(measurement));
  for (const name of tagOrder(tags)) {
    const value = tags[name];
    const text = value === null || value === undefined ? null : tagText(String(value));
    if (text !== null && name !== "") pieces.push(",", escaped(name), "=", escaped(text));
  }
  let separator = " ";
  for (const name of fieldOrder(fields)) {
    const value = fields[name];
    if (value === null || value === undefined || name === "") continue;
    pieces.push(separator, escaped(name), "=", fieldOf(name, value));
    separator = ",";
  }
  if (separator === " ") throw new Error(`A point of ${measurement} has no field.`);
  pieces.push(" ", String(timeMs), apartBy === undefined ? WHOLE_MS : withinMs(apartBy));
  return pieces.join("");
}

/** What milliseconds lack to be nanoseconds. */
export const WHOLE_MS = "000000";

/** Nanoseconds below a millisecond, six digits: the same for the same id, and with another hardly ever. */
function withinMs(id: string): string {
  const nanoseconds = Number.parseInt(hash("sha256", id).slice(0, 12), 16) % 1_000_000;
  return String(nanoseconds).padStart(WHOLE_MS.length, "0");
}

/** Lent to one line after the other. Texts that are added up keep all their parts for as long as the request takes. */
const pieces: string[] = [];

/** The names of an object in order. Nearly all points are alike, so the last order mostly serves again. */
function createOrder(): (named: object) => readonly string[] {
  let names: readonly string[] = [];
  let sorted: readonly string[] = [];
  return (named) => {
    const found = Object.keys(named);
    if (found.length !== names.length || found.some((name, n) => name !== names[n])) {
      names = found;
      sorted = found.toSorted();
    }
    return sorted;
  };
}

const tagOrder = createOrder();
const fieldOrder = createOrder();

function fieldOf(name: string, value: string | number | boolean): string {
  if (typeof value === "boolean") return value ? "T" : "F";
  if (typeof value === "string") return escaping.quoted(fieldText(value));
  if (!Number.isFinite(value)) throw new Error(`${value} is no number for the field ${name}.`);
  return String(value);
}

/** Most names and ids have nothing to escape, and looking at them one letter after the other takes its time. */
function escaped(text: string): string {
  return PLAIN.test(text) ? text : escaping.tag(text);
}

const PLAIN = /^[\w.:/-]*$/;

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
function millisecondsOf(text: string): number | null {
  const ms = Date.parse(/(Z|[+-]\d{2}:?\d{2})$/i.test(text) ? text : `${text}Z`);
  return Number.isNaN(ms) ? null : ms;
}

/** The same, where there has to be one: throws an Error with a sentence. */
export function momentOf(text: string): number {
  const timeMs = millisecondsOf(text);
  if (timeMs === null) throw new Error(`"${text.slice(0, 60)}" is not a time.`);
  return timeMs;
}
