import { dataText } from "../../src/core/codec/history-event.ts";
import { type Event, orderingKey } from "../../src/core/model/event.ts";
import { type Sequence, sequenceAttributes } from "../../src/core/model/sequence.ts";

/**
 * Event as a Kafka record: a CloudEvent in binary mode, by the Kafka protocol binding of CloudEvents 1.0.2.
 * Attributes are UTF-8 headers, the value is the event's data as JSON.
 */
export interface KafkaRecord {
  readonly topic: string;
  /** Source and subject: records with the same key share a partition, which keeps their order. */
  readonly key: Buffer;
  readonly value: Buffer;
  readonly headers: Map<Buffer, Buffer>;
  /** Time of the event in milliseconds since 1970; NaN where it is unreadable. */
  readonly timestampMs: number;
  readonly bytes: number;
}

/** Bytes for the lengths, time and offset of a record: at most 5 for each length, 10 for a time. */
const RECORD_BYTES = 36;
/** Bytes for the lengths of a header's name and value. */
const HEADER_BYTES = 10;

export function recordOf(event: Event, topic: string, sequence?: Sequence | null): KafkaRecord {
  const headers = headersOf(event, sequence);
  const key = Buffer.from(orderingKey(event));
  const value = Buffer.from(dataText(event));
  let bytes = RECORD_BYTES + key.length + value.length;
  for (const [name, text] of headers) bytes += HEADER_BYTES + name.length + text.length;
  return { topic, key, value, headers, timestampMs: Date.parse(event.time), bytes };
}

function headersOf(event: Event, number?: Sequence | null): Map<Buffer, Buffer> {
  const { id, source, type, subject, time, siteid, priority, snapshot } = event;
  const texts: Readonly<Record<keyof typeof NAMES, string | undefined>> = {
    specversion: "1.0",
    ...{ id, source, type, subject, time, siteid, priority },
    snapshot: snapshot === true ? "true" : undefined,
    sequence: undefined,
    sequenceepoch: undefined,
    ...sequenceAttributes(number),
  };
  const headers = new Map<Buffer, Buffer>();
  for (const name in NAMES) {
    const text = texts[name as keyof typeof NAMES];
    if (text !== undefined) headers.set(NAMES[name as keyof typeof NAMES], Buffer.from(text));
  }
  return headers.set(CONTENT_TYPE, JSON_TYPE);
}

const CONTENT_TYPE = Buffer.from("content-type");
const JSON_TYPE = Buffer.from("application/json");
const NAMES = {
  specversion: Buffer.from("ce_specversion"),
  id: Buffer.from("ce_id"),
  source: Buffer.from("ce_source"),
  type: Buffer.from("ce_type"),
  subject: Buffer.from("ce_subject"),
  time: Buffer.from("ce_time"),
  siteid: Buffer.from("ce_siteid"),
  priority: Buffer.from("ce_priority"),
  snapshot: Buffer.from("ce_snapshot"),
  sequence: Buffer.from("ce_sequence"),
  sequenceepoch: Buffer.from("ce_sequenceepoch"),
} as const;
