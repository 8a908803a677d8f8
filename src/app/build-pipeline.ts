import { isDeepStrictEqual } from "node:util";
import type { FleetAssignment } from "../core/connector.ts";
import type { ConfigurationState } from "../core/model/config-change-report.ts";
import type { Clock } from "../core/runtime/clock.ts";
import type { ClockCheck } from "../core/runtime/clock-check.ts";
import { groupServices, orderServices } from "../core/runtime/lifecycle.ts";
import { type Log, setLogLevel } from "../core/runtime/log.ts";
import type { Metrics } from "../core/runtime/metrics.ts";
import { VERSION } from "../core/runtime/version.ts";
import type { RuleSet } from "../engine/commands/approval/check-approval.ts";
import { createWriteCommandService, type WriteCommandService } from "../engine/commands/commands.ts";
import type { CommandsConfig } from "../engine/commands/config.ts";
import type { WritingGuards } from "../engine/commands/writing-guards.ts";
import { type BackPressure, createBackPressure, createLogSpaceMonitor } from "../engine/delivery/back-pressure.ts";
import { createEventDispatcher, type EventDispatcher } from "../engine/delivery/dispatcher.ts";
import { createEventLogPruning, type EventLogPruningService } from "../engine/delivery/event-log-pruning.ts";
import { createSilenceKeeper } from "../engine/silence/alarm-silences.ts";
import type { CheckBeforeRequest } from "../engine/source/send-request.ts";
import type { Transport } from "../engine/source/transport.ts";
import type { RetentionBounds, Store } from "../engine/store/store.ts";
import type { CronTicker } from "../engine/sync/cron-schedule.ts";
import { createGroupCommit } from "../engine/sync/read/commit-readings.ts";
import { addTicketsOnCommit } from "../engine/views/alarm-tickets.ts";
import { createBuildingView } from "../engine/views/building-view.ts";
import { readPageCredentials } from "../ui/status/access-control.ts";
import { refreshMetricGauges } from "../ui/status/health.ts";
import { createPageApi } from "../ui/status/page-api.ts";
import { failedCommitWarnings, watchFailedWrites } from "../ui/status/state-disk-space.ts";
import { createStatus } from "../ui/status/status-report.ts";
import {
  type BuiltSinksByName,
  buildSinks,
  type CommandListeners,
  type CreateReplacementSink,
  closeNewSinks,
  createCommandListeners,
  listCommandSources,
  listConfiguredSinks,
  listTicketSinkNames,
  readsHistory,
  type SinkDependencies,
} from "./build-sinks.ts";
import { buildSource } from "./build-source.ts";
import { buildPagePlots, listSinkAddresses } from "./build-status-page.ts";
import { type BuiltSourceSync, buildSourceSync } from "./build-sync.ts";
import { type Config, settingsAffectingTagWrites } from "./config/config.ts";
import type { ReconfigurableWorkerPart } from "./reload/reloader.ts";
import { readLiveSourceStatus, readStateWarnings, type StatusPageSettings } from "./status-page-settings.ts";

export interface SourceLeaseContext extends FleetAssignment {
  /** Called before each request to the service; throws if the request must not be sent. */
  readonly checkBeforeRequest: CheckBeforeRequest;
  /** Longest time in milliseconds between taking a quota slot and the arrival of the request at the service. */
  readonly maxRequestTransitMs: number;
}

export interface PipelineOptions {
  /** Configuration with only the sources of this pipeline. */
  readonly config: Config;
  readonly store: Store;
  readonly guards: WritingGuards;
  /** Settings outside `commands` that a second person must approve, because they affect tag writes. */
  readonly settingsAffectingWrites: RuleSet;
  /** Section `commands` of the whole fleet; absent if `config` contains all sources. */
  readonly fleetCommandsConfig?: CommandsConfig;
  readonly armsWriting: boolean;
  readonly startedAtMs: number;
  readonly page: StatusPageSettings;
  readonly environment?: Readonly<Record<string, string | undefined>> | undefined;
  readonly transport?: Transport | undefined;
  readonly createReplacementSink?: CreateReplacementSink | undefined;
  readonly lease?: SourceLeaseContext | undefined;
  readonly clock: Clock;
  readonly clockCheck: ClockCheck;
  readonly ticker: CronTicker;
  readonly log: Log;
  readonly metrics: Metrics;
  /** Parts of the status that concern the whole process. */
  readonly processStatus: { configuration(): ConfigurationState | null; notices(): readonly string[] };
}

/**
 * Wraps the store, from the inside:
 *   watchCommits          records failed commits for the status page
 *   countCommittedEvents  counts committed events
 *   addTicketsOnCommit    adds ticket names to alarm events that polls commit
 *   createGroupCommit     joins commits of several sources into one transaction
 */
function wrapStore(
  baseStore: Store,
  { clock, metrics, config }: Pick<PipelineOptions, "clock" | "metrics" | "config">,
  getTicketSinkNames: Parameters<typeof addTicketsOnCommit>[1],
) {
  const { store: watchedStore, oldestFailure: commitFailure } = watchFailedWrites(baseStore, clock);
  const store = countCommittedEvents(watchedStore, metrics);
  const ticketedStore = addTicketsOnCommit(store, getTicketSinkNames);
  const groupCommit = createGroupCommit({
    store: ticketedStore,
    clock,
    sourceCount: Object.keys(config.sources).length,
  });
  return { store, storeWithTickets: ticketedStore, groupCommit, commitFailure };
}

function countCommittedEvents(store: Store, metrics: Pick<Metrics, "eventsCommitted">): Store {
  return {
    ...store,
    async commit(change) {
      const commitResult = await store.commit(change);
      const repeatedIds = new Set(commitResult.repeated);
      for (const { id, type } of change.events ?? []) if (!repeatedIds.has(id)) metrics.eventsCommitted.inc({ type });
      return commitResult;
    },
  };
}

/**
 * Services between a store and its sinks. A worker has one pipeline; a fleet member has one per leased source.
 *
 *   store ◄─ delivery ◄─ sinks          commands ◄─ MQTT, command line
 *     ▲                                    │
 *     └── sync ◄── source ◄── service ◄────┘
 */
export async function buildPipeline(options: PipelineOptions) {
  const { config, environment, transport, clock, clockCheck, log, metrics, page, createReplacementSink, lease } =
    options;
  const { state } = config;
  const { store, storeWithTickets, groupCommit, commitFailure } = wrapStore(options.store, options, () =>
    listTicketSinkNames(sinks.built),
  );
  const commonContext = { store, clock, clockCheck, log, metrics };

  const builtSources = Object.entries(config.sources).map(([name, sourceConfig]) =>
    buildSource({
      ...commonContext,
      name,
      sourceConfig,
      environment,
      transport,
      checkBeforeRequest: lease?.checkBeforeRequest,
      maxTransitMs: lease?.maxRequestTransitMs,
    }),
  );
  const sources = new Map(builtSources.map(({ name, source }) => [name, source]));
  const timeZones = new Map(builtSources.map(({ name, sourceConfig }) => [name, sourceConfig.time_zone]));
  const building = createBuildingView(store, timeZones);
  const sinkContext = {
    ...commonContext,
    building,
    followsHistory: readsHistory(config),
    createReplacementSink,
    assignment: lease && { fleet: lease.fleet, source: lease.source, now: lease.now },
  };
  const sinks = { built: await buildSinks(config.sinks, sinkContext) };

  const backPressure = createBackPressure({ outbox: store.outbox, maxBytes: state.max_bytes, clock, log });
  const plots = await buildPagePlots({
    ...commonContext,
    config,
    runningWorker: () => ({ status, activityBySource: activities }),
  });
  const syncBySource = new Map<string, BuiltSourceSync>();
  for (const built of builtSources) {
    const sourceSync = await buildSourceSync({
      ...{ ...commonContext, store: storeWithTickets, built, ticker: options.ticker, groupCommit, backPressure, state },
      onValueRead: plots?.addReading ?? (() => {}),
    });
    syncBySource.set(built.name, sourceSync);
  }
  const activities = new Map([...syncBySource].map(([name, { activity }]) => [name, activity]));

  const deliveryContext = { ...commonContext, sinks: listConfiguredSinks(sinks.built), outbox: store.outbox };
  const dispatcher = createEventDispatcher({ ...deliveryContext, building });
  const alarmSilenceKeeper = createSilenceKeeper({ store, clock, log });
  const logSpaceMonitor = createLogSpaceMonitor({ outbox: store.outbox, metrics, log });
  const pruning = createEventLogPruning({ ...deliveryContext, bounds: retentionBounds(state), space: logSpaceMonitor });
  const commands = await createWriteCommandService({
    ...{ ...commonContext, config: config.commands, guards: options.guards, around: options.settingsAffectingWrites },
    sources: builtSources.map(({ source, sourceConfig }) => ({ source, timeZone: sourceConfig.time_zone })),
    armAtStart: options.armsWriting,
    ...(options.fleetCommandsConfig && { approvedConfig: options.fleetCommandsConfig }),
  });
  const commandListeners = createCommandListeners(listCommandSources(sinks.built), commands.accept);
  const reconfigurableParts = listReconfigurableParts({
    ...{ config, environment, log, page, backPressure, pruning, commands, dispatcher },
    ...{ sinks, sinkContext, syncBySource },
    commandListeners,
  });

  const stateWarnings = await readStateWarnings(store);
  const status = createStatus({
    ...{ version: VERSION, clock, store },
    get sources() {
      return page.sources;
    },
    get sinks() {
      return page.sinks;
    },
    get filterBySink() {
      return page.filterBySink;
    },
    live: {
      ...{ startedAtMs: options.startedAtMs, sinks: dispatcher.status, commands: commands.status },
      source: (name) => readLiveSourceStatus(sources.get(name), activities.get(name)),
      configuration: options.processStatus.configuration,
      notices: () => [
        ...stateWarnings,
        ...options.processStatus.notices(),
        ...failedCommitWarnings(commitFailure()),
        ...commands.notices(),
        ...logSpaceMonitor.notices(),
        ...backPressure.notices(),
        ...dispatcher.notices(),
        ...[...syncBySource.values()].flatMap(({ tagNamesFileWatch }) => tagNamesFileWatch.notices()),
      ],
    },
  });
  const pageApi = createPageApi({
    ...{ clock, store, status, plots, sources: Object.keys(config.sources), sinksAndFilters: () => page },
    live: {
      findReadClass: (source, id) => activities.get(source)?.tagReadClass(id) ?? null,
      findLiveTagState: (source, id) => activities.get(source)?.liveTagState(id) ?? null,
      sinks: dispatcher.status,
      findSinkAddresses: (event) => listSinkAddresses(page.sinkEntries, event, store),
      findWritableTag: commands.findWritableTag,
      allowedRequestsPerMinute(source) {
        const quotaBuckets = sources.get(source)?.quota().buckets ?? [];
        return quotaBuckets.reduce((sum, { perMinute }) => sum + perMinute, 0);
      },
      fetchHistory(source, query, signal) {
        const timeZone = config.sources[source]?.time_zone ?? "UTC";
        return sources.get(source)?.history({ ...query, timeZone }, "spare", signal) ?? null;
      },
    },
  });

  const allSourceSyncs = [...syncBySource.values()];
  const groupSourceServices = (name: string, pickService: (sync: BuiltSourceSync) => BuiltSourceSync["service"]) =>
    groupServices(name, allSourceSyncs.map(pickService), log);
  const pipelineServices = orderServices(
    [
      { service: pruning, stopTimeShare: 0.1 },
      { service: alarmSilenceKeeper, stopTimeShare: 0.1 },
      ...(plots === null ? [] : [{ service: plots, stopTimeShare: 0.1 }]),
      { service: dispatcher, stopTimeShare: 0.6 },
      { service: commands, stopTimeShare: 0.2 },
      { service: commandListeners, stopTimeShare: 0.1 },
      { service: groupSourceServices("names", ({ tagNamesFileWatch }) => tagNamesFileWatch), stopTimeShare: 0.1 },
      // Stopping aborts requests to the service, because repeating a request costs only one quota slot.
      { service: groupSourceServices("sources", ({ service }) => service), stopTimeShare: 0.2 },
      { service: groupSourceServices("heartbeats", ({ heartbeat }) => heartbeat), stopTimeShare: 0.1 },
    ],
    { clock, log },
  );

  return {
    ...{ store, sources, activities, commands, status, pageApi },
    ...{ metrics, commitFailure, parts: reconfigurableParts, start: pipelineServices.start },
    async stop(deadlineMs: number): Promise<void> {
      pageApi.stop();
      await pipelineServices.stop(deadlineMs);
    },
    async refreshGauges(): Promise<void> {
      for (const sourceSync of allSourceSyncs) sourceSync.refreshGauges();
      await refreshMetricGauges({ status, metrics, log });
    },
    async close(): Promise<void> {
      await Promise.all(builtSources.map(({ source }) => source.close()));
    },
  };
}

export type Pipeline = Awaited<ReturnType<typeof buildPipeline>>;

interface RunningPipelineParts extends Pick<PipelineOptions, "config" | "environment" | "log" | "page"> {
  readonly backPressure: BackPressure;
  readonly pruning: EventLogPruningService;
  readonly commands: WriteCommandService;
  readonly dispatcher: EventDispatcher;
  readonly commandListeners: CommandListeners;
  readonly sinks: { built: BuiltSinksByName };
  readonly sinkContext: SinkDependencies;
  readonly syncBySource: ReadonlyMap<string, BuiltSourceSync>;
}

/** Lists the parts of the worker in the order in which a reload changes them. */
function listReconfigurableParts(parts: RunningPipelineParts): readonly ReconfigurableWorkerPart[] {
  const { backPressure, commands, config, dispatcher, environment, commandListeners, log, page, pruning } = parts;
  const { sinks, sinkContext, syncBySource } = parts;
  // The command line may have set another log level than the configuration file.
  let { level: logLevel } = config.log;
  return [
    {
      name: "log",
      prepare: async (newConfig) => ({
        applyChange() {
          if (newConfig.log.level !== logLevel) setLogLevel(log, newConfig.log.level);
          logLevel = newConfig.log.level;
        },
      }),
    },
    {
      name: "page",
      async prepare(newConfig) {
        const pageCredentials = readPageCredentials(newConfig.status, environment);
        return { applyChange: () => page.changeConfig(newConfig, pageCredentials) };
      },
    },
    {
      // Change sinks and commands together: a second person approves both the rules and the sinks that accept commands.
      name: "sinks and commands",
      async prepare(next) {
        const oldSinks = sinks.built;
        const newSinks = await buildSinks(next.sinks, { ...sinkContext, followsHistory: readsHistory(next) }, oldSinks);
        return {
          async applyChange() {
            sinks.built = newSinks;
            await commandListeners.keepOnly(listCommandSources(newSinks));
            commands.changeConfig(next.commands, settingsAffectingTagWrites(next));
            await dispatcher.changeSinks(listConfiguredSinks(newSinks));
            await commandListeners.openAll(listCommandSources(newSinks));
          },
          discardChange: () => closeNewSinks(newSinks, oldSinks),
        };
      },
    },
    {
      name: "log of events",
      prepare: async ({ state }) => ({
        applyChange() {
          backPressure.setMaxBytes(state.max_bytes);
          pruning.changeOptions({ bounds: retentionBounds(state), sinks: listConfiguredSinks(sinks.built) });
        },
      }),
    },
    ...[...syncBySource].map(([name, sync]) => createReconfigurableSource(name, sync, config)),
  ];
}

function retentionBounds(state: Config["state"]): Omit<RetentionBounds, "wanted" | "ranMs"> {
  return { maxBytes: state.max_bytes, maxAgeMs: state.max_age, replayMs: state.replay_window };
}

function createReconfigurableSource(name: string, sync: BuiltSourceSync, config: Config): ReconfigurableWorkerPart {
  let sourceSettingsInForce = { sourceConfig: config.sources[name], state: config.state };
  return {
    name: `source ${name}`,
    prepare: async ({ sources, state }) => ({
      async applyChange() {
        const nextSettings = { sourceConfig: sources[name], state };
        if (nextSettings.sourceConfig === undefined || isDeepStrictEqual(nextSettings, sourceSettingsInForce)) return;
        sourceSettingsInForce = nextSettings;
        await sync.applyConfig(nextSettings.sourceConfig, state);
      },
    }),
  };
}
