import { beforeEach, describe, expect, test, vi } from "vitest";
import { ConfigError, LocalFailure, Rejected, Retryable, Throttled } from "#src/core/errors/errors.ts";
import type { TagReading, TagValue } from "#src/core/model/building.ts";
import type { Event } from "#src/core/model/event.ts";
import { OrderlyStop } from "#src/core/runtime/lifecycle.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createWakeup } from "#src/core/runtime/waiting.ts";
import { documentSet, type Store } from "#src/engine/store/store.ts";
import type { createLiveReads, LiveReadOptions } from "#src/engine/sync/read/live-reads.ts";
import { type StoredLeftOut, type StoredValue, syncSet } from "#src/engine/sync/stored-documents.ts";
import type { VirtualClock } from "../virtual-clock.ts";
import {
  inventory,
  openClockAndStore,
  readingSource,
  runFollower,
  startFollower,
  tagNamed,
  testQuota,
  testReads,
} from "./live-reads-harness.ts";

const START = Date.parse("2026-11-02T06:00:00Z");

let clock: VirtualClock;
let store: Store;

beforeEach(async () => {
  ({ clock, store } = await openClockAndStore(START));
});

const ids = (count: number) => Array.from({ length: count }, (_, i) => String(101 + i));

/** A service that returns or throws the result of `answer`, and the requested groups. */
function building(
  respond: (group: readonly string[]) => Record<string, TagValue> | Error,
  latencyMs: (group: readonly string[]) => number = () => 50,
  perMinute?: number,
) {
  const requestedGroups: (readonly string[])[] = [];
  const quota = testQuota(clock, perMinute);
  const source = readingSource(quota, async (group, signal) => {
    requestedGroups.push([...group]);
    const takesMs = latencyMs(group);
    await clock.sleep(takesMs, signal);
    const values = respond(group);
    if (values instanceof Error) throw values;
    const readings: TagReading[] = Object.entries(values).map(([id, value]) => ({ ...tagNamed(id), value }));
    return { readings: readings.reverse(), receivedAtMs: clock.now(), latencyMs: takesMs };
  });
  takeRemaining = async (signal) => {
    await quota.started;
    const one = async () => {
      while (!signal.aborted)
        await quota.run("history", "history", ["past"], signal, async () => undefined).catch(() => undefined);
    };
    await Promise.all([one(), one()]);
  };
  return { source, requests: requestedGroups };
}

/** History that takes every slot that live reads leave. */
let takeRemaining: (signal: AbortSignal) => Promise<void>;

const all = (value: TagValue) => (group: readonly string[]) => Object.fromEntries(group.map((id) => [id, value]));

const FRESHER = [{ name: "all", every: "1m", fresher: true }];

async function startLiveReads(
  source: LiveReadOptions["source"],
  tags: readonly string[],
  classes: unknown = [{ name: "all", every: "1m" }],
  more: Partial<LiveReadOptions> = {},
) {
  const listedTags = tags.map((id) => tagNamed(id));
  await inventory(store, "trial", listedTags);
  return testReads(classes, { source, store, clock, ...more });
}

async function runReads(
  reads: ReturnType<typeof createLiveReads>,
  ms: number,
  { history }: { readonly history: boolean } = { history: true },
): Promise<unknown> {
  const historyEnded = new AbortController();
  const historyRun = history ? takeRemaining(historyEnded.signal) : Promise.resolve();
  await clock.advance(0);
  const failure = await runFollower(clock, reads, ms);
  historyEnded.abort(new OrderlyStop());
  await historyRun;
  return failure;
}

async function emittedValues(): Promise<readonly Event<"tag-value">[]> {
  const { events } = await store.outbox.next("all", 10_000);
  for (const { event } of events) expect(event).toStrictEqual(JSON.parse(JSON.stringify(event)));
  return events.flatMap(({ event }) => (event.type === "tag-value" ? [event as Event<"tag-value">] : []));
}

const countIsolated = (reads: ReturnType<typeof createLiveReads>) =>
  ids(60).filter((id) => (reads.known(id)?.isolation ?? null) !== null).length;
const heldValues = () => store.documents<StoredValue>(documentSet("value", "trial"));

describe("a live reading of a tag", () => {
  test("is stored and emitted with the time when the reply was received", async () => {
    const { source } = building(all(21.5));
    await runReads(await startLiveReads(source, ids(3)), 4_000);
    const [event] = await emittedValues();
    const data = { value: 21.5, quality: "good", latencyMs: 50, time: event?.time };
    expect(event).toMatchObject({ source: "/sources/trial", subject: "site/1/tag/101", siteid: "1", data });
    expect((await heldValues()).get("101")).toMatchObject({ value: 21.5, quality: "good", time: event?.time });
  });

  test("stores the reason why the reply has no value for a tag, until the tag has a value again", async () => {
    let isAnswered = false;
    const { source } = building((group) => all(20)(isAnswered ? group : group.filter((id) => id !== "101")));
    const warn = vi.fn();
    const reads = await startLiveReads(source, ids(3), undefined, { log: { info: () => {}, warn, error: () => {} } });
    await runReads(reads, 130_000);
    const leftOut = () => store.documents<StoredLeftOut>(syncSet("left-out", "trial"));
    const reasons = [...(await leftOut())].map(([id, { reason }]) => [id, reason]);
    expect(reasons).toEqual([["101", "The reply does not list it."]]);
    expect(warn.mock.calls.filter(([, text]) => /no value in the reply/.test(text))).toHaveLength(1);
    isAnswered = true;
    await runReads(reads, 130_000);
    expect((await leftOut()).size).toBe(0);
  });

  test("emits a null value as null with quality bad, never as 0, and keeps the last good value", async () => {
    let round = 0;
    const { source } = building((group) => all(round++ === 0 ? 20 : null)(group));
    await runReads(await startLiveReads(source, ids(2)), 130_000);
    const events = (await emittedValues()).filter((event) => event.subject.endsWith("/101"));
    expect(events.map(({ data }) => `${data.value} ${data.quality}`)).toEqual(["20 good", "null bad", "null bad"]);
    expect(events.at(-1)?.data.lastGood).toEqual({ value: 20, time: events[0]?.time });
    expect((await heldValues()).get("101")).toMatchObject({ quality: "bad", nulls: 2, lastGood: { value: 20 } });
  });

  test("emits minus zero as zero, and as uncertain while the local clock is more than five minutes off", async () => {
    const { source } = building(all(-0));
    await runReads(await startLiveReads(source, ids(1), undefined, { clockSkewMs: () => -301_000 }), 4_000);
    expect((await emittedValues())[0]?.data).toMatchObject({ value: 0, quality: "uncertain" });
  });

  test("with on_change, emits a value that leaves the deadband, and at least one value per max_silence", async () => {
    const values = [20, 20.1, 20.6, 20.6, 20.6, 20.6, 20.6, 20.6];
    let round = 0;
    const { source } = building((group) => all(values[round++] ?? 20.6)(group));
    const classes = [{ name: "all", every: "30s", on_change: true, deadband: 0.5, max_silence: "2m" }];
    await runReads(await startLiveReads(source, ids(1), classes), 245_000);
    const events = await emittedValues();
    expect(events.map((event) => event.data.value)).toEqual([20, 20.6, 20.6]);
    const [, changed, reminder] = events.map((event) => Date.parse(event.time));
    expect((reminder ?? 0) - (changed ?? 0)).toBeGreaterThanOrEqual(120_000);
    const storedTime = (await heldValues()).get("101")?.time ?? "";
    expect(storedTime > (events.at(-1)?.time ?? "")).toBe(true);
  });
});

describe("requests for live values", () => {
  test("after a restart, contain no tag before its interval has passed", async () => {
    const { source, requests } = building(all(1));
    await runReads(await startLiveReads(source, ids(40), [{ name: "all", every: "10m" }]), 10_000);
    expect(requests).toHaveLength(2);
    await runReads(await startLiveReads(source, ids(40), [{ name: "all", every: "10m" }]), 120_000);
    expect(requests).toHaveLength(2);
  });

  test.each([20, 25])(
    "keep the interval of %i of 25 stored tags after a restart with a clock set back by a day",
    async (count) => {
      const { source, requests } = building(all(1));
      await runReads(await startLiveReads(source, ids(count)), 60_000);
      clock.stepWall(-86_400_000);
      const oldCount = requests.length;
      const reads = await startLiveReads(source, ids(25));
      await runReads(reads, 1_000);
      expect(reads.status().freshness).toMatchObject([{ tags: 25, achievedMs: null }]);
      expect(reads.known("101")).toMatchObject({ lastMs: null, countedMs: 60_100 });
      await runReads(reads, 599_000);
      const laterReads = requests.slice(oldCount).flat();
      for (const id of ids(25)) expect(laterReads.filter((each) => each === id).length, id).toBeGreaterThanOrEqual(9);
      expect(requests.length - oldCount).toBeLessThanOrEqual(26);
      expect(reads.status().freshness[0]?.achievedMs).toBeLessThanOrEqual(63_000);
      expect(reads.known("101")).toMatchObject({ countedMs: null });
    },
  );

  test("use spare request slots for tags of a class with fresher: true before their interval has passed", async () => {
    const { source, requests } = building(all(1));
    await runReads(await startLiveReads(source, ids(40), FRESHER), 60_000, { history: false });
    expect(requests.length).toBeGreaterThanOrEqual(19);
    expect(await emittedValues()).toHaveLength(requests.flat().length);
  });

  test("cause one warning when the intervals exceed the quota, and the intervals are lengthened", async () => {
    const { source } = building(all(1));
    const warnings: string[] = [];
    const recording = { info: () => {}, warn: (_: unknown, text: string) => void warnings.push(text) };
    const reads = await startLiveReads(source, ids(600), undefined, { log: recording as never });
    await runReads(reads, 290_000);
    expect(warnings.filter((text) => text.includes("extended"))).toHaveLength(1);
    expect(reads.status().overload?.factors.get("all")).toBeGreaterThan(1.5);
  });

  test("end with a failure after three failed requests in a row, but not after a single failed request", async () => {
    let failuresLeft = 1;
    const { source, requests } = building((group) => (failuresLeft-- > 0 ? new Retryable("reset") : all(1)(group)));
    expect(await runReads(await startLiveReads(source, ids(60)), 60_000)).toBeNull();
    expect((await heldValues()).size).toBe(60);
    failuresLeft = 99;
    const oldCount = requests.length;
    expect(await runReads(await startLiveReads(source, ids(60)), 290_000)).toBeInstanceOf(Retryable);
    expect(requests.length - oldCount).toBeLessThanOrEqual(5);
  });

  test.each([
    ["a failure of the local machine", () => new LocalFailure("no descriptor is left")],
    ["a 429", () => new Throttled("429", 5_000)],
    ["maintenance", () => new Throttled("503", 5_000, { scope: "everything" })],
    ["a refused token", () => new ConfigError("401", { reason: "unauthenticated" })],
  ])("end after %s, and no tag is suspected as the cause", async (_, failure) => {
    let fails = true;
    const { source, requests } = building((group) => (fails ? failure() : all(1)(group)));
    const reads = await startLiveReads(source, ids(60), FRESHER);
    for (let run = 0; run < 2; run++) expect(await runReads(reads, 10_000)).toEqual(failure());
    expect(countIsolated(reads)).toBe(0);
    fails = false;
    const oldCount = requests.length;
    await runReads(reads, 15_000);
    expect(requests.slice(oldCount).flatMap((group) => (group.length > 1 ? [group.length] : []))).toEqual([20, 20, 20]);
  });

  /** Reads 60 tags for a minute; then requests fail as often as the test says. */
  async function readsForAMinute() {
    let failuresLeft = 0;
    const { source } = building((group) => (failuresLeft-- > 0 ? new Retryable("500") : all(1)(group)));
    const reads = await startLiveReads(source, ids(60));
    await runReads(reads, 60_000);
    return { reads, failNext: (count: number) => (failuresLeft = count), failuresLeft: () => failuresLeft };
  }

  test("that fail put no tag under suspicion any more once a tag that was readable before fails too", async () => {
    const { reads, failNext } = await readsForAMinute();
    failNext(4);
    expect(await runReads(reads, 60_000)).toBeInstanceOf(Retryable);
    expect(countIsolated(reads)).toBeGreaterThan(0);
    expect(await runReads(reads, 10_000)).toBeInstanceOf(Retryable);
    expect(countIsolated(reads)).toBe(0);
  });

  test("that fail put no tag under suspicion after an outage of the service", async () => {
    const { reads, failNext, failuresLeft } = await readsForAMinute();
    failNext(2);
    for (let n = 0; n < 60 && failuresLeft() > 0; n++) await runReads(reads, 1_000);
    expect(countIsolated(reads)).toBeGreaterThan(0);
    const { drain } = startFollower(reads, undefined, { afterOutage: true });
    await clock.advance(1_000);
    expect(countIsolated(reads)).toBe(0);
    await drain(clock);
  });
});

describe("a tag that makes each request with it fail", () => {
  const buildRefusing = (bad: ReadonlySet<string>, error: () => Error) =>
    building((group) => (group.some((id) => bad.has(id)) ? error() : all(1)(group)));

  test.each([
    ["404", () => new Rejected("404")],
    ["403", () => new ConfigError("403", { reason: "forbidden" })],
    ["422", () => new ConfigError("422", { reason: "validation", field: "tags" })],
  ])("finds a tag that causes a %s with at most 9 extra requests, and emits the 19 other values", async (_, error) => {
    const { source, requests } = buildRefusing(new Set(["107"]), error);
    const reads = await startLiveReads(source, ids(20), [{ name: "all", every: "1h", fresher: true }]);
    expect(await runReads(reads, 120_000)).toBeNull();
    expect([...(await heldValues()).keys()].sort()).toEqual(ids(20).filter((id) => id !== "107"));
    expect(reads.status().quarantined).toEqual(["107"]);
    expect(requests.length).toBeLessThanOrEqual(10);
  });

  test("is found with one extra request when the service names the failing tag", async () => {
    const error = (at: number) => new ConfigError("422", { reason: "validation", field: `tags.${at}` });
    const { source, requests } = building((group) =>
      group.includes("107") ? error(group.indexOf("107")) : all(1)(group),
    );
    const reads = await startLiveReads(source, ids(20), [{ name: "all", every: "1h" }]);
    await runReads(reads, 60_000);
    expect(requests.map((group) => group.length)).toEqual([20, 19, 1]);
    expect(reads.status().quarantined).toEqual([]);
    await runReads(reads, 60_000);
    expect(requests.map((group) => group.length)).toEqual([20, 19, 1, 1]);
    expect(reads.status().quarantined).toEqual(["107"]);
  });

  test("quarantines 20 failing tags of one group, and emits all values of the other tags", async () => {
    const { source } = buildRefusing(new Set(ids(20)), () => new Rejected("404"));
    const reads = await startLiveReads(source, ids(60), [{ name: "all", every: "30s" }]);
    await runReads(reads, 600_000, { history: false });
    expect((await heldValues()).size).toBe(40);
    expect(reads.status().quarantined).toHaveLength(20);
  });

  test.each([
    [20, 800, 60_000],
    [3, 100, 120_000],
  ])(
    "at %i requests a minute and overloaded by %i other tags, searches for a failing tag every %i ms",
    async (perMinute, count, everyMs) => {
      const otherTags = Array.from({ length: count }, (_, i) => tagNamed(String(1_001 + i)));
      await inventory(store, "trial", otherTags, 2);
      const searchedAtMs: number[] = [];
      const respond = (group: readonly string[]) => {
        if (group.length < 8) searchedAtMs.push(clock.monotonic());
        return group.includes("101") ? new Rejected("404") : all(1)(group);
      };
      const { source } = building(respond, undefined, perMinute);
      const reads = await startLiveReads(source, ids(8));
      await runReads(reads, 600_000);
      expect(reads.status().overload?.demand).toBeGreaterThan(1.7);
      const slotMs = 60_000 / perMinute;
      const gapsMs = searchedAtMs.slice(1).map((atMs, i) => atMs - (searchedAtMs[i] ?? 0));
      expect(gapsMs).toHaveLength(4);
      for (const gapMs of gapsMs) {
        expect(gapMs).toBeGreaterThanOrEqual(everyMs);
        expect(gapMs).toBeLessThan(everyMs + 1.5 * slotMs);
      }
      const storedValues = await heldValues();
      expect(ids(8).filter((id) => !storedValues.has(id))).toEqual(["101"]);
      expect(reads.status().quarantined).toEqual(["101"]);
    },
  );

  test("quarantines no tag when every request is refused, and sends at most 24 requests", async () => {
    const refusal = new ConfigError("403", { reason: "forbidden" });
    const { source, requests } = buildRefusing(new Set(ids(60)), () => refusal);
    const reads = await startLiveReads(source, ids(60));
    expect(await runReads(reads, 280_000)).toBe(refusal);
    expect(reads.status().quarantined).toEqual([]);
    expect(requests.length).toBeLessThanOrEqual(24);
  });

  test("probes a quarantined tag after 10 minutes, 1, 6 and 24 hours, also after restarts, until the tag has a value", async () => {
    const bad = new Set(["107"]);
    const { source, requests } = buildRefusing(bad, () => new Rejected("404"));
    const classes = [{ name: "all", every: "30d" }];
    await runReads(await startLiveReads(source, ids(20), classes), 200_000);
    let oldCount = requests.length;
    for (const minutes of [10, 60, 360, 1_440, 1_440]) {
      await clock.advance(minutes * 60_000 - 300_000);
      const earlyReads = await startLiveReads(source, ids(20), classes);
      await runReads(earlyReads, 30_000);
      expect(requests.slice(oldCount)).toEqual([]);
      const reads = await startLiveReads(source, ids(20), classes);
      await runReads(reads, 300_000);
      expect(requests.slice(oldCount)).toEqual([["107"]]);
      expect(reads.status().quarantined).toEqual(["107"]);
      oldCount = requests.length;
    }
    bad.clear();
    await clock.advance(24 * 3_600_000);
    const reads = await startLiveReads(source, ids(20), classes);
    await runReads(reads, 60_000);
    expect(requests.slice(oldCount)).toEqual([["107"]]);
    expect(reads.status().quarantined).toEqual([]);
    expect((await heldValues()).has("107")).toBe(true);
  });

  test("requests at once a tag that an older version put in quarantine", async () => {
    const storedQuarantine = { until: new Date(START + 20 * 3_600_000).toISOString(), reason: "404" };
    await store.commit({ documents: [{ set: syncSet("quarantine", "trial"), put: [["107", storedQuarantine]] }] });
    const { source } = building(all(1));
    await runReads(await startLiveReads(source, ids(20)), 10_000);
    expect((await heldValues()).size).toBe(20);
  });
});

describe("the stale event of a tag that cannot be read", () => {
  async function runWithStaleValues(reads: ReturnType<typeof createLiveReads>, ms: number) {
    const ended = new AbortController();
    const watch = reads.watchStaleValues(ended.signal);
    const endMs = clock.monotonic() + ms;
    await runReads(reads, ms, { history: false });
    // Failed reads end before.
    await clock.advance(Math.max(0, endMs - clock.monotonic()));
    ended.abort(new OrderlyStop());
    await watch;
    return (await emittedValues()).filter(({ data }) => data.quality === "stale");
  }

  /** Reads three tags for 30 s, then gets other answers for two minutes. Returns the stale events. */
  async function staleAfter(
    respond: Parameters<typeof building>[0],
    more: (isOther: () => boolean) => object = () => ({}),
  ) {
    let isOther = false;
    const { source } = building((group) => (isOther ? respond : all(20))(group));
    const reads = await startLiveReads(
      source,
      ids(3),
      undefined,
      more(() => isOther),
    );
    await runReads(reads, 30_000);
    isOther = true;
    return runWithStaleValues(reads, 120_000);
  }

  test("names the offline gateway of its site", async () => {
    const offlineGatewayOf = (isOffline: () => boolean) => ({ offlineGatewayOf: () => (isOffline() ? "7" : null) });
    const stale = await staleAfter(() => new Retryable("timeout"), offlineGatewayOf);
    expect(stale.map(({ data }) => data.tag.id).toSorted()).toEqual(ids(3));
    const lastGood = { value: 20, time: expect.any(String) };
    expect(stale[0]?.data).toMatchObject({ staleReason: "gateway-offline", behindGateway: "7", value: null, lastGood });
    const stored = { quality: "stale", staleReason: "gateway-offline", lastGood };
    expect((await heldValues()).get("101")).toMatchObject(stored);
  });

  test("names the quarantine of the tag, or the service if its replies no longer contain the tag", async () => {
    let isAnswered = true;
    const { source } = building((group) => all(20)(isAnswered ? group : group.filter((id) => id !== "102")));
    await runReads(await startLiveReads(source, ids(4)), 30_000);
    isAnswered = false;
    const storedQuarantine = { until: "2026-11-02T07:00:00.000Z", reason: "403", times: 1 };
    await store.commit({ documents: [{ set: syncSet("quarantine", "trial"), put: [["104", storedQuarantine]] }] });
    const stale = await runWithStaleValues(await startLiveReads(source, ids(4)), 120_000);
    const reasons = Object.fromEntries(stale.map(({ data }) => [data.tag.id, data.staleReason]));
    expect(reasons).toEqual({ "102": "source-unavailable", "104": "quarantined" });
  });

  test("does not name the service for tags that are read late because each reply takes 40 s", async () => {
    let latencyMs = 50;
    const { source } = building(all(20), () => latencyMs);
    const reads = await startLiveReads(source, ids(3), [{ name: "all", every: "30s" }]);
    await runReads(reads, 30_000);
    latencyMs = 40_000;
    const stale = await runWithStaleValues(reads, 200_000);
    const reasons = stale.map(({ data }) => data.staleReason);
    // A first slow reply looks like a missing reply.
    expect(reasons.slice(0, 3)).toEqual(Array(3).fill("source-unavailable"));
    expect(reasons.slice(3).length).toBeGreaterThan(3);
    expect(new Set(reasons.slice(3))).toEqual(new Set(["not-scheduled"]));
  });

  test("does not name the service while the service answers 429, because then the quota is used up", async () => {
    const stale = await staleAfter(() => new Throttled("429", 60_000));
    expect(stale.map(({ data }) => data.staleReason)).toEqual(Array(3).fill("not-scheduled"));
  });

  test("names the service for tags whose reads are refused, and the quarantine once it begins", async () => {
    const error = new ConfigError("403", { reason: "forbidden" });
    const stale = await staleAfter((group) => (group.includes("102") ? error : all(20)(group)));
    const reasons = stale.flatMap(({ data }) => (data.tag.id === "102" ? [data.staleReason] : []));
    expect(reasons).toEqual(["source-unavailable", "quarantined"]);
  });

  test("counts the age after a restart from the last emitted reading, not from a later reading that was only stored", async () => {
    await runReads(await startLiveReads(building(all(20)).source, ids(1)), 10_000);
    await clock.advance(35_000);
    const [[id, emitted] = []] = await heldValues();
    if (id === undefined || emitted === undefined) throw new Error("No value is stored.");
    const told = { value: emitted.value, quality: emitted.quality, time: emitted.time };
    const later = { ...emitted, told, time: new Date(clock.now()).toISOString() };
    await store.commit({ documents: [{ set: documentSet("value", "trial"), put: [[id, later]] }] });
    const { source } = building(() => new Retryable("timeout"));
    const stale = await runWithStaleValues(await startLiveReads(source, ids(1)), 30_000);
    expect(stale.map(({ data }) => data.tag.id)).toEqual([id]);
  });
});

describe("a refused read request that no tag causes", () => {
  function token(state: { sees: boolean; said: "at once" | "never" }): LiveReadOptions["scope"] {
    let respondedAtMs = Number.NEGATIVE_INFINITY;
    return {
      sees: () => state.sees,
      hasAbility: () => true,
      changes: createWakeup(),
      respondedAtMs: () => respondedAtMs,
      async explain() {
        if (state.said === "never") return "unknown";
        respondedAtMs = clock.monotonic();
        return state.sees ? "unexplained" : "site";
      },
    };
  }

  test("stops requests for a site that the token no longer sees, and reads its tags at once when the token sees it again", async () => {
    let isRefused = false;
    const error = new ConfigError("403", { reason: "forbidden" });
    const { source, requests } = building((group) => (isRefused ? error : all(1)(group)));
    const state = { sees: true, said: "at once" as const };
    const reads = await startLiveReads(source, ids(20), undefined, { scope: token(state) });
    await runReads(reads, 50_000);
    const oldCount = requests.length;
    isRefused = true;
    state.sees = false;
    const tags = ids(20).map((id) => tagNamed(id));
    await inventory(store, "trial", tags, 1, new Date(clock.now()).toISOString());
    expect(await runReads(reads, 300_000)).toBeNull();
    expect(requests).toHaveLength(oldCount);
    expect(reads.status()).toMatchObject({ quarantined: [] });
    expect(reads.status().freshness[0]?.achievedMs).toBeNull();
    isRefused = false;
    state.sees = true;
    await runReads(reads, 4_000);
    expect(requests.slice(oldCount)).toHaveLength(1);
  });

  test("quarantines no tag while the scope of the token is unknown", async () => {
    const { source } = building(() => new ConfigError("403", { reason: "forbidden" }));
    const reads = await startLiveReads(source, ids(1), undefined, { scope: token({ sees: true, said: "never" }) });
    await runReads(reads, 600_000);
    expect(reads.status().quarantined).toEqual([]);
  });

  test("the freshness gauges grow while no tag is read", async () => {
    const metrics = createMetrics();
    const { source } = building(all(1));
    const reads = await startLiveReads(source, ids(20), undefined, { metrics });
    await runReads(reads, 60_000);
    await clock.advance(600_000);
    reads.updateFreshnessMetrics();
    const gaugeText = await metrics.registry.getSingleMetricAsString("plenum_freshness_achieved_seconds");
    expect(Number(/ (\d+)/.exec(gaugeText.split("}")[1] ?? "")?.[1])).toBeGreaterThan(600);
  });
});

describe("a slow device", () => {
  test("does not delay requests for tags of other devices", async () => {
    const { source } = building(all(1), (group) => (group.includes("107") ? 10_000 : 100));
    const reads = await startLiveReads(source, ids(60), [{ name: "all", every: "20s" }]);
    await runReads(reads, 299_000);
    const laterValues = (await emittedValues()).filter(({ time }) => Date.parse(time) > START + 200_000);
    const slow = laterValues.filter(({ data }) => data.latencyMs > 1_000).map(({ subject }) => subject);
    expect(new Set(slow)).toEqual(new Set(["site/1/tag/107"]));
  });
});
