import type { Gateway } from "../building.ts";
import type { Clock } from "../clock.ts";
import type { Service } from "../lifecycle.ts";
import type { Log } from "../log.ts";
import type { Metrics } from "../metrics.ts";
import type { Source } from "../source/source.ts";
import { documentSet, type Store } from "../store/store.ts";
import { createAlarmPoll } from "./alarms/poll.ts";
import { createResolvedSweep } from "./alarms/resolved-sweep.ts";
import { createAvailability } from "./availability.ts";
import type { SyncConfig } from "./config.ts";
import { createHolding } from "./holding.ts";
import { offlineGateways } from "./inventory/behind-gateway.ts";
import { createInventoryPoll, createSitePoll, createTagPoll } from "./inventory/poll.ts";
import type { Job } from "./job.ts";
import { oneAtATime } from "./one-at-a-time.ts";
import { createOutage } from "./outage.ts";
import type { PollParts } from "./poll-parts.ts";
import type { Ticker } from "./schedule.ts";
import { createScheduler } from "./scheduler.ts";
import { createScope } from "./scope.ts";
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
  /** What else runs at times: live reads, history. They come after the inventories at the first run. */
  readonly jobs?: readonly Job[];
  /** A text that changes when the token does (the file's time, say), so that a new one is tried at once. */
  readonly tokenStamp?: () => Promise<string>;
  readonly random?: () => number;
}

export interface Sync extends Service {
  /** The offline gateway that every tag of this site is behind, where that is certain. */
  offlineGatewayOf(siteId: number): string | null;
}

/** For how long it is not looked again which gateways are offline, in milliseconds. */
const GATEWAYS_LOOK_MS = 1_000;

/** Follows one monitored service: polls, compares, commits. Everything held is read from the store here, once. */
export async function createSync(options: SyncOptions): Promise<Sync> {
  const { source, store, config, clock, log, metrics, random = Math.random } = options;
  const { schedules } = config;
  const pollSet = documentSet("poll", source.name);
  const tokenSet = documentSet("token", source.name);
  const holding = await createHolding(store, [
    ...(["site", "gateway", "host", "system", "tag", "alarm", "poll", "token"] as const).map((name) =>
      documentSet(name, source.name),
    ),
    ...(["tag-system", "alarm-site", "sweep", "availability"] as const).map((name) =>
      syncSet(name, source.name),
    ),
  ]);
  const scope = createScope(source, clock);
  const token = () => holding.get<HeldToken>(tokenSet).get("token")?.info ?? null;
  const lastToken = token();
  if (lastToken !== null) scope.learn(lastToken);

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
    reconcile: schedules.alarms === false ? null : (signal) => alarms.reconcile(signal),
    tokenStamp: options.tokenStamp ?? null,
  });

  const scheduler = createScheduler({
    source: source.name,
    jobs: [...ownJobs(parts, alarms, createResolvedSweep(parts, alone), knowsTags), ...(options.jobs ?? [])],
    ticker: options.ticker,
    clock,
    log,
    metrics,
    random,
    spreadMs: config.spread,
    outage,
    availability,
    abilities: () => token()?.abilities ?? null,
    remembered: (job) => holding.get<HeldPoll>(pollSet).get(job),
    async remember(job, state) {
      await holding.commit({ documents: [{ set: pollSet, put: [[job, state]] }] });
    },
  });

  let lookedAtMs = Number.NEGATIVE_INFINITY;
  let offline: ReadonlyMap<number, string> = new Map();
  return {
    ...scheduler,
    offlineGatewayOf(siteId) {
      if (clock.monotonic() - lookedAtMs >= GATEWAYS_LOOK_MS) {
        offline = offlineGateways(holding.get<Held<Gateway>>(documentSet("gateway", source.name)));
        lookedAtMs = clock.monotonic();
      }
      return offline.get(siteId) ?? null;
    },
  };
}

interface Runs {
  run: Job["run"];
}

/** In the order of their first runs: what decides the scope first, what matters most next, what hardly changes last. */
function ownJobs(parts: PollParts, alarms: Runs, sweep: Runs, knowsTags: boolean): readonly Job[] {
  const { source } = parts;
  const { schedules } = parts.config;
  const job = (name: keyof typeof schedules, { run }: Runs, ability?: string): Job => ({
    name,
    schedule: schedules[name],
    firstRun: true,
    run,
    ...(ability === undefined ? {} : { ability }),
  });
  const gateways = createInventoryPoll(parts, "gateways", "gateway", (siteId, signal) =>
    source.gateways({ siteId }, signal),
  );
  const hosts = createInventoryPoll(parts, "hosts", "host", (siteId, signal) =>
    source.hosts({ siteId }, signal),
  );
  const systems = createInventoryPoll(parts, "systems", "system", (siteId, signal) =>
    source.systems({ siteId }, signal),
  );
  const gatewayList = job("gateways", gateways, "read:gateways");
  const tagList = job("tags", createTagPoll(parts), "read:tags");
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
