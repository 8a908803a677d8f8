import { hash } from "node:crypto";

/** Facts that identify an event, in addition to kind, source and subject. */
export type EventFacts = readonly (string | number | null)[];

/**
 * A deterministic id: the kind, then 128 bits of SHA-256 over the kind and the facts, as base64url.
 * Safe in headers, topics and file names.
 */
export function eventId(kind: string, source: string, ...facts: EventFacts): string {
  return `${kind}.${hashOf(16, kind, source, ...facts)}`;
}

/** So many bytes of SHA-256, as base64url. */
function hashOf(bytes: number, ...facts: EventFacts): string {
  return hash("sha256", JSON.stringify(facts), "buffer").subarray(0, bytes).toString("base64url");
}

/**
 * The id of a value: the kind, its time in milliseconds as nine characters to the base of 36, then 96 bits of SHA-256
 * over the tag and the facts. Nearly all events are values, and rising ids are neighbours in the index of the log, while
 * each random id touches its own page and doubles the bytes written. The id contains the time once, so all values of a
 * tag share their hash, and a column of ids costs a lake 2 bytes per value instead of 13.
 */
export function valueId(source: string, time: string, subject: string, facts: EventFacts): string {
  const rising = Date.parse(time).toString(36).padStart(9, "0");
  return `tag-value.${rising}${hashOf(12, "tag-value", source, subject, ...facts)}`;
}
