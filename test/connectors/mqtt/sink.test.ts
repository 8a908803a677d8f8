import { randomUUID } from "node:crypto";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import type { z } from "zod";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import { createMqttSink } from "#connectors/mqtt/sink.ts";
import type { Sink } from "#src/core/connector.ts";
import { makeEvent, sourceUri } from "#src/core/model/event.ts";
import { type Clock, systemClock } from "#src/core/runtime/clock.ts";
import { seededRandom } from "../../commands/seeded-random.ts";
import { absent, type RealServer, startMosquitto } from "../../real-servers.ts";
import { SITE, sampleEvent, TAG, valueEvent } from "../../sample-events.ts";
import { seed } from "../../seed.ts";
import { describeSink } from "../../suites/sink-suite.ts";
import { contextFor, never, offerWith } from "../context.ts";
import { startCuttingProxy } from "./cutting-proxy.ts";
import { hostileTexts } from "./hostile-texts.ts";
import { observe, observeInTest } from "./observer.ts";

type Settings = Partial<z.input<typeof MqttConfig>>;

function sinkFor(url: string, settings: Settings = {}, name = "broker"): Sink {
  const config = MqttConfig.parse({ url, client_id: `plenum-${randomUUID()}`, ...settings });
  return createMqttSink(config, contextFor(name));
}

async function broker(): Promise<RealServer> {
  const server = await startMosquitto();
  onTestFinished(() => server.stop());
  return server;
}

async function openSink(url: string, settings: Settings = {}): Promise<Sink> {
  const sink = sinkFor(url, settings);
  onTestFinished(() => sink.close());
  await sink.open(never());
  return sink;
}

const missing = absent("mosquitto");

describe.skipIf(missing)("the MQTT sink with Mosquitto as the broker", () => {
  describe.each(["5", "3.1.1"] as const)("with MQTT %s", (protocol) => {
    describeSink(`mqtt ${protocol}`, {
      without: ["stall"],
      async make() {
        let server = await startMosquitto();
        const { port } = server;
        let observer = await observe(server.url, "plenum/+/+/#");
        const earlier: { identity: string; event?: unknown }[] = [];
        const heard = () =>
          observer.heard
            .filter(({ topic }) => topic.includes("/event/") || /\/(value|history|total)(\/|$)/.test(topic))
            .filter(({ text }) => text !== "")
            .map(({ topic, json }) => ({
              identity: String(json.id),
              ...(topic.includes("/event/") ? { event: json } : {}),
            }));
        return {
          sink: sinkFor(server.url, { protocol }),
          received: async () => [...earlier, ...heard()],
          async breakServer() {
            await server.kill();
          },
          async heal() {
            earlier.push(...heard());
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
      const server = await broker();
      const sink = await openSink(server.url, { protocol });
      const batch = [valueEvent(1), valueEvent(2), sampleEvent("alarm-raised"), sampleEvent("gateway-offline")];
      await sink.write(batch, never());
      const late = await observeInTest(server.url, "plenum/#");
      const value = await late.until(({ topic }) => topic === "plenum/main/1/tag/10042/value");
      expect(value.retained).toBe(true);
      const { id } = valueEvent(2);
      expect(value.json).toMatchObject({ value: 2, unit: "°C", quality: "good", name: "VS1-GT11", id });
      const alarm = await late.until(({ topic }) => topic === "plenum/main/1/alarm/500001/state");
      expect(alarm.json).toMatchObject({ status: "active", priority: "A", event: "alarm-raised", inScope: true });
      const gateway = await late.until(({ topic }) => topic === "plenum/main/1/gateway/7/state");
      expect(gateway.json).toMatchObject({ online: false });
      await late.until(({ topic }) => topic === "plenum/main/1/gateway/7/inventory");
      expect(
        late.heard.some(({ topic }) => topic.includes("/event/")),
        "events are not kept",
      ).toBe(false);
    });

    test("publishes online at open, offline at close, and offline by its will after a crash", async () => {
      const server = await broker();
      const observer = await observeInTest(server.url, "plenum/status");
      const first = sinkFor(server.url, { protocol });
      await first.open(never());
      await observer.until(({ json }) => json.status === "online");
      await first.close();
      expect((await observer.until(({ json }) => json.status === "offline")).json.reason).toBe("stopped");
      const later = await observeInTest(server.url, "plenum/status");
      expect((await later.until(() => true)).retained).toBe(true);

      const clientId = `plenum-${randomUUID()}`;
      const second = await openSink(server.url, { protocol, client_id: clientId });
      await observeInTest(server.url, "nothing", { clientId });
      expect((await observer.until(({ json }) => json.reason === "connection lost")).json.status).toBe("offline");
      await expect(second.write([valueEvent(1)], never())).rejects.toThrow("no connection");
    });

    test("publishes 500 ids with special characters on 500 different topics", async () => {
      const server = await broker();
      const observer = await observeInTest(server.url, "#");
      const sink = await openSink(server.url, { protocol, max_message_bytes: 2_000_000 });
      const ids = [...new Set(hostileTexts())];
      const events = ids.map((id, n) =>
        makeEvent({
          type: "tag-value",
          source: sourceUri(n % 2 === 0 ? "main" : id),
          subject: `site/${id}/tag/${id}`,
          time: "2026-11-02T06:20:00.000Z",
          siteId: n % 3 === 0 ? id : SITE.id,
          data: { ...valueEvent(n).data, tag: { ...TAG, id } },
          facts: [n],
        }),
      );
      for (let from = 0; from < events.length; from += 100)
        expect(await sink.write(events.slice(from, from + 100), never())).toEqual({ rejected: [] });
      await sink.write([valueEvent(1)], never());
      await observer.until(({ json }) => json.id === valueEvent(1).id);
      const values = observer.heard.filter(({ topic }) => topic.endsWith("/value"));
      expect(values).toHaveLength(events.length + 1);
      expect(new Set(values.map(({ topic }) => topic)).size).toBe(events.length + 1);
      for (const { topic } of values) expect(topic).toMatch(/^plenum\/[^/]+\/[^/]+\/tag\/[^/]+\/value$/);
      expect(observer.heard.map(({ json }) => json.tag).filter((id) => id !== undefined)).toHaveLength(values.length);
    });
  });

  test("sets content type, user properties and the expiry of resolved alarms in MQTT 5", async () => {
    const server = await broker();
    const observer = await observeInTest(server.url, "plenum/main/#");
    const sink = await openSink(server.url);
    const resolved = sampleEvent("alarm-resolved");
    await sink.write([resolved], never());
    const event = await observer.until(({ topic }) => topic.endsWith("/event/alarm-resolved"));
    expect(event.packet.properties?.contentType).toBe("application/cloudevents+json");
    expect({ ...event.packet.properties?.userProperties }).toEqual({
      "plenum-event-id": resolved.id,
      "plenum-event-type": "alarm-resolved",
    });
    const state = await observer.until(({ topic }) => topic.endsWith("/alarm/500001/state"));
    expect(state.json).toMatchObject({ status: "resolved", id: resolved.id });
    expect(state.packet.properties?.messageExpiryInterval).toBe(604_800);
  });

  test("adds the sequence number of the event to each message", async () => {
    const server = await broker();
    const observer = await observeInTest(server.url, "plenum/main/#");
    const sink = await openSink(server.url);
    const sequences = [null, { epoch: "0123456789abcdef", number: 4_711 }];
    await sink.write([valueEvent(1), sampleEvent("alarm-resolved")], never(), undefined, offerWith(sequences));
    const attributes = { sequence: "0000000000004711", sequenceepoch: "0123456789abcdef" };
    const event = await observer.until(({ topic }) => topic.endsWith("/event/alarm-resolved"));
    expect(event.packet.properties?.userProperties).toMatchObject(attributes);
    expect(event.json).toMatchObject(attributes);
    const state = await observer.until(({ topic }) => topic.endsWith("/alarm/500001/state"));
    expect(state.packet.properties?.userProperties).toMatchObject(attributes);
    const value = await observer.until(({ topic }) => topic.endsWith("/value"));
    expect(value.packet.properties?.userProperties).not.toHaveProperty("sequence");
  });

  test("clears the retained topics of removed objects", async () => {
    const server = await broker();
    const sink = await openSink(server.url);
    await sink.write([sampleEvent("tag-added"), valueEvent(1), sampleEvent("alarm-raised")], never());
    await sink.write([sampleEvent("tag-removed"), sampleEvent("alarm-vanished")], never());
    await sink.write([valueEvent(9, "10099")], never());
    const late = await observeInTest(server.url, "plenum/main/#");
    await late.until(({ topic }) => topic === "plenum/main/1/tag/10099/value");
    expect(late.heard.map(({ topic }) => topic)).toEqual(["plenum/main/1/tag/10099/value"]);
  });

  test("publishes a command result on its own topic and the response topic, and the acceptance on `accepted` topics", async () => {
    const server = await broker();
    const observer = await observeInTest(server.url, ["plenum/main/1/tag/#", "answers/#", "plenum/cmd/#"]);
    const sink = await openSink(server.url);
    const correlation = Buffer.from([0, 255, 7]).toString("base64");
    const answer = <K extends "command-accepted" | "command-result">(kind: K, replyTo: string) => {
      const sample = sampleEvent(kind, { siteid: "1" }, replyTo);
      return { ...sample, data: { ...sample.data, replyTo, correlation } };
    };
    await sink.write(
      [
        answer("command-accepted", "plenum/cmd/main/10042/set"),
        answer("command-accepted", "answers/42"),
        answer("command-result", "plenum/cmd/main/10042/set"),
        answer("command-result", "answers/42"),
      ],
      never(),
    );
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

  test("reconnects and publishes online without an event to send", async () => {
    const server = await broker();
    await openSink(server.url);
    await server.kill();
    const again = await startMosquitto({ port: server.port });
    onTestFinished(() => again.stop());
    const observer = await observeInTest(again.url, "plenum/status");
    await observer.until(({ json }) => json.status === "online");
  });

  test("publishes online again after a late will message of an earlier connection", async () => {
    const server = await broker();
    const observer = await observeInTest(server.url, "plenum/status");
    const minute = 60_000;
    const fast: Clock = { ...systemClock, sleep: (ms, signal) => systemClock.sleep(ms === minute ? 50 : ms, signal) };
    const sink = createMqttSink(MqttConfig.parse({ url: server.url }), contextFor("broker", fast));
    onTestFinished(() => sink.close());
    await sink.open(never());
    await observer.until(({ json }) => json.status === "online");
    await observer.publish("plenum/status", '{"status":"offline","reason":"connection lost"}', { retain: true });
    await observer.until(({ json }) => json.status === "offline");
    await expect.poll(() => observer.heard.at(-1)?.json.status).toBe("online");
  });

  test("rejects a message that is too large and delivers the next", async () => {
    const server = await broker();
    const sink = await openSink(server.url, { max_message_bytes: 2_000 });
    const sample = sampleEvent("tag-history");
    const points = Array.from({ length: 100 }, (_, n) => ({ time: `2026-11-02T04:00:00.${n}Z`, value: n }));
    const large = { ...sample, data: { ...sample.data, points } };
    const receipt = await sink.write([valueEvent(1), large, valueEvent(2)], never());
    expect(receipt.retry).toBeUndefined();
    expect(receipt.rejected).toEqual([{ index: 1, reason: expect.stringContaining("max_message_bytes") }]);
  });

  test("loses no event when connections are cut, and repeats at most the messages in flight", async () => {
    const server = await broker();
    const random = seededRandom(seed);
    const cutsLeft = { count: 12 };
    const proxy = await startCuttingProxy(server.port, () => {
      cutsLeft.count -= 1;
      return cutsLeft.count < 0 ? null : 1_000 + random.below(60_000);
    });
    onTestFinished(() => proxy.close());
    const observer = await observeInTest(server.url, "plenum/main/#");
    const sink = sinkFor(`mqtt://127.0.0.1:${proxy.port}`);
    onTestFinished(() => sink.close());
    await reopened(sink);
    const events = Array.from({ length: 1_500 }, (_, n) => valueEvent(n, String(n % 50)));
    let next = 0;
    while (next < events.length) {
      const batch = events.slice(next, next + 100);
      const receipt = await sink.write(batch, never()).catch((error: unknown) => ({ retry: { from: 0, error } }));
      next += receipt.retry?.from ?? batch.length;
      if (receipt.retry !== undefined) await reopened(sink);
    }
    await observer.until(({ json }) => json.id === events.at(-1)?.id);
    const heard = observer.heard.map(({ json }) => String(json.id));
    const firsts = [...new Set(heard)];
    expect(proxy.cuts, `seed ${seed}`).toBeGreaterThan(3);
    expect(new Set(firsts), `seed ${seed}`).toEqual(new Set(events.map(({ id }) => id)));
    expect(heard.length - firsts.length, `seed ${seed}`).toBeLessThanOrEqual(100 * proxy.cuts);
    for (let tag = 0; tag < 50; tag++) {
      const sent = events.filter((_, n) => n % 50 === tag).map(({ id }) => id);
      const position = sent.map((id) => firsts.indexOf(id));
      expect(position, `order of tag ${tag}, seed ${seed}`).toEqual(position.toSorted((a, b) => a - b));
    }
  });
});

async function reopened(sink: Sink): Promise<void> {
  await vi.waitFor(() => sink.open(never()), { timeout: 15_000 });
}
