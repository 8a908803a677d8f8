import { hash } from "node:crypto";
import { createBySubject } from "./by-subject.ts";

/** What makes an event this one and no other, besides kind, source and subject. */
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

/** By tag, 100 bytes each, for each source. */
const tagHashes = createBySubject<string>(4_000);

/**
 * The id of a value: the kind, its time in milliseconds as nine characters to the base of 36, then 96 bits of SHA-256
 * over the tag and the facts. Values are nearly all there is, and ids that rise lie next to each other in the index of
 * the log: of random ones each touches a page of its own, and a card that is written wears out twice as fast. The time
 * stands in the id once, so the hash is the same for all values of a tag, and a column of ids costs a lake 2 bytes a
 * value instead of 13.
 */
export function valueId(source: string, time: string, subject: string, facts: EventFacts): string {
  const rising = Date.parse(time).toString(36).padStart(9, "0");
  if (facts.length > 0) return `tag-value.${rising}${hashOf(12, "tag-value", source, subject, ...facts)}`;
  let tag = tagHashes.get(source, subject);
  if (tag === undefined) {
    tag = hashOf(12, "tag-value", source, subject);
    tagHashes.set(source, subject, tag);
  }
  return `tag-value.${rising}${tag}`;
}
