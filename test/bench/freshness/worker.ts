import { rmSync } from "node:fs";
import { createLog } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { chooseContent } from "#src/engine/source/queries.ts";
import { createQuota } from "#src/engine/source/quota/quota.ts";
import type { Chooser, HistoryQuery, Lane } from "#src/engine/source/source.ts";
import { openStore } from "#src/engine/store/open.ts";
import { HistoryConfig } from "#src/engine/sync/history/config.ts";
import { createHistoryPull } from "#src/engine/sync/history/pull.ts";
import { createDemand } from "#src/engine/sync/plan/overload.ts";
import { createGroupCommit } from "#src/engine/sync/read/commit.ts";
import { ReadConfig } from "#src/engine/sync/read/config.ts";
import { createLiveReads } from "#src/engine/sync/read/live-reads.ts";
import { temporaryFolder } from "../../real-servers.ts";
import { createVolatileMemory, usedBefore } from "../../source/quota-rig.ts";
import { begin, inventory, partialSource, tagNamed } from "../../sync/trial-building.ts";
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
  const virtual = createVirtualClock(START_MS, { turns: 2 });
  const clock = { ...virtual, now: () => Math.floor(virtual.now()) };
  const store = await openStore({ folder, clock });
  const quota = createQuota({ source: "trial", clock, store: usedBefore(createVolatileMemory()) });
  const silent = createLog({ level: "silent" });
  let warnings = 0;
  const log = Object.assign(Object.create(silent) as typeof silent, { warn: () => void (warnings += 1) });
  const every = new Map<string, number>();
  const whichOf = new Map<string, number>();
  const lastAt = new Map<string, number>();
  const worst = classes.map(() => 0);
  const fromMs = options.warmUpMinutes * 60_000;
  let requests = 0;
  let live = 0;
  let filled = 0;
  let late = 0;

  const ids = classes.map(([count], which) =>
    Array.from({ length: count }, (_, i) => String(100_000 * (which + 1) + i)),
  );
  for (const [which, members] of ids.entries())
    for (const id of members) {
      whichOf.set(id, which);
      every.set(id, (classes[which]?.[1] ?? 0) * 1_000);
    }
  const send = <T extends object, R>(
    lane: Lane,
    endpoint: "read" | "history",
    asked: T | Chooser<T>,
    answer: (chosen: T) => R,
    signal: AbortSignal,
  ) => {
    const { chosen, choose } = chooseContent(asked, (each) => each);
    const task = async () => {
      if (clock.monotonic() >= fromMs) requests++;
      await clock.sleep(LATENCY_MS, signal);
      return answer(chosen());
    };
    return quota.run(lane, endpoint, task, signal, choose);
  };
  /** Counts the age of a tag's value relative to its interval. */
  const countAge = (id: string, ageMs: number) => {
    const which = whichOf.get(id) ?? 0;
    const wishMs = every.get(id) ?? 0;
    worst[which] = Math.max(worst[which] ?? 0, ageMs / wishMs);
    if (ageMs > wishMs + TOLERANCE_MS) late++;
  };
  const readGroup = (group: readonly string[]) => {
    const nowMs = clock.monotonic();
    if (nowMs >= fromMs) {
      live++;
      filled += group.length;
    }
    for (const id of group) {
      const lastMs = lastAt.get(id);
      if (lastMs !== undefined && nowMs >= fromMs) countAge(id, nowMs - lastMs);
      lastAt.set(id, nowMs);
    }
    const readings = group.map((id) => ({ ...tagNamed(id), value: 1 }));
    return { readings, receivedAtMs: clock.now(), latencyMs: LATENCY_MS };
  };
  const readLog = ({ tagIds, resolution, from }: HistoryQuery) =>
    tagIds.map((id) => ({ ...tagNamed(id), measurements: resolution === "1mo" ? [{ time: from, value: 1 }] : [] }));
  const source = partialSource({
    quota: () => quota.status(),
    clockSkewMs: () => null,
    read: (asked, lane, signal) => send(lane, "read", asked, readGroup, signal),
    totals: (asked, lane, signal) => send(lane, "history", asked, () => [], signal),
    history: (asked, lane, signal) => send(lane, "history", asked, readLog, signal),
  });
  const tags = ids.flat().map((id) => tagNamed(id));
  await inventory(store, "trial", tags);
  const read = ReadConfig.parse(
    classes.map(([, seconds], which) => ({
      ...{ name: `class ${which}`, every: `${seconds}s`, select: { ids: ids[which] } },
      ...{ on_change: true, max_silence: "30d" },
    })),
  );
  const demand = createDemand();
  const history = HistoryConfig.parse([{ name: "past", resolution: "5m", every: "7d", backfill: "365d" }]);
  const shared = { source, store, clock, log, demand };
  const pull = createHistoryPull({ ...shared, classes: history, timeZone: "UTC", valuesMax: 5_760 });
  const reads = createLiveReads({
    ...{ ...shared, metrics: createMetrics(), classes: read },
    groupCommit: createGroupCommit({ store, clock, sources: 1 }),
    scope: { sees: () => true, respondedAtMs: () => 0, explain: async () => "unexplained" },
  });
  const works = [begin(reads), begin(pull)];
  await clock.advance(fromMs + options.minutes * 60_000);
  for (const work of works) await work.drain(clock);
  await store.close();
  rmSync(folder, { recursive: true });
  // Values that are too old at the end, or were never read, are late as well.
  const endMs = fromMs + options.minutes * 60_000;
  for (const id of whichOf.keys()) countAge(id, endMs - (lastAt.get(id) ?? 0));
  const slots = options.minutes * 20;
  return { used: requests / slots, live: live / slots, fill: filled / (live * 20), late, worst, warnings };
}
