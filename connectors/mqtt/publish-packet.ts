import type { Message } from "./messages.ts";

/** MQTT 3.1.1, as its packets call it, and 5. */
export type ProtocolVersion = 4 | 5;

const PUBLISH_QOS_1 = 0x32;
const RETAIN = 0x01;

/** MQTT 5.0, section 2.2.2.2. */
const PROPERTY = {
  payloadFormat: 0x01,
  expiry: 0x02,
  contentType: 0x03,
  correlation: 0x09,
  user: 0x26,
} as const;

/** Type, length (4), length of the topic (2), packet id (2), length of the properties (4), payload format (2), expiry (5). */
const AROUND_BYTES = 20;
/** What stands beside the letters of a text: the property's number, and its length (2). */
const BESIDE_TEXT_BYTES = 3;
/** A UTF-16 unit takes at most so many bytes of UTF-8. */
const BYTES_A_UNIT = 3;
/** Of a length below 128, and below 16,384: in seven bits each (section 1.5.5). */
const LENGTH_BASE = 128;

/** An upper bound of a message's bytes, without a look at its letters. */
export function mostBytesOf({ contentType, correlation, payload, properties, topic }: Message): number {
  let letters = topic.length + contentType.length + payload.length + (correlation?.length ?? 0);
  let texts = 3;
  for (const name in properties) {
    letters += name.length + (properties[name] ?? "").length;
    texts += 2;
  }
  return AROUND_BYTES + BESIDE_TEXT_BYTES * texts + BYTES_A_UNIT * letters;
}

/** How many bytes a message has, where that is more than so many; else null. */
export function bytesBeyond(most: number, message: Message, version: ProtocolVersion = 5): number | null {
  if (mostBytesOf(message) <= most) return null;
  const bytes = bytesOf(message, version);
  return bytes > most ? bytes : null;
}

/** Bytes of the packet, to the byte. */
export function bytesOf(message: Message, version: ProtocolVersion): number {
  const properties = version === 5 ? propertiesBytes(message) : 0;
  const rest = 2 + Buffer.byteLength(message.topic) + 2 + properties + Buffer.byteLength(message.payload);
  return 1 + lengthBytes(rest) + rest;
}

function propertiesBytes({ contentType, correlation, expirySeconds, properties }: Message): number {
  const ofText = (text: string) => 2 + Buffer.byteLength(text);
  let bytes = 2 + 1 + ofText(contentType);
  for (const name in properties) bytes += 1 + ofText(name) + ofText(properties[name] ?? "");
  if (expirySeconds !== undefined) bytes += 5;
  if (correlation !== undefined) bytes += 3 + Buffer.byteLength(correlation, "base64");
  return lengthBytes(bytes) + bytes;
}

/** Bytes that a length itself takes. */
function lengthBytes(length: number): number {
  let bytes = 1;
  for (let left = length; left >= LENGTH_BASE; left >>>= 7) bytes += 1;
  return bytes;
}

/**
 * Writes a PUBLISH with QoS 1 (MQTT 5.0 and 3.1.1, section 3.3) at a place of `into`, which has room for `mostBytesOf`;
 * answers where it ends. `id` is the packet's number, 1 to 65,535.
 *
 *     32 A3 01 │ 00 12 plenum/1/tag/7/value │ 00 2A │ 44 properties │ payload
 *     type and length      topic              id       MQTT 5 alone
 *
 * The library writes a packet in some forty pieces, makes a Buffer of nearly each and a list of arguments for a log that
 * nobody reads: a quarter of all memory that a value needs. Here a message is written once, to where it leaves from; a
 * test compares with the library, byte for byte.
 */
export function writePublish(
  into: Buffer,
  at: number,
  message: Message,
  id: number,
  version: ProtocolVersion,
): number {
  into[at] = PUBLISH_QOS_1 | (message.retain ? RETAIN : 0);
  // Nearly always it is between 128 and 16,383 bytes; of any other length what follows is moved.
  const begin = at + 1 + 2;
  let end = writeText(into, begin, message.topic);
  end = into.writeUInt16BE(id, end);
  if (version === 5) end = writeProperties(into, end, message);
  end += into.write(message.payload, end);
  return writeLength(into, at + 1, begin, end);
}

function writeProperties(into: Buffer, at: number, message: Message): number {
  const { contentType, correlation, expirySeconds, properties } = message;
  const begin = at + 1;
  into[begin] = PROPERTY.payloadFormat;
  into[begin + 1] = 1;
  into[begin + 2] = PROPERTY.contentType;
  let end = writeText(into, begin + 3, contentType);
  for (const name in properties) {
    into[end] = PROPERTY.user;
    end = writeText(into, end + 1, name);
    end = writeText(into, end, properties[name] ?? "");
  }
  if (expirySeconds !== undefined) {
    into[end] = PROPERTY.expiry;
    end = into.writeUInt32BE(expirySeconds, end + 1);
  }
  if (correlation !== undefined) {
    into[end] = PROPERTY.correlation;
    const bytes = into.write(correlation, end + 3, "base64");
    into.writeUInt16BE(bytes, end + 1);
    end += 3 + bytes;
  }
  return writeLength(into, at, begin, end);
}

/** A text with its length before it (section 1.5.4); answers where it ends. */
function writeText(into: Buffer, at: number, text: string): number {
  const bytes = into.write(text, at + 2);
  into.writeUInt16BE(bytes, at);
  return at + 2 + bytes;
}

/** Writes the length of what stands between two places before it, where room was left or not; answers the new end. */
function writeLength(into: Buffer, at: number, begin: number, end: number): number {
  const length = end - begin;
  const moved = at + lengthBytes(length);
  if (moved !== begin) into.copyWithin(moved, begin, end);
  let place = at;
  let left = length;
  for (; left >= LENGTH_BASE; left >>>= 7) into[place++] = (left & 0x7f) | 0x80;
  into[place] = left;
  return moved + length;
}
