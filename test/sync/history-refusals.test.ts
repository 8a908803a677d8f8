import { beforeEach, describe, expect, test } from "vitest";
import { ConfigError, NoTagLog, Rejected, Retryable } from "#src/core/errors/errors.ts";
import { OrderlyStop } from "#src/core/runtime/lifecycle.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createWakeup } from "#src/core/runtime/waiting.ts";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import type { HistoryQuery } from "#src/engine/source/source.ts";
import type { HistoryPull, HistoryPullOptions } from "#src/engine/sync/history/pull.ts";
import { createHistoryDemand } from "#src/engine/sync/plan/overload.ts";
import { isSeriesComplete } from "#src/engine/sync/stored-documents.ts";
import type { RefusalCause, TokenScope } from "#src/engine/sync/token-scope.ts";
import {
  DAY_MS,
  FIVE_MS,
  HOUR_MS,
  historyHarness,
  ids,
  logBuckets,
  MINUTE_MS,
  START,
  testBackfill,
} from "./history-harness.ts";
import { inventory, runFollower, startFollower, tagNamed } from "./live-reads-harness.ts";

const FIVE = { name: "h", resolution: "5m", every: "15m", backfill: "1d" };
const MONTH_MS = Date.parse("2026-11-01T00:00:00Z");
const OCTOBER_MS = Date.parse("2026-10-01T00:00:00Z");
const forbiddenError = () => new ConfigError("history: 403, Forbidden.", { reason: "forbidden" });
const invalidError = () =>
  new ConfigError("history: 422, tags: The tags field is invalid.", { reason: "validation", field: "tags" });

let { clock, store, service, createPull, runOnce, told, ledger, putBackfill, loadBackfill, listMissing } =
  historyHarness();
let scope: ReturnType<typeof trialScope>;
let errors: string[];

beforeEach(() => {
  ({ clock, store, service, createPull, runOnce, told, ledger, putBackfill, loadBackfill, listMissing } =
    historyHarness());
  scope = trialScope();
  errors = [];
});

function trialScope() {
  let unseen: readonly number[] = [];
  let cause: RefusalCause | null = null;
  let respondedAtMs = clock.now();
  const changes = createWakeup();
  return {
    changes,
    sees: (siteId: number) => !unseen.includes(siteId),
    respondedWallMs: () => respondedAtMs,
    explain: (async ({ siteIds }) =>
      cause ?? ([...siteIds].some((id) => unseen.includes(id)) ? "site" : "unexplained")) as TokenScope["explain"],
    /** Sets the response of `GET me`, and its time. */
    say(nowUnseen: readonly number[], why: RefusalCause | null = null) {
      unseen = nowUnseen;
      cause = why;
      respondedAtMs = clock.now();
      changes.wakeUp();
    },
  };
}

const logged = (tags: readonly string[], fromMs = START - 3 * DAY_MS): readonly string[] => {
  logBuckets(service, tags, fromMs, START + 5 * DAY_MS);
  return tags;
};

async function pull(
  tags: Readonly<Record<number, readonly string[]>>,
  classes: readonly unknown[] = [FIVE],
  more: Partial<HistoryPullOptions> = {},
): Promise<HistoryPull> {
  for (const [site, members] of Object.entries(tags)) {
    const listedTags = members.map((id) => tagNamed(id));
    await inventory(store, "trial", listedTags, Number(site));
  }
  const silentLog = { info: () => undefined, warn: () => undefined };
  const log = { ...silentLog, error: (_about: unknown, text: string) => errors.push(text) };
  return createPull([], classes, { log: log as unknown as HistoryPullOptions["log"], scope, ...more });
}

/** Backs off after a failure, as the scheduler does. */
async function follow(history: HistoryPull, forMs: number, restMs = 15 * MINUTE_MS): Promise<void> {
  const endAtMs = clock.monotonic() + forMs;
  while (clock.monotonic() < endAtMs) {
    const failure = await runFollower(clock, history, Math.min(restMs, endAtMs - clock.monotonic()));
    if (failure !== null) await clock.advance(restMs);
  }
  await runOnce(history);
}

const listFaults = (id: string) => [...told().faults, ...listMissing(id)];
const containsTag = (id: string) => (query: HistoryQuery) => query.tagIds.includes(id);

describe("a 403 for history", () => {
  test("for two of 20 tags makes the worker request those tags singly after a pause; every point is emitted in the end", async () => {
    const tags = logged(ids(20));
    const bad = ["103", "117"];
    const untilMs = START + 40 * MINUTE_MS;
    service.failure = ({ tagIds }) =>
      clock.now() < untilMs && bad.some((id) => tagIds.includes(id)) ? forbiddenError() : null;
    const history = await pull({ 1: tags });
    await runOnce(history);
    const refusal = { said: "history: 403, Forbidden.", times: 1 };
    for (const id of bad) expect(await ledger(id)).toMatchObject({ state: "unproven", spans: [], refusal });
    expect(history.progress().resolutions[0]).toMatchObject({ tags: 20, complete: 18, refused: 2 });
    await follow(history, 3 * HOUR_MS);
    expect(tags.flatMap(listFaults)).toEqual([]);
    expect(history.progress().resolutions[0]).toMatchObject({ complete: 20, refused: 0, withoutLog: 0 });
    const early = service.requests.filter((query) => containsTag("103")(query) && query.to <= isoUtc(untilMs));
    expect(early.length).toBeLessThan(12);
  });

  test("for a site out of scope pauses the history of that site only, until the token sees the site again", async () => {
    const [north, south] = [ids(10), ids(10, 201)];
    logged([...north, ...south]);
    const history = await pull({ 1: north, 2: south });
    service.failure = ({ tagIds }) => {
      const isUnseen = tagIds.some((id) => south.includes(id));
      if (isUnseen && scope.sees(2)) scope.say([2]);
      return isUnseen ? forbiddenError() : null;
    };
    await follow(history, HOUR_MS);
    expect(north.flatMap(listFaults)).toEqual([]);
    expect(service.requests.filter(({ tagIds }) => tagIds.some((id) => south.includes(id)))).toHaveLength(1);
    for (const id of south) expect(await ledger(id)).toMatchObject({ spans: [], refusal: null });
    service.failure = () => null;
    scope.say([]);
    await follow(history, HOUR_MS);
    expect([...north, ...south].flatMap(listFaults)).toEqual([]);
  });

  test.each([
    ["for a missing permission", "ability", ConfigError],
    ["without an explanation", "unknown", Retryable],
  ] as const)("%s is an error that is retried, not a gap in the history ledger", async (_what, explanation, kind) => {
    const tags = logged(ids(5));
    scope.say([], explanation);
    service.failure = forbiddenError;
    const history = await pull({ 1: tags });
    expect(await runOnce(history)).toBeInstanceOf(kind);
    expect(await ledger("101")).toMatchObject({ state: "unproven", spans: [], refusal: null });
    service.failure = () => null;
    await follow(history, HOUR_MS);
    expect(tags.flatMap(listFaults)).toEqual([]);
  });

  test("for three tags of a group leads to at most 22 smaller requests when the scope may be requested once a minute", async () => {
    const tags = logged(ids(33));
    const bad = ["103", "104", "121"];
    service.failure = ({ tagIds }) =>
      bad.some((id) => tagIds.includes(id)) ? new Rejected("history: 404, Not found.") : null;
    let answeredMs = Number.NEGATIVE_INFINITY;
    const explain: TokenScope["explain"] = async ({ atMs }) => {
      if (answeredMs < atMs && clock.monotonic() - answeredMs >= MINUTE_MS) answeredMs = clock.monotonic();
      return answeredMs >= atMs ? "unexplained" : "unknown";
    };
    Object.assign(scope, { explain });
    const history = await pull({ 1: tags });
    await follow(history, 30 * MINUTE_MS, MINUTE_MS);
    const goodTags = tags.filter((id) => !bad.includes(id));
    expect(goodTags.flatMap(listFaults)).toEqual([]);
    for (const id of bad) expect(await ledger(id)).toMatchObject({ state: "unproven", spans: [] });
    const refusedRequests = service.requests.filter(({ tagIds }) => bad.some((id) => tagIds.includes(id)));
    expect(refusedRequests.length).toBeLessThanOrEqual(22);
  });

  test("for every request ends the run after at most 14 requests", async () => {
    const tags = logged(ids(60));
    service.failure = forbiddenError;
    expect(await runOnce(await pull({ 1: tags }))).toBeInstanceOf(Retryable);
    expect(service.requests.length).toBeLessThanOrEqual(14);
  });
});

describe("a 422, or another failure that says nothing about a log", () => {
  test("a 422 for one range is logged once, leaves no gap in the history ledger, and does not stop new history", async () => {
    const tags = logged(ids(20));
    const metrics = createMetrics();
    const untilMs = START + 15 * MINUTE_MS;
    service.failure = ({ from, resolution }) =>
      resolution === "5m" && clock.now() < untilMs && Date.parse(from) < START - HOUR_MS ? invalidError() : null;
    const history = await pull({ 1: tags }, [FIVE], { metrics });
    await follow(history, 6 * HOUR_MS);
    expect(errors).toEqual(["the service rejected a history request as invalid"]);
    expect(tags.flatMap(listFaults)).toEqual([]);
    expect(await metrics.registry.getSingleMetricAsString("plenum_history_refusals_total")).toContain("mistake");
    for (const id of tags) expect((await ledger(id)).state).toBe("following");
  });

  test.each([
    ["a 404 that is not about a log", () => new Rejected("history: 404, Not found.")],
    ["a 422", invalidError],
    ["an error of the local machine", () => new Error("EMFILE: too many open files")],
  ])("%s for the complete past records no range as fetched", async (_, failure) => {
    const tags = logged(ids(3));
    service.failure = ({ from, resolution }) =>
      resolution === "5m" && Date.parse(from) < START - HOUR_MS ? failure() : null;
    const history = await pull({ 1: tags });
    for (let i = 0; i < 3; i++) await runOnce(history);
    for (const id of tags) {
      const storedLedger = await ledger(id);
      expect(storedLedger.spans.filter(({ why }) => why !== "refused")).toEqual([]);
      expect(isSeriesComplete(storedLedger)).toBe(false);
    }
    expect(history.progress().resolutions[0]?.complete).toBe(0);
  });
});

describe("a 404 of a log", () => {
  test("is discarded when the site of the tag turns out to be out of scope", async () => {
    const [north, south] = [ids(5), ids(5, 201)];
    logged([...north, ...south]);
    const history = await pull({ 1: north, 2: south });
    await follow(history, HOUR_MS);
    for (const id of south) service.withoutLog.add(id);
    await follow(history, 20 * MINUTE_MS);
    expect((await ledger("201")).state).toBe("no-log");
    scope.say([2]);
    await runOnce(history);
    expect(await ledger("201")).toMatchObject({ state: "unproven", refusal: null });
    service.withoutLog.clear();
    scope.say([]);
    await follow(history, HOUR_MS);
    expect([...north, ...south].flatMap(listFaults)).toEqual([]);
  });

  test("for one tag in a backfill is recorded with its message, and the tag counts as without a log", async () => {
    const tags = logged(ids(4));
    const [fromMs, toMs] = [START - 2 * DAY_MS, START - 2 * DAY_MS + 2 * HOUR_MS];
    const backfill = testBackfill(fromMs, toMs);
    await putBackfill("a", backfill);
    service.failure = ({ tagIds, from, to, resolution }) =>
      resolution === "5m" && tagIds.includes("102") && Date.parse(from) >= fromMs - FIVE_MS && Date.parse(to) <= toMs
        ? new NoTagLog("404, no log")
        : null;
    await follow(await pull({ 1: tags }, [{ ...FIVE, backfill: "0s" }]), HOUR_MS);
    const order = await loadBackfill("a");
    expect(order?.doneAt).not.toBeNull();
    expect(order?.withoutLog).toEqual({ buckets: 24, tags: 1 });
    expect((await ledger("102")).spans).toContainEqual(
      expect.objectContaining({ from: isoUtc(fromMs), to: isoUtc(toMs), why: "no-log", said: "404, no log" }),
    );
    const emitted = told();
    expect([...(emitted.values.get("101 5m")?.keys() ?? [])]).toContain(fromMs);
  });

  test("does not end a backfill request while the site is out of scope", async () => {
    const [north, south] = [ids(3), ids(3, 201)];
    logged([...north, ...south]);
    const order = testBackfill(START - DAY_MS, START);
    await putBackfill("a", order);
    const loadDoneAt = async () => (await loadBackfill("a"))?.doneAt;
    const history = await pull({ 1: north, 2: south }, []);
    scope.say([2]);
    await inventory(store, "trial", [], 2, isoUtc(START));
    await follow(history, HOUR_MS);
    expect(north.flatMap((id) => listFaults(id).filter((time) => time < isoUtc(START)))).toEqual([]);
    expect(await loadDoneAt()).toBeNull();
    expect(history.progress().orders[0]?.done).toBe(0.5);
    await inventory(store, "trial", [], 2);
    scope.say([]);
    await follow(history, HOUR_MS);
    expect(await loadDoneAt()).not.toBeNull();
    expect(service.requests.length).toBeLessThan(20);
  });
});

describe("the monthly overview of a tag's log", () => {
  const overview = (months: readonly (readonly [atMs: number, value: number | null])[]) => {
    const points = months.map(([atMs, value]) => ({ atMs, value, knownFromMs: 0 }));
    for (const id of ids(3)) service.truth.set(`${id} 1mo`, points);
  };
  const SEPTEMBER_MS = Date.parse("2026-09-01T00:00:00Z");
  const YEAR = [{ ...FIVE, backfill: "200d" }];

  test.each([
    ["a month without a value", [[SEPTEMBER_MS, null] as const, [OCTOBER_MS, null] as const, [MONTH_MS, 7] as const]],
    ["no month at all", []],
  ])("does not limit the backfill when it has %s", async (_what, months) => {
    logged(ids(3), START - 40 * DAY_MS);
    overview(months);
    await follow(await pull({ 1: ids(3) }, YEAR), HOUR_MS);
    const emittedValues = told().values.get("101 5m");
    expect(Math.min(...(emittedValues?.keys() ?? []))).toBe(START - 40 * DAY_MS);
    if (months.length === 0) return;
    const overviewText = expect.stringContaining("overview");
    expect((await ledger("101")).spans[0]).toMatchObject({
      why: "null",
      to: "2026-08-01T00:00:00.000Z",
      said: overviewText,
    });
  });
});

describe("log discovery, which finds out which tags have a log", () => {
  test("uses request slots that live reads do not need, and new history is fetched afterwards", async () => {
    const tags = logged(ids(60));
    service.withoutLog.add("130");
    const demand = createHistoryDemand();
    const history = await pull({ 1: tags }, [FIVE], { historyDemand: demand });
    const liveReadsEnded = new AbortController();
    let offers = 0;
    const chooseLiveRead = () => (offers++ % 30 === 29 ? { declineForMs: 3_000 } : { content: ["live"] });
    const takeSlots = async () => {
      while (!liveReadsEnded.signal.aborted) {
        const request = service.quota.run("live", "read", chooseLiveRead, liveReadsEnded.signal, async () => undefined);
        await request.catch(() => undefined);
      }
    };
    const taking = takeSlots();
    const pullRun = startFollower(history);
    await clock.advance(2_000);
    expect(demand.requestsPerMinute()).toBeCloseTo(3 / 15, 5);
    await clock.advance(41 * MINUTE_MS);
    await pullRun.drain(clock);
    liveReadsEnded.abort(new OrderlyStop());
    await taking;
    expect(history.progress().unproven).toBe(0);
    const emitted = told();
    expect(emitted.values.size).toBe(59);
  });

  test("states in its progress since when it has been waiting for a free request slot", async () => {
    const tags = logged(ids(20));
    const history = await pull({ 1: tags }, [FIVE]);
    const pullRun = startFollower(history);
    await clock.advance(40 * MINUTE_MS);
    expect(history.progress().starving).toBeNull();
    const dueMs = clock.now();
    service.quota.pause(40 * MINUTE_MS);
    await clock.advance(38 * MINUTE_MS);
    expect(Date.parse(history.progress().starving?.since ?? "")).toBeGreaterThanOrEqual(dueMs);
    await clock.advance(4 * MINUTE_MS);
    expect(history.progress().starving).toBeNull();
    await pullRun.drain(clock);
  });
});
