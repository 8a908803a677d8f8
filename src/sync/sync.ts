import type { Gateway } from "../building.ts";
import type { Clock } from "../clock.ts";
import type { Service } from "../lifecycle.ts";
import type { Log } from "../log.ts";
import type { Metrics } from "../metrics.ts";
import type { Source } from "../source/source.ts";
import { documentSet, type Store } from "../store/store.ts";
import { oneAtATime } from "../waiting.ts";
import { createAlarmPoll } from "./alarms/poll.ts";
import { createResolvedSweep } from "./alarms/resolved-sweep.ts";
import { createAvailability } from "./availability.ts";
import type { SyncConfig } from "./config.ts";
import type { Follower } from "./follower.ts";
import { createHolding, withHeld } from "./holding.ts";
import { createOfflineGateways, type OfflineGateways } from "./inventory/offline-gateways.ts";
import { createInventoryPoll, createSitePoll } from "./inventory/poll.ts";
import { createTagPoll } from "./inventory/tag-poll.ts";
import type { Job } from "./job.ts";
import { createOutage } from "./outage.ts";
import type { PollParts } from "./poll-parts.ts";
import { matcher, type Ticker } from "./schedule.ts";
import { createScheduler } from "./scheduler.ts";
import { createScope, type TokenScope } from "./scope.ts";
import { type Held, type HeldPoll, type HeldToken, syncSet } from "./snapshot.ts";
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

/** What is held of one monitored service, and what follows it. */
export interface Sync {
  readonly scope: TokenScope;
  /** The store, for who reads what is held here. */
  readonly store: Store;
  /** The offline gateway that every tag of this site is behind, where that is certain. */
  offlineGatewayOf(siteId: number): string | null;
  /** The polls at their times, and beside them what goes on all the time: live reads, history. */
  service(followers: readonly Follower[]): Service;
}

/** Follows one monitored service: polls, compares, commits. Everything held is read from the store here, once. */
export async function openSync(options: SyncOptions): Promise<Sync> {
  const { source, store, config, clock, log, metrics, random = Math.random } = options;
  const { schedules } = config;
  const pollSet = documentSet("poll", source.name);
  const tokenSet = documentSet("token", source.name);
  const holding = await createHolding(store, [
    ...(["site", "gateway", "host", "system", "tag", "alarm", "poll", "token"] as const).map((name) =>
      documentSet(name, source.name),
    ),
    ...(["tag-system", "tag-seen", "alarm-site", "sweep", "availability", "health"] as const).map((name) =>
      syncSet(name, source.name),
    ),
  ]);
  const scope = createScope(source, clock);
  const lastToken = holding.get<HeldToken>(tokenSet).get("token");
  if (lastToken !== undefined) {
    scope.learn(lastToken.info);
    scope.recall(lastToken.lost ?? {});
  }

  const knowsTags = holding.get(documentSet("tag", source.name)).size > 0;
  const availability = createAvailability({ source: source.name, holding, clock });
  const parts: PollParts = {
    source,
    config,
    clock,
    log,
    metrics,
    scope,
    holding,
    commit: availability.commit,
  };
  const alone = oneAtATime();
  const alarms = createAlarmPoll(parts, alone);
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
    reconcile: schedules.alarms === false ? null : (signal) => alarms.reconcile(signal),
    tokenStamp: options.tokenStamp ?? null,
  });

  const offline = createOfflineGateways(
    () => holding.get<Held<Gateway>>(documentSet("gateway", source.name)),
    schedules.gateways === false ? null : matcher(schedules.gateways),
    clock,
  );
  const tags = followedBy(createTagPoll(parts), options.tagsListed);
  const jobs = ownJobs(parts, alarms, createResolvedSweep(parts, alone), tags, offline, knowsTags);
  return {
    scope,
    store: withHeld(store, holding),
    service: (followers) =>
      createScheduler({
        source: source.name,
        jobs,
        followers,
        ticker: options.ticker,
        clock,
        log,
        metrics,
        random,
        spreadMs: config.spread,
        outage,
        availability,
        scope,
        remembered: (job) => holding.get<HeldPoll>(pollSet).get(job),
        async remember(job, state) {
          await holding.commit({ documents: [{ set: pollSet, put: [[job, state]] }] });
        },
      }),
    offlineGatewayOf: offline.of,
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

/** In the order of their first runs: what decides the scope first, what matters most next, what hardly changes last. */
function ownJobs(
  parts: PollParts,
  alarms: Runs,
  sweep: Runs,
  tags: Runs,
  offline: OfflineGateways,
  knowsTags: boolean,
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
  const gateways = createInventoryPoll(parts, "gateways", "gateway", (siteId, signal, held) =>
    offline.noting(siteId, source.gateways({ siteId }, signal, held)),
  );
  const hosts = createInventoryPoll(parts, "hosts", "host", (siteId, signal, held) =>
    source.hosts({ siteId }, signal, held),
  );
  const systems = createInventoryPoll(parts, "systems", "system", (siteId, signal, held) =>
    source.systems({ siteId }, signal, held),
  );
  const gatewayList = job("gateways", gateways, "read:gateways");
  const tagList = job("tags", tags, "read:tags");
  const systemList = job("systems", systems, "read:systems");
  const needsSystems = parts.config.inventory.tags_of_systems;
  return [
    job("token", createTokenPoll(parts)),
    job("sites", createSitePoll(parts)),
    job("alarms", alarms, "read:alarms"),
    // Nothing can be read before the tags are known; where they are, a gateway that went away is the news.
    ...(knowsTags ? [gatewayList] : []),
    ...(needsSystems ? [systemList] : []),
    tagList,
    ...(knowsTags ? [] : [gatewayList]),
    ...(needsSystems ? [] : [systemList]),
    job("hosts", hosts, "read:hosts"),
    // It may take many pages, and tells only what is over.
    job("resolved_sweep", sweep, "read:alarms"),
  ];
}
