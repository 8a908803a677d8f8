import { randomUUID } from "node:crypto";
import { describe, expect, onTestFinished, test } from "vitest";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import { mqtt } from "#connectors/mqtt/definition.ts";
import { createMqttSink } from "#connectors/mqtt/sink.ts";
import type { Sink } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { buildSinkStateChanges } from "#src/engine/delivery/batches.ts";
import { seededRandom } from "../../commands/seeded-random.ts";
import { absent } from "../../real-servers.ts";
import { sampleEvent } from "../../sample-events.ts";
import { replay, seed } from "../../seed.ts";
import { closeAfterTest } from "../../test-resources.ts";
import { contextFor, never } from "../context.ts";
import { createNamedBuilding } from "./named-building.ts";
import { observeInTest } from "./observer.ts";
import { type RespondToPacket, startScriptedBroker } from "./scripted-broker.ts";
import { type Settings, startMosquittoInTest } from "./test-sink.ts";

/** Sinks over one state, as a worker that restarts. */
function createWorker(url: string, building: ReturnType<typeof createNamedBuilding>) {
  let sink: Sink | null = null;
  async function start(settings: Settings = {}): Promise<void> {
    await sink?.close();
    const config = MqttConfig.parse({ url, client_id: `plenum-${randomUUID()}`, ...settings });
    sink = createMqttSink(config, contextFor("broker", systemClock, building.store));
    await sink.open(never());
  }
  onTestFinished(() => sink?.close());
  return {
    start,
    async write(...batch: readonly Event[]): Promise<void> {
      const receipt = await sink?.write(batch, never());
      expect(receipt).toMatchObject({ rejected: [] });
      expect(receipt?.retry).toBeUndefined();
      await building.store.commit({ documents: buildSinkStateChanges("broker", receipt?.stateChanges) });
    },
    /** A crash after the broker has acknowledged the batch and before the worker has settled it. */
    async writeAndCrash(...batch: readonly Event[]): Promise<void> {
      await sink?.write(batch, never());
    },
  };
}

async function setUp(settings: Settings = {}) {
  const retained = new Map<string, string>();
  const recordRetained: RespondToPacket = (packet) => {
    if (packet.cmd === "publish" && packet.retain) {
      if (packet.payload.length === 0) retained.delete(packet.topic);
      else retained.set(packet.topic, packet.payload.toString());
    }
    return undefined;
  };
  const broker = closeAfterTest(await startScriptedBroker(5, recordRetained));
  const building = createNamedBuilding();
  const worker = createWorker(broker.url, building);
  await worker.start(settings);
  const listValueTopics = () =>
    [...retained.keys()].filter((topic) => topic.endsWith("/value")).map((topic) => topic.replace("/value", ""));
  return { building, worker, listValueTopics, retained };
}

const listOf = (retained: ReadonlyMap<string, string>, start: string) =>
  [...retained.keys()].filter((topic) => topic.startsWith(start)).toSorted();

const NAMED_LAYOUT = "{prefix}/{site_name}/{tag_name}/{aspect}";

describe("topics from names", () => {
  test("contain the names of site, system and gateway", async () => {
    const topic = "{prefix}/{source}/{site_name}/{system}/{gateway}/{tag_name}/{tag}/{aspect}";
    const { building, worker, listValueTopics } = await setUp({ topic });
    await worker.write(await building.setSite(1, "Kvarnholmen 4"), await building.setGateway(1, "Källare"));
    await worker.write(await building.setTag("1", { displayName: "VS1/GT11" }));
    await worker.write(await building.setSystem("1", "360.001"), await building.readTag("1", 20));
    expect(listValueTopics()).toEqual(["plenum/main/Kvarnholmen_4/360.001/Källare/VS1_GT11/1"]);
  });

  test("contain _ as the gateway while the site has several gateways", async () => {
    const { building, worker, listValueTopics } = await setUp({ topic: "{prefix}/{gateway}/{tag}/{aspect}" });
    await worker.write(await building.setTag("1", { displayName: "VS1" }), await building.readTag("1", 20));
    expect(listValueTopics()).toEqual(["plenum/_/1"]);
    await worker.write(await building.setGateway(1, "Cellar"));
    expect(listValueTopics()).toEqual(["plenum/Cellar/1"]);
    await worker.write(await building.setGateway(1, "Roof", "8"));
    expect(listValueTopics()).toEqual(["plenum/_/1"]);
  });

  test("follow a renamed site at once, with the last value of each tag", async () => {
    const { building, worker, retained } = await setUp({ topic: NAMED_LAYOUT });
    await worker.write(await building.setSite(1, "Old"), await building.setTag("1", { displayName: "VS1" }));
    await worker.write(await building.readTag("1", 20));
    expect([...retained.keys()].filter((topic) => topic.startsWith("plenum/Old/"))).toHaveLength(2);
    await worker.write(await building.setSite(1, "New"));
    expect([...retained.keys()].filter((topic) => topic.startsWith("plenum/Old/"))).toEqual([]);
    expect(retained.get("plenum/New/VS1/value")).toContain('"value":20.0,');
    expect(retained.has("plenum/New/VS1/inventory")).toBe(true);
  });

  test.each([
    ["the same name", "VS1", "VS1"],
    ["names that differ in upper case only", "VS1", "vs1"],
    ["names that are equal after cleaning", "VS/1", "VS+1"],
    ["names of only spaces", " ", "  "],
    ["names with the same first 128 characters", `${"x".repeat(300)}a`, `${"x".repeat(300)}b`],
  ])("end with the tag id while two tags of a site have %s, until one tag is renamed", async (_, first, second) => {
    const { building, worker, listValueTopics } = await setUp({ topic: NAMED_LAYOUT });
    const names = [first, second];
    for (const [n, displayName] of names.entries())
      await worker.write(await building.setTag(`${n}`, { displayName }), await building.readTag(`${n}`, 20));
    expect(listValueTopics().map((topic) => topic.slice(-2))).toEqual(["-0", "-1"]);
    await worker.write(await building.setTag("1", { displayName: "other" }));
    expect(listValueTopics().filter((topic) => /-\d$/.test(topic))).toEqual([]);
    expect(listValueTopics()).toHaveLength(2);
  });

  test("are found by locateEvent after the first message", async () => {
    const { building, worker } = await setUp({ topic: NAMED_LAYOUT });
    await worker.write(await building.setTag("1", { displayName: "VS1" }));
    await worker.write(await building.setTag("2", { displayName: "VS1" }));
    const event = await building.readTag("2", 20);
    const { sinkState } = contextFor("broker", systemClock, building.store);
    const config = MqttConfig.parse({ url: "mqtts://broker.example", topic: NAMED_LAYOUT });
    expect(await mqtt.locateEvent(config, event, sinkState)).toBe("plenum/1/VS1-2/value");
    const { sinkState: newState } = contextFor("other", systemClock, building.store);
    expect(await mqtt.locateEvent(config, event, newState)).toBeNull();
  });

  test("are built from the path of a tag if the tag has a path", async () => {
    const { building, worker, listValueTopics } = await setUp();
    const paths = ["b1/432.001/OE001", "cmd/main/7", "main/1/gateway/7", "a//b c", "x/#/+", "same/Path", "same/path"];
    for (const [n, path] of paths.entries())
      await worker.write(await building.setTag(`${n}`, { displayName: "x", path }), await building.readTag(`${n}`, 20));
    expect(listValueTopics().toSorted()).toEqual([
      ...["plenum/_cmd/main/7", "plenum/a/_/b_c", "plenum/b1/432.001/OE001", "plenum/main/1/gateway/7-2"],
      ...["plenum/same/Path-5", "plenum/same/path-6", "plenum/x/_/_"],
    ]);
  });
});

describe("former retained topics", () => {
  test("are emptied when a tag moves to another site", async () => {
    const { building, worker, listValueTopics } = await setUp();
    await worker.write(await building.setTag("1", { displayName: "VS1" }), await building.readTag("1", 20));
    await worker.write(await building.setTag("1", { displayName: "VS1" }, 2));
    expect(listValueTopics()).toEqual(["plenum/main/2/tag/1"]);
  });

  test("of site status, gateways and alarms are emptied after a restart with another prefix", async () => {
    const { building, worker, retained } = await setUp();
    await worker.write(await building.setSite(1, "Kvarnen"), await building.setSiteStatus(1, "offline"));
    await worker.write(await building.setGateway(1, "Cellar"), await building.raiseAlarm());
    const before = listOf(retained, "plenum/main/");
    expect(before).toContain("plenum/main/1/status");
    await worker.start({ prefix: "house" });
    await worker.write(sampleEvent("worker-alive"));
    expect(listOf(retained, "plenum/main/")).toEqual([]);
    expect(listOf(retained, "house/main/")).toEqual(before.map((topic) => topic.replace("plenum", "house")));
    expect(retained.get("house/main/1/status")).toContain('"status":"offline"');
    await worker.write(await building.removeSite(1));
    expect(retained.has("house/main/1/status")).toBe(false);
  });

  test.each([
    ["another prefix", { prefix: "house" }, ["house/main/1/tag/1/inventory", "house/main/1/tag/1/value"]],
    ["another layout", { topic: NAMED_LAYOUT }, ["plenum/1/VS1/inventory", "plenum/1/VS1/value"]],
    ["no retained values", { retain: { values: false } }, ["plenum/main/1/tag/1/inventory"]],
    [
      "plain values",
      { payload: "plain" },
      ["plenum/main/1/tag/1/inventory", "plenum/main/1/tag/1/quality", "plenum/main/1/tag/1/value"],
    ],
  ] as const)("are emptied after a restart with %s", async (_, settings, expected) => {
    const { building, worker, retained } = await setUp({ payload: "both" });
    await worker.write(await building.setTag("1", { displayName: "VS1" }), await building.readTag("1", 20));
    await worker.start(settings);
    await worker.write(sampleEvent("worker-alive"));
    expect([...retained.keys()].filter((topic) => !topic.endsWith("/status")).toSorted()).toEqual(expected);
  });

  test("are emptied after a crash between the rename and its settlement, though the tag was renamed again", async () => {
    const { building, worker, listValueTopics } = await setUp({ topic: NAMED_LAYOUT });
    await worker.write(await building.setTag("1", { displayName: "A" }), await building.readTag("1", 20));
    await worker.writeAndCrash(await building.setTag("1", { displayName: "B" }));
    const renamed = await building.setTag("1", { displayName: "C" });
    await worker.start({ topic: NAMED_LAYOUT });
    await worker.write(renamed);
    expect(listValueTopics()).toEqual(["plenum/1/C"]);
  });

  test("are not emptied when another tag uses them now", async () => {
    const { building, worker, retained } = await setUp({ topic: NAMED_LAYOUT });
    for (const [id, displayName] of ["A", "B"].entries())
      await worker.write(await building.setTag(`${id}`, { displayName }), await building.readTag(`${id}`, id));
    await worker.write(
      await building.setTag("0", { displayName: "B" }),
      await building.setTag("1", { displayName: "A" }),
    );
    expect(retained.get("plenum/1/B/value")).toContain('"tag":"0"');
    expect(retained.get("plenum/1/A/value")).toContain('"tag":"1"');
    expect([...retained.keys()].filter((topic) => topic.endsWith("/value"))).toHaveLength(2);
  });

  test("a topic stays with its tag when another tag of the same name is removed before it was published", async () => {
    const { building, worker, retained } = await setUp({ topic: NAMED_LAYOUT });
    await worker.write(await building.setTag("1", { displayName: "Temp" }), await building.readTag("1", 20));
    await worker.write(
      await building.setTag("2", { displayName: "Temp" }),
      await building.readTag("2", 99),
      await building.removeTag("2"),
    );
    expect(listOf(retained, "plenum/1/")).toEqual(["plenum/1/Temp/inventory", "plenum/1/Temp/value"]);
    expect(retained.get("plenum/1/Temp/value")).toContain('"tag":"1"');
  });

  test("tags get unique topics even if the name of a tag equals the topic level of another tag: X-1", async () => {
    const { building, worker, retained, listValueTopics } = await setUp({ topic: NAMED_LAYOUT });
    for (const [n, displayName] of ["X", "X", "X-1", "X-main-1"].entries()) {
      const id = String(n + 1);
      await worker.write(await building.setTag(id, { displayName }), await building.readTag(id, n));
    }
    expect(listValueTopics()).toHaveLength(4);
    const publishedTags = listValueTopics().map(
      (topic) => /"tag":"(\d)"/.exec(retained.get(`${topic}/value`) ?? "")?.[1],
    );
    expect(publishedTags.toSorted()).toEqual(["1", "2", "3", "4"]);
  });

  test("the sink stores no topics of unknown tags in rejected commands", async () => {
    const { building, worker } = await setUp({ topic: NAMED_LAYOUT });
    const { data } = sampleEvent("command-result");
    await worker.write(sampleEvent("command-result", { data: { ...data, tagId: "unknown" } }));
    expect([...(await contextFor("broker", systemClock, building.store).sinkState.all()).keys()]).toEqual(["layout"]);
  });
});

const RENAMES = 500;
const TAG_COUNT = 12;

test.skipIf(absent("mosquitto"))(
  `after ${RENAMES} random renames, moves and removals with restarts and crashes, Mosquitto retains no orphaned topic`,
  async () => {
    const server = await startMosquittoInTest();
    const random = seededRandom(seed);
    const pick = <T>(items: readonly T[]): T => items[Math.floor(random() * items.length)] as T;
    const building = createNamedBuilding();
    const worker = createWorker(server.url, building);
    const topic = "{prefix}/{site_name}/{system}/{tag_name}/{aspect}";
    const settings: Settings[] = [{ topic, payload: "both" }, { topic }, {}, { topic, payload: "plain", prefix: "p" }];
    await worker.start(settings[0]);
    const names = ["VS1", "vs1", "VS/1", "+", "#", " ", "\u0007", "x".repeat(300), "status", "å", "VS1-3"];
    const paths = [undefined, undefined, "b1/432", "B1/432", "b1/432/value", "main/1/gateway/7", "cmd/x"];
    let pending: Event[] = [];
    for (let n = 0; n < RENAMES; n += 1) {
      const id = String(Math.floor(random() * TAG_COUNT));
      const action = random();
      if (action < 0.1 && building.tags.has(id)) pending.push(await building.removeTag(id));
      else if (action < 0.2)
        pending.push(await building.setSite(pick([1, 2]), pick(["Kvarnen", "kvarnen", "cmd", "å"])));
      else if (action < 0.25 && building.tags.has(id))
        pending.push(await building.setSystem(id, pick(["360.001", ""])));
      else {
        const path = pick(paths);
        const tagNames = { displayName: pick(names), ...(path === undefined ? {} : { path }) };
        pending.push(await building.setTag(id, tagNames, pick([1, 2])));
        pending.push(await building.readTag(id, n));
      }
      if (random() < 0.3) continue;
      if (random() < 0.1) {
        await worker.writeAndCrash(...pending);
        await worker.start(pick(settings));
        // The events were not settled, so the worker offers them again.
        await worker.write(...pending);
      } else await worker.write(...pending);
      pending = [];
      if (random() < 0.05) await worker.start(pick(settings));
    }
    await worker.start({ topic, payload: "both" });
    await worker.write(...pending, sampleEvent("worker-alive"));
    const late = await observeInTest(server.url, "#");
    await late.publish("end", "{}");
    await late.until((message) => message.topic === "end");
    const retained = late.heard.filter((message) => message.retained && !/^(plenum|p)\/status$/.test(message.topic));
    const ofTags = retained.filter((message) => !/\/(site|gateway|system)\/\d+\//.test(message.topic));
    const valueTopics = ofTags.filter((message) => message.topic.endsWith("/value"));
    expect(valueTopics.map(({ json }) => json.tag).toSorted(), replay).toEqual([...building.tags.keys()].toSorted());
    const owned = valueTopics.map((message) => message.topic.slice(0, -"value".length));
    const orphans = ofTags.filter((message) => !owned.some((base) => message.topic.startsWith(base)));
    expect(
      orphans.map((message) => message.topic),
      replay,
    ).toEqual([]);
    expect(new Set(owned.map((base) => base.toLowerCase())).size).toBe(owned.length);
    expect(retained.filter((message) => /^plenum\/(cmd|reply|worker)\//.test(message.topic))).toEqual([]);
  },
);
