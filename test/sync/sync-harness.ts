import { pino } from "pino";
import type { z } from "zod";
import type { Event, EventKind } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createClockCheck } from "#src/core/runtime/clock-check.ts";
import { readClocks } from "#src/core/runtime/elapsed-time.ts";
import type { WorkerService } from "#src/core/runtime/lifecycle.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createWakeup } from "#src/core/runtime/waiting.ts";
import { createSource } from "#src/engine/source/client.ts";
import { SourceConfig } from "#src/engine/source/config.ts";
import type { QuotaLimiter } from "#src/engine/source/quota/quota.ts";
import type { Source } from "#src/engine/source/source.ts";
import { SyncConfig } from "#src/engine/sync/config.ts";
import { createCronTicker } from "#src/engine/sync/cron-schedule.ts";
import type { LoopJob } from "#src/engine/sync/job.ts";
import type { ValueReadability } from "#src/engine/sync/site-availability.ts";
import { openSync } from "#src/engine/sync/sync.ts";
import type { SimulatorOptionsInput } from "#src/simulator/options.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { simulatedTransport } from "../simulated-transport.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { createMemoryStore, type MemoryStore } from "./memory-store.ts";

export type SyncHarness = ReturnType<typeof createHarness>;

/** Changes a list of the service in place, or returns another list. */
export type ListChange = (list: WireList, path: string, query: URLSearchParams) => unknown;
// biome-ignore lint/suspicious/noExplicitAny: records of the wire, which a test bends as it likes
export type WireList = { data: any[]; links: any; meta: any };

export interface HarnessOptions {
  readonly simulator?: SimulatorOptionsInput;
  readonly sync?: z.input<typeof SyncConfig>;
  readonly followers?: readonly LoopJob[];
  readonly pageSize?: number;
  readonly random?: () => number;
  readonly tokenStamp?: () => Promise<string>;
  readonly store?: MemoryStore;
  readonly latencyMs?: () => number;
}

export const START_MS = Date.UTC(2026, 5, 1, 0, 0, 0);

export const ALARMS_ONLY = {
  schedules: {
    ...{ token: "0 * * * *", sites: "*/15 * * * *", alarms: "*/30 * * * * *", resolved_sweep: "15 */2 * * * *" },
    ...{ gateways: false, hosts: false, systems: false, tags: false },
  },
  spread: "0s",
} satisfies z.input<typeof SyncConfig>;

/** Schedules of a token, sites, gateways and tags listed every six hours. */
export const RARE_SCHEDULES = {
  ...ALARMS_ONLY.schedules,
  ...{ token: "0 */6 * * *", sites: "0 */6 * * *", alarms: false, resolved_sweep: false },
  ...{ gateways: "10 */6 * * *", tags: "20 */6 * * *" },
} satisfies z.input<typeof SyncConfig>["schedules"];

/** The polling of a worker against the simulated service, with one virtual clock. */
export function createHarness(options: HarnessOptions = {}) {
  const clock = createVirtualClock(START_MS);
  const simulator = createSimulator(
    { sites: SITES, epoch: START_MS, alarms: { recorded: false }, ...options.simulator },
    { now: () => clock.now() },
  );
  const store = options.store ?? createMemoryStore(() => clock.now());
  const metrics = createMetrics();
  const polls: { job: string; outcome: string; atMs: number }[] = [];
  const count = metrics.polls.inc.bind(metrics.polls);
  metrics.polls.inc = ((labels: { job: string; outcome: string }) => {
    polls.push({ job: labels.job, outcome: labels.outcome, atMs: clock.now() });
    count(labels);
  }) as typeof metrics.polls.inc;
  const requests: { path: string; query: URLSearchParams; atMs: number }[] = [];
  const listeners: ((path: string, query: URLSearchParams) => void)[] = [];
  const warnings: string[] = [];
  const shown = process.env.PLENUM_TEST_LOG;
  const log = pino(
    { level: shown ?? "warn" },
    shown === undefined ? { write: (line: string) => void warnings.push(line) } : pino.destination(2),
  );
  let change: ListChange | null = null;
  let service: WorkerService | null = null;
  let client: Source | null = null;
  let run = new AbortController();

  const transport = simulatedTransport(simulator, clock, {
    thereMs: options.latencyMs ?? (() => 50),
    onRequest(path, query) {
      requests.push({ path, query, atMs: clock.now() });
      for (const listener of listeners) listener(path, query);
    },
    rewrite(body, path, query) {
      if (change === null) return body;
      const list = JSON.parse(body) as WireList;
      return Array.isArray(list.data) ? JSON.stringify(change(list, path, query) ?? list) : body;
    },
  });

  const harness = {
    ...{ clock, simulator, control: simulator.control, store, metrics, requests, polls, warnings },
    /** Changes every list from now on; null restores the lists of the service. */
    rewriteLists(next: ListChange | null) {
      change = next;
    },
    source(): Source {
      if (client === null) throw new Error("The harness has not been started.");
      return client;
    },
    /** Called after each request that the service answered. */
    onRequest: (listener: (typeof listeners)[number]) => void listeners.push(listener),
    async start(): Promise<void> {
      run = new AbortController();
      const source = createSource({
        name: "main",
        config: SourceConfig.parse({
          ...{ base_url: "http://localhost", token: { env: "TOKEN" }, time_zone: "Europe/Stockholm" },
          page_size: { alarms: options.pageSize ?? 500, others: 100 },
        }),
        ...{ limiter: noLimiter, clock, metrics, log, transport, environment: { TOKEN: "simulator-token" } },
        random: options.random ?? (() => 0.5),
      });
      client = source;
      const sync = await openSync({
        ...{ source, store, clock, log, metrics },
        config: SyncConfig.parse(options.sync ?? ALARMS_ONLY),
        ticker: createCronTicker(clock, createClockCheck({ clock, log })),
        random: options.random ?? (() => 0.5),
        ...(options.tokenStamp === undefined ? {} : { tokenStamp: options.tokenStamp }),
      });
      service = sync.createService(options.followers ?? [], NO_LIVE_READS);
      await service.start(run.signal);
    },
    async stop(): Promise<void> {
      const stopped = service?.stop(0);
      await clock.advance(1);
      await stopped;
      service = null;
    },
    /** Stops at once, as a kill does, and starts again with the same store. */
    async restart(): Promise<void> {
      await harness.stop();
      await harness.start();
    },
    /** Starts again without the stored state; the list of emitted events stays. */
    async loseState(): Promise<void> {
      await harness.stop();
      store.forget();
      await harness.start();
    },
    events: (...kinds: readonly EventKind[]): readonly Event[] =>
      store.events.filter((event) => kinds.length === 0 || kinds.includes(event.type)),
  };
  return harness;
}

const SITES = [2, 3, 4];

const NO_LIVE_READS: ValueReadability = {
  watchStaleValues: async () => undefined,
  unreadableSites: () => new Map(),
  unreadableSitesChanged: createWakeup(),
};

const noLimiter: QuotaLimiter = {
  run: (_lane, _endpoint, task) => task(readClocks(systemClock)),
  pauseRequests() {},
  endPause() {},
  permitTrial() {},
  observeHeaders() {},
  status: () => ({ buckets: [], heldUntilMs: null }),
};
