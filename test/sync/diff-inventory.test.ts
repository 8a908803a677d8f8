import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { ObjectByNoun } from "#src/core/connector.ts";
import type { Gateway, Tag } from "#src/core/model/building.ts";
import type { Event } from "#src/core/model/event.ts";
import {
  compareInventory,
  type InventoryDiffOptions,
  type InventoryObjectKind,
  type ObservedInventoryList,
} from "#src/engine/sync/inventory/diff.ts";
import type { StoredObject } from "#src/engine/sync/stored-documents.ts";
import { GATEWAY } from "../sample-events.ts";

const DAY = 86_400_000;
const START = Date.UTC(2026, 0, 1);
const tag = (id: string, displayName = `T${id}`): Tag => ({ id, displayName, description: null, unit: null });
const gateway = (online: boolean | null, version = "1"): Gateway => ({ ...GATEWAY, id: "7", online, version });
const at = (day: number) => new Date(START + day * DAY).toISOString();
const optionsAt = (day: number) => ({ source: "/sources/main", at: at(day), removeAfterMs: 7 * DAY });

function diffInventory<N extends InventoryObjectKind>(
  noun: N,
  stored: ReadonlyMap<string, StoredObject<ObjectByNoun[N]>>,
  observations: readonly ObservedInventoryList<ObjectByNoun[N]>[],
  options: InventoryDiffOptions,
) {
  const put = new Map<string, StoredObject<ObjectByNoun[N]>>();
  const remove: string[] = [];
  const events: Event[] = [];
  for (const step of compareInventory(noun, stored, observations, options)) {
    if (step === null) continue;
    if (step.next === null) remove.push(step.id);
    else put.set(step.id, step.next);
    events.push(...step.events);
  }
  return { put, remove, events };
}

function inventory<N extends "tag" | "gateway">(noun: N) {
  type T = { tag: Tag; gateway: Gateway }[N];
  let stored = new Map<string, StoredObject<T>>();
  let day = 0;
  const diffNow = (observations: readonly ObservedInventoryList<T>[]) =>
    diffInventory<"tag" | "gateway">(noun, stored as never, observations as never, optionsAt(day));
  return {
    see(observations: readonly ObservedInventoryList<T>[], days = 0): string[] {
      day += days;
      const diff = diffNow(observations);
      stored = new Map([...stored, ...(diff.put as never as Map<string, StoredObject<T>>)]);
      for (const id of diff.remove) stored.delete(id);
      return diff.events.map((event) => `${event.type} ${event.subject}`);
    },
    before(observations: readonly ObservedInventoryList<T>[]) {
      return diffNow(observations).events.map((event) => (event.data as unknown as { before?: unknown }).before);
    },
  };
}

const whole = <T>(siteId: number, ...items: T[]) => ({ siteId, items, complete: true });
const partly = <T>(siteId: number, ...items: T[]) => ({ siteId, items, complete: false });

describe("the inventory after several lists of the service", () => {
  test("emits each new tag once, and a renamed tag with the previous name", () => {
    const tags = inventory("tag");
    expect(tags.see([whole(1, tag("1"), tag("2"))])).toEqual(["tag-added site/1/tag/1", "tag-added site/1/tag/2"]);
    expect(tags.see([whole(1, tag("1"), tag("2"))])).toEqual([]);
    expect(tags.before([whole(1, tag("1", "New"), tag("2"))])).toEqual([{ displayName: "T1" }]);
    expect(tags.see([whole(1, tag("1", "New"), tag("2"))])).toEqual(["tag-changed site/1/tag/1"]);
  });

  test("adds the names of the names file to listed tags and keeps them for a record without attributes", () => {
    const named: Tag = { ...tag("1"), alias: "Pump", path: "b1/pump" };
    const stored = (value: Tag) => new Map([["1", { value, siteId: 1, since: at(0), missingSince: null }]]);
    const diffNamed = (held: ReturnType<typeof stored> | null, listed: Tag, now: Tag) =>
      diffInventory("tag", held ?? new Map(), [whole(1, listed)], { ...optionsAt(1), nameTag: () => now });
    expect(diffNamed(null, tag("1"), named).put.get("1")?.value).toEqual(named);
    const { events, put } = diffNamed(stored(tag("1")), { ...named }, named);
    expect(put.get("1")?.value).toEqual(named);
    expect(events.map(({ data }) => data)).toEqual([{ tag: named, before: { alias: null, path: null } }]);
    expect(diffNamed(stored(named), tag("1"), named).put.size).toBe(0);
    expect(diffNamed(stored(named), tag("1", ""), named).put.size).toBe(0);
    expect(diffNamed(stored(named), tag("1"), tag("1")).events[0]?.data).toMatchObject({ before: { alias: "Pump" } });
  });

  test("a record without attributes changes nothing", () => {
    const tags = inventory("tag");
    tags.see([whole(1, tag("1"))]);
    expect(tags.see([whole(1, tag("1", ""))])).toEqual([]);
    const gateways = inventory("gateway");
    gateways.see([whole(1, gateway(true))]);
    const empty = { online: null, version: null, hardware: null, ipAddress: null, location: null };
    expect(gateways.see([whole(1, { id: "7", displayName: "", ...empty })])).toEqual([]);
    expect(gateways.see([whole(1, gateway(false))])).toEqual(["gateway-offline site/1/gateway/7"]);
  });

  test("emits a change for an object that moved to another site, and nothing for an object in the lists of both sites", () => {
    const tags = inventory("tag");
    tags.see([whole(1, tag("1")), whole(2)]);
    expect(tags.see([whole(1, tag("1")), whole(2, tag("1"))])).toEqual([]);
    expect(tags.see([partly(1), whole(2, tag("1"))])).toEqual([]);
    expect(tags.before([whole(1), whole(2, tag("1"))])).toEqual([{ siteId: 1 }]);
    expect(tags.see([whole(1), whole(2, tag("1"))])).toEqual(["tag-changed site/2/tag/1"]);
  });

  test.each<[string, readonly (boolean | null)[], readonly string[]]>([
    ["once while it stays offline", [true, false, false, true], ["added", "offline", "online"]],
    ["after lists without a state too", [true, null, false, null, false, true], ["added", "offline", "online"]],
    ["when the service first states its online state", [null, null, false], ["added", "offline"]],
  ])("emits that a gateway is online or offline %s", (_what, states, expected) => {
    const gateways = inventory("gateway");
    const emitted = states.flatMap((online) => gateways.see([whole(1, gateway(online))]));
    expect(emitted).toEqual(expected.map((kind) => `gateway-${kind} site/1/gateway/7`));
  });

  test("emits the changed software version of a gateway before its new online state", () => {
    const gateways = inventory("gateway");
    gateways.see([whole(1, gateway(false))]);
    const kinds = ["changed", "online"].map((kind) => `gateway-${kind} site/1/gateway/7`);
    expect(gateways.see([whole(1, gateway(true, "2"))])).toEqual(kinds);
  });
});

describe("the inventory compared with one list", () => {
  type Known = StoredObject<Tag | Gateway>;
  const known = (value: Tag | Gateway, siteId = 1, missingSince: string | null = null): [string, Known] => [
    value.id,
    { value, siteId, since: at(0), missingSince },
  ];
  const diff = (
    noun: "tag" | "gateway",
    stored: readonly [string, Known][],
    observations: readonly ObservedInventoryList<Tag | Gateway>[],
    day = 8,
  ) =>
    diffInventory<"tag" | "gateway">(noun, new Map(stored), observations, {
      ...optionsAt(day),
      hostsBehind: (id) => [{ id: `host of ${id}`, displayName: "" }] as never,
    });

  test("writes no unchanged object, and keeps the time when a returning object was first listed", () => {
    expect(diff("tag", [known(tag("1"))], [whole(1, tag("1"))])).toEqual({ put: new Map(), remove: [], events: [] });
    const returned = diff("tag", [known(tag("1"), 1, at(3))], [partly(1, tag("1"))]);
    expect(returned.put).toEqual(new Map([known(tag("1"))]));
    expect(returned.events).toEqual([]);
  });

  test("stores the time since when an object is missing, and removes the object on the seventh day", () => {
    const first = diff("tag", [known(tag("1"))], [whole(1)], 1);
    expect(first).toMatchObject({ put: new Map([known(tag("1"), 1, at(1))]), remove: [] });
    expect(diff("tag", [...first.put] as never, [whole(1)], 7.9)).toEqual({ put: new Map(), remove: [], events: [] });
    const last = diff("tag", [...first.put] as never, [whole(1)], 8);
    expect(last.remove).toEqual(["1"]);
    expect(last.events).toMatchObject([{ type: "tag-removed", siteid: "1", data: { tag: tag("1") } }]);
    expect(diff("tag", [...first.put] as never, [partly(1), whole(2)], 30).remove).toEqual([]);
  });

  test("emits the hosts behind an offline gateway, and whether its site has no other gateway", () => {
    const down = (others: readonly [string, Known][], ...lists: ObservedInventoryList<Tag | Gateway>[]) =>
      diff("gateway", [known(gateway(true)), ...others], lists).events.map(({ data }) => data);
    const other = { ...gateway(true), id: "8" };
    const off = gateway(false);
    expect(down([], whole(1, off))).toEqual([
      { gateway: off, hosts: [{ id: "host of 7", displayName: "" }], wholeSite: true },
    ]);
    expect(down([known(other)], partly(1, off))).toMatchObject([{ wholeSite: false }]);
    expect(down([known(other, 1, at(2))], partly(1, off))).toMatchObject([{ wholeSite: true }]);
    expect(down([known(other, 2)], partly(1, off), whole(2, other))).toMatchObject([{ wholeSite: true }]);
    const added = down([], whole(1, off, other));
    expect(added).toHaveLength(2);
    expect(added).toContainEqual(expect.objectContaining({ gateway: off, wholeSite: false }));
  });

  test("an event about a site contains the site's own id; other events contain the id of their site", () => {
    const site = { id: 3, displayName: "S" } as never;
    const lists = [{ siteId: null, items: [site], complete: true }];
    const added = diffInventory("site", new Map(), lists, optionsAt(0));
    expect(added.events).toMatchObject([{ type: "site-added", siteid: "3", subject: "site/3" }]);
    expect(diff("tag", [], [whole(1, tag("1"))]).events).toMatchObject([{ siteid: "1" }]);
  });
});

describe("a list that contains the stored objects themselves", () => {
  const Id = fc.constantFrom("1", "2", "3", "4", "5");
  const Name = fc.constantFrom("a", "b", "");
  const Lists = fc.array(
    fc.record({
      siteId: fc.constantFrom(1, 2, 3),
      ids: fc.uniqueArray(fc.tuple(Id, Name), { selector: ([id]) => id }),
      complete: fc.boolean(),
    }),
    { maxLength: 3 },
  );
  const Known = fc.array(
    fc.record({ id: Id, name: Name, siteId: fc.constantFrom(1, 2, 3), missingDays: fc.constantFrom(null, 1, 8) }),
  );

  test("a list that contains the stored objects gives the same difference as a list with equal copies", () => {
    fc.assert(
      fc.property(Lists, Known, (lists, known) => {
        const daysAgo = (days: number | null) => (days === null ? null : new Date(START - days * DAY).toISOString());
        const stored = new Map<string, StoredObject<Tag>>(
          known.map(({ id, name, siteId, missingDays }) => [
            id,
            { value: tag(id, name), siteId, since: at(0), missingSince: daysAgo(missingDays) },
          ]),
        );
        const shown = (isShared: boolean) =>
          lists.map(({ siteId, ids, complete }) => ({
            siteId,
            complete,
            items: ids.map(([id, name]) => {
              const value = stored.get(id)?.value;
              return isShared && value?.displayName === name ? value : tag(id, name);
            }),
          }));
        const apart = diffInventory("tag", stored, shown(false), optionsAt(0));
        expect(diffInventory("tag", stored, shown(true), optionsAt(0))).toEqual(apart);
      }),
      { numRuns: 2_000 },
    );
  });
});

test("diffInventory yields twice for 12,000 unchanged objects, so that the caller can yield to the event loop", () => {
  const known = { siteId: 1, since: new Date(START).toISOString(), missingSince: null };
  const items = Array.from({ length: 12_000 }, (_, n) => tag(String(n)));
  const stored = new Map(items.map((value) => [value.id, { ...known, value }]));
  const steps = [...compareInventory("tag", stored, [whole(1, ...items)], optionsAt(0))];
  expect(steps).toEqual([null, null]);
});
