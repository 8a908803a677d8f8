import { OrderlyStop } from "#src/core/runtime/lifecycle.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { sleepFor } from "#src/core/runtime/waiting.ts";
import { createSource } from "#src/engine/source/client.ts";
import { SourceConfig } from "#src/engine/source/config.ts";
import { createQuota } from "#src/engine/source/quota/quota.ts";
import { HistoryConfig } from "#src/engine/sync/history/config.ts";
import { createHistoryPull, type HistoryPull } from "#src/engine/sync/history/pull.ts";
import type { LoopJob } from "#src/engine/sync/job.ts";
import { createHistoryDemand } from "#src/engine/sync/plan/overload.ts";
import type { LiveReads } from "#src/engine/sync/read/live-reads.ts";
import { createVolatileStore, usedBefore } from "../../source/quota-harness.ts";
import { inventory, tagNamed, testReads } from "../../sync/live-reads-harness.ts";
import { createMemoryStore } from "../../sync/memory-store.ts";
import { createVirtualClock } from "../../virtual-clock.ts";
import { createLoggedService } from "./service.ts";

export interface BackfillCase {
  readonly tags: number;
  readonly days: number;
  /** Maximum values of one request; `changes` sets another limit after so many requests for series. */
  readonly limit: number;
  readonly changes?: readonly { readonly after: number; readonly limit: number }[];
  readonly withoutLog?: readonly boolean[];
  readonly liveEverySeconds?: number;
  readonly killAfter?: readonly number[];
}

const START_MS = Date.UTC(2026, 0, 5);
const VALUES_MAX = 2_000_000;
const LONGEST_HOURS = 200;

/** Runs the worker's history job, live reads, client and quota in virtual time until all history is fetched. */
export async function driveBackfill(wanted: BackfillCase) {
  const clock = createVirtualClock(START_MS, { ticks: 1 });
  const store = createMemoryStore(() => clock.now());
  const quotaStore = usedBefore(createVolatileStore());
  const log = createLog({ level: "silent" });
  const metrics = createMetrics();
  const ids = Array.from({ length: wanted.tags }, (_, i) => String(100_000 + i));
  const idsWithoutLog = new Set(ids.filter((_, i) => wanted.withoutLog?.[i] === true));
  const service = createLoggedService(clock, wanted.limit, idsWithoutLog);
  const tags = ids.map((id) => tagNamed(id));
  await inventory(store, "trial", tags);
  const everyMs = (wanted.liveEverySeconds ?? 0) * 1_000;
  const history = HistoryConfig.parse([
    { name: "past", resolution: "5m", every: "30d", backfill: `${wanted.days}d`, look_back: "1h" },
  ]);
  const readClass = { name: "all", every: `${everyMs / 1_000}s`, fresher: true, on_change: true, max_silence: "30d" };

  const startWorker = (): { pull: HistoryPull; reads: LiveReads; stop: () => Promise<void> } => {
    const source = createSource({
      ...{ name: "trial", clock, metrics, log, transport: service.transport },
      config: SourceConfig.parse({ base_url: "http://localhost", token: { env: "TOKEN" }, time_zone: "UTC" }),
      limiter: createQuota({ source: "trial", clock, store: quotaStore }),
      ...{ environment: { TOKEN: "token" }, random: () => 0.5 },
    });
    const syncOptions = { source, store, clock, log, historyDemand: createHistoryDemand() };
    const pull = createHistoryPull({ ...syncOptions, historyClasses: history, timeZone: "UTC", valuesMax: VALUES_MAX });
    const reads = testReads(everyMs === 0 ? [] : [readClass], { ...syncOptions, metrics });
    const end = new AbortController();
    const followUntilEnd = async (follower: LoopJob) => {
      while (!end.signal.aborted) {
        const forced = end.signal;
        await follower.follow({ draining: forced, forced, reportSuccess: () => undefined }).catch(() => undefined);
        await sleepFor(clock, 30_000, forced);
      }
    };
    const followWork = Promise.all((everyMs > 0 ? [reads, pull] : [pull]).map(followUntilEnd));
    const stop = async () => {
      end.abort(new OrderlyStop());
      await clock.advance(1_000);
      await followWork;
    };
    return { pull, reads, stop };
  };

  const kills = [...(wanted.killAfter ?? [])];
  const changes = [...(wanted.changes ?? [])];
  let worker = startWorker();
  let worstAge = 0;
  let isDone = false;
  while (!isDone && clock.monotonic() < LONGEST_HOURS * 3_600_000) {
    await clock.advance(15_000);
    const [change] = changes;
    if (change !== undefined && service.count.series >= change.after) {
      service.limit = change.limit;
      changes.shift();
    }
    if (kills[0] !== undefined && service.count.series >= kills[0]) {
      kills.shift();
      await worker.stop();
      worker = startWorker();
      continue;
    }
    if (clock.monotonic() > 600_000) {
      for (const { achievedMs } of worker.reads.status().freshness)
        worstAge = Math.max(worstAge, everyMs === 0 ? 0 : (achievedMs ?? 0) / everyMs);
    }
    const { requestsLeft, unproven, resolutions } = worker.pull.progress();
    isDone = resolutions.length > 0 && requestsLeft === 0 && unproven === 0;
  }
  const minutes = clock.monotonic() / 60_000;
  await worker.stop();
  // The newest bucket is still within its grace period.
  const buckets = wanted.days * 288 - 1;
  const fetched = ids.filter((id) => !idsWithoutLog.has(id)).map((id) => service.replyCounts.get(id) ?? 0);
  const sum = fetched.reduce((total, each) => total + each, 0);
  const missingBuckets = fetched.reduce((total, each) => total + Math.max(0, buckets - each), 0);
  /** Share of the buckets that were fetched twice. */
  const repeatedShare = Math.max(0, sum / (fetched.length * buckets) - 1);
  return { ...service.count, minutes, missing: missingBuckets, again: repeatedShare, worst: worstAge };
}
