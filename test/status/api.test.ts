import { describe, expect, test } from "vitest";
import type { Tag } from "#src/core/model/building.ts";
import { type Event, makeEvent, sourceUri } from "#src/core/model/event.ts";
import { createLog, Secret } from "#src/core/runtime/log.ts";
import { documentSet } from "#src/engine/store/store.ts";
import type { StoredLedger, StoredObject, StoredValue } from "#src/engine/sync/stored-documents.ts";
import { createPlots } from "#src/ui/plots/plot-storage.ts";
import type { AlarmResponse } from "#src/ui/status/alarm-api-responses.ts";
import type { CommandRow } from "#src/ui/status/command-list.ts";
import { type PageApi, pageResponseRoutes, type TagWriteRequest } from "#src/ui/status/page-api.ts";
import type { AlarmDayCounts, SiteResponse } from "#src/ui/status/site-responses.ts";
import { statusRoutes } from "#src/ui/status/status-server.ts";
import { countUnfetchedRanges, type TagResponse } from "#src/ui/status/tag-api-response.ts";
import type { TagListResponse } from "#src/ui/status/tag-index.ts";
import { ALARM, sampleEvent } from "../sample-events.ts";
import {
  basic,
  FROM_PAGE,
  fillSource,
  JSON_TYPE,
  LOCALHOST,
  NO_NUMBERS,
  NOW,
  type StatusBuilding,
  serverOptions,
  statusBuilding,
} from "./status-building.ts";

async function openApi(more: Parameters<typeof serverOptions>[1] = {}, made?: StatusBuilding) {
  const building = made ?? (await statusBuilding());
  const app = statusRoutes(serverOptions(building, more));
  const get = (path: string, headers: Readonly<Record<string, string>> = {}) =>
    app.request(path, { headers: { ...LOCALHOST, ...headers } });
  const response = async <T>(path: string): Promise<T> => {
    const response = await get(path);
    expect([path, response.status]).toEqual([path, 200]);
    return (await response.json()) as T;
  };
  return { ...building, app, get, response };
}

const tagNames = ({ rows }: TagListResponse) => rows.map(({ tag }) => tag.displayName);

describe("the list of tags", () => {
  test("has counts, and can be filtered, sorted and paged", async () => {
    const { store, response } = await openApi();
    await fillSource(store, "north", { tagNames: ["T10", "T9", "Pump"] });
    await fillSource(store, "south", { tagNames: ["T1"], namesFile: { alias: "Supply air", path: "b1/360/GT11" } });
    const allTags = await response<TagListResponse>("/api/tags");
    expect(allTags).toMatchObject({ total: 4, counts: { all: 4, bad: 1, stale: 0, unread: 0 } });
    expect(tagNames(allTags)).toEqual(["Pump", "T1", "T9", "T10"]);
    expect(tagNames(await response("/api/tags?sort=-name&offset=1&limit=2"))).toEqual(["T9", "T1"]);
    expect(tagNames(await response("/api/tags?search=t1&source=north"))).toEqual(["T10"]);
    for (const search of ["supply%20AIR", "360/gt"])
      expect(tagNames(await response(`/api/tags?search=${search}`)), search).toEqual(["T1"]);
    expect(tagNames(await response("/api/tags?show=bad"))).toEqual(["T9"]);
    expect(tagNames(await response("/api/tags?source=north&sort=-value"))).toEqual(["Pump", "T10", "T9"]);
    expect(tagNames(await response("/api/tags?source=north&sort=age"))).toEqual(["T10", "T9", "Pump"]);
    const tagLocation = { source: "north", site: "north school", siteId: 1, class: "comfort" };
    expect(allTags.rows[0]).toMatchObject({ ...tagLocation, value: 20.2, quality: "good", staleReason: null });
  });

  test("counts a stored stale value as stale, with its reason and the time of the last good reading", async () => {
    const { response, store } = await openApi();
    await fillSource(store, "north", { tagNames: ["T1"] });
    const lastGood = { value: 20.2, time: "2026-11-02T05:00:00.000Z" };
    const staleValue = { value: null, quality: "stale", time: NOW, lastGood, staleReason: "out-of-scope" };
    const ids = [...(await store.documents(documentSet("value", "north"))).keys()];
    await store.commit({ documents: [{ set: documentSet("value", "north"), put: ids.map((id) => [id, staleValue]) }] });
    const { counts, rows } = await response<TagListResponse>("/api/tags?show=stale");
    expect(counts).toMatchObject({ bad: 0, stale: 1 });
    const staleRow = { value: null, quality: "stale", staleReason: "out-of-scope", time: lastGood.time };
    expect(rows[0]).toMatchObject(staleRow);
  });

  test("counts an unread tag as unread, not as bad, and excludes removed tags", async () => {
    const { response, store } = await openApi();
    const storedTag = (id: string, missingSince: string | null): readonly [string, StoredObject<Tag>] => [
      id,
      { value: { id, displayName: id, description: null, unit: null }, siteId: 1, since: NOW, missingSince },
    ];
    await store.commit({
      documents: [{ set: documentSet("tag", "north"), put: [storedTag("1", null), storedTag("2", NOW)] }],
    });
    const list = await response<TagListResponse>("/api/tags?show=unread");
    expect(list.counts).toEqual({ all: 1, bad: 0, stale: 0, unread: 1 });
    expect(list.rows).toMatchObject([{ tag: { id: "1" }, value: null, quality: null, time: null, site: null }]);
    expect((await response<TagResponse>("/api/tag?source=north&id=2")).tag.id).toBe("2");
  });

  test("is served from a cache for 30,000 tags, with current values", async () => {
    const { response, store, clock } = await openApi();
    await fillSource(store, "north", { tagNames: Array.from({ length: 30_000 }, (_, n) => `Tag ${n}`) });
    const firstList = await response<TagListResponse>("/api/tags?search=tag&sort=value&limit=100");
    expect([firstList.total, firstList.rows.length]).toEqual([30_000, 100]);
    // The list comes from the cache, but changed values are shown.
    const changedValue: StoredValue = { value: 99, quality: "good", time: NOW, lastGood: null, nulls: 0 };
    const id = firstList.rows[0]?.tag.id ?? "";
    await store.commit({ documents: [{ set: documentSet("value", "north"), put: [[id, changedValue]] }] });
    const cpuBefore = process.cpuUsage();
    for (let n = 0; n < 20; n += 1) {
      const cachedList = await response<TagListResponse>("/api/tags?search=tag&sort=value&limit=100");
      expect(cachedList.rows[0]?.value).toBe(99);
    }
    const { user, system } = process.cpuUsage(cpuBefore);
    // Microseconds of processor time, which a busy machine does not change.
    expect((user + system) / 1_000 / 20).toBeLessThan(50);
    await clock.advance(30_000);
    expect((await response<TagListResponse>("/api/tags?sort=-value&limit=1")).rows[0]?.value).toBeGreaterThan(3_000);
  });
});

describe("a tag", () => {
  test("has its state, schedule, sinks, alarms and write limits", async () => {
    const reading = { className: "comfort", targetSeconds: 60, everySeconds: 60, lastAt: NOW };
    const { response, store } = await openApi({
      parts: {
        findLiveTagState: () => ({ ...reading, dueAt: NOW, reasons: ["Class comfort wants it."] }),
        findSinkAddresses: async ({ subject }) => [{ sink: "lake", connector: "mqtt", text: `plenum/${subject}` }],
        findWritableTag: async () => ({ type: "number", min: 0, max: 10, step: null, closed: null }),
      },
    });
    await fillSource(store, "north", { tagNames: ["T1", "T2"], alarms: [{ source: "T2", lastActiveEvent: null }] });
    const tag = await response<TagResponse>("/api/tag?source=north&id=10002");
    expect(tag).toMatchObject({
      value: null,
      quality: "bad",
      gatewayOffline: "Basement gateway",
      lastGood: { value: 19.5 },
      everySeconds: 60,
      next: { at: NOW, why: expect.stringMatching(/^Class comfort wants it\. Plenum reads the tag earlier/) },
      log: [],
      places: [{ text: "plenum/site/1/tag/10002" }],
      alarms: [{ id: "500001", state: "active" }],
      commands: [],
      writable: { min: 0, max: 10, closed: expect.stringMatching(/needs a password/) },
    });
    expect((await response<TagResponse>("/api/tag?source=north&id=10001")).alarms).toEqual([]);
  });

  test("rejects writes by a viewer", async () => {
    const { app, store } = await openApi({
      ...PASSWORDS,
      parts: { findWritableTag: async () => ({ type: "boolean", min: null, max: null, step: null, closed: null }) },
    });
    await fillSource(store, "north", { tagNames: ["T1"] });
    const closedReason = async (authorization: string) => {
      const response = await app.request("/api/tag?source=north&id=10001", {
        headers: { ...LOCALHOST, authorization },
      });
      return ((await response.json()) as TagResponse).writable?.closed;
    };
    expect(await closedReason(OPERATOR)).toBeNull();
    expect(await closedReason(VIEWER)).toBe("A viewer may look, and change nothing.");
  });

  test("counts the ranges of its configured history that were not fetched", () => {
    const day = (number: number) => `2026-11-${number}T00:00:00.000Z`;
    const gapCount = (...fetched: readonly (readonly [from: number, to: number])[]) => {
      const spans = fetched.map(([from, to]) => ({ from: day(from), to: day(to), why: "points" as const }));
      const ledger = { since: day(20), wished: day(10), watermark: day(21), state: "following", refusal: null, spans };
      return countUnfetchedRanges(ledger as unknown as StoredLedger);
    };
    expect([gapCount([10, 21]), gapCount([12, 15], [16, 21]), gapCount()]).toEqual([0, 2, 1]);
  });
});

describe("an alarm", () => {
  test("has its timeline, its tag, all its occurrences and its delivery per sink", async () => {
    const { response, clock, store } = await openApi();
    await fillSource(store, "north", { tagNames: [ALARM.source], alarms: [{ id: ALARM.id }] });
    await store.outbox.register("lake", "now");
    await store.commit({ events: [alarmEvent("alarm-raised", "e0"), alarmEvent("alarm-raised", "earlier")] });
    const path = `/api/alarm?source=north&id=${ALARM.id}`;
    const alarm = await response<AlarmResponse>(path);
    expect(alarm).toMatchObject({
      brief: { id: ALARM.id, priority: "A", episode: "e0", endedAt: null },
      life: [{ what: "raised", words: "Raised with priority A." }],
      tag: { id: "10001", displayName: ALARM.source },
      sinks: [{ sink: "lake", connector: "influxdb", state: "waiting", link: null }],
    });
    expect(alarm.episodes.map(({ episode }) => episode).toSorted()).toEqual(["e0", "earlier"]);
    const { events } = await store.outbox.next("lake", 10);
    const through = events.at(-1)?.position ?? 0;
    const rejected = [{ position: through, reason: "Not this." }];
    await store.outbox.settle("lake", { isRepeat: false, through, rejected });
    await clock.advance(5_000);
    const [now, before] = [
      await response<AlarmResponse>(path),
      await response<AlarmResponse>(`${path}&episode=earlier`),
    ];
    expect([now.sinks[0]?.state, before.sinks[0]?.state]).toEqual(["delivered", "dead letter"]);
    expect(before.sinks[0]?.words).toBe("Rejected permanently: Not this.");
    expect(before.brief.episode).toBe("earlier");
  });

  test("is read from the event log when its state is no longer stored", async () => {
    const { response, store } = await openApi();
    await fillSource(store, "north", { tagNames: [] });
    await store.commit({ events: [alarmEvent("alarm-raised", "e1"), alarmEvent("alarm-resolved", "e1")] });
    const alarm = await response<AlarmResponse>(`/api/alarm?source=north&id=${ALARM.id}`);
    expect(alarm.brief).toMatchObject({ state: "resolved", episode: "e1" });
    expect(alarm.life.map(({ what }) => what)).toEqual(["raised", "resolved"]);
  });

  test("is counted on the day on which the alarm was raised", async () => {
    const building = await statusBuilding();
    const log = createLog({ level: "silent" });
    const plots = createPlots({ ...building, sources: ["north"], log, numbers: NO_NUMBERS });
    const { response, store } = await openApi({ plots }, building);
    await store.commit({ events: [alarmEvent("alarm-raised", "e0")] });
    const { byPriority, days } = await response<AlarmDayCounts>("/api/alarm-days?source=north");
    expect(days).toHaveLength(30);
    expect(days.at(-1)).toBe("2026-11-21");
    expect(byPriority.A?.[days.indexOf("2026-11-02")]).toBe(1);
    expect((await response<AlarmDayCounts>("/api/alarm-days?source=south")).byPriority).toEqual({});
  });
});

/** About the alarm, as source north tells it. */
function alarmEvent(type: "alarm-raised" | "alarm-resolved", episode: string): Event {
  const { data, subject, time } = sampleEvent(type);
  return makeEvent({
    ...{ type, subject, time, source: sourceUri("north"), siteId: 1, priority: "A" },
    data: { ...data, episode } as never,
    facts: [episode],
  });
}

test("a site has its alarms, gateways, systems and tags", async () => {
  const { response, store } = await openApi();
  await fillSource(store, "north", { tagNames: ["T1", "T2"], alarms: [{}] });
  expect(await response<SiteResponse>("/api/site?source=north&id=1")).toMatchObject({
    displayName: "north school",
    alarms: [{ state: "active" }],
    gateways: [{ displayName: "Basement gateway", online: false }],
    tags: { all: 2, bad: 1 },
  });
});
test("commands are listed from the audit log, newest first, without commands whose first record is missing", async () => {
  const { response, store } = await openApi();
  await fillSource(store, "north", { tagNames: ["T1"] });
  const record = (commandId: string, step: string, detail: object) => ({
    log: "audit",
    body: { at: NOW, commandId, step, detail, previous: "", hash: "" },
  });
  const commandDetail = { source: "north", tagId: "10001", value: 21, by: "operator ann" };
  await store.commit({
    records: [
      record("c1", "accepted", commandDetail),
      record("-", "writing-stopped", {}),
      record("c2", "rejected", { ...commandDetail, requested: 99, message: "That is too much." }),
      record("c1", "sending", { before: 20 }),
      record("c1", "confirmed", { message: "It holds 21." }),
      record("without a first record", "confirmed", {}),
    ],
  });
  const rows = await response<readonly CommandRow[]>("/api/commands?tag=10001");
  expect(rows).toMatchObject([
    { id: "c2", state: "rejected", words: "That is too much." },
    { id: "c1", state: "confirmed", words: "It holds 21.", by: "operator ann", tag: "T1", requested: 21 },
  ]);
});

test.each([
  ["/api/tags?limit=201", 400, "limit is a number from 1 to 200."],
  ["/api/tags?limit=x", 400, "limit is a whole number."],
  ["/api/tags?show=good", 400, "show is one of: all, bad, stale, unread."],
  ["/api/tags?order=name", 400, "There is no parameter order here."],
  ["/api/tag?source=north", 400, "Say id."],
  ["/api/tag?source=north&id=1", 404, "This object does not exist (any more)."],
  ["/api/site?source=north&id=1", 404, "This object does not exist (any more)."],
])("the invalid request %s gets status %i", async (path, status, message) => {
  const { get } = await openApi();
  const response = await get(path);
  expect([response.status, await response.json()]).toEqual([status, { message }]);
});

const PASSWORDS = { password: new Secret("a long password"), viewer: new Secret("another password") };
const OPERATOR = basic("plenum:a long password");
const VIEWER = basic("viewer:another password");

describe("an action of an operator", () => {
  const startPosting = async (more: Parameters<typeof serverOptions>[1] = {}) => {
    const requests: TagWriteRequest[] = [];
    const api = await openApi({ ...PASSWORDS, write: async (wish) => void requests.push(wish), ...more });
    const post = async (path: string, body: unknown, headers: Readonly<Record<string, string>> = {}) => {
      const sent = { ...FROM_PAGE, ...JSON_TYPE, authorization: OPERATOR, ...headers };
      const response = await api.app.request(path, { method: "POST", headers: sent, body: JSON.stringify(body) });
      return [response.status, await response.json()];
    };
    return { ...api, requests, post };
  };
  const WRITE = { source: "north", tag: "10001", value: 21 };

  test("passes a write to the write checks once and returns the result of the write", async () => {
    const { post, store, requests } = await startPosting({
      write: async (wish) => {
        requests.push(wish);
        const detail = { source: "north", tagId: wish.tagId, message: "That is too much." };
        const step = wish.value === 99 ? "rejected" : "accepted";
        const body = { at: NOW, commandId: wish.id, step, detail, previous: "", hash: "" };
        await store.commit({ records: [{ log: "audit", body }] });
      },
    });
    expect(await post("/api/write", { ...WRITE, expect: 20 })).toEqual([202, { id: requests[0]?.id }]);
    expect(requests).toMatchObject([{ source: "north", tagId: "10001", value: 21, expect: 20, user: null }]);
    expect(await post("/api/write", { ...WRITE, value: 99 })).toMatchObject([409, { message: "That is too much." }]);
  });

  test("rejects writes from a viewer and from another web origin", async () => {
    const { post, requests } = await startPosting();
    const viewer = { authorization: VIEWER };
    expect(await post("/api/write", WRITE, viewer)).toEqual([403, { message: expect.stringMatching(/viewer/) }]);
    expect((await post("/api/sink/retry", { name: "lake" }, viewer))[0]).toBe(403);
    expect((await post("/api/write", WRITE, { origin: "https://evil.example" }))[0]).toBe(403);
    expect((await post("/api/write", WRITE, { "x-plenum": "" }))[0]).toBe(403);
    expect((await post("/api/write", WRITE, { "content-type": "text/plain" }))[0]).toBe(415);
    expect(requests).toEqual([]);
  });

  test.each([
    ["/api/write", { ...WRITE, value: "21" }, 400, "A value is a number, true or false."],
    ["/api/write", { ...WRITE, force: true }, 400, "The request has an unknown field."],
    ["/api/write", { ...WRITE, source: "west" }, 404, "There is no such source."],
    ["/api/sink/retry", { name: "west" }, 404, "There is no such sink."],
    ["/api/sink/retry", { name: "lake", ids: ["x"] }, 400, "An id is the number of a dead letter."],
  ])("a request to %s with the invalid body %j gets status %i", async (path, body, status, message) => {
    const { post } = await startPosting();
    expect(await post(path, body)).toEqual([status, { message }]);
  });

  test("sends one or all dead letters again", async () => {
    const { post, store } = await startPosting();
    await store.outbox.register("lake", "now");
    await store.commit({ events: ["1", "2", "3"].map((episode) => alarmEvent("alarm-raised", episode)) });
    const { events } = await store.outbox.next("lake", 10);
    const rejected = events.map(({ position }) => ({ position, reason: "Not this." }));
    await store.outbox.settle("lake", { isRepeat: false, through: events.at(-1)?.position ?? 0, rejected });
    const [deadLetter] = await store.outbox.deadLetters("lake");
    expect(await post("/api/sink/retry", { name: "lake", ids: [String(deadLetter?.id)] })).toEqual([200, { again: 1 }]);
    expect(await post("/api/sink/retry", { name: "lake" })).toEqual([200, { again: 2 }]);
  });
});

const OTHER_MEMBER = {
  message: "The source north is held by the member b of the fleet, on machine-2: ask there.",
  holder: { name: "b", page: "" },
};

function routesWith(elsewhere?: PageApi["holderOf"]) {
  const responses = { sources: ["south"], ...(elsewhere && { holderOf: elsewhere }) } as unknown as PageApi;
  return pageResponseRoutes(responses, { alarms: async () => [], silences: async () => [] });
}

const REQUESTS = ["/source?name=north", "/tag?source=north&id=1", "/alarm?source=north&id=1", "/tags?source=north"];

test.each(REQUESTS)("%s returns the fleet member that holds the source", async (path) => {
  const inFleet = await routesWith(async (source) => (source === "north" ? OTHER_MEMBER : null)).request(path);
  expect([inFleet.status, await inFleet.json()]).toEqual([404, OTHER_MEMBER]);
  const withoutFleet = await routesWith().request(path);
  expect([withoutFleet.status, await withoutFleet.json()]).toEqual([404, { message: "There is no such source." }]);
});
