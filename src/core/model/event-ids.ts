import { hash } from "node:crypto";

/** Facts that identify an event, in addition to kind, source and subject. */
export type EventIdFacts = readonly (string | number | null)[];

/** The kind, then 128 bits of SHA-256 over the kind and the facts, as base64url. */
export function eventId(kind: string, source: string, ...facts: EventIdFacts): string {
  return `${kind}.${hashEventFacts(16, kind, source, ...facts)}`;
}

function hashEventFacts(hashBytes: number, ...facts: EventIdFacts): string {
  return hash("sha256", JSON.stringify(facts), "buffer").subarray(0, hashBytes).toString("base64url");
}

/** Ids of tag values begin with the time: indexes and files store ascending ids better than random ones. */
export function tagValueEventId(source: string, time: string, subject: string, facts: EventIdFacts): string {
  const eventTimePrefix = Date.parse(time).toString(36).padStart(9, "0");
  return `tag-value.${eventTimePrefix}${hashEventFacts(12, "tag-value", source, subject, ...facts)}`;
}
