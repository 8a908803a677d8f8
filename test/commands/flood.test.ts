import { describe, expect, test } from "vitest";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import { buildMessages } from "#connectors/mqtt/event-messages.ts";
import { createTopics } from "#connectors/mqtt/topics.ts";
import { makeEvent } from "#src/core/model/event.ts";
import { SITE } from "./command-harness.ts";
import { allowed, TAG as tag, testRig } from "./test-harness.ts";

describe("a flood of commands", () => {
  test("causes one rejection per command at first, then results that count further rejections", async () => {
    const rig = await testRig();
    const total = 5_000;
    for (let n = 0; n < total; n += 1) {
      await rig.send({ id: `${n}`, tag: "stranger", value: 1 });
      if (n % 100 === 0) await rig.clock.advance(1_000);
    }
    await rig.clock.advance(61_000);
    const results = await rig.results();
    const crowds = results.filter((result) => result.commandId.startsWith("many-"));
    const counted = crowds.map((result) => Number(/^\d+/.exec(result.message)?.[0]));
    expect(results.length - crowds.length + counted.reduce((a, b) => a + b, 0)).toBe(total);
    expect(results.length).toBeLessThan(60);
    expect(await rig.audit()).toHaveLength(results.length);
  });

  test("is not detected at a normal command rate, so each rejection is reported singly", async () => {
    const rig = await testRig();
    const ids = Array.from({ length: 60 }, (_, n) => `${n}`);
    for (const id of ids) await rig.sendAndWait({ id, tag: "stranger", value: 1 }, {}, 7_000);
    expect((await rig.results()).map((result) => result.commandId)).toEqual(ids);
  });

  test("causes a result with the count of unreported rejections when the worker stops", async () => {
    const rig = await testRig();
    for (let n = 0; n < 100; n += 1) await rig.send({ id: `${n}`, tag: "stranger", value: 1 });
    await rig.stop(1_000);
    expect((await rig.results()).at(-1)?.message).toMatch(/^70 more commands were refused/);
  });

  test("is rejected above 20 commands a minute for one tag while no command can be sent", async () => {
    const rig = await testRig();
    await rig.pauseService(600);
    for (let n = 0; n < 300; n += 1) {
      await rig.send({ id: `${n}`, tag, value: 16 + (n % 8), ttl_s: 300 });
      await rig.clock.advance(200);
    }
    const reasons = (await rig.results()).map((result) => result.reason);
    expect(reasons.filter((reason) => reason === "superseded").length).toBeLessThanOrEqual(40);
    expect(reasons).toContain("flood");
    expect(rig.posts).toEqual([]);
  });
});

describe("a message loop", () => {
  test("is stopped because Plenum's own messages are rejected as commands", async () => {
    const rig = await testRig();
    await rig.sendAndWait({ id: "real", tag, value: 22 });
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
    const told = (await rig.store.outbox.latest(10)).map(({ event }) => event);
    const topics = createTopics("plenum", "{prefix}/{source}/{site}/{kind}/{id}/{aspect}");
    const published = [value, ...told].flatMap((event) =>
      buildMessages(event, topics, MqttConfig.parse({ url: "mqtts://broker.example" })),
    );
    expect(published.length).toBeGreaterThan(2);
    const before = (await rig.results()).length;
    for (const { payload, properties } of published) {
      await rig.send(payload, { tagId: tag, properties });
      await rig.send(payload, { tagId: tag });
    }
    const reasons = (await rig.results()).slice(before).map((result) => result.reason);
    expect(reasons).toEqual(Array(published.length * 2).fill("loop"));
    expect(rig.posts).toHaveLength(1);
  });

  test("of bare values causes one write, because the tag already has the value", async () => {
    const rig = await testRig({ config: { allow: [allowed(tag, { plain: true })] } });
    await rig.send("22", { tagId: tag });
    for (let n = 0; n < 200; n += 1) {
      await rig.clock.advance(5_000);
      await rig.storeLiveValue(tag, 22);
      await rig.send("22", { tagId: tag });
    }
    expect(rig.posts).toHaveLength(1);
    expect(rig.requests("write")).toBe(1);
    expect(rig.source.quota().buckets[0]?.used).toBeLessThanOrEqual(1);
  });
});
