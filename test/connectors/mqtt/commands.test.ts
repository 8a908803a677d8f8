import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { Socket } from "node:net";
import { describe, expect, onTestFinished, test } from "vitest";
import { createMqttCommands } from "#connectors/mqtt/commands.ts";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import type { CommandMessage } from "#src/core/connector.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { absent } from "../../real-servers.ts";
import { closeAfterTest } from "../../test-resources.ts";
import { contextFor, never } from "../context.ts";
import { observeInTest } from "./observer.ts";
import { type RespondToPacket, startScriptedBroker } from "./scripted-broker.ts";
import { startMosquittoInTest } from "./test-sink.ts";

type Protocol = "5" | "3.1.1";

type CommandRecorder = ReturnType<typeof createRecorder>;

function createRecorder(take: (arrival: CommandMessage) => Promise<void> = async () => {}) {
  const arrived: CommandMessage[] = [];
  return {
    arrived,
    async accept(arrival: CommandMessage) {
      arrived.push(arrival);
      await take(arrival);
    },
    async until(count: number) {
      await expect.poll(() => arrived.length, { interval: 10 }).toBeGreaterThanOrEqual(count);
    },
  };
}

async function listen(url: string, into: CommandRecorder, protocol: Protocol = "5"): Promise<void> {
  const client_id = `plenum-${randomUUID()}`;
  const config = MqttConfig.parse({ url, protocol, client_id, commands: { enabled: true } });
  const commands = closeAfterTest(createMqttCommands(config, contextFor("building")));
  await commands.open(into.accept, never());
}

const connectOperator = (url: string) => observeInTest(url, "plenum/status/#");

async function startListening(into = createRecorder(), protocol: Protocol = "5") {
  const { url } = await startMosquittoInTest();
  await listen(url, into, protocol);
  return { into, operator: await connectOperator(url) };
}

const payloadText = (arrival: CommandMessage | undefined) => Buffer.from(arrival?.payload ?? []).toString();

describe.skipIf(absent("mosquitto"))("MQTT commands with Mosquitto as the broker", () => {
  describe.each(["5", "3.1.1"] as const)("with MQTT %s", (protocol) => {
    test("commands arrive one at a time and in order, with tag and source", async () => {
      let busy = 0;
      let maxBusy = 0;
      const recorder = createRecorder(async () => {
        busy += 1;
        maxBusy = Math.max(maxBusy, busy);
        await systemClock.sleep(2);
        busy -= 1;
      });
      const { operator } = await startListening(recorder, protocol);
      const sends = Array.from({ length: 30 }, (_, n) => operator.publish(`plenum/cmd/main/1000${n}/set`, `${n}`));
      await Promise.all(sends);
      await operator.publish("plenum/cmd/main/set", "{}");
      await recorder.until(31);
      expect(recorder.arrived.map(payloadText)).toEqual([...Array.from({ length: 30 }, (_, n) => `${n}`), "{}"]);
      expect(maxBusy).toBe(1);
      expect(recorder.arrived[3]).toMatchObject({
        via: "building",
        topic: "plenum/cmd/main/10003/set",
        source: "main",
        tagId: "10003",
        retained: false,
        duplicate: false,
      });
      expect(recorder.arrived[30]).toMatchObject({ source: "main", tagId: null });
    });

    test("an empty message, which clears a retained one, is ignored", async () => {
      const { into, operator } = await startListening(createRecorder(), protocol);
      for (const payload of ["", "22"]) await operator.publish("plenum/cmd/main/1/set", payload);
      await into.until(1);
      expect(into.arrived.map(payloadText)).toEqual(["22"]);
    });

    test("the event loop runs between the commands of a burst", async () => {
      let tick = 0;
      let isOver = false;
      const count = () => {
        tick += 1;
        if (!isOver) setImmediate(count);
      };
      count();
      onTestFinished(() => {
        isOver = true;
      });
      const ticks: number[] = [];
      const recorder = createRecorder(async () => void ticks.push(tick));
      const { operator } = await startListening(recorder, protocol);
      await Promise.all(Array.from({ length: 200 }, (_, n) => operator.publish("plenum/cmd/main/1/set", `${n}`)));
      await recorder.until(200);
      expect(new Set(ticks).size).toBe(200);
    });

    test("a command that the broker retained is marked as retained", async () => {
      const server = await startMosquittoInTest();
      const operator = await connectOperator(server.url);
      await operator.publish("plenum/cmd/main/1/set", "21.5", { retain: true });
      const recorder = createRecorder();
      await listen(server.url, recorder, protocol);
      await operator.publish("plenum/cmd/main/2/set", "20");
      await recorder.until(protocol === "5" ? 1 : 2);
      const storedCommands = recorder.arrived.filter(({ tagId }) => tagId === "1");
      expect(storedCommands.map(({ retained }) => retained)).toEqual(protocol === "5" ? [] : [true]);
    });

    test("a command sent while the worker is offline is lost", async () => {
      const server = await startMosquittoInTest();
      const config = MqttConfig.parse({ url: server.url, protocol, commands: { enabled: true } });
      const operator = await connectOperator(server.url);
      const firstCommands = createMqttCommands(config, contextFor("building"));
      await firstCommands.open(createRecorder().accept, never());
      await firstCommands.close();
      await operator.publish("plenum/cmd/main/1/set", "old");
      const recorder = createRecorder();
      const secondCommands = closeAfterTest(createMqttCommands(config, contextFor("building")));
      await secondCommands.open(recorder.accept, never());
      await operator.publish("plenum/cmd/main/1/set", "new");
      await recorder.until(1);
      expect(recorder.arrived.map(payloadText)).toEqual(["new"]);
    });
  });

  test("a received command has the expiry, response topic, correlation data and user properties of MQTT 5", async () => {
    const { into, operator } = await startListening();
    const sentAtMs = Date.now();
    await operator.publish("plenum/cmd/main/a%2Fb/set", "21.5", {
      retain: true,
      properties: {
        messageExpiryInterval: 30,
        responseTopic: "answers/1",
        correlationData: Buffer.from([0, 255]),
        userProperties: { id: "cmd-7", twice: ["first", "second"] },
      },
    });
    await into.until(1);
    expect(into.arrived[0]).toMatchObject({
      tagId: "a/b",
      retained: true,
      expirySeconds: 30,
      replyTo: "answers/1",
      correlation: "AP8=",
      properties: { id: "cmd-7", twice: "first" },
    });
    expect(into.arrived[0]?.receivedAtMs).toBeGreaterThanOrEqual(sentAtMs);
    expect(into.arrived[0]?.receivedAtMs).toBeLessThanOrEqual(Date.now());
  });

  test("commands and approvals by a second person are distinguished by the topic alone", async () => {
    const { into, operator } = await startListening();
    await operator.publish("plenum/cmd/main/second", "a");
    await operator.publish("plenum/cmd/main/second/set", "b");
    await operator.publish("plenum/cmd/main/1/second", "c");
    await operator.publish("plenum/cmd/main/set", "d");
    await into.until(3);
    expect(into.arrived.map((each) => [payloadText(each), each.tagId, each.purpose])).toEqual([
      ["a", null, "second"],
      ["b", "second", undefined],
      ["d", null, undefined],
    ]);
  });

  test("command topics are not subscribed to unless commands.enabled is true", async () => {
    const server = await startMosquittoInTest();
    const commands = createMqttCommands(MqttConfig.parse({ url: server.url }), contextFor("building"));
    const recorder = createRecorder();
    await commands.open(recorder.accept, never());
    const operator = await connectOperator(server.url);
    await operator.publish("plenum/cmd/main/1/set", "1");
    await operator.publish("plenum/status/marker", "{}");
    await operator.until(({ topic }) => topic === "plenum/status/marker");
    expect(operator.heard.map(({ topic }) => topic)).toEqual(["plenum/status/marker"]);
    await commands.close();
    expect(recorder.arrived).toEqual([]);
  });

  test("a command above one mebibyte is not delivered, and the next command is", async () => {
    const { into, operator } = await startListening();
    await operator.publish("plenum/cmd/main/1/set", "x".repeat(2_000_000));
    await operator.publish("plenum/cmd/main/2/set", "x".repeat(100_000));
    await into.until(1);
    expect(into.arrived.map(({ tagId, payload }) => [tagId, payload.length])).toEqual([["2", 100_000]]);
  });
});

describe.each([4, 5] as const)("the acknowledgement of a command (MQTT protocol version %i)", (version) => {
  const command = (messageId: number, dup = false) =>
    ({ cmd: "publish", topic: "plenum/cmd/main/1/set", payload: "1", qos: 1, retain: false, dup, messageId }) as const;

  async function setUp(into: CommandRecorder) {
    const broker = closeAfterTest(await startScriptedBroker(version, () => undefined));
    await listen(broker.url, into, version === 5 ? "5" : "3.1.1");
    return broker;
  }

  test("is sent to the broker only after the worker has accepted the command", async () => {
    const { promise: journaled, resolve } = Promise.withResolvers<void>();
    const recorder = createRecorder(() => journaled);
    const broker = await setUp(recorder);
    broker.send(command(7));
    await recorder.until(1);
    broker.send({ cmd: "pingresp" });
    expect(broker.came.some(({ cmd }) => cmd === "puback")).toBe(false);
    resolve();
    expect(await broker.until("puback")).toMatchObject([{ messageId: 7 }]);
  });

  test("is not sent when the worker fails to accept the command; the connector connects again", async () => {
    let isDiskFull = true;
    const recorder = createRecorder(async () => {
      if (isDiskFull) throw new Error("disk full");
    });
    const broker = await setUp(recorder);
    broker.send(command(7));
    await broker.until("subscribe", 6);
    expect(broker.came.some(({ cmd }) => cmd === "puback")).toBe(false);
    isDiskFull = false;
    broker.send(command(7, true));
    await broker.until("puback");
    expect(recorder.arrived.map(({ duplicate }) => duplicate)).toEqual([false, true]);
  });
});

test("accepts no command after close, even when the broker does not acknowledge the offline status message", async () => {
  const sockets: Socket[] = [];
  const replyPacket: RespondToPacket = (packet, socket) => {
    if (packet.cmd === "connect") sockets.push(socket);
    return packet.cmd === "publish" && String(packet.payload).includes("offline") ? [] : undefined;
  };
  const broker = closeAfterTest(await startScriptedBroker(5, replyPacket));
  const config = MqttConfig.parse({ url: broker.url, client_id: "plenum", commands: { enabled: true } });
  const commands = createMqttCommands(config, contextFor("building"));
  const recorder = createRecorder();
  await commands.open(recorder.accept, never());
  const [socket] = sockets;
  if (socket === undefined) throw new Error("nobody has connected");
  const connectionClosed = once(socket, "close").then(() => "left");
  await commands.close();
  const topic = "plenum/cmd/main/t";
  broker.send({ cmd: "publish", topic, payload: "1", qos: 1, messageId: 9, dup: false, retain: false });
  const commandTaken = broker.until("puback").then(() => "taken");
  expect(await Promise.race([connectionClosed, commandTaken])).toBe("left");
  expect(recorder.arrived).toEqual([]);
});

test("a broker that is unreachable at the start delivers commands once it is available", async () => {
  const firstBroker = await startScriptedBroker(5, () => undefined);
  await firstBroker.close();
  const recorder = createRecorder();
  await listen(firstBroker.url, recorder);
  const port = Number(new URL(firstBroker.url).port);
  const laterBroker = closeAfterTest(await startScriptedBroker(5, () => undefined, port));
  await laterBroker.until("subscribe", 3);
});
