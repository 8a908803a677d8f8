import { isDeepStrictEqual } from "node:util";
import type { Gateway } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isOrderlyStop, type WorkerService } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { serialRunner } from "../../core/runtime/waiting.ts";
import type { Source } from "../source/source.ts";
import { documentSet, type Store } from "../store/store.ts";
import { createAlarmPoll } from "./alarms/poll.ts";
import { createResolvedSweep } from "./alarms/resolved-sweep.ts";
import { createActiveAlarmCounts } from "./alarms/stored-alarms.ts";
import { createAvailability } from "./availability.ts";
import type { SyncConfig } from "./config.ts";
import { cronIntervalMs, cronMatcher, type ScheduleTicker } from "./cron-schedule.ts";
import { createFirstInventory } from "./first-inventory.ts";
import { createGatewayRecheck } from "./inventory/gateway-recheck.ts";
import { createOfflineGateways, type OfflineGateways } from "./inventory/gateways.ts";
import { createInventoryPoll, createSitePoll, followedSites, type InventoryPoll } from "./inventory/poll.ts";
import { createTagPoll } from "./inventory/tag-poll.ts";
import type { Follower, Job, PollTime, RunnableJob } from "./job.ts";
import { watchLostSites } from "./lost-sites.ts";
import { createOutage } from "./outage.ts";
import type { PollParts } from "./poll-dependencies.ts";
import { createScheduler, type Scheduler } from "./scheduler.ts";
import { type StoredAlarm, type StoredItem, type StoredPoll, type StoredToken, syncSet } from "./snapshot.ts";
import { createSyncState, withSyncState } from "./sync-state.ts";
import { createTokenPoll } from "./token-poll.ts";
import { createTokenScope } from "./token-scope.ts";

export interface SyncOptions {
  readonly source: Source;
  readonly store: Store;
  readonly config: SyncConfig;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly ticker: ScheduleTicker;
  readonly tokenStamp?: () => Promise<string>;
  readonly tagsListed?: () => Promise<void>;
  readonly random?: () => number;
}

export async function openSync(options: SyncOptions) {
  const { source, store, clock, log, metrics, random = Math.random } = options;
  let { config } = options;
  const sourceSet = (name: Parameters<typeof documentSet>[0]) => documentSet(name, source.name);
  const syncState = await createSyncState(store, [
    ...(["site", "gateway", "host", "system", "tag", "alarm", "poll", "token"] as const).map(sourceSet),
    ...(["tag-system", "tag-seen", "alarm-site", "sweep", "availability", "health"] as const).map((name) =>
      syncSet(name, source.name),
    ),
  ]);
  const activeAlarms = createActiveAlarmCounts();
  syncState.observe<StoredAlarm>(sourceSet("alarm"), activeAlarms.changed);
  const lastPolls = new Map<string, PollTime>();
  const scope = createTokenScope(source, clock);
  const availability = createAvailability(source.name, syncState, clock);
  const lastToken = syncState.get<StoredToken>(sourceSet("token")).get("token");
  if (lastToken !== undefined) {
    const lostSites = availability.sitesDown();
    const sites = lastToken.info.sites.filter(({ id }) => !lostSites.has(id));
    scope.learn({ ...lastToken.info, sites });
    scope.restoreLost({ ...lastToken.lost, ...Object.fromEntries(lostSites) });
  }

  const storedPoll = (job: string) => syncState.get<StoredPoll>(sourceSet("poll")).get(job);
  const firstInventory = createFirstInventory((job) => (storedPoll(job)?.lastSuccess ?? null) !== null);
  let inventoryPageMs: number | null = null;
  const listedSites = new Set<number>();
  const systemsRead = Promise.withResolvers<void>();
  const createPollParts = (settings: SyncConfig): PollParts => ({
    ...{ source, config: settings, clock, log, metrics, scope, syncState, listedSites },
    firstInventory: {
      page(...page) {
        if (!firstInventory.now().done) inventoryPageMs = clock.monotonic();
        firstInventory.page(...page);
      },
    },
    offlineGatewayOf: (siteId) => offlineGateways.gatewayOf(siteId),
    beforeNewAlarms: (siteIds, signal) => gatewayRecheck.beforeAlarms(siteIds, signal),
    commit: availability.commit,
  });
  const oneAlarmPoll = serialRunner();
  let alarmPolls = createAlarmPolls(createPollParts(config));
  const outage = createOutage({
    ...{ source, clock, log, random, availability, scope },
    async noteHealth(health) {
      const set = syncSet("health", source.name);
      const healthChange = health === null ? { remove: ["health"] } : { put: [["health", health] as const] };
      await syncState.commit({ documents: [{ set, ...healthChange }] });
    },
    reconcile: () => (config.schedules.alarms === false ? null : (signal) => alarmPolls.alarms.reconcile(signal)),
    tokenStamp: options.tokenStamp ?? null,
  });
  let nextGatewayList = gatewayListTimes(config);
  const gatewaysStored = () => syncState.get<StoredItem<Gateway>>(sourceSet("gateway"));
  const offlineGateways = createOfflineGateways(gatewaysStored, () => nextGatewayList, clock);
  let gateways = createGatewayPoll(createPollParts(config), offlineGateways);
  const gatewayRecheck = createGatewayRecheck({
    read: (siteId, signal) => gateways.pollSite(siteId, signal),
    isFollowed: (siteId) =>
      config.schedules.gateways !== false &&
      scope.hasAbility("read:gateways") &&
      followedSites(createPollParts(config)).includes(siteId),
    isExplained: (siteId) => offlineGateways.gatewayOf(siteId) !== null,
    ...{ gateways: gatewaysStored, clock, log },
  });
  let scheduler: Scheduler | null = null;

  function createJobs(): readonly Job[] {
    const pollParts = createPollParts(config);
    gateways = createGatewayPoll(pollParts, offlineGateways);
    const tagPoll = createTagPoll(pollParts, systemsRead.promise);
    const tags: RunnableJob = {
      async run(signal) {
        const tagOutcome = await tagPoll.run(signal);
        if (tagOutcome.kind === "ok") await options.tagsListed?.();
        return tagOutcome;
      },
    };
    const jobList = createJobList(pollParts, { ...alarmPolls, gateways, tags }, systemsRead.resolve);
    firstInventory.waitOnlyFor(jobList);
    return jobList.map(firstInventory.watch);
  }

  /** The alarm polls have state in memory: they are created again only when their settings change. */
  function createAlarmPolls(parts: PollParts) {
    const everyMs = () =>
      config.schedules.alarms === false ? null : cronIntervalMs(config.schedules.alarms, clock.now());
    return { alarms: createAlarmPoll(parts, oneAlarmPoll, everyMs), sweep: createResolvedSweep(parts, oneAlarmPoll) };
  }

  return {
    scope,
    store: withSyncState(store, syncState),
    activeAlarms: activeAlarms.counts,
    lastPolls: lastPolls as ReadonlyMap<string, PollTime>,
    inventoryPageMs: () => inventoryPageMs,
    siteIds: () => [...syncState.get(sourceSet("site")).keys()].map(Number),
    knowsTag: (id: string) => syncState.get(sourceSet("tag")).has(id),
    knowsTagsOf: (siteId: number) =>
      config.schedules.tags === false ||
      listedSites.has(siteId) ||
      syncState.get(syncSet("tag-seen", source.name)).has(String(siteId)),
    offlineGatewayOf: offlineGateways.gatewayOf,
    /** Requests a read of a site's gateways, because many of the site's values turned null at once. */
    recheckGateways: gatewayRecheck.request,
    firstInventory: firstInventory.now,
    service(followers: readonly Follower[]): WorkerService {
      scheduler = createScheduler({
        ...{ source: source.name, clock, log, metrics, random, outage, availability, scope },
        jobs: createJobs(),
        followers: [...followers, gatewayRecheck],
        ticker: options.ticker,
        spreadMs: config.spread,
        watchLostSites: (signal) =>
          watchLostSites({ source: source.name, random, availability, outage, scope, syncState, clock, log }, signal),
        succeeded: (job) => void lastPolls.set(job, { atMs: clock.now(), monotonicMs: clock.monotonic() }),
        storedState: storedPoll,
        storeState(job, state) {
          syncState.putDeferred(sourceSet("poll"), job, state).catch((error: unknown) => {
            if (!isOrderlyStop(error)) log.warn({ job, err: error }, "how a poll went was not stored");
          });
        },
      });
      return scheduler;
    },
    /** Applies a changed configuration. State, scope and outage stay; lists with changed requests are read at once. */
    change(next: SyncConfig): void {
      const oldConfig = config;
      config = next;
      nextGatewayList = gatewayListTimes(next);
      // `startup` applies to a start only.
      const runningConfig = { ...next, alarms: { ...next.alarms, startup: "reconcile" as const } };
      if (!isDeepStrictEqual(oldConfig.alarms, next.alarms))
        alarmPolls = createAlarmPolls(createPollParts(runningConfig));
      scheduler?.change({ jobs: createJobs(), spreadMs: next.spread, again: findChangedLists(oldConfig, next) });
    },
  };
}

function gatewayListTimes({ schedules }: SyncConfig): ((afterMs: number) => number) | null {
  return schedules.gateways === false ? null : cronMatcher(schedules.gateways);
}

function findChangedLists(before: SyncConfig, after: SyncConfig): ReadonlySet<string> {
  const hasChanged = (of: (config: SyncConfig) => unknown) => !isDeepStrictEqual(of(before), of(after));
  return new Set([
    ...(hasChanged(({ alarms }) => alarms.sites) ? ["alarms", "resolved_sweep"] : []),
    ...(hasChanged(({ inventory }) => inventory.sites) ? ["gateways", "hosts", "systems", "tags"] : []),
    ...(hasChanged(({ inventory }) => inventory.tags_of_systems) ? ["systems", "tags"] : []),
  ]);
}

function createGatewayPoll(parts: PollParts, offline: OfflineGateways): InventoryPoll {
  return createInventoryPoll(parts, "gateways", "gateway", (filter, signal, stored) =>
    offline.watchPages(filter.siteId, parts.source.gateways(filter, signal, stored)),
  );
}

/**
 * Lists the jobs in the order of their first runs: token and sites first, because they set the scope. Tags run in
 * parallel. Gateways come before hosts and systems, so that an offline gateway is noticed early.
 */
function createJobList(
  parts: PollParts,
  { alarms, sweep, gateways, tags }: Record<"alarms" | "sweep" | "gateways" | "tags", RunnableJob>,
  systemsRead: () => void,
): readonly Job[] {
  const { source } = parts;
  const { schedules, inventory } = parts.config;
  const toJob = (name: keyof typeof schedules, { run }: RunnableJob, ability?: string): Job => ({
    ...{ name, schedule: schedules[name], firstRun: true, run },
    ...(ability === undefined ? {} : { ability }),
  });
  const hosts = createInventoryPoll(parts, "hosts", "host", source.hosts);
  const systems = createInventoryPoll(parts, "systems", "system", source.systems);
  const hostList = toJob("hosts", hosts, "read:hosts");
  const systemList = toJob("systems", { run: (signal) => systems.run(signal).finally(systemsRead) }, "read:systems");
  if (schedules.systems === false) systemsRead();
  return [
    toJob("token", createTokenPoll(parts)),
    toJob("sites", createSitePoll(parts)),
    { ...toJob("tags", tags, "read:tags"), isLong: true },
    toJob("alarms", alarms, "read:alarms"),
    toJob("gateways", gateways, "read:gateways"),
    // The tags of systems are listed after the tags.
    ...(inventory.tags_of_systems ? [systemList, hostList] : [hostList, systemList]),
    toJob("resolved_sweep", sweep, "read:alarms"),
  ];
}
