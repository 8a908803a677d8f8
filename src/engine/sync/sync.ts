import { isDeepStrictEqual } from "node:util";
import type { Gateway } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isStopping, type Service } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import { oneAtATime } from "../../core/runtime/waiting.ts";
import type { Source } from "../source/source.ts";
import { documentSet, type Store } from "../store/store.ts";
import { type ActiveCounts, createActiveCounts } from "./alarms/active-counts.ts";
import { createAlarmPoll } from "./alarms/poll.ts";
import { createResolvedSweep } from "./alarms/resolved-sweep.ts";
import { createAvailability } from "./availability.ts";
import type { SyncConfig } from "./config.ts";
import { createFirstInventory, type FirstInventory } from "./first-inventory.ts";
import type { Follower } from "./follower.ts";
import { hasOffline, hasOnlyOneOnline } from "./inventory/behind-gateway.ts";
import { createGatewayRecheck } from "./inventory/gateway-recheck.ts";
import { createOfflineGateways, type OfflineGateways } from "./inventory/offline-gateways.ts";
import { createInventoryPoll, createSitePoll, followedSites, type InventoryPoll } from "./inventory/poll.ts";
import { createTagPoll } from "./inventory/tag-poll.ts";
import type { Job, PollTime } from "./job.ts";
import { createLostSites } from "./lost-sites.ts";
import { createOutage } from "./outage.ts";
import type { PollParts } from "./poll-parts.ts";
import { everyMsOf, matcher, type Ticker } from "./schedule.ts";
import { createScheduler, type Scheduler } from "./scheduler.ts";
import { createScope, type TokenScope } from "./scope.ts";
import {
  type Listed,
  type StoredAlarm,
  type StoredPoll,
  type StoredTagSeen,
  type StoredToken,
  syncSet,
} from "./snapshot.ts";
import { createSyncState, withSyncState } from "./sync-state.ts";
import { createTokenPoll } from "./token-poll.ts";

export interface SyncOptions {
  readonly source: Source;
  readonly store: Store;
  readonly config: SyncConfig;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly ticker: Ticker;
  /** A text that changes when the token does (the file's time, say), so that a new one is tried at once. */
  readonly tokenStamp?: () => Promise<string>;
  /** Called after each complete listing of the tags. */
  readonly tagsListed?: () => Promise<void>;
  readonly random?: () => number;
}

/** Stored state of one monitored service, and its polls. */
export interface Sync {
  readonly scope: TokenScope;
  /** The store, for who reads what is held here. */
  readonly store: Store;
  readonly activeAlarms: ActiveCounts;
  siteIds(): readonly number[];
  knowsTag(id: string): boolean;
  /** When each job last finished well since the start. */
  readonly lastPolls: ReadonlyMap<string, PollTime>;
  /** When the last page of a first inventory came, monotonic milliseconds; null where there was none since the start. */
  inventoryPageMs(): number | null;
  /** The offline gateway that every tag of this site is behind, where that is certain. */
  offlineGatewayOf(siteId: number): string | null;
  /** Many values of this site turned null at once: reads its list of gateways soon, unless that would say nothing new. */
  recheckGateways(siteId: number): void;
  /** How far the first reading of the building's lists is; costs the same for every size. */
  firstInventory(): FirstInventory;
  /** False while only a part of a site's tags may be known, because its first list is not read to its end. */
  knowsTagsOf(siteId: number): boolean;
  /** Polls at their times, and continuous work: live reads and history. Called once. */
  service(followers: readonly Follower[]): Service;
  /**
   * Applies another configuration: times of polls and rules of verification. The stored state, the scope and a current outage stay. Only
   * lists with changed requests are read at once.
   */
  change(config: SyncConfig): void;
}

/** Follows one monitored service: polls, compares, commits. Everything held is read from the store here, once. */
export async function openSync(options: SyncOptions): Promise<Sync> {
  const { source, store, clock, log, metrics, random = Math.random } = options;
  let { config } = options;
  const pollSet = documentSet("poll", source.name);
  const tokenSet = documentSet("token", source.name);
  const holding = await createSyncState(store, [
    ...(["site", "gateway", "host", "system", "tag", "alarm", "poll", "token"] as const).map((name) =>
      documentSet(name, source.name),
    ),
    ...(["tag-system", "tag-seen", "alarm-site", "sweep", "availability", "health"] as const).map((name) =>
      syncSet(name, source.name),
    ),
  ]);
  const alarms = createActiveCounts();
  holding.observe<StoredAlarm>(documentSet("alarm", source.name), alarms.changed);
  const lastPolls = new Map<string, PollTime>();
  const scope = createScope(source, clock);
  const availability = createAvailability({ source: source.name, holding, clock });
  const lastToken = holding.get<StoredToken>(tokenSet).get("token");
  if (lastToken !== undefined) {
    // Losses since the token's last poll are known from the emitted events.
    const down = availability.sitesDown();
    const sites = lastToken.info.sites.filter(({ id }) => !down.has(id));
    scope.learn({ ...lastToken.info, sites });
    scope.recall({ ...lastToken.lost, ...Object.fromEntries(down) });
  }

  const firstInventory = createFirstInventory(
    (job) => (holding.get<StoredPoll>(pollSet).get(job)?.lastSuccess ?? null) !== null,
  );
  let inventoryPageMs: number | null = null;
  const listedSites = new Set<number>();
  const systemsRead = Promise.withResolvers<void>();
  const partsFor = (settings: SyncConfig): PollParts => ({
    source,
    config: settings,
    clock,
    log,
    metrics,
    scope,
    syncState: holding,
    firstInventory: {
      page(...page) {
        if (!firstInventory.now().done) inventoryPageMs = clock.monotonic();
        firstInventory.page(...page);
      },
    },
    listedSites,
    offlineGatewayOf: (siteId) => offline.of(siteId),
    beforeNewAlarms: (siteIds, signal) => gatewayRecheck.beforeAlarms(siteIds, signal),
    commit: availability.commit,
  });
  const alone = oneAtATime();
  let polls = pollsOf(partsFor(config));
  const outage = createOutage({
    source,
    clock,
    log,
    random,
    availability,
    scope,
    async noteHealth(health) {
      const set = syncSet("health", source.name);
      const change = health === null ? { remove: ["health"] } : { put: [["health", health] as const] };
      await holding.commit({ documents: [{ set, ...change }] });
    },
    reconcile: () => (config.schedules.alarms === false ? null : (signal) => polls.alarms.reconcile(signal)),
    tokenStamp: options.tokenStamp ?? null,
  });

  let nextGatewayList = nextListOf(config);
  const gatewaysHeld = () => holding.get<Listed<Gateway>>(documentSet("gateway", source.name));
  const offline = createOfflineGateways(gatewaysHeld, () => nextGatewayList, clock);
  let gateways = gatewayPollOf(partsFor(config), offline);
  const gatewayRecheck = createGatewayRecheck({
    read: (siteId, signal) => gateways.pollSite(siteId, signal),
    isFollowed: (siteId) =>
      config.schedules.gateways !== false &&
      scope.may("read:gateways") &&
      followedSites(partsFor(config)).includes(siteId),
    isExplained: (siteId) => offline.of(siteId) !== null,
    hasOffline: (siteId) => hasOffline(gatewaysHeld(), siteId),
    hasOnlyOneOnline: (siteId) => hasOnlyOneOnline(gatewaysHeld(), siteId),
    clock,
    log,
  });
  const jobs = () => {
    gateways = gatewayPollOf(partsFor(config), offline);
    const own = ownJobs(partsFor(config), { ...polls, gateways, tags: tagPoll() }, systemsRead.resolve);
    firstInventory.only(own);
    return own.map(firstInventory.watched);
  };
  const tagPoll = () => followedBy(createTagPoll(partsFor(config), systemsRead.promise), options.tagsListed);
  let scheduler: Scheduler | null = null;

  /** In-memory state of the alarm polls; created again only when their settings change. */
  function pollsOf(parts: PollParts) {
    const everyMs = () => (config.schedules.alarms === false ? null : everyMsOf(config.schedules.alarms, clock.now()));
    return { alarms: createAlarmPoll(parts, alone, everyMs), sweep: createResolvedSweep(parts, alone) };
  }

  function change(next: SyncConfig): void {
    const before = config;
    config = next;
    nextGatewayList = nextListOf(next);
    // `startup` applies to a start, and a reload is none.
    const started = { ...next, alarms: { ...next.alarms, startup: "reconcile" as const } };
    if (!isDeepStrictEqual(before.alarms, next.alarms)) polls = pollsOf(partsFor(started));
    scheduler?.change({ jobs: jobs(), spreadMs: next.spread, again: askedAgain(before, next) });
  }

  return {
    scope,
    change,
    activeAlarms: alarms.counts,
    siteIds: () => [...holding.get(documentSet("site", source.name)).keys()].map(Number),
    knowsTag: (id) => holding.get(documentSet("tag", source.name)).has(id),
    lastPolls,
    inventoryPageMs: () => inventoryPageMs,
    store: withSyncState(store, holding),
    service(followers) {
      scheduler = createScheduler({
        source: source.name,
        jobs: jobs(),
        followers: [...followers, gatewayRecheck],
        ticker: options.ticker,
        clock,
        log,
        metrics,
        random,
        spreadMs: config.spread,
        outage,
        availability,
        scope,
        lostSites: createLostSites({
          source: source.name,
          random,
          availability,
          outage,
          scope,
          holding,
          clock,
          log,
        }),
        succeeded(job) {
          lastPolls.set(job, { atMs: clock.now(), monotonicMs: clock.monotonic() });
        },
        remembered: (job) => holding.get<StoredPoll>(pollSet).get(job),
        remember(job, state) {
          holding.putDeferred(pollSet, job, state).catch((error: unknown) => {
            if (isStopping(error)) return;
            log.warn({ job, err: error }, "how a poll went was not stored");
          });
        },
      });
      return scheduler;
    },
    offlineGatewayOf: offline.of,
    recheckGateways: gatewayRecheck.request,
    firstInventory: firstInventory.now,
    knowsTagsOf: (siteId) =>
      config.schedules.tags === false ||
      listedSites.has(siteId) ||
      holding.get<StoredTagSeen>(syncSet("tag-seen", source.name)).has(String(siteId)),
  };
}

interface Runs {
  run: Job["run"];
}

/** The same work, and something after each run of it that was complete. */
function followedBy({ run }: Runs, then: (() => Promise<void>) | undefined): Runs {
  return {
    async run(signal) {
      const outcome = await run(signal);
      if (outcome.kind === "ok") await then?.();
      return outcome;
    },
  };
}

function nextListOf({ schedules }: SyncConfig): ((afterMs: number) => number) | null {
  return schedules.gateways === false ? null : matcher(schedules.gateways);
}

/** The lists that are now about something else than at their last poll. */
function askedAgain(before: SyncConfig, after: SyncConfig): ReadonlySet<string> {
  const differs = (of: (config: SyncConfig) => unknown) => !isDeepStrictEqual(of(before), of(after));
  return new Set([
    ...(differs(({ alarms }) => alarms.sites) ? ["alarms", "resolved_sweep"] : []),
    ...(differs(({ inventory }) => inventory.sites) ? ["gateways", "hosts", "systems", "tags"] : []),
    ...(differs(({ inventory }) => inventory.tags_of_systems) ? ["systems", "tags"] : []),
  ]);
}

function gatewayPollOf(parts: PollParts, offline: OfflineGateways): InventoryPoll {
  return createInventoryPoll(parts, "gateways", "gateway", (siteId, signal, held, isUrgent) =>
    offline.noting(siteId, parts.source.gateways({ siteId, isUrgent }, signal, held)),
  );
}

/**
 * In the order of their first runs: what decides the scope first, then what matters most. The list of tags runs at the same
 * time as all that follow it: its first page comes within a second, so values do too. While slots are scarce, two short lists
 * are read for each page of tags, so the gateways of 300 sites are known after 18 minutes. After a restart the stored
 * tags are read at once, and a gateway that went away meanwhile is noticed before hosts and systems are listed.
 */
function ownJobs(
  parts: PollParts,
  { alarms, sweep, gateways, tags }: Record<"alarms" | "sweep" | "gateways" | "tags", Runs>,
  systemsRead: () => void,
): readonly Job[] {
  const { source } = parts;
  const { schedules } = parts.config;
  const job = (name: keyof typeof schedules, { run }: Runs, ability?: string): Job => ({
    name,
    schedule: schedules[name],
    firstRun: true,
    run,
    ...(ability === undefined ? {} : { ability }),
  });
  const hosts = createInventoryPoll(parts, "hosts", "host", (siteId, signal, held) =>
    source.hosts({ siteId }, signal, held),
  );
  const systems = createInventoryPoll(parts, "systems", "system", (siteId, signal, held) =>
    source.systems({ siteId }, signal, held),
  );
  const tagList = { ...job("tags", tags, "read:tags"), isLong: true };
  const hostList = job("hosts", hosts, "read:hosts");
  const systemList = job("systems", endedBy(systems, systemsRead), "read:systems");
  if (schedules.systems === false) systemsRead();
  return [
    job("token", createTokenPoll(parts)),
    job("sites", createSitePoll(parts)),
    tagList,
    job("alarms", alarms, "read:alarms"),
    job("gateways", gateways, "read:gateways"),
    // Which tags a system has is learned after the list of tags.
    ...(parts.config.inventory.tags_of_systems ? [systemList, hostList] : [hostList, systemList]),
    // It may take many pages, and tells only what is over.
    job("resolved_sweep", sweep, "read:alarms"),
  ];
}

/** The same work, and something after each run of it, whatever came of it. */
function endedBy({ run }: Runs, then: () => void): Runs {
  return { run: (signal) => run(signal).finally(then) };
}
