import { isDeepStrictEqual } from "node:util";
import type { FleetAssignment } from "../core/connector.ts";
import type { ConfigurationState } from "../core/model/reload-facts.ts";
import type { Clock } from "../core/runtime/clock.ts";
import type { ClockCheck } from "../core/runtime/clock-check.ts";
import { inOrder, inParallel } from "../core/runtime/lifecycle.ts";
import { type Log, setLevel } from "../core/runtime/log.ts";
import type { Metrics } from "../core/runtime/metrics.ts";
import type { Rules } from "../engine/commands/approval/approval.ts";
import { type Commands, createCommands } from "../engine/commands/commands.ts";
import type { CommandsConfig } from "../engine/commands/config.ts";
import type { Guards } from "../engine/commands/guards.ts";
import { type BackPressure, createBackPressure, createLogSpace } from "../engine/delivery/back-pressure.ts";
import { createDispatcher, type Dispatcher } from "../engine/delivery/dispatcher.ts";
import { createPruning, type Pruning } from "../engine/delivery/pruning.ts";
import { createSilenceKeeper } from "../engine/silence/silence.ts";
import type { CheckLeaving } from "../engine/source/send.ts";
import type { Transport } from "../engine/source/transport.ts";
import type { RetentionBounds, Store } from "../engine/store/store.ts";
import { createGroupCommit } from "../engine/sync/read/commit.ts";
import type { Ticker } from "../engine/sync/schedule.ts";
import { createBuildingView } from "../engine/views/building-view.ts";
import { withTickets } from "../engine/views/tickets.ts";
import { readCredentials } from "../ui/status/access.ts";
import { refreshGauges } from "../ui/status/health.ts";
import { commitNotices, watchCommits } from "../ui/status/state-health.ts";
import { buildPlots, buildResponses } from "./build-page.ts";
import {
  type BuiltSinks,
  buildSinks,
  closeNew,
  createListening,
  followsHistory,
  type Listening,
  listenersOf,
  type SinkParts,
  type StandIn,
  sinksOf,
  ticketMakers,
} from "./build-sinks.ts";
import { buildSource } from "./build-source.ts";
import { buildStatus, type PageSettings, warningsOf } from "./build-status.ts";
import { type BuiltSync, buildSync } from "./build-sync.ts";
import { type Config, settingsAroundWriting } from "./config/config.ts";
import type { Reconfigurable } from "./reload/reloader.ts";

export interface LeaseContext extends FleetAssignment {
  /** Called before each request to the service; throws when it may not leave. */
  readonly leaving: CheckLeaving;
  /** Longest time from a slot's record to its request's arrival. */
  readonly longestWayMs: number;
}

export interface PipelineOptions {
  /** With its own sources only. */
  readonly config: Config;
  readonly store: Store;
  readonly guards: Guards;
  /** Other settings that decide about writing, for approval by a second person. */
  readonly around: Rules;
  /** Section `commands` of all sources, when `config` has only a part of it. */
  readonly approved?: CommandsConfig;
  readonly armWriting: boolean;
  readonly startedAtMs: number;
  readonly page: PageSettings;
  readonly environment?: Readonly<Record<string, string | undefined>> | undefined;
  readonly transport?: Transport | undefined;
  readonly standIn?: StandIn | undefined;
  readonly tenure?: LeaseContext | undefined;
  readonly clock: Clock;
  readonly clockDoubt: ClockCheck;
  readonly ticker: Ticker;
  readonly log: Log;
  readonly metrics: Metrics;
  /** Additional parts of the process's status. */
  readonly beside: { configuration(): ConfigurationState | null; notices(): readonly string[] };
}

/**
 * Wraps the store, from the inside:
 *   (fencedStore)     in a fleet only: turns a lost lease into a stop before anything counts it as a failure
 *   watchCommits      records failing writes for the status
 *   countCommitted    counts committed events, after `watchCommits` because a failed commit counts nothing
 *   withTickets       adds ticket names to alarms; only commits of sync have them
 *   createGroupCommit joins the replies of several sources into one transaction
 */
function decorateStore(
  inner: Store,
  { clock, metrics, config }: Pick<PipelineOptions, "clock" | "metrics" | "config">,
  tickets: Parameters<typeof withTickets>[1],
) {
  const { store: watched, trouble: commitTrouble } = watchCommits(inner, clock);
  const store = countCommitted(watched, metrics);
  const ticketed = withTickets(store, tickets);
  const groupCommit = createGroupCommit({ store: ticketed, clock, sources: Object.keys(config.sources).length });
  return { store, ticketed, groupCommit, commitTrouble };
}

/** Skips events whose id was in the log already. */
function countCommitted(store: Store, metrics: Pick<Metrics, "eventsCommitted">): Store {
  return {
    ...store,
    async commit(change) {
      const committed = await store.commit(change);
      const repeated = new Set(committed.repeated);
      for (const { id, type } of change.events ?? []) if (!repeated.has(id)) metrics.eventsCommitted.inc({ type });
      return committed;
    },
  };
}

/**
 * Services between a store and its sinks. A worker has one pipeline; a fleet member has one per held source.
 *
 *   store ◄─ delivery ◄─ sinks          commands ◄─ MQTT, command line
 *     ▲                                    │
 *     └── sync ◄── source ◄── service ◄────┘
 */
export async function buildPipeline(options: PipelineOptions) {
  const { beside, config, environment, transport, clock, clockDoubt, log, metrics, page, standIn, tenure } = options;
  const { state } = config;
  const { store, ticketed, groupCommit, commitTrouble } = decorateStore(options.store, options, () =>
    ticketMakers(sinks.built),
  );
  const shared = { store, clock, clockDoubt, log, metrics };

  const builtSources = Object.entries(config.sources).map(([name, entry]) =>
    buildSource({
      ...shared,
      ...{ name, entry, environment, transport, leaving: tenure?.leaving, longestWayMs: tenure?.longestWayMs },
    }),
  );
  const sources = new Map(builtSources.map(({ name, source }) => [name, source]));
  const zones = new Map(builtSources.map(({ name, entry }) => [name, entry.time_zone]));
  const building = createBuildingView(store, zones);
  const share = tenure && { fleet: tenure.fleet, source: tenure.source, now: tenure.now };
  const sinkParts = { ...shared, building, followsHistory: followsHistory(config), standIn, share };
  const sinks = { built: await buildSinks(config.sinks, sinkParts) };

  const backPressure = createBackPressure({ outbox: store.outbox, maxBytes: state.max_bytes, clock, log });
  const plots = await buildPlots({ ...shared, config, running: () => ({ status, works }) });
  const syncs = new Map<string, BuiltSync>();
  for (const built of builtSources) {
    const sync = await buildSync({
      ...{ ...shared, store: ticketed, built, ticker: options.ticker, groupCommit, backPressure, state },
      onRead: plots?.read ?? (() => {}),
    });
    syncs.set(built.name, sync);
  }
  const works = new Map([...syncs].map(([name, { work }]) => [name, work]));

  const delivered = { ...shared, sinks: sinksOf(sinks.built), outbox: store.outbox };
  const dispatcher = createDispatcher({ ...delivered, building });
  const silences = createSilenceKeeper({ store, clock, log });
  const space = createLogSpace({ outbox: store.outbox, metrics, log });
  const pruning = createPruning({ ...delivered, bounds: boundsOf(state), space });
  const commands = await createCommands({
    ...{ ...shared, config: config.commands, guards: options.guards, around: options.around },
    sources: builtSources.map(({ source, entry }) => ({ source, timeZone: entry.time_zone })),
    armAtStart: options.armWriting,
    ...(options.approved && { approved: options.approved }),
  });
  const listens = createListening(listenersOf(sinks.built), commands.accept);
  const parts = reconfigurableParts({
    ...{ config, environment, log, page, backPressure, pruning, commands, dispatcher, sinks, sinkParts, syncs },
    listening: listens,
  });

  const warnings = await warningsOf(store);
  const status = buildStatus({
    ...{ ...shared, startedAtMs: options.startedAtMs, page, sources, works, dispatcher, commands },
    configuration: beside.configuration,
    notices: () => [
      ...warnings,
      ...beside.notices(),
      ...commitNotices(commitTrouble()),
      ...commands.notices(),
      ...space.notices(),
      ...backPressure.notices(),
      ...dispatcher.notices(),
    ],
  });
  const answers = buildResponses({
    ...{ config, page, clock, store, works, sinks: dispatcher.status, commands, plots, sources, status },
  });

  const all = [...syncs.values()];
  const inAllSources = (name: string, pick: (sync: BuiltSync) => BuiltSync["service"]) =>
    inParallel(name, all.map(pick), log);
  const services = inOrder(
    [
      { service: pruning, share: 0.1 },
      { service: silences, share: 0.1 },
      ...(plots === null ? [] : [{ service: plots, share: 0.1 }]),
      { service: dispatcher, share: 0.6 },
      { service: commands, share: 0.2 },
      { service: listens, share: 0.1 },
      { service: inAllSources("sensors", ({ sensors }) => sensors), share: 0.1 },
      // Requests to the service are aborted: repeating one after a start costs one slot.
      { service: inAllSources("sources", ({ service }) => service), share: 0.2 },
      { service: inAllSources("heartbeats", ({ heartbeat }) => heartbeat), share: 0.1 },
    ],
    { clock, log },
  );

  return {
    ...{ store, sources, works, commands, status, answers, metrics, commitTrouble, parts, start: services.start },
    async stop(deadlineMs: number): Promise<void> {
      answers.stop();
      await services.stop(deadlineMs);
    },
    async refreshGauges(): Promise<void> {
      for (const sync of all) sync.refreshGauges();
      await refreshGauges({ status, metrics, log });
    },
    async close(): Promise<void> {
      await Promise.all(builtSources.map(({ source }) => source.close()));
    },
  };
}

export type Pipeline = Awaited<ReturnType<typeof buildPipeline>>;

interface RunningParts {
  readonly config: Config;
  readonly environment: Readonly<Record<string, string | undefined>> | undefined;
  readonly log: Log;
  readonly page: PageSettings;
  readonly backPressure: BackPressure;
  readonly pruning: Pruning;
  readonly commands: Commands;
  readonly dispatcher: Dispatcher;
  readonly listening: Listening;
  readonly sinks: { built: BuiltSinks };
  readonly sinkParts: SinkParts;
  readonly syncs: ReadonlyMap<string, BuiltSync>;
}

/** In the order of a reload: writing closes first; a sink is registered before its events are requested. */
function reconfigurableParts(parts: RunningParts): readonly Reconfigurable[] {
  const { backPressure, commands, config, dispatcher, environment, listening, log, page, pruning } = parts;
  const { sinks, sinkParts, syncs } = parts;
  // The log may have another level than the file, given at the start.
  let { level } = config.log;
  return [
    {
      name: "log",
      prepare: async (next) => ({
        takeOver() {
          if (next.log.level !== level) setLevel(log, next.log.level);
          level = next.log.level;
        },
      }),
    },
    {
      name: "page",
      async prepare(next) {
        const credentials = readCredentials(next.status, environment);
        return { takeOver: () => page.change(next, credentials) };
      },
    },
    {
      // Together, because the sinks that accept commands are a part of what is approved.
      name: "sinks and commands",
      async prepare(next) {
        const before = sinks.built;
        const built = await buildSinks(next.sinks, { ...sinkParts, followsHistory: followsHistory(next) }, before);
        return {
          async takeOver() {
            sinks.built = built;
            await listening.keepOnly(listenersOf(built));
            commands.change(next.commands, settingsAroundWriting(next));
            await dispatcher.change(sinksOf(built));
            await listening.openAll(listenersOf(built));
          },
          discard: () => closeNew(built, before),
        };
      },
    },
    {
      name: "log of events",
      prepare: async ({ state }) => ({
        takeOver() {
          backPressure.change(state.max_bytes);
          pruning.change({ bounds: boundsOf(state), sinks: sinksOf(sinks.built) });
        },
      }),
    },
    ...[...syncs].map(([name, sync]) => reconfigurableSource(name, sync, config)),
  ];
}

function boundsOf(state: Config["state"]): Omit<RetentionBounds, "wanted" | "ranMs"> {
  return { maxBytes: state.max_bytes, maxAgeMs: state.max_age, replayMs: state.replay_window };
}

function reconfigurableSource(name: string, sync: BuiltSync, config: Config): Reconfigurable {
  let inForce = { entry: config.sources[name], state: config.state };
  return {
    name: `source ${name}`,
    prepare: async ({ sources, state }) => ({
      async takeOver() {
        const next = { entry: sources[name], state };
        if (next.entry === undefined || isDeepStrictEqual(next, inForce)) return;
        inForce = next;
        await sync.change(next.entry, state);
      },
    }),
  };
}
