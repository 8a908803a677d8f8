import { eventDataJson } from "../../src/core/codec/history-event.ts";
import { type EventNumber, sequenceAttributes } from "../../src/core/model/delivery-sequence.ts";
import { type Event, eventOrderingKey } from "../../src/core/model/event.ts";

/** CloudEvent in binary mode (Kafka protocol binding of CloudEvents 1.0.2): attributes are headers, data is JSON. */
export interface KafkaRecord {
  readonly topic: string;
  /** Source and subject of the event. Records with equal keys share a partition, which keeps their order. */
  readonly key: Buffer;
  readonly value: Buffer;
  readonly headers: Map<Buffer, Buffer>;
  readonly timestampMs: number;
  readonly bytes: number;
}

/** Maximum bytes that Kafka adds to key and value of a record: lengths, time and offset. */
const KAFKA_RECORD_OVERHEAD_BYTES = 36;
const RECORD_HEADER_OVERHEAD_BYTES = 10;

export function buildKafkaRecord(event: Event, topic: string, sequence?: EventNumber | null): KafkaRecord {
  const headers = buildCloudEventHeaders(event, sequence);
  const key = Buffer.from(eventOrderingKey(event));
  const value = Buffer.from(eventDataJson(event));
  let recordBytes = KAFKA_RECORD_OVERHEAD_BYTES + key.length + value.length;
  for (const [name, text] of headers) recordBytes += RECORD_HEADER_OVERHEAD_BYTES + name.length + text.length;
  return { topic, key, value, headers, timestampMs: Date.parse(event.time), bytes: recordBytes };
}

function buildCloudEventHeaders(event: Event, sequence?: EventNumber | null): Map<Buffer, Buffer> {
  const { id, source, type, subject, time, siteid, priority, snapshot } = event;
  const textByAttribute: Readonly<Record<CloudEventAttribute, string | undefined>> = {
    specversion: "1.0",
    ...{ id, source, type, subject, time, siteid, priority },
    snapshot: snapshot === true ? "true" : undefined,
    sequence: undefined,
    sequenceepoch: undefined,
    ...sequenceAttributes(sequence),
  };
  const headers = new Map<Buffer, Buffer>();
  for (const [attribute, name] of HEADER_NAME_BY_ATTRIBUTE) {
    const attributeText = textByAttribute[attribute];
    if (attributeText !== undefined) headers.set(name, Buffer.from(attributeText));
  }
  return headers.set(CONTENT_TYPE_HEADER, JSON_CONTENT_TYPE);
}

const CONTENT_TYPE_HEADER = Buffer.from("content-type");
const JSON_CONTENT_TYPE = Buffer.from("application/json");
const CORE_CLOUDEVENT_ATTRIBUTES = ["specversion", "id", "source", "type", "subject", "time"] as const;
const EXTENSION_EVENT_ATTRIBUTES = ["siteid", "priority", "snapshot", "sequence", "sequenceepoch"] as const;
const CLOUDEVENT_ATTRIBUTES = [...CORE_CLOUDEVENT_ATTRIBUTES, ...EXTENSION_EVENT_ATTRIBUTES] as const;
type CloudEventAttribute = (typeof CLOUDEVENT_ATTRIBUTES)[number];
const HEADER_NAME_BY_ATTRIBUTE = new Map(
  CLOUDEVENT_ATTRIBUTES.map((name) => [name, Buffer.from(`ce_${name}`)] as const),
);
