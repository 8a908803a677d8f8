import { describe, expect, test, vi } from "vitest";
import type { Alarm, Resolution, Tag, TagValue } from "#src/core/model/building.ts";
import { type Event, makeEvent, sourceUri } from "#src/core/model/event.ts";
import type { TagHistoryFact } from "#src/core/model/history-event-data.ts";
import type { TagValueFact } from "#src/core/model/tag-event-data.ts";
import type { DocumentChange } from "#src/engine/store/store.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { ALARM, TAG } from "./sample-events.ts";
import { createMemoryStore } from "./sync/memory-store.ts";

const NOW = Date.parse("2026-11-02T06:20:00.000Z");
const SPAN = { fromMs: NOW - 3 * 3_600_000, toMs: NOW };
const at = (minutesAgo: number) => new Date(NOW - minutesAgo * 60_000).toISOString();
const tagOf = (id: string, displayName: string): Tag => ({ ...TAG, id, displayName });

function read(id: string, minutesAgo: number, value: TagValue, source = "main"): Event {
  const time = at(minutesAgo);
  const quality = value === null ? "bad" : "good";
  const fixed = { latencyMs: 80, lastGood: null, behindGateway: null };
  const data: TagValueFact = { tag: tagOf(id, id), value, quality, time, ...fixed };
  const subject = `site/1/tag/${id}`;
  return makeEvent({ type: "tag-value", source: sourceUri(source), subject, time, siteId: 1, data, facts: [time] });
}

function history(
  id: string,
  resolution: Resolution,
  points: readonly (readonly [minutesAgo: number, value: TagValue])[],
  revised = false,
): Event {
  const data: TagHistoryFact = {
    ...{ tag: tagOf(id, id), resolution, timeZone: "Europe/Oslo", origin: "live", revised },
    points: points.map(([minutesAgo, value]) => ({ time: at(minutesAgo), value })),
  };
  const facts = [resolution, String(revised), points.length, ...points.flat().map(String)];
  const subject = `site/1/tag/${id}/history/${resolution}`;
  const source = sourceUri("main");
  return makeEvent({ type: "tag-history", source, subject, time: at(0), siteId: 1, data, facts });
}

interface EmittedValue {
  readonly site?: number;
  readonly systems?: readonly string[];
  readonly missing?: true;
  readonly newest?: readonly [minutesAgo: number, value: TagValue];
}

async function state(tags: Readonly<Record<string, readonly [name: string, told?: EmittedValue]>>) {
  let nowMs = NOW;
  const store = createMemoryStore(() => nowMs);
  async function emit(...events: readonly Event[]) {
    for (const event of events) {
      nowMs = Math.max(Date.parse(event.time), NOW - 86_400_000);
      await store.commit({ events: [event] });
    }
    nowMs = NOW;
  }
  async function know(id: string, name: string, { site = 1, systems, missing, newest }: EmittedValue = {}) {
    const missingSince = missing === true ? at(60) : null;
    const held = { value: tagOf(id, name), siteId: site, since: at(9_999), missingSince };
    const documents: DocumentChange[] = [{ set: "tag/main", put: [[id, held]] }];
    if (systems !== undefined) documents.push({ set: "tag-system/main", put: [[id, { systemIds: systems }]] });
    if (newest !== undefined) {
      const value = { value: newest[1], quality: "good", time: at(newest[0]), lastGood: null, nulls: 0 };
      documents.push({ set: "value/main", put: [[id, value]] });
    }
    await store.commit({ documents });
  }
  for (const [id, [name, told]] of Object.entries(tags)) await know(id, name, told);
  const view = createBuildingView(store, new Map([["main", "Europe/Oslo"]]));
  const curves = (alarm: Partial<Alarm> = {}, span = SPAN) => view.timeSeries("main", { ...ALARM, ...alarm }, span);
  const names = async (alarm: Partial<Alarm> = {}) => (await curves(alarm)).map(({ tag }) => tag.displayName);
  return { store, emit, know, curves, names };
}

const minutes = (points: readonly { readonly atMs: number; readonly value: TagValue }[] | undefined) =>
  points?.map(({ atMs, value }) => [(NOW - atMs) / 60_000, value]);

describe("the tags of an alarm's time series", () => {
  const newest = [1, 18.4] as const;
  const triggeredOn = (name: string) => ALARM.lastActiveEvent && { ...ALARM.lastActiveEvent, triggeredOn: name };

  test("include the tag of the alarm's site that has the name in the alarm's last event, else in its source field", async () => {
    const tags = await state({
      "1": ["VS1-GT11", { newest }],
      "2": ["VS1-SP01", { newest }],
      "3": ["VS1-SP01", { newest, site: 2 }],
      "4": ["VS1-GT11", { newest, missing: true }],
    });
    expect(await tags.names()).toEqual(["VS1-GT11"]);
    expect(await tags.names({ lastActiveEvent: triggeredOn("VS1-SP01") })).toEqual(["VS1-SP01"]);
    expect(await tags.names({ lastActiveEvent: null })).toEqual(["VS1-GT11"]);
    expect(await tags.names({ source: "VS1" })).toEqual([]);
    expect(await tags.names({ source: "vs1-gt11" })).toEqual([]);
    expect(await tags.names({ site: { id: 3, displayName: "Elsewhere" } })).toEqual([]);
  });

  test("are empty when several tags have the name that the alarm gives", async () => {
    const tags = await state({
      "1": ["VS1-GT11", { newest }],
      "2": ["VS1-GT11", { newest }],
      "3": ["VS1", { newest }],
    });
    expect(await tags.names()).toEqual([]);
    expect(await tags.names({ source: "VS1", lastActiveEvent: triggeredOn("VS1-GT11") })).toEqual([]);
  });

  test("include up to 19 other tags with values that share a system with the alarm's tag, sorted by name", async () => {
    const tags = await state({
      "1": ["VS1-GT11", { newest, systems: ["s1", "s2"] }],
      "2": ["VS1-GT2", { newest, systems: ["s2"] }],
      "3": ["VS1-GT10", { newest, systems: ["s1", "s9"] }],
      "4": ["VS2-GT11", { newest, systems: ["s3"] }],
      "5": ["VS3-GT11", { newest }],
      "6": ["VS1-P1", { systems: ["s1"] }],
      "7": ["VS1-P2", { systems: ["s1"], newest: [1, null] }],
      "8": ["VS1-P3", { systems: ["s1"], newest: [181, true] }],
    });
    expect(await tags.names()).toEqual(["VS1-GT11", "VS1-GT2", "VS1-GT10"]);
    for (let n = 0; n < 30; n += 1) await tags.know(`9${n}`, `VS1-Z${n}`, { newest, systems: ["s1"] });
    const later = { fromMs: SPAN.fromMs + 60_000, toMs: SPAN.toMs + 60_000 };
    expect(await tags.curves({}, later)).toHaveLength(17);
  });

  test("are only the alarm's tag if that tag belongs to no system, and none if the source is unknown", async () => {
    const tags = await state({ "1": ["VS1-GT11", { newest }], "2": ["VS1-GT2", { newest, systems: ["s1"] }] });
    expect(await tags.names()).toEqual(["VS1-GT11"]);
    const building = createBuildingView(tags.store, new Map());
    expect(await building.timeSeries("other", ALARM, SPAN)).toEqual([]);
  });
});

describe("the points of a time series", () => {
  test("are the values emitted in the time range and the newest value, in ascending order of time", async () => {
    const tags = await state({ "1": ["VS1-GT11", { newest: [0.5, 18.4] }] });
    await tags.emit(read("1", 200, 25), read("1", 170, 21), read("1", 90, null), read("1", 10, 18.9));
    await tags.emit(read("11", 20, 1), read("1", 15, 77, "other"));
    const [curve] = await tags.curves();
    expect(curve?.tag).toMatchObject({ id: "1", displayName: "VS1-GT11", unit: "°C" });
    expect(minutes(curve?.points)).toEqual([
      [170, 21],
      [90, null],
      [10, 18.9],
      [0.5, 18.4],
    ]);
  });

  test("include the latest revision of the finest history where no value was read", async () => {
    const tags = await state({ "1": ["VS1-GT11"] });
    await tags.emit(
      history("1", "1d", [[170, 99]]),
      history("1", "1h", [
        [170, 20],
        [80, 19],
      ]),
      history("1", "5m", [
        [60, 18],
        [55, 17],
        [50, 16],
      ]),
      read("1", 53, 17.5),
      history("1", "5m", [[60, 18.5]], true),
    );
    const [curve] = await tags.curves();
    expect(minutes(curve?.points)).toEqual([
      [170, 20],
      [60, 18.5],
      [53, 17.5],
      [50, 16],
    ]);
  });

  test("tag names are cached for a minute, and values are not cached", async () => {
    const tags = await state({ "1": ["VS1-GT11", { newest: [1, 20] }] });
    const reads = vi.spyOn(tags.store, "documents");
    await tags.curves();
    await tags.know("1", "VS1-GT11", { newest: [0, 21] });
    expect(minutes((await tags.curves())[0]?.points)).toEqual([[0, 21]]);
    expect(reads).toHaveBeenCalledTimes(2);
    await tags.curves({}, { fromMs: SPAN.fromMs, toMs: NOW + 61_000 });
    expect(reads).toHaveBeenCalledTimes(4);
    // A clock that was set back a day.
    await tags.curves({}, { fromMs: SPAN.fromMs - 86_400_000, toMs: NOW - 86_400_000 });
    expect(reads).toHaveBeenCalledTimes(6);
  });
});
