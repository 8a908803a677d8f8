import { randomUUID } from "node:crypto";
import { describe, expect, test } from "vitest";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import { createMqttSink } from "#connectors/mqtt/sink.ts";
import type { Sink } from "#src/core/connector.ts";
import { type Clock, systemClock } from "#src/core/runtime/clock.ts";
import { seededRandom } from "../../commands/seeded-random.ts";
import { absent, startMosquitto } from "../../real-servers.ts";
import { sampleEvent, valueEvent } from "../../sample-events.ts";
import { seed } from "../../seed.ts";
import { describeSink } from "../../suites/sink-suite.ts";
import { closeAfterTest } from "../../test-resources.ts";
import { contextFor, never, offerWith } from "../context.ts";
import { startCuttingProxy } from "./cutting-proxy.ts";
import { observe, observeInTest } from "./observer.ts";
import { createTestSink, type Settings, startMosquittoInTest } from "./test-sink.ts";

function createSink(url: string, settings: Settings = {}): Sink {
  const config = MqttConfig.parse({ url, client_id: `plenum-${randomUUID()}`, ...settings });
  return createMqttSink(config, contextFor("broker"));
}

async function openSink(url: string, settings: Settings = {}): Promise<Sink> {
  const sink = closeAfterTest(createSink(url, settings));
  await sink.open(never());
  return sink;
}

async function setUp(filters: string | string[]) {
  const server = await startMosquittoInTest();
  return { server, observer: await observeInTest(server.url, filters), sink: await openSink(server.url) };
}

describe.skipIf(absent("mosquitto"))("the MQTT sink with Mosquitto as the broker", () => {
  describe.each(["5", "3.1.1"] as const)("with MQTT %s", (protocol) => {
    describeSink(`mqtt ${protocol}`, {
      without: ["stall"],
      async make() {
        let server = await startMosquitto();
        const { port } = server;
        let observer = await observe(server.url, "plenum/+/+/#");
        const earlierEvents: { identity: string; event?: unknown }[] = [];
        const listHeard = () =>
          observer.heard
            .filter(({ topic }) => topic.includes("/event/") || /\/(value|history|total)(\/|$)/.test(topic))
            .filter(({ text }) => text !== "")
            .map(({ topic, json }) => ({
              identity: String(json.id),
              ...(topic.includes("/event/") ? { event: json } : {}),
            }));
        return {
          sink: createSink(server.url, { protocol }),
          received: async () => [...earlierEvents, ...listHeard()],
          async breakServer() {
            await server.kill();
          },
          async repairServer() {
            earlierEvents.push(...listHeard());
            server = await startMosquitto({ port });
            observer = await observe(server.url, "plenum/+/+/#");
          },
          async dispose() {
            await observer.leave();
            await server.stop();
          },
        };
      },
    });

    test("retains the last value, the alarm state and the inventory for later subscribers", async () => {
      const server = await startMosquittoInTest();
      const sink = await openSink(server.url, { protocol });
      const batch = [valueEvent(1), valueEvent(2), sampleEvent("alarm-raised"), sampleEvent("gateway-offline")];
      await sink.write(batch, never());
      const lateObserver = await observeInTest(server.url, "plenum/#");
      const value = await lateObserver.until(({ topic }) => topic === "plenum/main/1/tag/10042/value");
      expect(value.retained).toBe(true);
      const { id } = valueEvent(2);
      expect(value.json).toMatchObject({ value: 2, unit: "°C", quality: "good", name: "VS1-GT11", id });
      const alarm = await lateObserver.until(({ topic }) => topic === "plenum/main/1/alarm/500001/state");
      expect(alarm.json).toMatchObject({ status: "active", priority: "A", event: "alarm-raised", inScope: true });
      const gateway = await lateObserver.until(({ topic }) => topic === "plenum/main/1/gateway/7/state");
      expect(gateway.json).toMatchObject({ online: false });
      await lateObserver.until(({ topic }) => topic === "plenum/main/1/gateway/7/inventory");
      expect(
        lateObserver.heard.some(({ topic }) => topic.includes("/event/")),
        "events are not kept",
      ).toBe(false);
    });

    test("publishes online at open, offline at close, and offline by its will after a crash", async () => {
      const server = await startMosquittoInTest();
      const observer = await observeInTest(server.url, "plenum/status");
      const firstSink = createSink(server.url, { protocol });
      await firstSink.open(never());
      await observer.until(({ json }) => json.status === "online");
      await firstSink.close();
      expect((await observer.until(({ json }) => json.status === "offline")).json.reason).toBe("stopped");
      const laterObserver = await observeInTest(server.url, "plenum/status");
      expect((await laterObserver.until(() => true)).retained).toBe(true);
      const clientId = `plenum-${randomUUID()}`;
      const secondSink = await openSink(server.url, { protocol, client_id: clientId });
      await observeInTest(server.url, "nothing", { clientId });
      expect((await observer.until(({ json }) => json.reason === "connection lost")).json.status).toBe("offline");
      await expect(secondSink.write([valueEvent(1)], never())).rejects.toThrow("no connection");
    });
  });

  test("sets content type, user properties and the expiry of resolved alarms in MQTT 5", async () => {
    const { observer, sink } = await setUp("plenum/main/#");
    const alarmResolved = sampleEvent("alarm-resolved");
    await sink.write([alarmResolved], never());
    const event = await observer.until(({ topic }) => topic.endsWith("/event/alarm-resolved"));
    expect(event.packet.properties?.contentType).toBe("application/cloudevents+json");
    expect({ ...event.packet.properties?.userProperties }).toEqual({
      "plenum-event-id": alarmResolved.id,
      "plenum-event-type": "alarm-resolved",
    });
    const stateMessage = await observer.until(({ topic }) => topic.endsWith("/alarm/500001/state"));
    expect(stateMessage.json).toMatchObject({ status: "resolved", id: alarmResolved.id });
    expect(stateMessage.packet.properties?.messageExpiryInterval).toBe(604_800);
  });

  test("adds the sequence number of the event to each message", async () => {
    const { observer, sink } = await setUp("plenum/main/#");
    const sequences = [null, { epoch: "0123456789abcdef", number: 4_711 }];
    await sink.write([valueEvent(1), sampleEvent("alarm-resolved")], never(), undefined, offerWith(sequences));
    const sequenceFields = { sequence: "0000000000004711", sequenceepoch: "0123456789abcdef" };
    const event = await observer.until(({ topic }) => topic.endsWith("/event/alarm-resolved"));
    expect(event.packet.properties?.userProperties).toMatchObject(sequenceFields);
    expect(event.json).toMatchObject(sequenceFields);
    const stateMessage = await observer.until(({ topic }) => topic.endsWith("/alarm/500001/state"));
    expect(stateMessage.packet.properties?.userProperties).toMatchObject(sequenceFields);
    const value = await observer.until(({ topic }) => topic.endsWith("/value"));
    expect(value.packet.properties?.userProperties).not.toHaveProperty("sequence");
  });

  test("deletes the retained messages of removed tags and vanished alarms", async () => {
    const server = await startMosquittoInTest();
    const sink = await openSink(server.url);
    await sink.write([sampleEvent("tag-added"), valueEvent(1), sampleEvent("alarm-raised")], never());
    await sink.write([sampleEvent("tag-removed"), sampleEvent("alarm-vanished")], never());
    await sink.write([valueEvent(9, "10099")], never());
    const lateObserver = await observeInTest(server.url, "plenum/main/#");
    await lateObserver.until(({ topic }) => topic === "plenum/main/1/tag/10099/value");
    expect(lateObserver.heard.map(({ topic }) => topic)).toEqual(["plenum/main/1/tag/10099/value"]);
  });

  test("publishes a command's acceptance and its result on topics of the tag and on the response topic", async () => {
    const { observer, sink } = await setUp(["plenum/main/1/tag/#", "answers/#", "plenum/cmd/#"]);
    const correlation = Buffer.from([0, 255, 7]).toString("base64");
    const buildReply = <K extends "command-accepted" | "command-result">(kind: K, replyTo: string) => {
      const sample = sampleEvent(kind, { siteid: "1" }, replyTo);
      return { ...sample, data: { ...sample.data, replyTo, correlation } };
    };
    const batch = (["command-accepted", "command-result"] as const).flatMap((kind) =>
      ["plenum/cmd/main/10042/set", "answers/42"].map((replyTo) => buildReply(kind, replyTo)),
    );
    await sink.write(batch, never());
    const result = await observer.until(({ topic }) => topic === "answers/42");
    expect(result.packet.properties?.correlationData).toEqual(Buffer.from([0, 255, 7]));
    expect(result.json).toMatchObject({ commandId: "cmd-1", outcome: "confirmed", readBack: 21.5 });
    expect(observer.heard.map(({ topic }) => topic)).toEqual([
      "plenum/main/1/tag/10042/accepted",
      "plenum/main/1/tag/10042/accepted",
      "answers/42/accepted",
      "plenum/main/1/tag/10042/result",
      "plenum/main/1/tag/10042/result",
      "answers/42",
    ]);
    const interim = observer.heard[2];
    expect(interim?.packet.properties?.correlationData).toEqual(Buffer.from([0, 255, 7]));
    expect(interim?.json).toMatchObject({ commandId: "cmd-1", requested: 21.5, waitMs: 200 });
    expect(interim?.json).not.toHaveProperty("replyTo");
  });

  test("reconnects after the broker was restarted and publishes online, even without an event to send", async () => {
    const server = await startMosquittoInTest();
    await openSink(server.url);
    await server.kill();
    const secondBroker = await startMosquittoInTest({ port: server.port });
    const observer = await observeInTest(secondBroker.url, "plenum/status");
    await observer.until(({ json }) => json.status === "online");
  });

  test("publishes online again after a late will message of an earlier connection", async () => {
    const server = await startMosquittoInTest();
    const observer = await observeInTest(server.url, "plenum/status");
    const minute = 60_000;
    const sleep: Clock["sleep"] = (ms, signal) => systemClock.sleep(ms === minute ? 50 : ms, signal);
    const sink = createTestSink(server.url, {}, contextFor("broker", { ...systemClock, sleep }));
    await sink.open(never());
    await observer.until(({ json }) => json.status === "online");
    await observer.publish("plenum/status", '{"status":"offline","reason":"connection lost"}', { retain: true });
    await observer.until(({ json }) => json.status === "offline");
    await expect.poll(() => observer.heard.at(-1)?.json.status).toBe("online");
  });

  test("rejects a message that is too large and delivers the next", async () => {
    const server = await startMosquittoInTest();
    const sink = await openSink(server.url, { max_message_bytes: 2_000 });
    const sample = sampleEvent("tag-history");
    const points = Array.from({ length: 100 }, (_, n) => ({ time: `2026-11-02T04:00:00.${n}Z`, value: n }));
    const largeEvent = { ...sample, data: { ...sample.data, points } };
    const receipt = await sink.write([valueEvent(1), largeEvent, valueEvent(2)], never());
    expect(receipt.retry).toBeUndefined();
    expect(receipt.rejected).toEqual([{ index: 1, reason: expect.stringContaining("max_message_bytes") }]);
  });

  test("loses no event when connections are cut, and repeats at most the messages in flight", async () => {
    const server = await startMosquittoInTest();
    const random = seededRandom(seed);
    const cutsLeft = { count: 12 };
    const nextCut = () => {
      cutsLeft.count -= 1;
      return cutsLeft.count < 0 ? null : 1_000 + random.below(60_000);
    };
    const proxy = closeAfterTest(await startCuttingProxy(server.port, nextCut));
    const observer = await observeInTest(server.url, "plenum/main/#");
    const sink = closeAfterTest(createSink(`mqtt://127.0.0.1:${proxy.port}`));
    await reopenSink(sink);
    const events = Array.from({ length: 1_500 }, (_, n) => valueEvent(n, String(n % 50)));
    let nextIndex = 0;
    while (nextIndex < events.length) {
      const batch = events.slice(nextIndex, nextIndex + 100);
      const receipt = await sink.write(batch, never()).catch((error: unknown) => ({ retry: { from: 0, error } }));
      nextIndex += receipt.retry?.from ?? batch.length;
      if (receipt.retry !== undefined) await reopenSink(sink);
    }
    await observer.until(({ json }) => json.id === events.at(-1)?.id);
    const heardIds = observer.heard.map(({ json }) => String(json.id));
    const firsts = [...new Set(heardIds)];
    expect(proxy.cuts, `seed ${seed}`).toBeGreaterThan(3);
    expect(new Set(firsts), `seed ${seed}`).toEqual(new Set(events.map(({ id }) => id)));
    expect(heardIds.length - firsts.length, `seed ${seed}`).toBeLessThanOrEqual(100 * proxy.cuts);
    for (let tag = 0; tag < 50; tag++) {
      const sentIds = events.filter((_, n) => n % 50 === tag).map(({ id }) => id);
      const position = sentIds.map((id) => firsts.indexOf(id));
      expect(position, `order of tag ${tag}, seed ${seed}`).toEqual(position.toSorted((a, b) => a - b));
    }
  });
});

async function reopenSink(sink: Sink): Promise<void> {
  await expect.poll(() => sink.open(never())).toBeUndefined();
}
