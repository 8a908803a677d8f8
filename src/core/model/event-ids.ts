import { hash } from "node:crypto";

/** Facts that identify an event, in addition to kind, source and subject. */
export type EventFacts = readonly (string | number | null)[];

/** The kind, then 128 bits of SHA-256 over the kind and the facts, as base64url. */
export function eventId(kind: string, source: string, ...facts: EventFacts): string {
  return `${kind}.${hashFacts(16, kind, source, ...facts)}`;
}

function hashFacts(bytes: number, ...facts: EventFacts): string {
  return hash("sha256", JSON.stringify(facts), "buffer").subarray(0, bytes).toString("base64url");
}

/** Ids of tag values begin with the time: indexes and files store ascending ids better than random ones. */
export function valueId(source: string, time: string, subject: string, facts: EventFacts): string {
  const timePrefix = Date.parse(time).toString(36).padStart(9, "0");
  return `tag-value.${timePrefix}${hashFacts(12, "tag-value", source, subject, ...facts)}`;
}
