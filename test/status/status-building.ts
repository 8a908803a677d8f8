import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import type { Alarm, Tag } from "#src/core/model/building.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import { createLog, type Secret } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { endSilence } from "#src/engine/silence/alarm-silences.ts";
import { openStore } from "#src/engine/store/open.ts";
import { documentSet, type Store } from "#src/engine/store/store.ts";
import { createActiveAlarmCounts } from "#src/engine/sync/alarms/stored-alarms.ts";
import type { SourceCounts } from "#src/engine/sync/live-tag-state.ts";
import { type PollingPlanFacts, reportPlan } from "#src/engine/sync/plan/report.ts";
import {
  type StoredAlarm,
  type StoredJob,
  type StoredLeftOut,
  type StoredValue,
  syncSet,
} from "#src/engine/sync/stored-documents.ts";
import type { Plots, WorkerPlotNumbers } from "#src/ui/plots/plot-storage.ts";
import { refreshMetricGauges } from "#src/ui/status/health.ts";
import { createPageApi } from "#src/ui/status/page-api.ts";
import type { RunningWorker } from "#src/ui/status/response-context.ts";
import type { RunningSource } from "#src/ui/status/source-reports.ts";
import { StatusConfig } from "#src/ui/status/status-config.ts";
import { createStatus, type RunningWorkerState, type Status } from "#src/ui/status/status-report.ts";
import type { StatusServerOptions } from "#src/ui/status/status-server.ts";
import { ALARM, GATEWAY } from "../sample-events.ts";
import { createVirtualClock, type VirtualClock } from "../virtual-clock.ts";

/** A real store with a small building in it, and the status over it. */

export const NOW = "2026-11-21T10:00:00.000Z";
export const LOCALHOST = { host: "127.0.0.1:9850" };

/** Headers of a request that the page itself sends. */
export const FROM_PAGE = {
  ...LOCALHOST,
  ...{ "x-plenum": "status-page", origin: "http://127.0.0.1:9850", "sec-fetch-site": "same-origin" },
};
export const JSON_TYPE = { "content-type": "application/json" };

/** Header value for a user name and a password, such as `plenum:secret`. */
export const basic = (text: string) => `Basic ${Buffer.from(text).toString("base64")}`;

export interface StatusBuilding {
  readonly store: Store;
  readonly clock: VirtualClock;
  readonly status: Status;
}

export async function emptyStore(clock: Clock): Promise<Store> {
  const folder = mkdtempSync(join(tmpdir(), "plenum-status-"));
  const store = await openStore({ folder, clock });
  onTestFinished(async () => {
    await store.close();
    rmSync(folder, { recursive: true });
  });
  return store;
}

/** Plan facts of a read class whose values are `valueAgeMs` old. */
function planClass(name: string, tags: number, everyMs: number, valueAgeMs: number | null) {
  const settings = { firm: false, importance: 1, fresher: false };
  return { name, tags, allTagCount: tags, everyMs, valueAgeMs, ...settings };
}

/** Numbers of a worker whose plots know nothing about it. */
export const NO_NUMBERS: WorkerPlotNumbers = {
  currentGaugeValues: async () => new Map(),
  totalCounts: async () => new Map(),
  noteRefusedRequests: async () => {},
};

export const PLAN_FACTS: PollingPlanFacts = {
  source: "north",
  basis: "state",
  nowMs: Date.parse(NOW),
  sites: 1,
  tags: 2_000,
  classes: [planClass("comfort", 100, 60_000, 58_700), planClass("meters", 900, 900_000, null)],
  history: [{ name: "all", resolution: "5m", total: false, everyMs: 3_600_000, tags: 2_000, withoutLog: 12 }],
  backfill: { requestsLeft: 1_234, requestsAtBest: 230, paused: false },
  quota: { perMinute: 20, reserve: 0, polite: 1, polls: 20, shared: true, size: 20 },
};

export const LIVE_SOURCE: RunningSource = {
  clockSkewMs: 120,
  plan: async () => reportPlan(PLAN_FACTS),
  quota: {
    buckets: [
      {
        name: "tags",
        perMinute: 20,
        pacedPerMinute: 18,
        lastingPerMinute: 18,
        used: 7,
        waiting: { write: 0, "on-demand": 0, live: 2, history: 0, spare: 0 },
        heldUntilMs: null,
        nextSlotInMs: 0,
        throttled: 0,
        foreign: null,
      },
    ],
    heldUntilMs: null,
  },
};

export const WORKER = {
  startedAtMs: Date.parse("2026-11-21T09:00:00Z"),
  source: () => LIVE_SOURCE,
  sinks: () => [{ name: "lake", connector: "influxdb", state: "idle", since: NOW, lastError: null }],
  commands: () => ({
    enabled: true,
    rehearsal: false,
    stopped: false,
    writable: 3,
    waiting: 0,
    locks: { count: 0, nextEnd: null },
  }),
  notices: () => [],
} satisfies RunningWorkerState;

/** The parts of a worker that counts what a store holds; a real one counts it as it changes. */
export function counting<T extends RunningWorkerState>(
  live: T,
  store: Store,
  clock: Clock,
  /** Last successful polls by job, where they are later than those in the store, UTC. */
  heard: Readonly<Record<string, string>> = {},
): T {
  return {
    ...live,
    source(name: string) {
      const source = live.source(name);
      return source === null ? null : { counts: () => sourceCounts(store, clock, name, heard), ...source };
    },
  };
}

async function sourceCounts(
  store: Store,
  clock: Clock,
  source: string,
  heard: Readonly<Record<string, string>>,
): Promise<SourceCounts> {
  const alarms = createActiveAlarmCounts();
  for (const storedAlarm of (await store.documents<StoredAlarm>(documentSet("alarm", source))).values())
    alarms.noteAlarmChange(undefined, storedAlarm);
  const polls = await store.documents<StoredJob>(documentSet("poll", source));
  const values = [...(await store.documents<StoredValue>(documentSet("value", source))).values()];
  const times = values.map(({ time }) => time).toSorted();
  const storedPolls = [...polls].map(([job, { lastSuccess }]) => [job, lastSuccess] as const);
  const lastPolls = new Map([...storedPolls, ["live", times.at(-1) ?? null], ...Object.entries(heard)]);
  const offsetMs = clock.monotonic() - clock.now();
  const tags = await store.documents(documentSet("tag", source));
  const left = [...(await store.documents<StoredLeftOut>(syncSet("left-out", source)))].filter(([id]) => tags.has(id));
  const unreadable = left.filter(([, { kind }]) => kind === "unreadable").length;
  return {
    activeAlarms: alarms.counts,
    siteIds: [...(await store.documents(documentSet("site", source))).keys()].map(Number),
    tagsWithoutValue: { unreadable, unanswered: left.length - unreadable },
    lastPolls: new Map(
      [...lastPolls].flatMap(([job, at]) =>
        at === null ? [] : [[job, { atMs: Date.parse(at), monotonicMs: Date.parse(at) + offsetMs }] as const],
      ),
    ),
    inventoryPageMs: null,
  };
}

export function statusOver(store: Store, clock: Clock, live: RunningWorkerState | null = WORKER): Status {
  return createStatus({
    version: "1.2.3",
    clock,
    store,
    sources: [
      { name: "north", origin: "https://north.example" },
      { name: "south", origin: "https://south.example" },
    ],
    live: live === null ? null : counting(live, store, clock),
  });
}

/** A site with a gateway, `tags` tags with values, and alarms of the given names. */
export async function fillSource(
  store: Store,
  source: string,
  options: {
    readonly siteName?: string;
    readonly tagNames: readonly string[];
    /** Alias and path of every tag. */
    readonly namesFile?: Pick<Tag, "alias" | "path">;
    readonly alarms?: readonly Partial<Alarm>[];
  },
): Promise<void> {
  const site = { id: 1, displayName: options.siteName ?? `${source} school` };
  const listedObject = <T>(value: T, siteId: number | null = 1) => ({ value, siteId, since: NOW, missingSince: null });
  const tags = options.tagNames.map(
    (displayName, n): Tag => ({
      id: String(10_001 + n),
      displayName,
      description: displayName,
      unit: "°C",
      ...options.namesFile,
    }),
  );
  const value = (n: number): StoredValue => ({
    value: n === 1 ? null : 20 + n / 10,
    quality: n === 1 ? "bad" : "good",
    time: new Date(Date.parse(NOW) - n * 1_000).toISOString(),
    lastGood: n === 1 ? { value: 19.5, time: "2026-11-21T09:00:00.000Z" } : null,
    nulls: n === 1 ? 3 : 0,
  });
  const alarms = (options.alarms ?? []).map(
    (alarm, n): StoredAlarm => ({
      alarm: { ...ALARM, id: String(500_001 + n), site, ...alarm },
      episode: `e${n}`,
      state: "active",
      since: NOW,
      misses: 0,
      returns: 0,
    }),
  );
  await store.commit({
    documents: [
      { set: documentSet("site", source), put: [["1", listedObject(site, null)]] },
      { set: documentSet("gateway", source), put: [["7", listedObject({ ...GATEWAY, online: false })]] },
      { set: documentSet("tag", source), put: tags.map((tag) => [tag.id, listedObject(tag)] as const) },
      { set: documentSet("value", source), put: tags.map((tag, n) => [tag.id, value(n)] as const) },
      { set: documentSet("alarm", source), put: alarms.map((each) => [each.alarm.id, each] as const) },
      { set: documentSet("poll", source), put: LISTED_JOBS.map((job) => [job, SUCCESSFUL_POLL] as const) },
    ],
  });
}

const LISTED_JOBS = ["sites", "tags", "gateways", "alarms"];
const SUCCESSFUL_POLL: StoredJob = { lastSuccess: NOW, lastAttempt: NOW, problem: null };

export async function statusBuilding(live: RunningWorkerState | null = WORKER): Promise<StatusBuilding> {
  const clock = createVirtualClock(Date.parse(NOW));
  const store = await emptyStore(clock);
  return { store, clock, status: statusOver(store, clock, live) };
}

export function serverOptions(
  { store, status, clock }: StatusBuilding,
  more: {
    readonly config?: object;
    readonly password?: Secret;
    readonly viewer?: Secret;
    readonly scraper?: Secret;
    readonly readiness?: StatusServerOptions["readiness"];
    readonly stopWrites?: (by: string) => void;
    readonly write?: StatusServerOptions["actions"]["write"];
    readonly plots?: Plots;
    readonly parts?: Partial<RunningWorker>;
  } = {},
): StatusServerOptions {
  const metrics = createMetrics();
  return {
    config: StatusConfig.parse({ port: 0, ...more.config }),
    credentials:
      more.password === undefined
        ? null
        : { operator: more.password, viewer: more.viewer ?? null, scraper: more.scraper ?? null },
    clock,
    findSilenceStore: () => store,
    endSilence: (...which) => endSilence(store, ...which),
    status,
    pageApi: createPageApi({
      clock,
      store,
      status,
      plots: more.plots ?? null,
      sources: ["north", "south"],
      sinksAndFilters: () => ({ sinks: ["lake"], filterBySink: new Map() }),
      live: {
        findReadClass: () => ({ className: "comfort", promisedMs: 60_000 }),
        findLiveTagState: () => null,
        sinks: WORKER.sinks,
        findSinkAddresses: async () => [],
        findWritableTag: async () => null,
        allowedRequestsPerMinute: () => 20,
        fetchHistory: () => null,
        ...more.parts,
      },
    }),
    actions: { write: more.write ?? (async () => {}), notReadyReason: () => null },
    outbox: store.outbox,
    metrics: metrics.registry,
    readiness: more.readiness ?? (async () => ({ ready: true, reasons: [] })),
    refreshMetrics: () => refreshMetricGauges({ status, metrics, log: createLog({ level: "silent" }) }),
    stopWrites: more.stopWrites ?? null,
    log: createLog({ level: "silent" }),
  };
}
