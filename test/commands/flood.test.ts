import { describe, expect, test } from "vitest";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import { buildMessages } from "#connectors/mqtt/event-messages.ts";
import { createTopics } from "#connectors/mqtt/topics.ts";
import { makeEvent } from "#src/core/model/event.ts";
import { SITE } from "./command-harness.ts";
import { allowed, openHarness, TAG as tag } from "./test-harness.ts";

describe("a flood of commands", () => {
  test("causes one rejection per command at first, then results that count further rejections", async () => {
    const harness = await openHarness();
    const total = 5_000;
    for (let n = 0; n < total; n += 1) {
      await harness.send({ id: `${n}`, tag: "stranger", value: 1 });
      if (n % 100 === 0) await harness.clock.advance(1_000);
    }
    await harness.clock.advance(61_000);
    const results = await harness.results();
    const crowds = results.filter((result) => result.commandId.startsWith("many-"));
    const counted = crowds.map((result) => Number(/^\d+/.exec(result.message)?.[0]));
    expect(results.length - crowds.length + counted.reduce((a, b) => a + b, 0)).toBe(total);
    expect(results.length).toBeLessThan(60);
    expect(await harness.audit()).toHaveLength(results.length);
  });

  test("is not detected at a normal command rate, so each rejection is reported singly", async () => {
    const harness = await openHarness();
    const ids = Array.from({ length: 60 }, (_, n) => `${n}`);
    for (const id of ids) await harness.execute({ id, tag: "stranger", value: 1 }, {}, 7_000);
    expect((await harness.results()).map((result) => result.commandId)).toEqual(ids);
  });

  test("causes a result with the count of unreported rejections when the worker stops", async () => {
    const harness = await openHarness();
    for (let n = 0; n < 100; n += 1) await harness.send({ id: `${n}`, tag: "stranger", value: 1 });
    await harness.stop(1_000);
    expect((await harness.results()).at(-1)?.message).toMatch(/^70 more commands were refused/);
  });

  test("is rejected above 20 commands a minute for one tag while no command can be sent", async () => {
    const harness = await openHarness();
    await harness.pauseService(600);
    for (let n = 0; n < 300; n += 1) {
      await harness.send({ id: `${n}`, tag, value: 16 + (n % 8), ttl_s: 300 });
      await harness.clock.advance(200);
    }
    const reasons = (await harness.results()).map((result) => result.reason);
    expect(reasons.filter((reason) => reason === "superseded").length).toBeLessThanOrEqual(40);
    expect(reasons).toContain("flood");
    expect(harness.posts).toEqual([]);
  });
});

describe("a message loop", () => {
  test("is stopped because Plenum's own messages are rejected as commands", async () => {
    const harness = await openHarness();
    await harness.execute({ id: "real", tag, value: 22 });
    const value = makeEvent({
      type: "tag-value",
      source: "/sources/main",
      subject: `site/${SITE}/tag/${tag}`,
      time: "2026-11-20T12:00:00.000Z",
      siteId: SITE,
      facts: [tag],
      data: {
        tag: { id: tag, displayName: "T", description: null, unit: null },
        value: 21,
        quality: "good",
        time: "2026-11-20T12:00:00.000Z",
        latencyMs: 1,
        lastGood: null,
        behindGateway: null,
      },
    });
    const told = (await harness.store.outbox.latest(10)).map(({ event }) => event);
    const topics = createTopics("plenum", "{prefix}/{source}/{site}/{kind}/{id}/{aspect}");
    const published = [value, ...told].flatMap((event) =>
      buildMessages(event, topics, MqttConfig.parse({ url: "mqtts://broker.example" })),
    );
    expect(published.length).toBeGreaterThan(2);
    const before = (await harness.results()).length;
    for (const { payload, properties } of published) {
      await harness.send(payload, { tagId: tag, properties });
      await harness.send(payload, { tagId: tag });
    }
    const reasons = (await harness.results()).slice(before).map((result) => result.reason);
    expect(reasons).toEqual(Array(published.length * 2).fill("loop"));
    expect(harness.posts).toHaveLength(1);
  });

  test("of bare values causes one write, because the tag already has the value", async () => {
    const harness = await openHarness({ config: { allow: [allowed(tag, { plain: true })] } });
    await harness.send("22", { tagId: tag });
    for (let n = 0; n < 200; n += 1) {
      await harness.clock.advance(5_000);
      await harness.storeLiveValue(tag, 22);
      await harness.send("22", { tagId: tag });
    }
    expect(harness.posts).toHaveLength(1);
    expect(harness.requests("write")).toBe(1);
    expect(harness.source.quota().buckets[0]?.used).toBeLessThanOrEqual(1);
  });
});
