import { describe, expect, test } from "vitest";
import type { Tag } from "#src/core/model/building.ts";
import type { SeriesBreak, TagSystemsFact } from "#src/core/model/tag-event-data.ts";
import type { StoredObject, StoredTagListTimes, StoredTagSystems } from "#src/engine/sync/stored-documents.ts";
import { harness, MINUTE, openHarness, TOKEN } from "./alarm-harness.ts";
import { type ListChange, RARE_SCHEDULES } from "./sync-harness.ts";

const HOUR = 60 * MINUTE;
const SITE = 4;
const schedules = { ...RARE_SCHEDULES, gateways: false, systems: "10 */6 * * *" } as const;

async function started(): Promise<void> {
  const inventory = { tags_of_systems: true, sites: [SITE], remove_after: "1d" };
  openHarness({ sync: { spread: "0s", schedules, inventory } });
  await harness.start();
  await harness.clock.advance(25 * MINUTE);
}

const emitted = () => harness.events("tag-systems-changed").map(({ data }) => data as TagSystemsFact);
const breaks = () => harness.events("series-break").map(({ data }) => data as SeriesBreak);
const places = () => harness.store.documents<StoredTagSystems>("tag-system/main");
const idsOf = ({ systems }: TagSystemsFact) => systems.map(({ id }) => id);

async function startedWithTag(): Promise<{ id: string; systemId: string }> {
  await started();
  const [first] = emitted();
  const [systemId] = first === undefined ? [] : idsOf(first);
  if (first === undefined || systemId === undefined) throw new Error("no tag has a system");
  return { id: first.tag.id, systemId };
}

const isTagList = (path: string, query: URLSearchParams) => path.endsWith("/tags") && !query.has("system_id");
const isListOf = (systemId: string, query: URLSearchParams) => query.get("system_id") === systemId;

function without(list: Parameters<ListChange>[0], id: string): void {
  const before = list.data.length;
  list.data = list.data.filter((each) => each.id !== id);
  list.meta.total -= before - list.data.length;
  list.meta.to -= before - list.data.length;
}

/** Leaves the tag out of the list of its site and of the list of its system. */
function hideTag(id: string, systemId: string): void {
  harness.rewriteLists((list, path, query) => {
    if (isTagList(path, query) || isListOf(systemId, query)) without(list, id);
  });
}

const lastListTimes = () => harness.store.document<StoredTagListTimes>("tag-seen/main", String(SITE));

describe("the systems of tags", () => {
  test("emits and stores the systems of each tag once, with names, and nothing again without a change", async () => {
    await started();
    const first = emitted();
    expect(first.length).toBeGreaterThan(0);
    const systems = new Map([...harness.simulator.world.systems.values()].map((each) => [String(each.id), each]));
    for (const fact of first) {
      expect(fact.before).toEqual([]);
      for (const { id, code, displayName } of fact.systems)
        expect(systems.get(id)).toMatchObject({ code, display_name: displayName });
    }
    const stored = await places();
    expect(new Map(first.map((fact) => [fact.tag.id, idsOf(fact)]))).toEqual(
      new Map([...stored].map(([id, { systemIds }]) => [id, systemIds])),
    );
    expect(breaks()).toEqual([]);
    await harness.clock.advance(13 * HOUR);
    await harness.restart();
    await harness.clock.advance(HOUR);
    expect(emitted()).toEqual(first);
  });

  test("are emitted at the next list when an older version has stored them without emitting an event", async () => {
    await started();
    const first = emitted();
    const stored = await places();
    await harness.stop();
    await harness.store.commit({
      documents: [
        { set: "tag-system/main", put: [...stored].map(([id, { systemIds }]) => [id, { systemIds }] as const) },
      ],
    });
    await harness.start();
    await harness.clock.advance(5 * MINUTE);
    expect(emitted().slice(first.length).map(idsOf)).toEqual(first.map(idsOf));
    expect(breaks()).toEqual([]);
  });

  test("emits a series break, with the times of the last list before and the first list after, when a tag leaves its system", async () => {
    const { id, systemId } = await startedWithTag();
    const count = emitted().length;
    const seenAt = (await lastListTimes())?.systems;
    harness.rewriteLists((list, _, query) => {
      if (isListOf(systemId, query)) without(list, id);
    });
    await harness.clock.advance(6 * HOUR);
    const update = emitted().slice(count);
    expect(update).toMatchObject([{ tag: { id }, before: [systemId] }]);
    expect(update[0] && idsOf(update[0])).toEqual([]);
    const [event] = harness.events("series-break");
    const change = { what: ["system"], before: { systems: [systemId] }, systems: [] };
    const since = { lastBefore: seenAt, firstAfter: event?.time };
    expect(breaks()).toEqual([{ tag: expect.objectContaining({ id }), ...change, since }]);
    const hours = (Date.parse(event?.time ?? "") - Date.parse(seenAt ?? "")) / HOUR;
    expect(hours).toBeGreaterThan(5);
    expect(hours).toBeLessThan(7);
    harness.rewriteLists(null);
    await harness.clock.advance(6 * HOUR);
    expect(emitted().at(-1)).toMatchObject({ tag: { id }, before: [] });
    expect(breaks()).toHaveLength(1);
  });

  test("ignores a list that lost most tags of a system when the next list contains the tags again", async () => {
    await started();
    const systems = Map.groupBy(emitted(), (fact) => idsOf(fact)[0] ?? "");
    const [systemId] = [...systems].toSorted(([, a], [, b]) => b.length - a.length)[0] ?? [""];
    const members = systems.get(systemId) ?? [];
    expect(members.length).toBeGreaterThanOrEqual(5);
    const count = emitted().length;
    harness.rewriteLists((list, _, query) => {
      if (isListOf(systemId, query)) for (const { tag } of members) without(list, tag.id);
    });
    await harness.clock.advance(5 * HOUR + 58 * MINUTE);
    expect(emitted()).toHaveLength(count);
    harness.rewriteLists(null);
    await harness.clock.advance(7 * HOUR);
    expect(emitted()).toHaveLength(count);
    expect(breaks()).toEqual([]);
  });

  test("tags of a site that the token does not see, and missing tags, keep their systems", async () => {
    const { id, systemId } = await startedWithTag();
    const count = emitted().length;
    hideTag(id, systemId);
    await harness.clock.advance(7 * HOUR);
    expect((await harness.store.document<StoredObject<Tag>>("tag/main", id))?.missingSince).not.toBeNull();
    expect(emitted()).toHaveLength(count);
    harness.rewriteLists(null);
    harness.simulator.control.changeToken(TOKEN, { sites: [2] });
    await harness.clock.advance(3 * 24 * HOUR);
    expect(emitted()).toHaveLength(count);
    expect(breaks()).toEqual([]);
  });

  test("emits the loss of the systems of a removed tag before its removal", async () => {
    const { id, systemId } = await startedWithTag();
    hideTag(id, systemId);
    await harness.clock.advance(37 * HOUR);
    const about = harness.store.events.filter(({ subject }) => subject === `site/${SITE}/tag/${id}`);
    expect(about.slice(-2).map(({ type }) => type)).toEqual(["tag-systems-changed", "tag-removed"]);
    expect(about.at(-2)?.data).toMatchObject({ systems: [], before: [systemId] });
    expect((await places()).has(id)).toBe(false);
    expect(breaks()).toEqual([]);
  });

  test("emits the loss of a removed system for each of its tags", async () => {
    const { systemId } = await startedWithTag();
    const members = emitted().filter((fact) => idsOf(fact).includes(systemId));
    const count = emitted().length;
    harness.simulator.control.changeInventory("systems", systemId, { removed: true });
    await harness.clock.advance(20 * HOUR);
    expect(emitted()).toHaveLength(count);
    await harness.clock.advance(24 * HOUR);
    expect(harness.events("system-removed")).toHaveLength(1);
    const update = emitted().slice(count);
    expect(update.map(({ tag }) => tag.id).toSorted()).toEqual(members.map(({ tag }) => tag.id).toSorted());
    for (const fact of update) expect(idsOf(fact)).not.toContain(systemId);
  });
});

describe("series breaks", () => {
  const show = (id: string, attributes: object) =>
    harness.rewriteLists((list) => {
      for (const each of list.data) if (each.id === id) Object.assign(each.attributes, attributes);
    });

  test("emits one series break for a changed unit and name after tag-changed, and none for a first unit", async () => {
    const { id } = await startedWithTag();
    let shown = {};
    const emitted = async (attributes: object) => {
      const before = harness.store.events.length;
      shown = { ...shown, ...attributes };
      show(id, shown);
      await harness.clock.advance(6 * HOUR);
      return harness.store.events.slice(before).filter(({ subject }) => subject.endsWith(`/tag/${id}`));
    };
    await emitted({ unit: "Wh", display_name: "Meter 1" });
    const seen = (await lastListTimes())?.tags;
    const both = await emitted({ unit: "kWh", display_name: "Meter 2" });
    expect(both.map(({ type }) => type)).toEqual(["tag-changed", "series-break"]);
    expect(both[1]?.data).toEqual({
      tag: expect.objectContaining({ unit: "kWh", displayName: "Meter 2" }),
      what: ["unit", "name"],
      before: { unit: "Wh", displayName: "Meter 1" },
      since: { lastBefore: seen, firstAfter: both[0]?.time },
    });
    const gone = await emitted({ unit: null });
    expect(gone[1]?.data).toMatchObject({ what: ["unit"], before: { unit: "kWh" } });
    expect((await emitted({ unit: "kWh" })).map(({ type }) => type)).toEqual(["tag-changed"]);
    expect((await emitted({ description: "Other words" })).map(({ type }) => type)).toEqual(["tag-changed"]);
    expect(await emitted({ description: "Other words" })).toEqual([]);
  });

  test("emits a series break for a returning tag with the time of the last list that contained the tag", async () => {
    const { id } = await startedWithTag();
    show(id, { unit: "Wh" });
    await harness.clock.advance(6 * HOUR);
    const seen = (await lastListTimes())?.tags;
    harness.rewriteLists((list) => without(list, id));
    await harness.clock.advance(18 * HOUR);
    await harness.restart();
    show(id, { unit: "kWh" });
    await harness.clock.advance(HOUR);
    expect(breaks().filter(({ before }) => before.unit === "Wh")).toMatchObject([{ since: { lastBefore: seen } }]);
    expect(await harness.store.document<StoredObject<Tag>>("tag/main", id)).not.toHaveProperty("lastSeen");
  });
});
