import { describe, expect, test } from "vitest";
import { documentSet, type Store } from "#src/store/store.ts";
import { type HeldHistory, type HeldPoll, type HeldToken, syncSet } from "#src/sync/snapshot.ts";
import { valueEvent } from "../sample-events.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { emptyStore, fillSource, LIVE, NOW, shownBuilding, statusOver } from "./shown-building.ts";

describe("the report", () => {
  test("counts sites, tags, values, gateways and alarms of each source by itself", async () => {
    const { store, status } = await shownBuilding();
    await fillSource(store, "north", { tagNames: ["a", "b", "c"], alarms: [{}, {}] });
    await fillSource(store, "south", { tagNames: ["d"] });
    const { sources, now, startedAt } = await status.report();
    expect([now, startedAt]).toEqual([NOW, "2026-11-21T09:00:00.000Z"]);
    expect(sources.map(({ name, counts }) => [name, counts])).toEqual([
      ["north", { sites: 1, tags: 3, values: 3, bad: 1, alarms: 2 }],
      ["south", { sites: 1, tags: 1, values: 1, bad: 0, alarms: 0 }],
    ]);
    expect(sources[0]?.oldestValue).toBe("2026-11-21T09:59:58.000Z");
    expect(sources[0]?.sites).toEqual([
      { id: 1, displayName: "north school", tags: 3, gateways: { online: 0, all: 1 }, alarms: { A: 2 } },
    ]);
  });

  test("says what is not to be had, and since when, before anything else", async () => {
    const { store, status } = await shownBuilding();
    const poll: HeldPoll = { lastSuccess: null, lastAttempt: NOW, problem: "alarms: no answer." };
    await store.commit({
      documents: [
        {
          set: syncSet("availability", "north"),
          put: [["service", { since: NOW, reason: "unreachable: no answer." }]],
        },
        { set: documentSet("poll", "north"), put: [["alarms", poll]] },
        {
          set: syncSet("availability", "south"),
          put: [["feature/hosts", { since: NOW, reason: "forbidden: 403." }]],
        },
        {
          set: documentSet("poll", "south"),
          put: [
            ["hosts", poll],
            ["live", { ...poll, problem: "live: a tag has no log." }],
          ] as const,
        },
      ],
    });
    const { notices, sources } = await status.report();
    expect(sources[1]?.unavailable).toEqual([{ job: "hosts", since: NOW, reason: "forbidden: 403." }]);
    // While the service is away, its jobs say nothing new.
    expect(notices).toEqual([
      `north is not to be had since ${NOW}: unreachable: no answer. What you see of it is from before.`,
      `south, hosts: not to be had since ${NOW}: forbidden: 403.`,
      "south, live: live: a tag has no log.",
    ]);
  });

  test.each([
    ["2027-11-21T10:00:00Z", null],
    ["2026-11-28T11:00:00Z", "The token of north expires at 2026-11-28T11:00:00Z, in 7 days."],
    ["2026-11-21T12:00:00Z", "The token of north expires at 2026-11-21T12:00:00Z, in less than a day."],
    [
      "2026-11-20T12:00:00Z",
      "The token of north expired at 2026-11-20T12:00:00Z; put a new one in its place.",
    ],
  ])("a token that ends at %s", async (expiresAt, notice) => {
    const { store, status } = await shownBuilding();
    const info = {
      user: { id: 1, name: "u", email: "u@example.com" },
      name: "Plenum",
      abilities: [],
      expiresAt,
      sites: [],
    };
    const token: HeldToken = { info, checkedAt: NOW, warnedDays: null };
    await store.commit({ documents: [{ set: documentSet("token", "north"), put: [["token", token]] }] });
    const { notices, sources } = await status.report();
    expect(notices).toEqual(notice === null ? [] : [notice]);
    expect(sources[0]?.token).toEqual({ name: "Plenum", expiresAt, checkedAt: NOW });
  });

  test("how far the history is", async () => {
    const { store, status } = await shownBuilding();
    const series = (state: HeldHistory["state"], reached: string, watermark: string) => ({
      state,
      reached,
      watermark,
      target: "2026-11-01T00:00:00.000Z",
    });
    await store.commit({
      documents: [
        {
          set: documentSet("history", "north"),
          put: [
            ["1 5m", series("following", "2026-11-01T00:00:00.000Z", "2026-11-21T09:50:00.000Z")],
            ["2 5m", series("following", "2026-11-10T00:00:00.000Z", "2026-11-21T09:40:00.000Z")],
            ["3 5m", series("no-log", "2026-11-20T00:00:00.000Z", "2026-11-20T00:00:00.000Z")],
          ],
        },
      ],
    });
    expect((await status.report()).sources.map(({ history }) => history)).toEqual([
      { series: 3, complete: 1, withoutLog: 1, toldUntil: "2026-11-21T09:40:00.000Z" },
      null,
    ]);
  });

  test("sinks with their lag; one that was taken out of the configuration is not shown as trouble", async () => {
    const { store, clock } = await shownBuilding();
    await store.outbox.register("lake", "now");
    await store.outbox.register("old", "now");
    await store.outbox.setEnded("old", "not in the configuration");
    await store.commit({ events: [valueEvent(1), valueEvent(2)] });
    const live = {
      ...LIVE,
      sinks: () => [
        { name: "lake", connector: "influxdb", state: "retrying", since: NOW, lastError: "no answer" },
      ],
    };
    const running = await statusOver(store, clock, live).report();
    expect(running.sinks).toMatchObject([
      { sink: "lake", connector: "influxdb", depth: 2, oldest: NOW, state: "retrying", problem: "no answer" },
    ]);
    expect(running.notices).toEqual(["Sink lake: no answer"]);
  });

  test("without a worker it is what the state remembers", async () => {
    const { store, status } = await shownBuilding(null);
    await fillSource(store, "north", { tagNames: ["a"] });
    const report = await status.report();
    expect(report).toMatchObject({ startedAt: null, commands: null, notices: [] });
    expect(report.sources[0]).toMatchObject({ quota: null, counts: { values: 1 } });
  });
});

describe("rows", () => {
  test("alarms: the highest priority first, then the newest, whatever the offset of their times", async () => {
    const { store, status } = await shownBuilding();
    const trigger = (priority: string) => ({
      id: 1,
      displayName: "t",
      description: null,
      priority,
      enabled: true,
    });
    await fillSource(store, "north", {
      tagNames: [],
      alarms: [
        { trigger: trigger("C"), triggeredAt: "2026-11-21T09:59:00Z" },
        { trigger: trigger("A"), triggeredAt: "2026-11-21T08:00:00Z" },
        { trigger: trigger("A"), triggeredAt: "2026-11-21T09:30:00+02:00" },
      ],
    });
    expect((await status.alarms()).map(({ alarm }) => alarm.id)).toEqual(["500002", "500003", "500001"]);
  });

  test("values: by source, site and part of a name; the count goes beyond what is shown", async () => {
    const { store, status } = await shownBuilding();
    await fillSource(store, "north", { tagNames: ["Supply", "Return", "Outdoor"] });
    await fillSource(store, "south", { tagNames: ["Supply"] });
    expect(await status.values({ limit: 2 })).toMatchObject({ total: 4, rows: [{}, {}] });
    const names = async (filter: object) =>
      (await status.values({ limit: 10, ...filter })).rows.map(
        ({ source, tag }) => `${source} ${tag.displayName}`,
      );
    expect(await names({ search: " sUPPL " })).toEqual(["north Supply", "south Supply"]);
    expect(await names({ source: "north", site: 1 })).toEqual([
      "north Supply",
      "north Return",
      "north Outdoor",
    ]);
    expect(await names({ search: "10003" })).toEqual(["north Outdoor"]);
    expect(await names({ site: 2 })).toEqual([]);
  });
});

describe("the cost of being looked at", () => {
  test("ten pages that look at 4,000 tags at once read the state once, and see what changed within a second", async () => {
    const clock = createVirtualClock(Date.parse(NOW));
    const store = await emptyStore(clock);
    await fillSource(store, "north", { tagNames: Array.from({ length: 4_000 }, (_, n) => `tag ${n}`) });
    let reads = 0;
    const counting: Store = {
      ...store,
      documents: async <T>(set: string) => {
        reads += 1;
        return store.documents<T>(set);
      },
    };
    const status = statusOver(counting, clock);
    await status.report();
    const once = reads;
    await Promise.all(
      Array.from({ length: 10 }, () => Promise.all([status.report(), status.values({ limit: 200 })])),
    );
    expect(reads).toBe(once);

    await clock.advance(1_001);
    const begin = process.cpuUsage();
    await Promise.all(Array.from({ length: 10 }, () => status.report()));
    const { user, system } = process.cpuUsage(begin);
    expect((user + system) / 1_000, "milliseconds of processor time for ten reports").toBeLessThan(500);

    await store.commit({ documents: [{ set: documentSet("value", "north"), remove: ["10001"] }] });
    await clock.advance(1_001);
    expect((await status.report()).sources[0]?.counts.values).toBe(3_999);
  });
});
