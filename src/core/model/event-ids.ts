import { hash } from "node:crypto";

/** Values that identify an event together with kind, source and subject, e.g. the time of a change. */
export type EventIdFacts = readonly (string | number | null)[];

/** Builds an event id: the kind, then 128 bits of SHA-256 over the kind, source and facts, as base64url. */
export function eventId(kind: string, source: string, ...facts: EventIdFacts): string {
  return `${kind}.${hashEventFacts(16, kind, source, ...facts)}`;
}

function hashEventFacts(hashBytes: number, ...facts: EventIdFacts): string {
  return hash("sha256", JSON.stringify(facts), "buffer").subarray(0, hashBytes).toString("base64url");
}

/** Builds the id of a tag value. It begins with the time, because indexes and files store ascending ids better. */
export function tagValueEventId(source: string, time: string, subject: string, facts: EventIdFacts): string {
  const eventTimePrefix = Date.parse(time).toString(36).padStart(9, "0");
  return `tag-value.${eventTimePrefix}${hashEventFacts(12, "tag-value", source, subject, ...facts)}`;
}
