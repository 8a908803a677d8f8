import { describe, expect, test } from "vitest";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { type DocumentChange, documentSet, type Store } from "#src/engine/store/store.ts";
import { createLedger } from "#src/engine/sync/history/ledger.ts";
import { reportPlan } from "#src/engine/sync/plan/report.ts";
import {
  type StoredJob,
  type StoredLeftOut,
  type StoredRange,
  type StoredTagQuarantine,
  type StoredToken,
  type StoredValue,
  syncSet,
} from "#src/engine/sync/stored-documents.ts";
import { refreshMetricGauges } from "#src/ui/status/health.ts";
import type { RunningSource } from "#src/ui/status/source-reports.ts";
import { createStatus } from "#src/ui/status/status-report.ts";
import { valueEvent } from "../sample-events.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import {
  emptyStore,
  fillSource,
  LIVE_SOURCE,
  NOW,
  PLAN_FACTS,
  statusBuilding,
  statusOver,
  WORKER,
} from "./status-building.ts";

describe("the status report", () => {
  test("counts sites, tags, values, gateways and alarms per source", async () => {
    const { store, status } = await statusBuilding();
    await fillSource(store, "north", { tagNames: ["a", "b", "c"], alarms: [{}, {}] });
    await fillSource(store, "south", { tagNames: ["d"] });
    const { sources, now, startedAt } = await status.report();
    expect([now, startedAt]).toEqual([NOW, "2026-11-21T09:00:00.000Z"]);
    expect(sources.map(({ name, counts }) => [name, counts])).toEqual([
      ["north", { sites: 1, tags: 3, values: 3, bad: 1, alarms: 2 }],
      ["south", { sites: 1, tags: 1, values: 1, bad: 0, alarms: 0 }],
    ]);
    expect(sources[0]?.oldestValue).toBe("2026-11-21T09:59:58.000Z");
    const site = { id: 1, displayName: "north school", tags: 3 };
    expect(sources[0]?.sites).toEqual([{ ...site, gateways: { online: 0, all: 1, unclear: 0 }, alarms: { A: 2 } }]);
  });

  test("lists warnings about an unavailable service and unavailable features first", async () => {
    const { store, status } = await statusBuilding();
    const poll: StoredJob = { lastSuccess: null, lastAttempt: NOW, problem: "alarms: no answer." };
    const unavailability = { since: NOW, reason: "unreachable: no answer." };
    const forbiddenFeature = { since: NOW, reason: "forbidden: 403." };
    const livePoll = { ...poll, problem: "live: a tag has no log." };
    await store.commit({
      documents: [
        { set: syncSet("availability", "north"), put: [["service", unavailability]] },
        { set: documentSet("poll", "north"), put: [["alarms", poll]] },
        { set: syncSet("availability", "south"), put: [["feature/hosts", forbiddenFeature]] },
        { set: documentSet("poll", "south"), put: Object.entries({ hosts: poll, live: livePoll }) },
      ],
    });
    const { notices, sources } = await status.report();
    expect(sources[1]?.unavailable).toEqual([{ job: "hosts", since: NOW, reason: "forbidden: 403." }]);
    // While the service is away, its jobs say nothing new.
    expect(notices).toEqual([
      `north is unavailable since ${NOW}: unreachable: no answer. The data below is from before the failure.`,
      `south, hosts: unavailable since ${NOW}: forbidden: 403.`,
      "south, live: live: a tag has no log.",
    ]);
  });

  test.each([
    ["2027-11-21T10:00:00Z", null],
    ["2026-11-28T11:00:00Z", "The token of north expires at 2026-11-28T11:00:00Z, in 7 days."],
    ["2026-11-21T12:00:00Z", "The token of north expires at 2026-11-21T12:00:00Z, in less than a day."],
    ["2026-11-20T12:00:00Z", "The token of north expired at 2026-11-20T12:00:00Z; replace it with a new one."],
  ])("with a token that expires at %s, warns from seven days before the expiry", async (expiresAt, notice) => {
    const { store, status } = await statusBuilding();
    const user = { id: 1, name: "u", email: "u@example.com" };
    const info = { user, name: "Plenum", abilities: [], expiresAt, sites: [] };
    const token: StoredToken = { info, checkedAt: NOW, warnedDays: null };
    await store.commit({ documents: [{ set: documentSet("token", "north"), put: [["token", token]] }] });
    const { notices, sources } = await status.report();
    expect(notices).toEqual(notice === null ? [] : [notice]);
    expect(sources[0]?.token).toEqual({ name: "Plenum", expiresAt, checkedAt: NOW });
  });

  test("contains a summary of the history", async () => {
    const { store, status } = await statusBuilding();
    const [begin, from, since] = ["01", "10", "20"].map((day) => `2026-11-${day}T00:00:00.000Z`);
    const series = (state: string, watermark: string | undefined, why: StoredRange["why"] = "points") => ({
      ...{ version: 2, state, watermark, wished: begin, since, refusal: null },
      spans: [
        { from: begin, to: from, why },
        { from, to: watermark, why: "points" },
      ],
    });
    // Written by an earlier version, whose ranges had no reason.
    const watermark = "2026-11-21T09:50:00.000Z";
    const legacyLedger = { state: "following", since, watermark, reached: begin, target: begin };
    const put = [
      ["1 5m", series("following", watermark, "null")],
      ["2 5m", series("following", "2026-11-21T09:40:00.000Z", "refused")],
      ["4 5m", legacyLedger],
      ["3 5m", series("no-log", since)],
    ] as const;
    await store.commit({ documents: [{ set: documentSet("history", "north"), put }] });
    expect((await status.report()).sources.map(({ history }) => history)).toEqual([
      {
        ...{ series: 4, complete: 1, withoutLog: 1, toldUntil: "2026-11-21T09:40:00.000Z" },
        ...{ unreadableCount: 0, unreadable: [] },
      },
      null,
    ]);
  });

  test("contains the lag of sinks, but not of removed sinks", async () => {
    const { store, clock } = await statusBuilding();
    await store.outbox.register("lake", "now");
    await store.outbox.register("old", "now");
    await store.outbox.setEnded("old", "not in the configuration");
    await store.commit({ events: [valueEvent(1), valueEvent(2)] });
    const lake = { name: "lake", connector: "influxdb", state: "retrying", since: NOW, lastError: "no answer" };
    const running = await statusOver(store, clock, { ...WORKER, sinks: () => [lake] }).report();
    expect(running.sinks).toMatchObject([
      { sink: "lake", connector: "influxdb", depth: 2, oldest: NOW, state: "retrying", problem: "no answer" },
    ]);
    expect(running.notices).toEqual(["Sink lake: no answer"]);
  });

  test("contains the stored state without a worker", async () => {
    const { store, status } = await statusBuilding(null);
    await fillSource(store, "north", { tagNames: ["a"] });
    const report = await status.report();
    expect(report).toMatchObject({ startedAt: null, commands: null, notices: [] });
    expect(report.sources[0]).toMatchObject({ quota: null, plan: null, clockSkewMs: null, counts: { values: 1 } });
  });
});

describe("the warnings of a source", () => {
  /** The notices of a worker that follows north and knows this of it. */
  async function warningsWith(known: Partial<RunningSource>): Promise<readonly string[]> {
    const { store, clock } = await statusBuilding();
    const live = { ...WORKER, source: (name: string) => (name === "north" ? { ...LIVE_SOURCE, ...known } : null) };
    return (await statusOver(store, clock, live).report()).notices;
  }

  async function reportWith(tagNames: readonly string[], documents: readonly DocumentChange[]) {
    const building = await statusBuilding();
    await fillSource(building.store, "north", { tagNames });
    await building.store.commit({ documents });
    return { ...(await building.status.report()), ...building };
  }

  test("report another program that uses the quota, history without requests, and many values that changed at once", async () => {
    const foreign = { evidence: "remaining", perWindow: 6, sinceMs: Date.parse(NOW) } as const;
    const quota = LIVE_SOURCE.quota ?? { buckets: [], heldUntilMs: null };
    const allowances = quota.buckets.map((allowance) => ({ ...allowance, foreign }));
    const suddenChanges = () => [
      { what: "nulls", siteIds: [3], since: NOW, tags: 18 } as const,
      { what: "types", siteIds: [3, 4], since: NOW, tags: 1 } as const,
    ];
    const known = { quota: { ...quota, buckets: allowances }, historyStarvesSince: () => NOW, suddenChanges };
    expect((await warningsWith(known)).toSorted()).toEqual([
      `Another program seems to spend the quota of north, up to 6 requests a minute, since ${NOW}. Give it a token of another user, or leave it a share with quota.polite.`,
      `History of north has been due since ${NOW} and got no request: live reads and writes take the quota. \`plenum plan\` names the cheapest change.`,
      `north, site 3, 4: more than a third of the values of a reply changed between number and boolean at ${NOW}. 1 tag is uncertain until a further reading confirms the type.`,
      `north, site 3: 18 values turned null at once at ${NOW} and are published as bad. A gateway may be offline.`,
    ]);
  });

  test.each([
    [30_000, null],
    [
      31_000,
      "The clock of this machine is 31 s ahead of the clock of north. Until you correct it, times are uncertain and Plenum rejects commands.",
    ],
    [
      -3_600_000,
      "The clock of this machine is 3600 s behind the clock of north. Until you correct it, times are uncertain and Plenum rejects commands.",
    ],
  ])("report a clock difference of %i ms if it exceeds 30 s", async (clockSkewMs, notice) => {
    expect(await warningsWith({ clockSkewMs })).toEqual(notice === null ? [] : [notice]);
  });

  test("report an overloaded read plan once for all read classes", async () => {
    const classes = PLAN_FACTS.classes.map((each) => ({ ...each, tags: 900, allTagCount: 900 }));
    const plan = async () => reportPlan({ ...PLAN_FACTS, classes });
    expect(await warningsWith({ plan })).toEqual([
      expect.stringMatching(
        /^Values of north \(comfort, meters\) become up to 2\.\d times older than configured, because the intervals need \d{3} % .*`plenum plan`/,
      ),
    ]);
  });

  test("name the tag and resolution of unreadable history", async () => {
    const series = { resolution: "5m", timeZone: "UTC", everyMs: 1, backfillMs: 0, graceMs: 0, lookBackMs: 0 } as const;
    const said = 'unreadable: The value at 2026-06-01T00:00:00.000Z is the text "n/a", and no number.';
    const refusal = { from: NOW, to: NOW, why: "refused", reason: "unreadable", at: NOW, said } as const;
    const storedLedger = { ...createLedger(series, Date.parse(NOW)), spans: [refusal] };
    const put = ["10001 5m", "10002 5m"].map(
      (key) => [key, key === "10001 5m" ? storedLedger : { ...storedLedger, spans: [] }] as const,
    );
    const { notices, sources } = await reportWith(["Supply"], [{ set: documentSet("history", "north"), put }]);
    expect(notices).toEqual([
      `History of north was answered and cannot be read, and is requested again: 10001 5m (since ${NOW}: ${said}). \`plenum gaps\` names every bucket.`,
    ]);
    expect(sources[0]?.history).toMatchObject({ series: 2, unreadableCount: 1 });
  });

  test("report unreadable and missing values separately, also in the metrics", async () => {
    const put: (readonly [string, StoredLeftOut])[] = [
      ["10001", { since: NOW, kind: "unreadable", reason: 'Its value is the text "--".' }],
      ["10002", { since: NOW, kind: "unanswered", reason: "The reply does not list it." }],
    ];
    const documents = [{ set: syncSet("left-out", "north"), put }];
    const { notices, sources, status } = await reportWith(["Supply", "Return"], documents);
    expect(sources[0]?.leftOut).toEqual(put.map(([id, entry]) => ({ id, ...entry })));
    expect(notices).toEqual([
      `1 tag of north has an unreadable value in the replies; what was read before stays: 10001 (since ${NOW}: Its value is the text "--".).`,
      `1 tag of north has no value in the replies: 10002 (since ${NOW}: The reply does not list it.).`,
    ]);
    const metrics = createMetrics();
    await refreshMetricGauges({ status, metrics, log: { warn: () => undefined } });
    const metricsText = await metrics.registry.metrics();
    expect(metricsText).toContain('plenum_tags_left_out{source="north",kind="unreadable"} 1');
    expect(metricsText).toContain('plenum_tags_left_out{source="north",kind="unanswered"} 1');
  });

  test("report boolean values of tags with a numeric unit", async () => {
    const storedValue: StoredValue = { value: true, quality: "uncertain", time: NOW, typeDoubt: "unit", told: "this" };
    const documents = [{ set: documentSet("value", "north"), put: [["10001", storedValue] as const] }];
    const { notices, sources } = await reportWith(["Supply", "b"], documents);
    expect(sources[0]?.typeDoubts).toEqual([{ id: "10001", displayName: "Supply", unit: "°C", doubt: "unit" }]);
    expect(notices).toEqual([
      "1 tag of north has a boolean as value although the unit is one of numbers, so the quality is uncertain: 10001 Supply (°C). Correct the unit or the value at the service.",
    ]);
  });

  test("report quarantined tags and name the first five", async () => {
    const quarantine: StoredTagQuarantine = { until: NOW, reason: "main answered 422." };
    const put = (count: number) => Array.from({ length: count }, (_, n) => [String(10_001 + n), quarantine] as const);
    const set = syncSet("quarantine", "north");
    const { notices, sources, store } = await reportWith(["Supply", ..."bcdefg"], [{ set, put: put(1) }]);
    expect(notices).toEqual([
      "1 tag of north was rejected singly twice and is in quarantine; the next single requests follow after 10 minutes, then 1, 6 and 24 hours: 10001 Supply. `plenum explain 10001` says why.",
    ]);
    expect(sources[0]?.setAside).toEqual([{ id: "10001", displayName: "Supply", ...quarantine }]);
    await store.commit({ documents: [{ set, put: put(7) }] });
    expect((await statusOver(store, createVirtualClock(0)).report()).notices[0]).toMatch(
      /^7 tags .* are in quarantine.*: 10001 Supply, 10002 b, 10003 c, 10004 d, 10005 e and 2 more\./,
    );
  });
});

test("the read plan is computed at most every 15 s", async () => {
  const { store, clock } = await statusBuilding();
  let planCount = 0;
  const plan = async () => {
    planCount += 1;
    return reportPlan({ ...PLAN_FACTS, tags: planCount });
  };
  const liveParts = { ...WORKER, source: () => ({ ...LIVE_SOURCE, plan }) };
  const status = statusOver(store, clock, liveParts);
  const tags = async () => (await status.report()).sources.map((source) => source.plan?.tags);
  const firstTags = await tags();
  await clock.advance(14_000);
  await Promise.all([tags(), tags()]);
  expect([planCount, await tags()]).toEqual([2, firstTags]);
  await clock.advance(1_001);
  expect(await tags()).toEqual([3, 4]);
});

test("the list of alarms is sorted by priority, then from new to old, across time offsets", async () => {
  const { store, status } = await statusBuilding();
  const trigger = (priority: string) => ({ id: 1, displayName: "t", description: null, priority, enabled: true });
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
test("ten status requests over 4,000 tags read the state once, and show a change within 4 s", async () => {
  const clock = createVirtualClock(Date.parse(NOW));
  const store = await emptyStore(clock);
  await fillSource(store, "north", { tagNames: Array.from({ length: 4_000 }, (_, n) => `tag ${n}`) });
  let reads = 0;
  const countingStore: Store = {
    ...store,
    documents: async <T>(set: string) => {
      reads += 1;
      return store.documents<T>(set);
    },
  };
  const sources = ["north", "south"].map((name) => ({ name, origin: `https://${name}.example` }));
  const status = createStatus({ version: "1.2.3", clock, store: countingStore, sources, live: WORKER });
  await status.report();
  const readsPerReport = reads;
  await Promise.all(Array.from({ length: 10 }, () => status.report()));
  expect(reads).toBe(readsPerReport);
  await clock.advance(1_001);
  const cpuBefore = process.cpuUsage();
  await Promise.all(Array.from({ length: 10 }, () => status.report()));
  const { user, system } = process.cpuUsage(cpuBefore);
  expect((user + system) / 1_000, "milliseconds of processor time for ten reports").toBeLessThan(500);
  await store.commit({ documents: [{ set: documentSet("value", "north"), remove: ["10001"] }] });
  await clock.advance(4_001);
  expect((await status.report()).sources[0]?.counts.values).toBe(3_999);
});
