import fc from "fast-check";
import { generate, type Packet } from "mqtt-packet";
import { describe, expect, test } from "vitest";
import { createAcknowledgementReader } from "#connectors/mqtt/publish-packets.ts";
import { seed } from "../../seed.ts";

interface SentPacket {
  readonly bytes: Buffer;
  readonly reply: readonly [id: number, reason: number] | null;
}

const id = fc.integer({ min: 1, max: 65_535 });
const encode = (packet: Packet): SentPacket => ({ bytes: generate(packet, { protocolVersion: 5 }), reply: null });
const puback = fc
  .tuple(id, fc.option(fc.nat(255)), fc.uint8Array({ maxLength: 300 }))
  .map(([number, reason, more]): SentPacket => {
    const properties = reason === null || more.length === 0 ? [] : [...lengthOf(more.length), ...more];
    const packetBody = [number >> 8, number & 0xff, ...(reason === null ? [] : [reason]), ...properties];
    return { bytes: Buffer.from([0x40, ...lengthOf(packetBody.length), ...packetBody]), reply: [number, reason ?? 0] };
  });
const packet = fc.oneof(
  { weight: 4, arbitrary: puback },
  { weight: 1, arbitrary: fc.constant(encode({ cmd: "pingresp" })) },
  { weight: 1, arbitrary: id.map((messageId) => encode({ cmd: "suback", messageId, granted: [1] })) },
  {
    weight: 1,
    arbitrary: fc.tuple(id, fc.nat(40_000)).map(([messageId, length]) => {
      const payload = Buffer.alloc(length, 0x40);
      return encode({ cmd: "publish", topic: "a", qos: 1, dup: false, retain: false, messageId, payload });
    }),
  },
);

const lengthOf = (length: number): readonly number[] =>
  length < 128 ? [length] : [(length & 0x7f) | 0x80, length >> 7];

function readInChunks(bytes: Buffer, lengths: readonly number[]) {
  const acknowledgements: (readonly [number, number])[] = [];
  const readAcknowledgements = createAcknowledgementReader((number, reason) => acknowledgements.push([number, reason]));
  const otherBytes: Buffer[] = [];
  for (let at = 0, n = 0; at < bytes.length; n += 1) {
    const end = at + (lengths[n % lengths.length] ?? 1);
    const chunk = Buffer.from(bytes.subarray(at, end));
    const unreadBytes = readAcknowledgements(chunk);
    if (unreadBytes !== null) otherBytes.push(Buffer.from(unreadBytes));
    chunk.fill(0xee);
    at = end;
  }
  return { replies: acknowledgements, left: Buffer.concat(otherBytes) };
}

describe("the parser of MQTT acknowledgements", () => {
  test("extracts acknowledgements from chunks of any size and leaves all other bytes unchanged", () => {
    const lengths = fc.array(fc.oneof(fc.integer({ min: 1, max: 8 }), fc.integer({ min: 1, max: 5_000 })), {
      minLength: 1,
      maxLength: 10,
    });
    fc.assert(
      fc.property(fc.array(packet, { maxLength: 40 }), lengths, (sent, cut) => {
        const { replies, left } = readInChunks(Buffer.concat(sent.map(({ bytes }) => bytes)), cut);
        expect(replies).toEqual(sent.flatMap(({ reply }) => (reply === null ? [] : [reply])));
        expect(left.equals(Buffer.concat(sent.filter(({ reply }) => reply === null).map(({ bytes }) => bytes)))).toBe(
          true,
        );
      }),
      { seed, numRuns: 300 },
    );
  });

  test.each([
    ["a header with other flags", [0x41, 2, 0, 7]],
    ["an acknowledgement without a message id", [0x40, 1, 7]],
    ["an acknowledgement that is longer than MQTT allows", [0x40, 0x80, 0x80, 0xc0, 0x01, 0, 7]],
    ["a length field without an end, and all bytes after it", [0x40, 0xff, 0xff, 0xff, 0xff, 1, 0x40, 2, 0, 7]],
  ])("leaves invalid bytes to the MQTT library: %s", (_what, bytes) => {
    expect(readInChunks(Buffer.from(bytes), [3])).toEqual({ replies: [], left: Buffer.from(bytes) });
  });
});
