import { beforeEach, describe, expect, test } from "vitest";
import type { TagReading } from "#src/core/model/building.ts";
import { OrderlyStop } from "#src/core/runtime/lifecycle.ts";
import { Duration } from "#src/core/values/duration.ts";
import type { RequestChooser } from "#src/engine/source/source.ts";
import type { Store } from "#src/engine/store/store.ts";
import { type PlanReport, reportPlan } from "#src/engine/sync/plan/report.ts";
import { createGroupCommit, type GroupCommit } from "#src/engine/sync/read/commit-readings.ts";
import type { VirtualClock } from "../virtual-clock.ts";
import {
  inventory,
  openClockAndStore,
  readingSource,
  runFollower,
  tagNamed,
  testQuota,
  testReads,
} from "./live-reads-harness.ts";

const START = Date.parse("2026-11-02T06:00:00Z");
const HOUR_MS = 3_600_000;
const SLOT_MS = 3_000.6;
/** Shortest mean time between requests: each of the 20 slots is free again one minute after its reply. */
const FASTEST_MS = (60_000 + 139.5) / 20;

let clock: VirtualClock;
let store: Store;
/** Times of the emitted values by tag, in milliseconds since the start. */
let emitted: Map<string, number[]>;

beforeEach(async () => {
  ({ clock, store } = await openClockAndStore(START));
  emitted = new Map();
});

interface TrialClass {
  readonly name: string;
  readonly every: string;
  readonly tags: number;
  readonly importance?: number;
}

/** Reads the tags of the classes; busy history takes every slot that they leave. Returns the times of requests. */
async function readFor(
  classes: readonly TrialClass[],
  ms: number,
  history: "busy" | "idle",
): Promise<readonly number[]> {
  const requestTimes: number[] = [];
  const quota = testQuota(clock);
  let requests = 0;
  const reply = async (signal: AbortSignal) => {
    requests += 1;
    const latencyMs = 40 + ((requests * 37) % 200);
    await clock.sleep(latencyMs, signal);
    return latencyMs;
  };
  const source = readingSource(quota, async (group, signal) => {
    requestTimes.push(clock.now() - START);
    const latencyMs = await reply(signal);
    const readings: TagReading[] = group.map((id) => ({ ...tagNamed(id), value: 1 }));
    return { readings, receivedAtMs: clock.now(), latencyMs };
  });
  const readClasses = classes.map(({ tags, ...more }) => ({ ...more, select: { ids: tagIds(more.name, tags) } }));
  const listedTags = readClasses.flatMap(({ select }) => select.ids.map((id) => tagNamed(id)));
  await inventory(store, "trial", listedTags);
  const reads = testReads(readClasses, { source, store, clock, groupCommit: recordingCommit() });
  const historyEnded = new AbortController();
  const takeRemaining = async () => {
    await quota.started;
    while (history === "busy" && !historyEnded.signal.aborted)
      await quota
        .run("history", "history", leaveOwnSlots, historyEnded.signal, () => reply(historyEnded.signal))
        .catch(() => undefined);
  };
  const rest = takeRemaining();
  await runFollower(clock, reads, ms);
  historyEnded.abort(new OrderlyStop());
  await rest;
  return requestTimes;
}

function recordingCommit(): GroupCommit {
  const groupCommit = createGroupCommit({ store, clock, sourceCount: 1 });
  return {
    commit(source, change, hurry) {
      const recordedChange = async () => {
        const { events = [], ...rest } = await change();
        for (const { subject, time } of events) {
          const id = subject.split("/").at(-1) ?? "";
          const times = emitted.get(id);
          if (times === undefined) emitted.set(id, [Date.parse(time) - START]);
          else times.push(Date.parse(time) - START);
        }
        return rest;
      };
      return groupCommit.commit(source, recordedChange, hurry);
    },
  };
}

/** History that no live read has to leave a slot to. */
const leaveOwnSlots: RequestChooser<readonly string[]> = ({ isLaneOverdue }) =>
  isLaneOverdue ? { declineForMs: 3_000 } : { content: ["past"] };

const tagIds = (className: string, count: number) => Array.from({ length: count }, (_, n) => `${className}-${n}`);

/** Times between consecutive values in milliseconds, ascending. */
function gapsOf(className: string, fromMs: number): readonly number[] {
  const found = [...emitted].flatMap(([id, times]) => {
    if (!id.startsWith(`${className}-`)) return [];
    const laterTimes = times.filter((time) => time >= fromMs);
    return laterTimes.slice(1).map((time, n) => time - (laterTimes[n] ?? Number.NaN));
  });
  expect(found.length).toBeGreaterThan(0);
  return found.toSorted((a, b) => a - b);
}

/** Differences between an interval and the times between consecutive values, in slots, ascending. */
function deviations(className: string, everyS: number, fromMs: number): readonly number[] {
  const found = gapsOf(className, fromMs).map((gap) => Math.abs(gap - everyS * 1_000) / SLOT_MS);
  return found.toSorted((a, b) => a - b);
}

const worstDeviation = (...[className, everyS, fromMs]: Parameters<typeof deviations>) =>
  deviations(className, everyS, fromMs).at(-1);

function medianDeviation(className: string, everyS: number, fromMs: number): number | undefined {
  const sorted = deviations(className, everyS, fromMs);
  return sorted[Math.floor(sorted.length / 2)];
}

function planOf(classes: readonly TrialClass[]): PlanReport {
  return reportPlan({
    ...{ source: "trial", basis: "state", nowMs: START, sites: 1, tags: 0, history: [] },
    backfill: { requestsLeft: 0, requestsAtBest: 0, paused: false },
    quota: { perMinute: 20, reserve: 0, polite: 1, polls: 20, shared: true, size: 20 },
    classes: classes.map(({ name, every, tags, importance = 1 }) => ({
      ...{ name, tags, allTagCount: tags, everyMs: Duration.parse(every), fresher: false },
      ...{ firm: false, importance, valueAgeMs: null },
    })),
  });
}

describe("live values at the interval `every` of their read class", () => {
  test.each([
    [0.5, "idle", 0.5],
    [0.9, "idle", 0.5],
    [0.5, "busy", 2],
    [0.9, "busy", 2],
  ] as const)(
    "arrive 3600 s / `every` times an hour at a steady interval when reads use %d of the quota (history: %s)",
    async (load, history, deviationMax) => {
      const classes: readonly TrialClass[] = [
        { name: "a", every: "30s", tags: Math.round(60 * load) },
        { name: "b", every: "60s", tags: Math.round(120 * load) },
        { name: "c", every: "5m", tags: Math.round(500 * load) },
        { name: "d", every: "15m", tags: Math.round(800 * load) },
      ];
      await readFor(classes, 2 * HOUR_MS, history);
      for (const { name, every, tags } of classes) {
        const everyMs = Duration.parse(every);
        const times = [...emitted].filter(([id]) => id.startsWith(`${name}-`)).map(([, each]) => each);
        expect(times).toHaveLength(tags);
        for (const each of times) {
          const inSecondHour = each.filter((time) => time >= HOUR_MS && time < 2 * HOUR_MS).length;
          expect(Math.abs(inSecondHour - HOUR_MS / everyMs), name).toBeLessThanOrEqual(1);
        }
        expect(worstDeviation(name, everyMs / 1_000, HOUR_MS), name).toBeLessThan(deviationMax);
        expect(medianDeviation(name, everyMs / 1_000, HOUR_MS), name).toBeLessThan(0.6);
      }
    },
  );

  test("keep the read time of each tag within its interval after a restart", async () => {
    const classes: readonly TrialClass[] = [
      { name: "a", every: "60s", tags: 110 },
      { name: "b", every: "5m", tags: 300 },
    ];
    await readFor(classes, 1_500_000, "idle");
    await readFor(classes, 1_500_000, "idle");
    expect(worstDeviation("a", 60, 600_000)).toBeLessThan(1.5);
    expect(worstDeviation("b", 300, 600_000)).toBeLessThan(1.5);
    for (const times of emitted.values()) expect(times.length).toBeLessThanOrEqual(53);
  });

  test.each<[demand: string, hours: number, history: "busy" | "idle", classes: readonly TrialClass[]]>([
    ["300 tags every 30 s", 1, "idle", [{ name: "a", every: "30s", tags: 300 }]],
    ["800 tags every 60 s", 6, "idle", [{ name: "a", every: "60s", tags: 800 }]],
    ["800 tags every 60 s", 2, "busy", [{ name: "a", every: "60s", tags: 800 }]],
    [
      "800 tags every 60 s, half of them of importance 2",
      6,
      "idle",
      [
        { name: "a", every: "60s", tags: 400, importance: 2 },
        { name: "b", every: "60s", tags: 400 },
      ],
    ],
  ])(
    "arrive no earlier than `every` and no later than planned when %s overload the quota for %d h (history: %s)",
    async (_, hours, history, classes) => {
      const fromMs = HOUR_MS / 4;
      const requestTimes = await readFor(classes, hours * HOUR_MS, history);
      const usedShare =
        requestTimes.filter((time) => time >= fromMs).length / ((hours * HOUR_MS - fromMs) / FASTEST_MS);
      if (history === "idle") expect(usedShare).toBeGreaterThanOrEqual(0.998);
      else expect(usedShare).toBeLessThan(0.98);
      for (const { name, targetSeconds, promisedSeconds } of planOf(classes).classes) {
        const gaps = gapsOf(name, fromMs);
        expect(gaps[0]).toBeGreaterThanOrEqual(targetSeconds * 1_000);
        expect(gaps.at(-1)).toBeLessThanOrEqual(promisedSeconds * 1_000 + (history === "busy" ? SLOT_MS : 0));
      }
    },
  );

  test("arrive at most one request slot early or late when the reads need 98 % of the quota", async () => {
    const classes: readonly TrialClass[] = [
      { name: "a", every: "60s", tags: 200 },
      { name: "b", every: "5m", tags: 960 },
    ];
    await readFor(classes, 2 * HOUR_MS, "idle");
    for (const { name, targetSeconds, promisedSeconds } of planOf(classes).classes) {
      const gaps = gapsOf(name, HOUR_MS / 4);
      expect(gaps[0]).toBeGreaterThan(targetSeconds * 1_000 - SLOT_MS);
      expect(gaps.at(-1)).toBeLessThan(promisedSeconds * 1_000 + SLOT_MS);
    }
  });
});
