import type { TagNames } from "../model/building.ts";
import { type Event, eventSubject } from "../model/event.ts";
import { parseHistoryEvent, storedHistoryText } from "./history-event.ts";

/**
 * Short stored form of a `tag-value` event with quality `good`. Plain JSON would repeat the time, value, site, tag and
 * kind: 170 of 430 bytes. Most stored events are live values.
 *
 *     {"id":"tag-value.…","source":"/sources/main","type":"tag-value","subject":"site/1/tag/7",
 *      "time":"2026-01-01T00:00:00.000Z","good":["7","Supply air",null,"°C",21.5,42]}
 *
 * `good` is the tag (id, name, description, unit), the value, the latency in milliseconds, and the names from the names
 * file if the tag has any. An event with any other field, such as a value that could not be read, is stored as JSON.
 */
interface PackedValueEvent extends Pick<Event<"tag-value">, "id" | "source" | "type" | "subject" | "time"> {
  readonly good: readonly [
    id: string,
    displayName: string,
    description: string | null,
    unit: string | null,
    value: number | boolean,
    latencyMs: number,
    names?: TagNames,
  ];
}

const VALUE_EVENT_FIELD_COUNTS = { event: 7, data: 7, tag: 4, lastGood: 2 };

function packValueEvent(event: Event): string | null {
  if (event.type !== "tag-value" || !canPackValueEvent(event as Event<"tag-value">)) return null;
  const { id, source, type, subject, time, data } = event as Event<"tag-value">;
  const { tag, value, latencyMs } = data;
  const packedFields: unknown[] = [tag.id, tag.displayName, tag.description, tag.unit, value, latencyMs];
  if (countTagNames(tag) > 0) {
    const { id: _, displayName, description, unit, ...names } = tag;
    packedFields.push(names);
  }
  return JSON.stringify({ id, source, type, subject, time, good: packedFields });
}

function canPackValueEvent(event: Event<"tag-value">): boolean {
  const { time, data } = event;
  const { tag, value, lastGood } = data;
  return (
    countObjectFields(event) === VALUE_EVENT_FIELD_COUNTS.event &&
    countObjectFields(data) === VALUE_EVENT_FIELD_COUNTS.data &&
    data.quality === "good" &&
    value !== null &&
    lastGood !== null &&
    lastGood.value === value &&
    lastGood.time === time &&
    data.time === time &&
    data.behindGateway === null &&
    event.siteid !== undefined &&
    event.subject === eventSubject("tag", event.siteid, tag.id) &&
    countObjectFields(tag) === VALUE_EVENT_FIELD_COUNTS.tag + countTagNames(tag) &&
    countObjectFields(lastGood) === VALUE_EVENT_FIELD_COUNTS.lastGood
  );
}

function countTagNames({ alias, path, unitCode }: TagNames): number {
  return (alias === undefined ? 0 : 1) + (path === undefined ? 0 : 1) + (unitCode === undefined ? 0 : 1);
}

function countObjectFields(object: object): number {
  let count = 0;
  for (const _ in object) count += 1;
  return count;
}

function unpackValueEvent(parsed: Event | PackedValueEvent): Event {
  if (!("good" in parsed)) return parsed;
  const { id, source, type, subject, time, good } = parsed;
  const [tagId, displayName, description, unit, value, latencyMs, names] = good;
  return {
    id,
    source,
    type,
    subject,
    time,
    siteid: subject.slice("site/".length, -`/tag/${tagId}`.length),
    data: {
      tag: { id: tagId, displayName, description, unit, ...names },
      value,
      quality: "good",
      time,
      latencyMs,
      lastGood: { value, time },
      behindGateway: null,
    },
  } satisfies Event<"tag-value">;
}

export function encodeEvent(event: Event): string {
  return storedHistoryText(event) ?? packValueEvent(event) ?? JSON.stringify(event);
}

export function parseEvent(text: string): Event {
  return parseHistoryEvent(text) ?? unpackValueEvent(JSON.parse(text));
}
