import { expect, test } from "vitest";
import { TagPoints } from "#src/core/codec/points.ts";
import type { Event } from "#src/core/model/event.ts";
import { isoUtc } from "#src/core/values/iso-utc.ts";
import { createFinalizedDays } from "#src/engine/sync/completeness/finalized-days.ts";
import { createHistoryReplySettlement } from "#src/engine/sync/history/commit-history-reply.ts";
import { createLedger } from "#src/engine/sync/history/ledger.ts";
import { DAY_MS, seriesWith } from "./history-harness.ts";
import { tagNamed } from "./live-reads-harness.ts";
import { createMemoryStore } from "./memory-store.ts";

const NOW = Date.UTC(2026, 10, 2);
const CLOCK = { now: () => NOW, monotonic: () => NOW, sleep: () => new Promise<void>(() => undefined) };
const SERIES_RULES = {
  ...{ resolution: "5m" as const, timeZone: "UTC", everyMs: DAY_MS, backfillMs: 400 * DAY_MS },
  ...{ graceMs: 60_000, lookBackMs: DAY_MS },
};
const RANGE = { fromMs: NOW - 100 * DAY_MS + 3_600_000, toMs: NOW - DAY_MS };

function logOf(id: string) {
  const measurements = new TagPoints();
  for (let atMs = RANGE.fromMs; atMs < RANGE.toMs; atMs += 300_000)
    if (Math.floor((NOW - atMs) / DAY_MS) !== 40) measurements.push(atMs, atMs / 300_000);
  return { ...tagNamed(id), measurements };
}

test("a long history response is committed in several transactions, each point in exactly one event, and the ledger is complete", async () => {
  const store = createMemoryStore();
  const context = { store, clock: CLOCK, source: "main" };
  const days = createFinalizedDays({ ...context, series: () => [], knowsTagsOf: () => false });
  const series = ["101", "102"].map((id) => seriesWith(createLedger(SERIES_RULES, NOW), SERIES_RULES, id));
  const ranges = new Map(series.map(({ key }) => [key, RANGE]));
  const request = {
    kind: "backfill",
    series,
    range: RANGE,
    rangesBySeriesKey: ranges,
    isSingle: false,
    valueCount: 1,
  } as const;
  await createHistoryReplySettlement({ ...context, days }).commitLogs(request, [logOf("101"), logOf("102")], []);
  expect(store.commits()).toBeGreaterThan(4);
  const historyEvents = store.events.filter((event) => event.type === "tag-history") as readonly Event<"tag-history">[];
  for (const each of series) {
    const own = historyEvents.filter(({ data }) => data.tag.id === each.siteTag.tag.id);
    expect(own.flatMap(({ data }) => data.points)).toEqual([...logOf(each.siteTag.tag.id).measurements]);
    expect(own.every(({ data }) => new Set(data.points.map(({ time }) => time.slice(0, 10))).size === 1)).toBe(true);
    expect(each.ledger.spans.map(({ why }) => why)).toEqual(["points", "null", "points"]);
    expect(each.ledger.spans.at(0)?.from).toBe(isoUtc(RANGE.fromMs));
    expect(each.ledger.spans.at(-1)?.to).toBe(isoUtc(RANGE.toMs));
  }
});
