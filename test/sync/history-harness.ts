import { NoTagLog, Retryable } from "#src/core/errors/errors.ts";
import type { Measurement, Resolution, TagLog, TagTotal, TagValue } from "#src/core/model/building.ts";
import type { AnyEvent } from "#src/core/model/event.ts";
import type { TagHistoryFact } from "#src/core/model/history-event-data.ts";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import type { HistoryQuery, Source } from "#src/engine/source/source.ts";
import { documentSet } from "#src/engine/store/store.ts";
import { HistoryConfig } from "#src/engine/sync/history/config.ts";
import { createHistoryPull, type HistoryPull, type HistoryPullOptions } from "#src/engine/sync/history/pull.ts";
import type { Series } from "#src/engine/sync/history/series-registry.ts";
import { type StoredBackfill, type StoredLedger, syncSet } from "#src/engine/sync/stored-documents.ts";
import type { VirtualClock } from "../virtual-clock.ts";
import { inventory, msClock, partialSource, runUntilIdle, tagNamed, testQuota } from "./live-reads-harness.ts";
import { createMemoryStore } from "./memory-store.ts";

export const MINUTE_MS = 60_000;
export const FIVE_MS = 5 * MINUTE_MS;
export const HOUR_MS = 60 * MINUTE_MS;
export const DAY_MS = 24 * HOUR_MS;
export const START = Date.parse("2026-11-02T06:00:00Z");

/** A source with history in memory, and short functions for its pulls and what they stored and emitted. */
export function historyHarness(startMs = START, ticks = 1) {
  const clock = msClock(startMs, ticks);
  const store = createMemoryStore(() => clock.now());
  const service = trialHistory(clock);
  const told = () => emittedPoints(store.events as readonly AnyEvent[]);
  const backfillSet = syncSet("backfill", "trial");
  return {
    ...{ clock, store, service, told },
    async createPull(tags: readonly string[], classes: readonly unknown[], more: Partial<HistoryPullOptions> = {}) {
      const listedTags = tags.map((id) => tagNamed(id));
      await inventory(store, "trial", listedTags);
      return createHistoryPull({
        ...{ source: service.source, store, clock, log: SILENT_LOG, timeZone: "UTC", valuesMax: 100_000 },
        historyClasses: HistoryConfig.parse(classes),
        ...more,
      });
    },
    /** Runs a pull until it sends no request for ten seconds; returns what it threw, or null. */
    runOnce: (history: HistoryPull) => runUntilIdle(clock, history, () => service.requests.length),
    ledger: async (id: string, key = "5m") =>
      (await store.document<StoredLedger>(documentSet("history", "trial"), `${id} ${key}`)) as StoredLedger,
    putBackfill: (id: string, order: StoredBackfill) =>
      store.commit({ documents: [{ set: backfillSet, put: [[id, order]] }] }),
    loadBackfill: (id: string) => store.document<StoredBackfill>(backfillSet, id),
    /** Lists the buckets since a day before the start that were not emitted. */
    listMissing(id: string): readonly string[] {
      const emittedValues = told().values.get(`${id} 5m`);
      const missing: string[] = [];
      for (let atMs = startMs - DAY_MS; atMs < clock.now() - 25 * MINUTE_MS; atMs += FIVE_MS)
        if (emittedValues?.has(atMs) !== true) missing.push(isoUtc(atMs));
      return missing;
    },
  };
}

export interface LoggedPoint {
  readonly atMs: number;
  readonly value: TagValue;
  readonly knownFromMs: number;
}

export type LoggedPoints = Map<string, LoggedPoint[]>;

export interface SimulatedTagLog extends TagLog {
  readonly measurements: readonly Measurement[];
}

export interface SimulatedHistory {
  readonly source: Source;
  readonly quota: ReturnType<typeof testQuota>;
  readonly truth: LoggedPoints;
  readonly requests: HistoryQuery[];
  /** Error of the response to a query; null without one. */
  failure: (query: HistoryQuery) => Error | null;
  readonly withoutLog: Set<string>;
  valuesMax: number;
  shorten: (logs: readonly SimulatedTagLog[]) => readonly TagLog[];
  /** Whether `from` and `to` include the bucket that begins there. */
  ends: { readonly from: boolean; readonly to: boolean };
}

/** A history service in memory with late data and the failures that a test sets. */
function trialHistory(clock: VirtualClock): SimulatedHistory {
  const quota = testQuota(clock);
  const harness: Omit<SimulatedHistory, "source" | "quota"> & { source?: Source } = {
    truth: new Map(),
    requests: [],
    failure: () => null,
    withoutLog: new Set(),
    valuesMax: Number.POSITIVE_INFINITY,
    shorten: (logs) => logs,
    ends: { from: true, to: true },
  };
  const respond = async (query: HistoryQuery, signal: AbortSignal): Promise<readonly TagLog[]> => {
    harness.requests.push(query);
    await clock.sleep(200, signal);
    const failure = harness.failure(query);
    if (failure !== null) throw failure;
    if (query.tagIds.some((id) => harness.withoutLog.has(id))) throw new NoTagLog("404, no log");
    const logs = query.tagIds.map((id) => ({ ...tagNamed(id), measurements: series(id, query) }));
    const values = logs.reduce((sum, log) => sum + log.measurements.length, 0);
    if (values > harness.valuesMax) throw new Retryable("504, too much");
    return harness.shorten(logs);
  };
  const series = (id: string, query: HistoryQuery): Measurement[] => {
    const [from, to] = [Date.parse(query.from), Date.parse(query.to)];
    return [...loggedValuesAt(harness.truth, id, query.resolution, clock.now(), { from, to })]
      .filter(([at]) => (harness.ends.from ? at >= from : at > from) && (harness.ends.to ? at <= to : at < to))
      .map(([at, value]) => ({ time: new Date(at).toISOString(), value }));
  };
  const source = partialSource({
    quota: quota.status,
    history: (requests, lane, signal) =>
      quota.run(lane, "history", requests, signal, (query) => respond(query, signal)),
    async totals(requests, lane, signal) {
      const logs = await quota.run(lane, "history", requests, signal, (query) =>
        respond({ ...query, resolution: "5m" }, signal),
      );
      return logs.map((log): TagTotal => {
        const numbers = [...log.measurements].flatMap(({ value }) => (typeof value === "number" ? value : []));
        const [first = null, last = first] = [numbers[0], numbers.at(-1)];
        return { ...tagNamed(log.id), total: first === null || last === null ? null : last - first };
      });
    },
  });
  return Object.assign(harness, { source, quota });
}

const ALL_TIME = { from: Number.NEGATIVE_INFINITY, to: Number.POSITIVE_INFINITY };

export function loggedValuesAt(
  truth: LoggedPoints,
  id: string,
  resolution: Resolution,
  nowMs: number,
  range = ALL_TIME,
) {
  const points = (truth.get(`${id} ${resolution}`) ?? []).filter(
    ({ atMs, knownFromMs }) => atMs >= range.from && atMs <= range.to && knownFromMs <= nowMs,
  );
  points.sort((a, b) => a.atMs - b.atMs || a.knownFromMs - b.knownFromMs);
  return new Map(points.map(({ atMs, value }) => [atMs, value]));
}

/** Logs a value per bucket, known when the bucket is over, and one value per month with buckets. */
export function logBuckets(
  { truth }: Pick<SimulatedHistory, "truth">,
  tags: readonly string[],
  fromMs: number,
  toMs: number,
  {
    stepMs = FIVE_MS,
    value = (atMs: number) => (atMs / stepMs) % 97,
    isSilent = (_atMs: number): boolean => false,
  } = {},
): void {
  const points: LoggedPoint[] = [];
  const months = new Map<number, number>();
  for (let atMs = Math.ceil(fromMs / stepMs) * stepMs; atMs < toMs; atMs += stepMs) {
    if (!isSilent(atMs)) points.push({ atMs, value: value(atMs), knownFromMs: atMs + stepMs });
    const date = new Date(atMs);
    const month = Date.UTC(date.getUTCFullYear(), date.getUTCMonth());
    if (!months.has(month)) months.set(month, atMs);
  }
  for (const id of tags) {
    truth.set(`${id} ${stepMs === HOUR_MS ? "1h" : "5m"}`, [...points]);
    const monthly = [...months].map(([atMs, knownFromMs]) => ({ atMs, value: 1, knownFromMs }));
    truth.set(`${id} 1mo`, monthly);
  }
}

export interface EmittedPoints {
  readonly values: Map<string, Map<number, TagValue>>;
  /** Points that were emitted twice without a revision, or revised without a change. */
  readonly faults: readonly string[];
  readonly facts: readonly TagHistoryFact[];
}

export function emittedPoints(events: readonly AnyEvent[]): EmittedPoints {
  const values = new Map<string, Map<number, TagValue>>();
  const faults: string[] = [];
  const facts: TagHistoryFact[] = [];
  for (const event of events) {
    if (event.type !== "tag-history") continue;
    facts.push(event.data);
    const { tag, points, revised, resolution } = event.data;
    const key = `${tag.id} ${resolution}`;
    const known = values.get(key) ?? new Map<number, TagValue>();
    values.set(key, known);
    if (points.length > 500) faults.push(`${key}: ${points.length} points in one event`);
    for (const [i, { time, value }] of points.entries()) {
      const at = Date.parse(time);
      const previous = points[i - 1];
      if (previous !== undefined && Date.parse(previous.time) >= at) faults.push(`${key} ${time} is out of order`);
      if (known.has(at) !== revised) faults.push(`${key} ${time} ${revised ? "revised before told" : "told twice"}`);
      else if (revised && known.get(at) === value) faults.push(`${key} ${time} revised without a change`);
      known.set(at, value);
    }
  }
  return { values, faults, facts };
}

export const ids = (count: number, from = 101) => Array.from({ length: count }, (_, i) => String(from + i));

const SILENT_LOG = { info: () => undefined, warn: () => undefined, error: () => undefined };

export function seriesWith(ledger: StoredLedger, rules: Series["rules"], id = "101"): Series {
  return {
    ...{ key: `${id} ${rules.resolution}`, siteTag: { tag: tagNamed(id), siteId: 1, systemIds: [] }, rules, ledger },
    ...{ total: false, isBusy: false, mustReloadLedger: false, notBeforeMs: 0, isSuspect: false },
  };
}

export function testBackfill(fromMs: number, toMs: number, more: Partial<StoredBackfill> = {}): StoredBackfill {
  const requests = { askedAt: "2026-11-02T06:00:00.000Z", doneAt: null };
  return { from: isoUtc(fromMs), to: isoUtc(toMs), resolution: "5m", select: {}, ...requests, ...more };
}
