import { type Event, subjectOf } from "../model/event.ts";

/**
 * A live value as the text that it is stored as. An event of a good value says its time three times, its value twice, and
 * its site, its tag and what kind it is twice: 170 of 430 bytes are there already. And values are nearly all that is
 * written.
 *
 *     {"id":"tag-value.…","source":"/sources/main","type":"tag-value","subject":"site/1/tag/7",
 *      "time":"2026-01-01T00:00:00.000Z","good":["7","Supply air",null,"°C",21.5,42]}
 *
 * `good` is the tag (id, name, description, unit), the value, and the latency in milliseconds. What differs from this in
 * any field, such as a value that could not be read, is stored as the JSON of its event.
 */
interface PackedValue extends Pick<Event<"tag-value">, "id" | "source" | "type" | "subject" | "time"> {
  readonly good: readonly [
    id: string,
    displayName: string,
    description: string | null,
    unit: string | null,
    value: number | boolean,
    latencyMs: number,
  ];
}

/** How many fields there are when there are no others: of an event, of its data, of a tag, and of a value read last. */
const FIELDS = { event: 7, data: 7, tag: 4, lastGood: 2 };

/** The packed text of a good value; null of any other event. */
export function packedText(event: Event): string | null {
  if (event.type !== "tag-value" || !isGood(event as Event<"tag-value">)) return null;
  const { id, source, type, subject, time, data } = event as Event<"tag-value">;
  const { tag, value, latencyMs } = data;
  const good = [tag.id, tag.displayName, tag.description, tag.unit, value, latencyMs];
  return JSON.stringify({ id, source, type, subject, time, good });
}

/** Whether the packed text says all of it. */
function isGood(event: Event<"tag-value">): boolean {
  const { time, data } = event;
  const { tag, value, lastGood } = data;
  return (
    fieldsOf(event) === FIELDS.event &&
    fieldsOf(data) === FIELDS.data &&
    data.quality === "good" &&
    value !== null &&
    lastGood !== null &&
    lastGood.value === value &&
    lastGood.time === time &&
    data.time === time &&
    data.behindGateway === null &&
    event.siteid !== undefined &&
    event.subject === subjectOf("tag", event.siteid, tag.id) &&
    fieldsOf(tag) === FIELDS.tag &&
    fieldsOf(lastGood) === FIELDS.lastGood
  );
}

/** Without the list of names that `Object.keys` makes. */
function fieldsOf(object: object): number {
  let count = 0;
  for (const _ in object) count += 1;
  return count;
}

/** Returns the event that a parsed text of the log represents. */
export function unpacked(parsed: Event | PackedValue): Event {
  if (!("good" in parsed)) return parsed;
  const { id, source, type, subject, time, good } = parsed;
  const [tagId, displayName, description, unit, value, latencyMs] = good;
  return {
    id,
    source,
    type,
    subject,
    time,
    siteid: subject.slice("site/".length, -`/tag/${tagId}`.length),
    data: {
      tag: { id: tagId, displayName, description, unit },
      value,
      quality: "good",
      time,
      latencyMs,
      lastGood: { value, time },
      behindGateway: null,
    },
  } satisfies Event<"tag-value">;
}
