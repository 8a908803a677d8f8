import { rmSync } from "node:fs";
import { createLog } from "#src/core/runtime/log.ts";
import { resolveRequestContent } from "#src/engine/source/queries.ts";
import { createQuota } from "#src/engine/source/quota/quota.ts";
import type { HistoryQuery, QueueLane, RequestChooser } from "#src/engine/source/source.ts";
import { openStore } from "#src/engine/store/open.ts";
import { HistoryConfig } from "#src/engine/sync/history/config.ts";
import { createHistoryPull } from "#src/engine/sync/history/pull.ts";
import { createHistoryDemand } from "#src/engine/sync/plan/overload.ts";
import { temporaryFolder } from "../../real-servers.ts";
import { createVolatileStore, usedBefore } from "../../source/quota-harness.ts";
import { inventory, partialSource, startFollower, tagNamed, testReads } from "../../sync/live-reads-harness.ts";
import { createVirtualClock } from "../../virtual-clock.ts";
import type { Class } from "./simulate.ts";

const START_MS = Date.UTC(2026, 0, 5);
const LATENCY_MS = 150;
/** Tolerance for timers and for the even spacing of slots: a tenth of a slot. */
const TOLERANCE_MS = 300;

/** Runs the worker's live reads, history and quota in virtual time against a service with a year of history. */
export async function driveWorker(
  classes: readonly Class[],
  options: { readonly warmUpMinutes: number; readonly minutes: number },
) {
  const folder = temporaryFolder();
  const virtual = createVirtualClock(START_MS, { ticks: 2 });
  const clock = { ...virtual, now: () => Math.floor(virtual.now()) };
  const store = await openStore({ folder, clock });
  const quota = createQuota({ source: "trial", clock, store: usedBefore(createVolatileStore()) });
  const silentLog = createLog({ level: "silent" });
  const warnings: unknown[] = [];
  const countWarning = (...args: unknown[]) => void warnings.push(args);
  const log = Object.assign(Object.create(silentLog) as typeof silentLog, { warn: countWarning });
  const intervalById = new Map<string, number>();
  const classById = new Map<string, number>();
  const lastReadMs = new Map<string, number>();
  const worstAges = classes.map(() => 0);
  const fromMs = options.warmUpMinutes * 60_000;
  let requests = 0;
  let liveRequests = 0;
  let readTags = 0;
  let lateReads = 0;

  const ids = classes.map(([count], which) =>
    Array.from({ length: count }, (_, i) => String(100_000 * (which + 1) + i)),
  );
  for (const [which, members] of ids.entries())
    for (const id of members) {
      classById.set(id, which);
      intervalById.set(id, (classes[which]?.[1] ?? 0) * 1_000);
    }
  const send = <T extends object, R>(
    lane: QueueLane,
    endpoint: "read" | "history",
    requested: T | RequestChooser<T>,
    respond: (chosenContent: T) => R,
    signal: AbortSignal,
  ) => {
    const { chosenContent, onSlotOffered } = resolveRequestContent(requested, (each) => each);
    const task = async () => {
      if (clock.monotonic() >= fromMs) requests++;
      await clock.sleep(LATENCY_MS, signal);
      return respond(chosenContent());
    };
    return quota.run(lane, endpoint, task, signal, onSlotOffered);
  };
  /** Counts the age of a tag's value relative to its interval. */
  const countAge = (id: string, ageMs: number) => {
    const classIndex = classById.get(id) ?? 0;
    const wishMs = intervalById.get(id) ?? 0;
    worstAges[classIndex] = Math.max(worstAges[classIndex] ?? 0, ageMs / wishMs);
    if (ageMs > wishMs + TOLERANCE_MS) lateReads++;
  };
  const readGroup = (group: readonly string[]) => {
    const nowMs = clock.monotonic();
    if (nowMs >= fromMs) {
      liveRequests++;
      readTags += group.length;
    }
    for (const id of group) {
      const lastMs = lastReadMs.get(id);
      if (lastMs !== undefined && nowMs >= fromMs) countAge(id, nowMs - lastMs);
      lastReadMs.set(id, nowMs);
    }
    const readings = group.map((id) => ({ ...tagNamed(id), value: 1 }));
    return { readings, receivedAtMs: clock.now(), latencyMs: LATENCY_MS };
  };
  const readLog = ({ tagIds, resolution, from }: HistoryQuery) =>
    tagIds.map((id) => ({ ...tagNamed(id), measurements: resolution === "1mo" ? [{ time: from, value: 1 }] : [] }));
  const source = partialSource({
    quota: () => quota.status(),
    clockSkewMs: () => null,
    read: (requested, lane, signal) => send(lane, "read", requested, readGroup, signal),
    totals: (requested, lane, signal) => send(lane, "history", requested, () => [], signal),
    history: (requested, lane, signal) => send(lane, "history", requested, readLog, signal),
  });
  const tags = ids.flat().map((id) => tagNamed(id));
  await inventory(store, "trial", tags);
  const readClasses = classes.map(([, seconds], which) => ({
    ...{ name: `class ${which}`, every: `${seconds}s`, select: { ids: ids[which] } },
    ...{ fresher: true, on_change: true, max_silence: "30d" },
  }));
  const history = HistoryConfig.parse([{ name: "past", resolution: "5m", every: "7d", backfill: "365d" }]);
  const syncOptions = { source, store, clock, log, historyDemand: createHistoryDemand() };
  const pull = createHistoryPull({ ...syncOptions, historyClasses: history, timeZone: "UTC", valuesMax: 5_760 });
  const reads = testReads(readClasses, syncOptions);
  const works = [startFollower(reads), startFollower(pull)];
  await clock.advance(fromMs + options.minutes * 60_000);
  for (const syncWork of works) await syncWork.drain(clock);
  await store.close();
  rmSync(folder, { recursive: true });
  // Values that are too old at the end, or were never read, are late as well.
  const endMs = fromMs + options.minutes * 60_000;
  for (const id of classById.keys()) countAge(id, endMs - (lastReadMs.get(id) ?? 0));
  const slots = options.minutes * 20;
  const shares = { used: requests / slots, live: liveRequests / slots, fill: readTags / (liveRequests * 20) };
  return { ...shares, late: lateReads, worst: worstAges, warnings: warnings.length };
}
