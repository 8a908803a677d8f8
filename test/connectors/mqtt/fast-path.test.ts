import { PassThrough } from "node:stream";
import fc from "fast-check";
import { type IPublishPacket, writeToStream } from "mqtt-packet";
import { describe, expect, test } from "vitest";
import type { MqttMessage } from "#connectors/mqtt/publish-packets.ts";
import {
  computeMaxPacketBytes,
  computePacketBytes,
  createPublisher,
  getBytesIfTooLarge,
  writePublish,
} from "#connectors/mqtt/publish-packets.ts";
import { seed } from "../../seed.ts";

function byLibrary(message: MqttMessage, messageId: number, protocolVersion: 4 | 5): Buffer {
  const { contentType, correlation, expirySeconds, payload, properties, retain, topic } = message;
  const packet: IPublishPacket = {
    cmd: "publish",
    ...{ topic, payload, retain, messageId, qos: 1, dup: false },
    properties: {
      payloadFormatIndicator: true,
      contentType,
      ...(Object.keys(properties).length === 0 ? {} : { userProperties: { ...properties } }),
      ...(expirySeconds === undefined ? {} : { messageExpiryInterval: expirySeconds }),
      ...(correlation === undefined ? {} : { correlationData: Buffer.from(correlation, "base64") }),
    },
  };
  const stream = new PassThrough({ highWaterMark: 2 ** 24 });
  writeToStream(packet, stream, { protocolVersion });
  stream.uncork();
  return (stream.read() as Buffer | null) ?? Buffer.alloc(0);
}

function byUs(message: MqttMessage, id: number, version: 4 | 5): Buffer {
  const packetBuffer = Buffer.alloc(computeMaxPacketBytes(message) + 9, 0xee);
  const end = writePublish(packetBuffer, 9, message, id, version);
  return packetBuffer.subarray(9, end);
}

const anyText = fc.string({ unit: "grapheme", maxLength: 60 });
const payload = fc.oneof(
  anyText,
  fc.integer({ min: 60, max: 140 }).map((length) => "x".repeat(length)),
  fc.integer({ min: 16_200, max: 16_400 }).map((length) => "x".repeat(length)),
  fc.integer({ min: 0, max: 30_000 }).map((length) => "°".repeat(length)),
);
const message: fc.Arbitrary<MqttMessage> = fc.record(
  {
    topic: fc.string({ unit: "grapheme", minLength: 1, maxLength: 150 }),
    payload,
    retain: fc.boolean(),
    contentType: fc.constantFrom("application/json", "application/cloudevents+json"),
    properties: fc.dictionary(
      fc.string({ unit: "grapheme", minLength: 1, maxLength: 20 }).filter((name) => name !== "__proto__"),
      anyText,
      { maxKeys: 4, noNullPrototype: true },
    ),
    expirySeconds: fc.integer({ min: 1, max: 2 ** 32 - 1 }),
    correlation: fc.uint8Array({ minLength: 1, maxLength: 100 }).map((bytes) => Buffer.from(bytes).toString("base64")),
  },
  { requiredKeys: ["topic", "payload", "retain", "contentType", "properties"] },
);
const id = fc.integer({ min: 1, max: 65_535 });
const version = fc.constantFrom(4 as const, 5 as const);

describe("a PUBLISH packet built without the MQTT library", () => {
  test("has the same bytes as one built by the library", () => {
    fc.assert(
      fc.property(message, id, version, (sent, number, spoken) => {
        const bytes = byUs(sent, number, spoken);
        expect(bytes.equals(byLibrary(sent, number, spoken))).toBe(true);
        expect(computePacketBytes(sent, spoken)).toBe(bytes.length);
        expect(computeMaxPacketBytes(sent)).toBeGreaterThanOrEqual(bytes.length);
      }),
      { seed, numRuns: 2_000 },
    );
  });

  test("has the exact size that packetBytesIfTooLarge returns", () => {
    const sentMessage: MqttMessage = {
      ...{ topic: "a/b", payload: "21,5 °C", retain: true },
      ...{ contentType: "application/json", properties: {} },
    };
    const bytes = byUs(sentMessage, 1, 5).length;
    expect([getBytesIfTooLarge(bytes, sentMessage), getBytesIfTooLarge(bytes - 1, sentMessage)]).toEqual([null, bytes]);
  });

  test("is sent in one socket write with all other packets of the same event-loop tick, in order", async () => {
    const ticks = fc.array(fc.array(message, { maxLength: 12 }), { maxLength: 6 });
    await fc.assert(
      fc.asyncProperty(ticks, version, async (all, spoken) => {
        const writes: Buffer[] = [];
        const writeCallbacks: ((error?: Error | null) => void)[] = [];
        const publisher = createPublisher(
          {
            write(chunk: Buffer, done?: unknown) {
              writes.push(chunk);
              if (typeof done === "function") writeCallbacks.push(done as (error?: Error | null) => void);
              return true;
            },
          },
          spoken,
        );
        for (const tickMessages of all) {
          const writesBefore = writes.length;
          for (const [n, each] of tickMessages.entries()) publisher.bufferMessage(each, n + 1);
          await new Promise((resolve) => setImmediate(resolve));
          const expectedBytes = Buffer.concat(tickMessages.map((each, n) => byLibrary(each, n + 1, spoken)));
          const isSmall = tickMessages.reduce((sum, each) => sum + computeMaxPacketBytes(each), 0) <= 65_536;
          if (isSmall) expect(writes.length - writesBefore).toBe(tickMessages.length === 0 ? 0 : 1);
          expect(Buffer.concat(writes.slice(writesBefore)).equals(expectedBytes)).toBe(true);
        }
        const allBytes = Buffer.concat(all.flatMap((tick) => tick.map((each, n) => byLibrary(each, n + 1, spoken))));
        expect(Buffer.concat(writes).equals(allBytes)).toBe(true);
        for (const writeCallback of writeCallbacks) writeCallback(null);
      }),
      { seed, numRuns: 100 },
    );
  });
});
