import { beforeEach, describe, expect, test } from "vitest";
import { InfluxConfig, NAME_TAGS } from "#connectors/influxdb/config.ts";
import { encodeEventLines, type InfluxPointSettings } from "#connectors/influxdb/event-points.ts";
import { createNameLookup } from "#connectors/influxdb/names-as-influx-tags.ts";
import { createInfluxSink } from "#connectors/influxdb/sink.ts";
import type { ConnectorContext } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { type Clock, systemClock } from "#src/core/runtime/clock.ts";
import { absent, startInflux } from "../real-servers.ts";
import { SITE, sampleEvent, sampleOfEveryKind, TAG, valueEvent } from "../sample-events.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import { closeAfterTest, stopAfterTest } from "../test-resources.ts";
import { contextFor, never } from "./context.ts";
import { parseLine } from "./line-protocol.ts";

const SYSTEMS = [
  { id: "5", code: "360.001", displayName: "Ventilation" },
  { id: "6", code: "320.001", displayName: "Heating" },
  { id: "7", code: "", displayName: "Lifts" },
];

let reads: string[];
let passedMs: number;
let context: ConnectorContext;
let store: ReturnType<typeof createMemoryStore>;
beforeEach(async () => {
  reads = [];
  passedMs = 0;
  const clock: Clock = { ...systemClock, monotonic: () => passedMs };
  store = createMemoryStore();
  const readDocument = async <T>(set: string, key: string) => {
    reads.push(`${set} ${key}`);
    return store.document<T>(set, key);
  };
  const documents = () => Promise.reject(new Error("No set is read as a whole."));
  context = contextFor("lake", clock, { ...store, document: readDocument, documents });
  await storeObject("site/main", String(SITE.id), SITE);
  for (const system of SYSTEMS) await storeObject("system/main", system.id, system);
  await storeObject("tag/main", TAG.id, { ...TAG, displayName: "the name now" });
  await put("tag-seen/main", String(SITE.id), { tags: "2026-01-01T00:00:00Z", systems: "2026-01-01T00:00:00Z" });
  await put("tag-system/main", TAG.id, { systemIds: ["5", "6", "unknown"] });
});

const put = (set: string, key: string, value: unknown) => store.commit({ documents: [{ set, put: [[key, value]] }] });
const storeObject = (set: string, key: string, value: unknown) =>
  put(set, key, { value, siteId: 1, since: "2026-01-01T00:00:00Z", missingSince: null });

const settingsWith = ({ nameTagsOf }: ReturnType<typeof createNameLookup>) => ({ prefix: "", tags: {}, nameTagsOf });

async function readNameTags(events: readonly Event[], wanted: readonly (typeof NAME_TAGS)[number][] = NAME_TAGS) {
  const names = createNameLookup(wanted, context);
  await names.loadNames(events);
  return events.map((event) => {
    const texts = [...encodeEventLines(event, settingsWith(names))].flatMap(({ text }) => text.toString().split("\n"));
    const tags = texts.map((line) => {
      const { name, site_name, system } = parseLine(line).tags;
      return { name, site_name, system };
    });
    expect(new Set(tags.map((each) => JSON.stringify(each))).size, event.type).toBe(1);
    return tags[0];
  });
}

describe("the name tags of InfluxDB points (tags_from)", () => {
  test("points of values, history and totals get the event's tag name and the current site and systems", async () => {
    const events = [valueEvent(1), sampleEvent("tag-history"), sampleEvent("tag-total")];
    for (const tags of await readNameTags(events))
      expect(tags).toEqual({ name: TAG.displayName, site_name: SITE.displayName, system: "320.001+360.001" });
  });

  test("points of commands get the stored tag name, of alarms only the site, of worker events no names", async () => {
    const result = sampleEvent("command-result");
    const command = { ...result, data: { ...result.data, tagId: TAG.id } };
    const [told, alarm, own] = await readNameTags([command, sampleEvent("alarm-raised"), sampleEvent("delivery-gap")]);
    expect(told).toMatchObject({ name: "the name now", system: "320.001+360.001" });
    expect(alarm).toEqual({ name: undefined, site_name: SITE.displayName, system: undefined });
    expect(own).toEqual({ name: undefined, site_name: undefined, system: undefined });
  });

  test("only the configured name tags are added, and no name is looked up when none is configured", async () => {
    const [tags] = await readNameTags([valueEvent(1)], ["site_name"]);
    expect(tags).toEqual({ name: undefined, site_name: SITE.displayName, system: undefined });
    reads = [];
    const encodeAll = (settings: InfluxPointSettings) =>
      sampleOfEveryKind().flatMap((event) => [...encodeEventLines(event, settings)].map(({ text }) => String(text)));
    const plainLines = encodeAll({ prefix: "", tags: {} });
    const names = createNameLookup([], context);
    await names.loadNames(sampleOfEveryKind());
    expect(encodeAll(settingsWith(names))).toEqual(plainLines);
    expect(reads).toEqual([]);
  });

  test("unknown names are omitted, and a system without a code uses its display name", async () => {
    await put("tag-system/main", "8", { systemIds: ["7"] });
    const [unknown, lift] = await readNameTags([valueEvent(1, "9"), valueEvent(1, "8")]);
    expect(unknown).toEqual({ name: TAG.displayName, site_name: SITE.displayName, system: undefined });
    expect(lift?.system).toBe("Lifts");
  });

  test("names are looked up at most once a minute, and a changed name is then used", async () => {
    const names = createNameLookup(NAME_TAGS, context);
    const batch = Array.from({ length: 500 }, (_, n) => valueEvent(n));
    await names.loadNames(batch);
    const firstReadCount = reads.length;
    expect(firstReadCount).toBeLessThanOrEqual(6);
    passedMs = 59_000;
    await names.loadNames(batch);
    expect(reads).toHaveLength(firstReadCount);
    await storeObject("site/main", String(SITE.id), { ...SITE, displayName: "Renamed" });
    expect(names.nameTagsOf(valueEvent(1)).site_name).toBe(SITE.displayName);
    passedMs = 60_000;
    await names.loadNames(batch);
    expect(names.nameTagsOf(valueEvent(1)).site_name).toBe("Renamed");
  });

  const encodeEvent = (names: ReturnType<typeof createNameLookup>, event: Event) =>
    [...encodeEventLines(event, settingsWith(names))].map(({ text }) => text.toString()).join("\n");
  const removeDocument = (set: string, key: string) => store.commit({ documents: [{ set, remove: [key] }] });

  test("a point waits until its site and systems are known, and has the same name tags when it is redelivered", async () => {
    await removeDocument("site/main", String(SITE.id));
    await removeDocument("tag-system/main", TAG.id);
    await removeDocument("tag-seen/main", String(SITE.id));
    const names = createNameLookup(NAME_TAGS, context);
    const gapEvent = sampleEvent("delivery-gap");
    expect(await names.loadNames([gapEvent, valueEvent(1)])).toMatchObject({ from: 1, error: { retryAfterMs: 1_000 } });
    await storeObject("site/main", String(SITE.id), SITE);
    expect(await names.loadNames([valueEvent(1)])).toMatchObject({ from: 0 });
    await put("tag-system/main", TAG.id, { systemIds: ["6"] });
    expect(await names.loadNames([valueEvent(1)])).toBeNull();
    const firstLine = encodeEvent(names, valueEvent(1));
    expect(parseLine(firstLine).tags).toMatchObject({ site_name: SITE.displayName, system: "320.001" });
    const restarted = createNameLookup(NAME_TAGS, context);
    await restarted.loadNames([valueEvent(1)], ["2026-11-02T00:00:00.000Z"]);
    expect(encodeEvent(restarted, valueEvent(1))).toBe(firstLine);
  });

  test("a point of a tag without systems is not delayed once the systems of its site are known", async () => {
    expect(await createNameLookup(NAME_TAGS, context).loadNames([valueEvent(1, "9")])).toBeNull();
  });

  test("points do not wait for systems when the source does not read the systems of tags", async () => {
    await removeDocument("tag-seen/main", String(SITE.id));
    const names = createNameLookup(["system"], context);
    expect(await names.loadNames([valueEvent(1, "9")])).toMatchObject({ from: 0 });
    await put("poll/main", "tags", { lastSuccess: "2026-01-01T00:00:00.000Z" });
    expect(await names.loadNames([valueEvent(1, "9")])).toBeNull();
  });

  test("points of an unknown site wait one minute, only once, and keep their name tags when redelivered", async () => {
    await removeDocument("site/main", String(SITE.id));
    const names = createNameLookup(["site_name"], context);
    expect(await names.loadNames([valueEvent(1)])).toMatchObject({ from: 0 });
    passedMs = 60_000;
    const at = "2026-01-01T00:00:10.000Z";
    expect(await names.loadNames([valueEvent(1)], [at])).toBeNull();
    const firstLine = encodeEvent(names, valueEvent(1));
    expect(parseLine(firstLine).tags.site_name).toBeUndefined();
    expect(await createNameLookup(["site_name"], context).loadNames([valueEvent(2)])).toBeNull();
    await storeObject("site/main", String(SITE.id), SITE);
    const restarted = createNameLookup(["site_name"], context);
    await restarted.loadNames([valueEvent(1), valueEvent(2)], [at, "2026-01-01T00:01:00.000Z"]);
    const [again, later] = [valueEvent(1), valueEvent(2)];
    await restarted.loadNames([again, later], [at, "2026-01-01T00:01:00.000Z"]);
    expect(encodeEvent(restarted, again)).toBe(firstLine);
    expect(parseLine(encodeEvent(restarted, later)).tags.site_name).toBe(SITE.displayName);
  });

  test("the configuration refuses an entry of tags whose key is also in tags_from", () => {
    const config = { url: "https://influxdb.example.com", bucket: "b", tags: { system: "x" } };
    expect(InfluxConfig.safeParse(config).success).toBe(true);
    const { error } = InfluxConfig.safeParse({ ...config, tags_from: ["system"] });
    expect(error?.issues.map(({ message }) => message)).toEqual(["With `tags_from` points have a tag system already."]);
  });
});

test.skipIf(absent("influxd"))("InfluxDB 1.x groups values by the tags name, site and system", async () => {
  const server = stopAfterTest(await startInflux());
  const sink = await openSink({ url: server.url, api: "v1", database: "names", create_database: true });
  expect(await sink.write([valueEvent(1), sampleEvent("tag-history")], never())).toEqual({ rejected: [] });
  for (const measurement of ["tag_value", "tag_history"]) {
    const q = `SELECT last(value) FROM ${measurement} WHERE "name" = '${TAG.displayName}' GROUP BY "name", site_name, "system"`;
    const path = `/query?${new URLSearchParams({ db: "names", q }).toString()}`;
    const { results } = (await (await fetch(`${server.url}${path}`)).json()) as {
      results: { series?: { tags: Record<string, string> }[] }[];
    };
    expect(
      results[0]?.series?.map(({ tags }) => tags),
      measurement,
    ).toEqual([{ name: TAG.displayName, site_name: SITE.displayName, system: "320.001+360.001" }]);
  }
});

async function openSink(options: object) {
  const sink = closeAfterTest(createInfluxSink(InfluxConfig.parse({ ...options, tags_from: [...NAME_TAGS] }), context));
  await sink.open(never());
  return sink;
}
