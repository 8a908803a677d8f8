import { isDeepStrictEqual } from "node:util";
import type { Gateway } from "../../core/model/building.ts";
import { type Event, makeEvent, SERVICE_SUBJECT, sourceUri } from "../../core/model/event.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isOrderlyStop, type WorkerService } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { createSerialRunner } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Source } from "../source/source.ts";
import { documentSet, type Store, type StoreChange } from "../store/store.ts";
import { parseUtcMs } from "./alarms/alarm-times.ts";
import { createAlarmPoll } from "./alarms/poll.ts";
import { createResolvedAlarmSweep } from "./alarms/resolved-alarm-sweep.ts";
import { createActiveAlarmCounts } from "./alarms/stored-alarms.ts";
import type { SyncConfig } from "./config.ts";
import { type CronTicker, cronIntervalMs, cronMatcher } from "./cron-schedule.ts";
import { createFirstInventoryProgress } from "./first-inventory-progress.ts";
import { createGatewayRecheck } from "./inventory/gateway-recheck.ts";
import { createOfflineGateways, type OfflineGateways } from "./inventory/gateways.ts";
import {
  commitChangedTagNames,
  createInventoryPoll,
  createSiteListPoll,
  getFollowedSiteIds,
  type InventoryPoll,
} from "./inventory/poll.ts";
import { createTagNaming } from "./inventory/tag-naming.ts";
import { createTagPoll } from "./inventory/tag-poll.ts";
import { JOB_OUTCOME_OK, type JobOutcome, type LoopJob, type PollTime, type RunnableJob, type SyncJob } from "./job.ts";
import { createJobScheduler, type JobScheduler } from "./job-scheduler.ts";
import type { PollContext } from "./poll-context.ts";
import { createServiceAvailability } from "./service-availability.ts";
import { createServiceOutage } from "./service-outage.ts";
import { type ValueReadability, watchLostSites, watchSiteStatuses } from "./site-availability.ts";
import { type StoredAlarm, type StoredJob, type StoredObject, type StoredToken, syncSet } from "./stored-documents.ts";
import { createSyncState, storeWithSyncState } from "./sync-state.ts";
import { createTokenScope } from "./token-scope.ts";

export interface SyncOptions {
  readonly source: Source;
  readonly store: Store;
  readonly config: SyncConfig;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly ticker: CronTicker;
  readonly tokenStamp?: () => Promise<string>;
  readonly onTagsListed?: () => Promise<void>;
  readonly random?: () => number;
}

export async function openSync(options: SyncOptions) {
  const { source, store, clock, log, metrics, random = Math.random } = options;
  let { config } = options;
  const sourceDocumentSet = (name: Parameters<typeof documentSet>[0]) => documentSet(name, source.name);
  const syncState = await createSyncState(store, [
    ...(["site", "gateway", "host", "system", "tag", "alarm", "poll", "token"] as const).map(sourceDocumentSet),
    ...(["tag-system", "tag-seen", "alarm-site", "sweep", "availability", "health", "site-status"] as const).map(
      (name) => syncSet(name, source.name),
    ),
    syncSet("gateway-check", source.name),
  ]);
  const activeAlarmCounts = createActiveAlarmCounts();
  syncState.observe<StoredAlarm>(sourceDocumentSet("alarm"), activeAlarmCounts.noteAlarmChange);
  const lastPollTimes = new Map<string, PollTime>();
  const scope = createTokenScope(source, clock);
  const availability = createServiceAvailability(source.name, syncState, clock);
  const storedToken = syncState.get<StoredToken>(sourceDocumentSet("token")).get("token");
  if (storedToken !== undefined) {
    const lostSiteTimes = availability.sitesDown();
    const visibleSites = storedToken.info.sites.filter(({ id }) => !lostSiteTimes.has(id));
    scope.learn({ ...storedToken.info, sites: visibleSites });
    scope.restoreLostScope({ ...storedToken.lost, ...Object.fromEntries(lostSiteTimes) });
  }

  const getStoredJobState = (job: string) => syncState.get<StoredJob>(sourceDocumentSet("poll")).get(job);
  const wasListRead = (job: string) => (getStoredJobState(job)?.lastSuccess ?? null) !== null;
  const firstInventory = createFirstInventoryProgress(wasListRead, clock);
  const tagNaming = createTagNaming();
  const sitesWithListedTags = new Set<number>();
  const systemsListRead = Promise.withResolvers<void>();
  const createPollContext = (settings: SyncConfig): PollContext => ({
    ...{ source, config: settings, clock, log, metrics, scope, syncState, tagNaming, firstInventory },
    sitesWithTagList: sitesWithListedTags,
    offlineGatewayOf: (siteId) => offlineGateways.offlineGatewayOf(siteId),
    recheckGateways: (siteIds, signal) => gatewayRecheck.recheckBeforeAlarms(siteIds, signal),
    commit: availability.commit,
  });
  const runSerially = createSerialRunner();
  let alarmPolls = createAlarmPolls(createPollContext(config));
  const outage = createServiceOutage({
    ...{ source, clock, log, random, availability, scope },
    async noteHealth(health) {
      const healthChange = health === null ? { remove: ["health"] } : { put: [["health", health] as const] };
      await syncState.commit({ documents: [{ set: syncSet("health", source.name), ...healthChange }] });
    },
    alarmReconciler: () => (config.schedules.alarms === false ? null : (signal) => alarmPolls.alarms.reconcile(signal)),
    tokenStamp: options.tokenStamp ?? null,
  });
  let nextGatewayListTime = createGatewayListSchedule(config);
  const getStoredGateways = () => syncState.get<StoredObject<Gateway>>(sourceDocumentSet("gateway"));
  const offlineGateways = createOfflineGateways(getStoredGateways, () => nextGatewayListTime, clock);
  let gateways = createGatewayPoll(createPollContext(config), offlineGateways);
  const gatewayRecheck = createGatewayRecheck({
    readGateways: (siteId, signal) => gateways.pollSite(siteId, signal),
    isFollowed: (siteId) =>
      config.schedules.gateways !== false &&
      scope.hasAbility("read:gateways") &&
      getFollowedSiteIds(createPollContext(config)).includes(siteId),
    hasOfflineGateway: (siteId) => offlineGateways.offlineGatewayOf(siteId) !== null,
    ...{ source, gateways: getStoredGateways, syncState, clock, log },
  });
  const areGatewaysKnown = () =>
    config.schedules.gateways === false ||
    !scope.hasAbility("read:gateways") ||
    getStoredJobState("gateways") !== undefined;
  let jobScheduler: JobScheduler | null = null;

  function createJobs(): readonly SyncJob[] {
    const pollContext = createPollContext(config);
    gateways = createGatewayPoll(pollContext, offlineGateways);
    const tagPoll = createTagPoll(pollContext, systemsListRead.promise);
    const tagJob: RunnableJob = {
      async run(signal) {
        const tagPollOutcome = await tagPoll.run(signal);
        if (tagPollOutcome.kind === "ok") await options.onTagsListed?.();
        return tagPollOutcome;
      },
    };
    const syncJobs = listJobsInOrder(pollContext, { ...alarmPolls, gateways, tags: tagJob }, systemsListRead.resolve);
    firstInventory.waitOnlyFor(syncJobs);
    return syncJobs.map(firstInventory.watch);
  }

  /** Creates the alarm polls, only when their settings change, because the polls have state in memory. */
  function createAlarmPolls(pollContext: PollContext) {
    const pollIntervalMs = () =>
      config.schedules.alarms === false ? null : cronIntervalMs(config.schedules.alarms, clock.now());
    return {
      alarms: createAlarmPoll(pollContext, runSerially, pollIntervalMs),
      sweep: createResolvedAlarmSweep(pollContext, runSerially),
    };
  }

  return {
    scope,
    store: storeWithSyncState(store, syncState),
    activeAlarms: activeAlarmCounts.counts,
    lastPolls: lastPollTimes as ReadonlyMap<string, PollTime>,
    inventoryPageMs: firstInventory.lastPageMs,
    siteIds: () => [...syncState.get(sourceDocumentSet("site")).keys()].map(Number),
    knowsTag: (id: string) => syncState.get(sourceDocumentSet("tag")).has(id),
    knowsTagsOfSite: (siteId: number) =>
      config.schedules.tags === false ||
      sitesWithListedTags.has(siteId) ||
      syncState.get(syncSet("tag-seen", source.name)).has(String(siteId)),
    /** Returns no ids before the first inventory has ended, because most ids are unknown. */
    listedTagIds: () =>
      firstInventory.getProgress().done ? syncState.get(sourceDocumentSet("tag")) : new Map<string, unknown>(),
    changeTagNames: tagNaming.changeNames,
    async commitTagNames(signal: AbortSignal): Promise<void> {
      const commit = async (_job: string, change: StoreChange) => void (await syncState.commit(change));
      await commitChangedTagNames({ ...createPollContext(config), commit }, signal);
    },
    offlineGatewayOf: offlineGateways.offlineGatewayOf,
    isServiceDown: outage.isOn,
    recheckGateways: gatewayRecheck.requestRecheck,
    firstInventory: firstInventory.getProgress,
    createService(loopJobs: readonly LoopJob[], readability: ValueReadability): WorkerService {
      const siteWatchOptions = { source: source.name, random, scope, syncState, clock, log };
      jobScheduler = createJobScheduler({
        ...{ source: source.name, clock, log, metrics, random, outage, availability, scope },
        jobs: createJobs(),
        loopJobs: [...loopJobs, gatewayRecheck],
        ticker: options.ticker,
        spreadMs: config.spread,
        watches: [
          readability.watchStaleValues,
          (signal) => watchLostSites({ ...siteWatchOptions, availability, outage }, signal),
          (signal) => watchSiteStatuses({ ...siteWatchOptions, areGatewaysKnown, readability }, signal),
        ],
        onJobSuccess: (job) => void lastPollTimes.set(job, { atMs: clock.now(), monotonicMs: clock.monotonic() }),
        storedState: getStoredJobState,
        storeState(job, state) {
          syncState.putDeferred(sourceDocumentSet("poll"), job, state).catch((error: unknown) => {
            if (!isOrderlyStop(error)) log.warn({ job, err: error }, "how a poll went was not stored");
          });
        },
      });
      return jobScheduler;
    },
    /** Applies a changed configuration. Keeps state, scope and outage. Reads lists with changed requests at once. */
    changeConfig(newConfig: SyncConfig): void {
      const oldConfig = config;
      config = newConfig;
      nextGatewayListTime = createGatewayListSchedule(newConfig);
      const configAfterStart = { ...newConfig, alarms: { ...newConfig.alarms, startup: "reconcile" as const } };
      if (!isDeepStrictEqual(oldConfig.alarms, newConfig.alarms))
        alarmPolls = createAlarmPolls(createPollContext(configAfterStart));
      jobScheduler?.changeJobs(createJobs(), newConfig.spread, findListsToReread(oldConfig, newConfig));
    },
  };
}

function createGatewayListSchedule({ schedules }: SyncConfig): ((afterMs: number) => number) | null {
  return schedules.gateways === false ? null : cronMatcher(schedules.gateways);
}

function findListsToReread(before: SyncConfig, after: SyncConfig): ReadonlySet<string> {
  const hasSettingChanged = (get: (config: SyncConfig) => unknown) => !isDeepStrictEqual(get(before), get(after));
  return new Set([
    ...(hasSettingChanged(({ alarms }) => alarms.sites) ? ["alarms", "resolved_sweep"] : []),
    ...(hasSettingChanged(({ inventory }) => inventory.sites) ? ["gateways", "hosts", "systems", "tags"] : []),
    ...(hasSettingChanged(({ inventory }) => inventory.tags_of_systems) ? ["systems", "tags"] : []),
  ]);
}

function createGatewayPoll(pollContext: PollContext, offlineGateways: OfflineGateways): InventoryPoll {
  return createInventoryPoll(pollContext, "gateways", "gateway", (filter, signal, stored) =>
    offlineGateways.watchPages(filter.siteId, pollContext.source.gateways(filter, signal, stored)),
  );
}

/** Lists the jobs in the order of their first runs: token and sites first, gateways before hosts and systems. */
function listJobsInOrder(
  pollContext: PollContext,
  { alarms, sweep, gateways, tags }: Record<"alarms" | "sweep" | "gateways" | "tags", RunnableJob>,
  onSystemsRead: () => void,
): readonly SyncJob[] {
  const { source } = pollContext;
  const { schedules, inventory } = pollContext.config;
  const toJob = (name: keyof typeof schedules, { run }: RunnableJob, ability?: string): SyncJob => ({
    ...{ name, schedule: schedules[name], firstRun: true, run },
    ...(ability === undefined ? {} : { ability }),
  });
  const hostPoll = createInventoryPoll(pollContext, "hosts", "host", source.hosts);
  const systems = createInventoryPoll(pollContext, "systems", "system", source.systems);
  const hostListJob = toJob("hosts", hostPoll, "read:hosts");
  const systemJob = toJob("systems", { run: (signal) => systems.run(signal).finally(onSystemsRead) }, "read:systems");
  if (schedules.systems === false) onSystemsRead();
  return [
    toJob("token", createTokenPoll(pollContext)),
    toJob("sites", createSiteListPoll(pollContext)),
    { ...toJob("tags", tags, "read:tags"), isLong: true },
    toJob("alarms", alarms, "read:alarms"),
    toJob("gateways", gateways, "read:gateways"),
    ...(inventory.tags_of_systems ? [systemJob, hostListJob] : [hostListJob, systemJob]),
    toJob("resolved_sweep", sweep, "read:alarms"),
  ];
}

const TOKEN_EXPIRY_WARNING_DAYS = [30, 14, 7, 1] as const;
const DAY_MS = 86_400_000;

function createTokenPoll(pollContext: PollContext) {
  const { source, clock, syncState, scope } = pollContext;
  const tokenDocumentSet = documentSet("token", source.name);
  return {
    async run(signal: AbortSignal): Promise<JobOutcome> {
      const tokenInfo = await source.me(signal);
      scope.learn(tokenInfo);
      const now = clock.now();
      const storedToken = syncState.get<StoredToken>(tokenDocumentSet).get("token");
      const lastWarnedDays = storedToken?.info.expiresAt === tokenInfo.expiresAt ? storedToken.warnedDays : null;
      const dueWarning = findDueExpiryWarning(tokenInfo.expiresAt, now);
      const isWarningNew = dueWarning !== null && (lastWarnedDays === null || dueWarning.threshold < lastWarnedDays);
      const events: Event[] = [];
      if (isWarningNew && tokenInfo.expiresAt !== null) {
        const eventBase = { source: sourceUri(source.name), subject: SERVICE_SUBJECT, time: isoUtc(now) };
        const data = { expiresAt: tokenInfo.expiresAt, daysLeft: dueWarning.daysLeft };
        const facts = [tokenInfo.expiresAt, dueWarning.threshold];
        events.push(makeEvent({ ...eventBase, type: "token-expiring", data, facts }));
      }
      const warnedDays = isWarningNew ? dueWarning.threshold : lastWarnedDays;
      const newToken: StoredToken = { info: tokenInfo, checkedAt: isoUtc(now), warnedDays, lost: scope.lost() };
      await pollContext.commit("token", { documents: [{ set: tokenDocumentSet, put: [["token", newToken]] }], events });
      return JOB_OUTCOME_OK;
    },
  };
}

/** Returns the lowest reached threshold of the warning: five days before the token expires, it is 7 days. */
export function findDueExpiryWarning(expiresAt: string | null, nowMs: number) {
  const tokenExpiryMs = parseUtcMs(expiresAt);
  const daysLeft = tokenExpiryMs === null ? Number.POSITIVE_INFINITY : (tokenExpiryMs - nowMs) / DAY_MS;
  const thresholdDays = TOKEN_EXPIRY_WARNING_DAYS.findLast((days) => daysLeft <= days);
  return thresholdDays === undefined ? null : { threshold: thresholdDays, daysLeft: Math.max(0, Math.floor(daysLeft)) };
}
