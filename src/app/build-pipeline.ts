import type { FleetAssignment } from "../core/connector.ts";
import type { ConfigurationState } from "../core/model/reload-facts.ts";
import type { Clock } from "../core/runtime/clock.ts";
import type { ClockCheck } from "../core/runtime/clock-check.ts";
import { inOrder, sideBySide } from "../core/runtime/lifecycle.ts";
import type { Log } from "../core/runtime/log.ts";
import type { Metrics } from "../core/runtime/metrics.ts";
import type { Rules } from "../engine/commands/approval/approval.ts";
import { type Commands, createCommands } from "../engine/commands/commands.ts";
import type { CommandsConfig } from "../engine/commands/config.ts";
import type { Guards } from "../engine/commands/guards.ts";
import { createBackPressure } from "../engine/delivery/back-pressure.ts";
import { createDispatcher } from "../engine/delivery/dispatcher.ts";
import { createLogSpace } from "../engine/delivery/log-space.ts";
import { createPruning } from "../engine/delivery/pruning.ts";
import { createSilenceKeeper } from "../engine/silence/silence.ts";
import type { Leaving } from "../engine/source/send.ts";
import type { Source } from "../engine/source/source.ts";
import type { Transport } from "../engine/source/transport.ts";
import type { Store } from "../engine/store/store.ts";
import { createGroupCommit } from "../engine/sync/read/commit.ts";
import type { Ticker } from "../engine/sync/schedule.ts";
import { createBuildingView } from "../engine/views/building-view.ts";
import { withTickets } from "../engine/views/tickets.ts";
import type { SourceWork } from "../ui/operator/work.ts";
import type { Responses } from "../ui/status/api.ts";
import { refreshGauges } from "../ui/status/health.ts";
import type { Status } from "../ui/status/report.ts";
import { type CommitTrouble, commitNotices, watchCommits } from "../ui/status/state-health.ts";
import { buildPlots } from "./build-plots.ts";
import { boundsOf, reconfigurableParts } from "./build-reload.ts";
import { buildResponses } from "./build-responses.ts";
import {
  buildSinks,
  followsHistory,
  listenersOf,
  listening,
  type StandIn,
  sinksOf,
  ticketMakers,
} from "./build-sinks.ts";
import { buildSource } from "./build-source.ts";
import { buildStatus, type PageSettings, warningsOf } from "./build-status.ts";
import { buildSync } from "./build-sync.ts";
import type { Config } from "./config/config.ts";
import type { Reconfigurable } from "./reload/reloader.ts";

/**
 * Everything between one store's services and its sinks, without the parts that a process has once (page, control socket,
 * reload). A worker has one pipeline with all sources; a fleet member has one per source that it holds.
 *
 *   store ◄─ delivery ◄─ sinks          commands ◄─ MQTT, command line
 *     ▲                                    │
 *     └── sync ◄── source ◄── service ◄────┘
 */
export interface Pipeline extends ReturnType<typeof inOrder> {
  readonly store: Store;
  readonly sources: ReadonlyMap<string, Source>;
  readonly works: ReadonlyMap<string, SourceWork>;
  readonly commands: Commands;
  readonly status: Status;
  readonly answers: Responses;
  readonly metrics: Metrics;
  readonly commitTrouble: () => CommitTrouble | null;
  /** Parts that accept a changed configuration. */
  readonly parts: readonly Reconfigurable[];
  /** Sets the gauges that are computed when asked for. */
  refreshGauges(): Promise<void>;
  /** Ends the connections to the services, after a stop. */
  close(): Promise<void>;
}

/** Additional context when a fleet member holds the source for a limited time. */
export interface LeaseContext extends FleetAssignment {
  /** Asked before each request to the service leaves. */
  readonly leaving: Leaving;
  /** The longest time from a slot's record to its request's arrival, in milliseconds. */
  readonly longestWayMs: number;
}

export interface PipelineOptions {
  /** With its own sources only. */
  readonly config: Config;
  readonly store: Store;
  readonly guards: Guards;
  /** Other settings that decide about writing, for approval by a second person. */
  readonly around: Rules;
  /** The section `commands` of all sources, where `config` has a part of it. */
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
  /** Additional parts of the process's status: its configuration, and messages. */
  readonly beside: {
    configuration(): ConfigurationState | null;
    notices(): readonly string[];
  };
}

/**
 * Wraps the store. A layer sees the writes of the layers outside it, so the order matters; from the inside:
 *
 *   (fencedStore)     member-source.ts, in a fleet only: turns a lost lease into a stop before anything counts it as a failure
 *   watchCommits      remembers failing writes for the status; inside, so that it sees each write as the disk does
 *   countCommitted    counts committed events; outside watchCommits, because a failed commit counts nothing
 *   withTickets       adds ticket names to alarms; only what sync commits has them
 *   createGroupCommit joins the replies of several sources into one transaction; outside all, so one commit passes through
 */
function decorateStore(options: {
  readonly store: Store;
  readonly clock: Clock;
  readonly metrics: Pick<Metrics, "eventsCommitted">;
  readonly sources: number;
  readonly tickets: Parameters<typeof withTickets>[1];
}) {
  const { clock, metrics, sources, tickets } = options;
  const { store: watched, trouble: commitTrouble } = watchCommits(options.store, clock);
  const store = countCommitted(watched, metrics);
  const ticketed = withTickets(store, tickets);
  return { store, ticketed, together: createGroupCommit({ store: ticketed, clock, sources }), commitTrouble };
}

/** Counts committed events, but not those whose id was in the log already. */
function countCommitted(store: Store, metrics: Pick<Metrics, "eventsCommitted">): Store {
  return {
    ...store,
    async commit(change) {
      const committed = await store.commit(change);
      const repeated = new Set(committed.repeated);
      for (const { id, type } of change.events ?? []) {
        if (!repeated.has(id)) metrics.eventsCommitted.inc({ type });
      }
      return committed;
    },
  };
}

export async function buildPipeline(options: PipelineOptions): Promise<Pipeline> {
  const { beside, config, environment, transport, clock, clockDoubt, log, metrics, page, ticker } = options;
  const { standIn, tenure } = options;
  const { store, ticketed, together, commitTrouble } = decorateStore({
    ...{ store: options.store, clock, metrics },
    sources: Object.keys(config.sources).length,
    tickets: () => ticketMakers(sinks.built),
  });
  const shared = { store, clock, clockDoubt, log, metrics };

  const sources = Object.entries(config.sources).map(([name, entry]) =>
    buildSource({
      ...shared,
      name,
      entry,
      ...(environment === undefined ? {} : { environment }),
      ...(transport === undefined ? {} : { transport }),
      ...(tenure === undefined ? {} : { leaving: tenure.leaving, longestWayMs: tenure.longestWayMs }),
    }),
  );
  const byName = new Map(sources.map(({ name, source }) => [name, source]));
  const { max_bytes: maxBytes } = config.state;
  const backPressure = createBackPressure({ outbox: store.outbox, maxBytes, clock, log });
  const zones = Object.entries(config.sources).map(([name, { time_zone }]) => [name, time_zone] as const);
  const picture = createBuildingView(store, new Map(zones));
  const sinkParts = {
    ...shared,
    picture,
    followsHistory: followsHistory(config),
    ...(standIn === undefined ? {} : { standIn }),
    ...(tenure === undefined ? {} : { share: { fleet: tenure.fleet, source: tenure.source, now: tenure.now } }),
  };
  const sinks = { built: await buildSinks(config.sinks, sinkParts) };
  const { state } = config;
  const forSync = { ...shared, store: ticketed, ticker, together, backPressure, state };
  const plots = await buildPlots({ ...shared, config, known: () => ({ status, works }) });
  const onRead = plots?.read ?? (() => {});
  const syncs = await Promise.all(sources.map((built) => buildSync({ ...forSync, built, onRead })));
  const syncsByName = new Map(syncs.map((sync, i) => [sources[i]?.name ?? "", sync]));
  const works = new Map([...syncsByName].map(([name, { work }]) => [name, work]));

  const delivered = { ...shared, sinks: sinksOf(sinks.built), outbox: store.outbox };
  const dispatcher = createDispatcher({ ...delivered, picture });
  const silences = createSilenceKeeper({ store, clock, log });
  const space = createLogSpace({ outbox: store.outbox, metrics, log });
  const pruning = createPruning({ ...delivered, bounds: boundsOf(state), space });

  const commands = await createCommands({
    ...shared,
    config: config.commands,
    sources: sources.map(({ source, entry }) => ({ source, timeZone: entry.time_zone })),
    guards: options.guards,
    armAtStart: options.armWriting,
    around: options.around,
    ...(options.approved === undefined ? {} : { approved: options.approved }),
  });

  const listens = listening(listenersOf(sinks.built), commands.accept);
  const parts = reconfigurableParts({
    ...{ config, environment, log, page, backPressure, pruning, commands, dispatcher, sinks, sinkParts },
    listening: listens,
    syncs: syncsByName,
  });

  const notices = await warningsOf(store);
  const status = buildStatus({
    ...shared,
    startedAtMs: options.startedAtMs,
    page,
    sources: byName,
    works,
    dispatcher,
    commands,
    configuration: beside.configuration,
    notices: () => [
      ...notices,
      ...beside.notices(),
      ...commitNotices(commitTrouble()),
      ...commands.notices(),
      ...space.notices(),
      ...backPressure.notices(),
      ...dispatcher.notices(),
    ],
  });
  const answers = buildResponses({
    config,
    page,
    clock,
    store,
    works,
    sinks: dispatcher.status,
    commands,
    plots,
    sources: byName,
    status,
  });

  const polling = syncs.map(({ service }) => service);
  const heartbeats = syncs.map(({ heartbeat }) => heartbeat);
  const sensors = syncs.map(({ sensors }) => sensors);
  const services = inOrder(
    [
      { service: pruning, share: 0.1 },
      { service: silences, share: 0.1 },
      ...(plots === null ? [] : [{ service: plots, share: 0.1 }]),
      { service: dispatcher, share: 0.6 },
      { service: commands, share: 0.2 },
      { service: listens, share: 0.1 },
      { service: sideBySide("sensors", sensors, log), share: 0.1 },
      // Requests to the service are aborted: repeating one after a start costs one slot.
      { service: sideBySide("sources", polling, log), share: 0.2 },
      { service: sideBySide("heartbeats", heartbeats, log), share: 0.1 },
    ],
    { clock, log },
  );

  return {
    store,
    sources: byName,
    works,
    commands,
    status,
    answers,
    metrics,
    commitTrouble,
    parts,
    start: services.start,
    async stop(deadlineMs) {
      answers.stop();
      await services.stop(deadlineMs);
    },
    async refreshGauges() {
      for (const sync of syncs) sync.refreshGauges();
      await refreshGauges({ status, metrics, log });
    },
    async close() {
      await Promise.all(sources.map(({ source }) => source.close()));
    },
  };
}
