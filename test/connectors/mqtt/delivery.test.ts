import type { Socket } from "node:net";
import { setTimeout as wait } from "node:timers/promises";
import type { Packet } from "mqtt-packet";
import { describe, expect, test } from "vitest";
import { ConfigError, errorText, Retryable, Throttled } from "#src/core/errors/errors.ts";
import { sampleEvent, valueEvent } from "../../sample-events.ts";
import { closeAfterTest } from "../../test-resources.ts";
import { never } from "../context.ts";
import {
  connack,
  isValue,
  puback,
  type RespondToPacket,
  type ScriptedBroker,
  startScriptedBroker,
} from "./scripted-broker.ts";
import { createTestSink, type Settings } from "./test-sink.ts";

async function setUp(replies: RespondToPacket, settings: Settings = {}, version: 4 | 5 = 5) {
  const broker = closeAfterTest(await startScriptedBroker(version, replies));
  const protocol = version === 5 ? "5" : "3.1.1";
  return { broker, sink: createTestSink(broker.url, { protocol, ...settings }) };
}

async function setUpOpen(...args: Parameters<typeof setUp>) {
  const openSetup = await setUp(...args);
  await openSetup.sink.open(never());
  return openSetup;
}

const values = (broker: ScriptedBroker) => broker.came.filter(isValue);
const batch = Array.from({ length: 8 }, (_, n) => valueEvent(n));

function replyWithReason(nth: number, reasonCode: number): RespondToPacket {
  let valueIndex = -1;
  return (packet) => {
    if (!isValue(packet)) return undefined;
    valueIndex += 1;
    return valueIndex === nth ? [puback(packet, reasonCode)] : undefined;
  };
}

const forbidPublishing: RespondToPacket = (packet) => (packet.cmd === "publish" ? [puback(packet, 135)] : undefined);

const endConnectionAtValue: RespondToPacket = (packet, socket) => {
  if (!isValue(packet)) return undefined;
  setImmediate(() => socket.destroy());
  return [];
};

describe("the reason code with which a broker acknowledges a message", () => {
  test.each([135, 144, 149, 153])("code %i rejects this event, and the other events are delivered", async (code) => {
    const { broker, sink } = await setUpOpen(replyWithReason(2, code));
    const receipt = await sink.write(batch, never());
    expect(receipt).toEqual({ rejected: [{ index: 2, reason: expect.stringContaining(String(code)) }] });
    expect(values(broker)).toHaveLength(batch.length);
  });

  test.each([
    [128, Retryable],
    [145, Retryable],
    [151, Throttled],
    [255, Retryable],
  ])("code %i leaves this and all later events for a retry and keeps the connection", async (code, failure) => {
    const { broker, sink } = await setUpOpen(replyWithReason(2, code));
    const { rejected, retry } = await sink.write(batch, never());
    expect(retry).toMatchObject({ from: 2, error: { message: expect.stringContaining(String(code)) } });
    expect(retry?.error).toBeInstanceOf(failure);
    expect(rejected).toEqual([]);
    expect(await sink.write(batch.slice(2), never())).toEqual({ rejected: [] });
    expect(broker.came.filter(({ cmd }) => cmd === "connect")).toHaveLength(1);
  });

  test.each([0, 1, 2, 16, 17, 24, 127])("code %i accepts the event", async (code) => {
    const { broker, sink } = await setUpOpen(replyWithReason(2, code));
    expect(await sink.write(batch, never())).toEqual({ rejected: [] });
    expect(values(broker), "on the same connection, each once").toHaveLength(batch.length);
    expect(broker.came.filter(({ cmd }) => cmd === "connect")).toHaveLength(1);
  });

  test("the command-result event is settled although the broker rejects its response message", async () => {
    const { sink } = await setUpOpen((packet) =>
      packet.cmd === "publish" && packet.topic === "answers/1" ? [puback(packet, 135)] : undefined,
    );
    const sample = sampleEvent("command-result");
    const result = { ...sample, data: { ...sample.data, replyTo: "answers/1" } };
    expect(await sink.write([result], never())).toEqual({ rejected: [] });
  });
});

describe("a lost connection to the MQTT broker", () => {
  test.each([4, 5] as const)(
    "causes a retry of the batch from its first unacknowledged event on (protocol version %i)",
    async (version) => {
      let valueCount = 0;
      const { broker, sink } = await setUpOpen(
        (packet, socket) => {
          if (!isValue(packet)) return undefined;
          valueCount += 1;
          if (valueCount < 4) return undefined;
          if (valueCount === 4) setImmediate(() => socket.destroy());
          return [];
        },
        {},
        version,
      );
      const receipt = await sink.write(batch, never());
      expect(receipt.retry?.from).toBe(3);
      expect(receipt.retry?.error).toBeInstanceOf(Retryable);
      await sink.open(never());
      valueCount = -1_000;
      expect(await sink.write(batch.slice(3), never())).toEqual({ rejected: [] });
      const sentIds = values(broker).map((packet) =>
        packet.cmd === "publish" ? JSON.parse(packet.payload.toString()).id : null,
      );
      expect(sentIds.slice(-5)).toEqual(batch.slice(3).map(({ id }) => id));
    },
  );

  test.each([
    [
      "a long message",
      "x".repeat(3_000),
      expect.stringMatching(/^If that stays so.*the longest on its way has [3-9]\d{3} characters/),
    ],
    ["a short message", "x", undefined],
  ])("causes an error with a hint only if a message of 3,000 characters was in flight: %s", async (_, unit, hint) => {
    const { sink } = await setUpOpen(endConnectionAtValue, {}, 4);
    const event = valueEvent(1);
    const tag = { ...event.data.tag, unit };
    const { retry } = await sink.write([{ ...event, data: { ...event.data, tag } }], never());
    expect(retry?.error).toBeInstanceOf(Retryable);
    expect(retry?.error).toMatchObject({ hint });
  });

  test("is not restored by the MQTT library: only a new write sends the message again", async () => {
    const { broker, sink } = await setUpOpen(endConnectionAtValue);
    expect((await sink.write([valueEvent(1)], never())).retry?.from).toBe(0);
    await sink.open(never());
    await broker.until("connect", 2);
    await broker.until("publish", 3);
    expect(values(broker)).toHaveLength(1);
  });

  test("an event without acknowledgement is retried after the deadline, and the next connection works", async () => {
    let isSilent = true;
    const { broker, sink } = await setUpOpen((packet) => (isValue(packet) && isSilent ? [] : undefined), {
      publish_deadline: "200ms",
    });
    const receipt = await sink.write(batch, never());
    expect(receipt.retry?.from).toBe(0);
    expect(String(receipt.retry?.error)).toContain("did not answer within 200 ms");
    isSilent = false;
    await sink.open(never());
    expect(await sink.write(batch, never())).toEqual({ rejected: [] });
    expect(broker.came.filter(({ cmd }) => cmd === "connect")).toHaveLength(2);
  });

  test("an abort rejects the write at once, and the connection stays usable", async () => {
    let isSilent = true;
    const { broker, sink } = await setUpOpen((packet) => (isValue(packet) && isSilent ? [] : undefined));
    const abort = new AbortController();
    const write = sink.write(batch, abort.signal);
    await broker.until("publish", 9);
    abort.abort(new Error("stop"));
    await expect(write).rejects.toThrow("stop");
    isSilent = false;
    expect(await sink.write(batch, never())).toEqual({ rejected: [] });
  });

  test.each([
    [149, "packet too large", { field: "max_message_bytes" }],
    [142, "session taken over", { message: expect.stringContaining("Another client with our client id") }],
  ])("causes a ConfigError and no quick reconnect after DISCONNECT reason %i (%s)", async (reasonCode, _, expected) => {
    const { broker, sink } = await setUpOpen((packet) =>
      isValue(packet) ? [{ cmd: "disconnect", reasonCode }] : undefined,
    );
    const write = sink.write([valueEvent(1)], never());
    await broker.until("publish", 2);
    broker.cut();
    expect((await write).retry?.error).toMatchObject({ kind: "config", ...expected });
    await wait(1_200);
    expect(broker.came.filter(({ cmd }) => cmd === "connect")).toHaveLength(1);
  });
});

describe("limits that the MQTT broker announces", () => {
  const limited = (properties: Record<string, unknown>): RespondToPacket => {
    return (packet) => (packet.cmd === "connect" ? [{ ...connack(5, 0), properties } as Packet] : undefined);
  };

  test("the receive maximum limits the unacknowledged messages", async () => {
    let waitingAcks: Packet[] = [];
    let maxWaiting = 0;
    const { broker, sink } = await setUpOpen((packet) => {
      if (packet.cmd === "connect") return [{ ...connack(5, 0), properties: { receiveMaximum: 3 } } as Packet];
      if (!isValue(packet)) return undefined;
      waitingAcks.push(puback(packet));
      maxWaiting = Math.max(maxWaiting, waitingAcks.length);
      if (waitingAcks.length === 1) {
        setTimeout(() => {
          for (const ack of waitingAcks) broker.send(ack);
          waitingAcks = [];
        }, 20);
      }
      return [];
    });
    expect(await sink.write(batch, never())).toEqual({ rejected: [] });
    expect(maxWaiting).toBe(3);
  });

  test("a message above the maximum packet size is rejected without being sent", async () => {
    const { broker, sink } = await setUpOpen(limited({ maximumPacketSize: 1_500 }));
    const sample = valueEvent(1);
    const largeEvent = { ...sample, data: { ...sample.data, behindGateway: "x".repeat(3_000) } };
    const receipt = await sink.write([largeEvent, valueEvent(2)], never());
    expect(receipt).toEqual({ rejected: [{ index: 0, reason: expect.stringContaining("1500") }] });
    expect(values(broker)).toHaveLength(1);
  });

  test.each([
    [{ retainAvailable: false }, "does not keep messages"],
    [{ maximumQoS: 0 }, "QoS 1"],
  ])("a broker that announces %o causes a ConfigError", async (properties, complaint) => {
    const { sink } = await setUp(limited(properties));
    const error = await sink.open(never()).catch((cause: unknown) => cause);
    expect(error).toBeInstanceOf(ConfigError);
    expect(errorText(error)).toContain(complaint);
  });
});

describe("connecting to an MQTT broker", () => {
  test.each([
    [5, 132, ConfigError],
    [5, 134, ConfigError],
    [5, 136, Retryable],
    [4, 1, ConfigError],
    [4, 3, Retryable],
    [4, 5, ConfigError],
  ] as const)(
    "maps the connection refusal of protocol version %i with reason %i to a ConfigError or Retryable",
    async (version, code, meaning) => {
      const { sink } = await setUp(
        (packet) => (packet.cmd === "connect" ? [connack(version, code)] : undefined),
        {},
        version,
      );
      await expect(sink.open(never())).rejects.toBeInstanceOf(meaning);
      if (sink.probe !== undefined) await expect(sink.probe(never())).rejects.toBeInstanceOf(meaning);
    },
  );

  test("fails after the deadline when the broker never responds", async () => {
    const { sink } = await setUp(() => [], { connect_deadline: "200ms" });
    await expect(sink.open(never())).rejects.toBeInstanceOf(Retryable);
  });

  test("fails with a ConfigError when the status topic is forbidden, before any event is rejected", async () => {
    const { sink } = await setUp(forbidPublishing);
    await expect(sink.open(never())).rejects.toBeInstanceOf(ConfigError);
  });

  test.each([
    ["closes the connection", (socket: Socket) => void socket.destroy()],
    // CONNACK as MQTT 3.1.1 has it: two bytes, the second of which says "unacceptable protocol version".
    ["responds with a CONNACK of MQTT 3.1.1", (socket: Socket) => void socket.end(Buffer.from([0x20, 2, 0, 1]))],
    ["resets the connection", (socket: Socket) => void socket.resetAndDestroy()],
  ])("fails with advice to set protocol when a broker knows only MQTT 3.1.1 and %s", async (_, refuse) => {
    const refuseMqtt5: RespondToPacket = (packet, socket) => {
      if (packet.cmd !== "connect" || packet.protocolVersion !== 5) return undefined;
      refuse(socket);
      return [];
    };
    const { broker } = await setUp(refuseMqtt5, {}, 4);
    for (const attempt of ["open", "probe"] as const) {
      const sink = createTestSink(broker.url, { username: "ann", plain_text: true });
      const error = await sink[attempt]?.(never()).catch((cause: unknown) => cause);
      expect(error).toBeInstanceOf(ConfigError);
      expect(errorText(error)).toContain("knows MQTT 3.1.1 only, and was spoken to in MQTT 5");
      expect(errorText(error)).toContain('Set protocol: "3.1.1".');
    }
    const inOld = broker.came.filter((packet) => packet.cmd === "connect" && packet.protocolVersion === 4);
    expect(inOld.filter((packet) => "username" in packet && packet.username !== undefined)).toEqual([]);
  });

  test("reports no version problem when the broker closes the connection once, as during a restart", async () => {
    let connectCount = 0;
    const { sink } = await setUp((packet, socket) => {
      if (packet.cmd !== "connect" || connectCount++ > 0) return undefined;
      socket.destroy();
      return [];
    });
    await expect(sink.open(never())).rejects.toBeInstanceOf(Retryable);
    await sink.open(never());
    expect(await sink.write(batch, never())).toEqual({ rejected: [] });
  });

  test("rejects the opening of the sink when the signal aborts", async () => {
    const { sink } = await setUp(() => []);
    await expect(sink.open(AbortSignal.timeout(50))).rejects.toThrow();
  });
});

function gathering(): RespondToPacket {
  const heldReplies: Packet[] = [];
  let isUnconfirmed = false;
  let came = 0;
  return (packet) => {
    if (!isValue(packet) && packet.cmd !== "pingreq") return undefined;
    heldReplies.push(packet.cmd === "pingreq" ? { cmd: "pingresp" } : puback(packet));
    came += 1;
    const confirms = packet.cmd === "pingreq" || came === batch.length + 2;
    if (isUnconfirmed && !confirms) return [];
    isUnconfirmed = true;
    return heldReplies.splice(0);
  };
}

describe("a broker that delays acknowledgements until TCP confirms the previous acknowledgement", () => {
  test("sends its acknowledgements at once because the sink sends a ping in each batch", async () => {
    const { broker, sink } = await setUpOpen(gathering(), { publish_deadline: "10s" });
    expect(await sink.write(batch, never())).toEqual({ rejected: [] });
    expect(await sink.write(batch, never())).toEqual({ rejected: [] });
    expect(values(broker)).toHaveLength(2 * batch.length);
  });

  test("receives a limited number of pings when it responds only to pings", async () => {
    const { broker, sink } = await setUpOpen(
      (packet) => (isValue(packet) && packet !== values(broker)[0] ? [] : undefined),
      { publish_deadline: "300ms" },
    );
    expect((await sink.write(batch, never())).retry).toMatchObject({ from: 1 });
    expect(broker.came.filter(({ cmd }) => cmd === "pingreq")).toHaveLength(1);
  });
});

describe("the probe of the MQTT sink", () => {
  test("publishes one message that is not retained, and disconnects", async () => {
    const { broker, sink } = await setUp(() => undefined, { prefix: "house/plenum" });
    await sink.probe?.(never());
    const sentMessages = broker.came.filter(({ cmd }) => cmd === "publish");
    expect(sentMessages).toMatchObject([{ topic: "house/plenum/status/check", qos: 1, retain: false }]);
    await broker.until("disconnect");
  });

  test("fails at a broker that forbids publishing or acknowledges no message", async () => {
    const forbidding = await setUp(forbidPublishing);
    await expect(forbidding.sink.probe?.(never())).rejects.toMatchObject({ kind: "config", reason: "forbidden" });
    const ignorePublishing: RespondToPacket = ({ cmd }) => (cmd === "publish" ? [] : undefined);
    const silentBroker = await setUp(ignorePublishing, { publish_deadline: "200ms" });
    await expect(silentBroker.sink.probe?.(never())).rejects.toMatchObject({ kind: "retryable" });
  });
});
