import { dataText } from "../../src/core/codec/history-event.ts";
import { type Event, orderingKey } from "../../src/core/model/event.ts";
import { type Sequence, sequenceAttributes } from "../../src/core/model/sequence.ts";

/** CloudEvent in binary mode (Kafka protocol binding of CloudEvents 1.0.2): attributes are headers, data is JSON. */
export interface KafkaRecord {
  readonly topic: string;
  /** Source and subject: equal keys share a partition, which keeps their order. */
  readonly key: Buffer;
  readonly value: Buffer;
  readonly headers: Map<Buffer, Buffer>;
  readonly timestampMs: number;
  readonly bytes: number;
}

/** Lengths (at most 5 each), time (10) and offset of a record. */
const RECORD_BYTES = 36;
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
  const texts: Readonly<Record<Attribute, string | undefined>> = {
    specversion: "1.0",
    ...{ id, source, type, subject, time, siteid, priority },
    snapshot: snapshot === true ? "true" : undefined,
    sequence: undefined,
    sequenceepoch: undefined,
    ...sequenceAttributes(number),
  };
  const headers = new Map<Buffer, Buffer>();
  for (const [attribute, name] of HEADER_BY_ATTRIBUTE) {
    const text = texts[attribute];
    if (text !== undefined) headers.set(name, Buffer.from(text));
  }
  return headers.set(CONTENT_TYPE, JSON_TYPE);
}

const CONTENT_TYPE = Buffer.from("content-type");
const JSON_TYPE = Buffer.from("application/json");
const CORE_ATTRIBUTES = ["specversion", "id", "source", "type", "subject", "time"] as const;
const EXTENSIONS = ["siteid", "priority", "snapshot", "sequence", "sequenceepoch"] as const;
const ATTRIBUTES = [...CORE_ATTRIBUTES, ...EXTENSIONS] as const;
type Attribute = (typeof ATTRIBUTES)[number];
const HEADER_BY_ATTRIBUTE = new Map(ATTRIBUTES.map((name) => [name, Buffer.from(`ce_${name}`)] as const));
