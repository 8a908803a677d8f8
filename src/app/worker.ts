import { refuseUnverifiedTls } from "../core/http/verified-tls.ts";
import { type Clock, systemClock } from "../core/runtime/clock.ts";
import { createClockCheck, createClockWatchService } from "../core/runtime/clock-check.ts";
import { createServiceRunner, orderServices } from "../core/runtime/lifecycle.ts";
import { createLog, type Log } from "../core/runtime/log.ts";
import { addProcessMetrics, createMetrics, formatMetrics } from "../core/runtime/metrics.ts";
import { VERSION } from "../core/runtime/version.ts";
import { isoUtc } from "../core/values/iso-utc.ts";
import { createFolderWritingGuards } from "../engine/commands/writing-guards.ts";
import { endSilence } from "../engine/silence/alarm-silences.ts";
import type { Transport } from "../engine/source/transport.ts";
import { openStore } from "../engine/store/open.ts";
import { withAbsoluteStatePaths } from "../engine/store/state-config.ts";
import type { QuotaStore, Store } from "../engine/store/store.ts";
import { createCronTicker } from "../engine/sync/cron-schedule.ts";
import { operatorRoutes } from "../ui/operator/control-socket-routes.ts";
import { createControlSocket } from "../ui/operator/control-socket-server.ts";
import { readPageCredentials } from "../ui/status/access-control.ts";
import { createReadinessCheck } from "../ui/status/health.ts";
import { createStatusServer } from "../ui/status/status-server.ts";
import { buildPipeline } from "./build-pipeline.ts";
import type { CreateReplacementSink } from "./build-sinks.ts";
import { buildPageActions } from "./build-status-page.ts";
import type { Config } from "./config/config.ts";
import { settingsAffectingTagWrites } from "./config/config.ts";
import { type ConfigReloader, createReloader, type ReloadableConfigFile } from "./reload/reloader.ts";
import { createStatusPageSettings } from "./status-page-settings.ts";

export interface WorkerOptions {
  readonly config: Config;
  readonly environment?: Readonly<Record<string, string | undefined>>;
  readonly clock?: Clock;
  readonly log?: Log;
  readonly armWriting?: boolean;
  readonly configFile?: ReloadableConfigFile;
  /** Quota store of a paused worker, with which this worker shares the quota. */
  readonly quotaStore?: QuotaStore;
  readonly transport?: Transport;
  readonly createReplacementSink?: CreateReplacementSink;
}

/** Builds, connects, starts and stops the parts of a worker: receivers start before senders, and stop after them. */
export async function createWorker(options: WorkerOptions) {
  refuseUnverifiedTls();
  const { config } = options;
  const clock = options.clock ?? systemClock;
  const log = options.log ?? createLog({ level: config.log.level });
  const stateStore = await openStore({ folder: config.state.folder, clock, log });
  const { quotaStore = stateStore.quotaStore } = options;
  try {
    return await buildWorker(options, { ...stateStore, quotaStore }, clock, log);
  } catch (error) {
    await stateStore.close();
    throw error;
  }
}

async function buildWorker(options: WorkerOptions, openedStore: Store, clock: Clock, log: Log) {
  const { config, configFile, environment, transport, createReplacementSink } = options;
  const metrics = createMetrics();
  // A simulated worker has no process metrics, because process metrics differ in each run.
  if (options.clock === undefined) addProcessMetrics(metrics);
  const startedAtMs = clock.now();
  const [latestEvent] = await openedStore.outbox.latest(1);
  const latestCommitMs = Date.parse(latestEvent?.committedAt ?? "1970-01-01T00:00:00Z");
  const clockCheck = createClockCheck({ clock, log, metrics, storedTimeMs: latestCommitMs });
  const commonContext = { clock, clockCheck, log, metrics };
  const pageSettings = createStatusPageSettings(config, readPageCredentials(config.status, environment));

  let reloader: ConfigReloader | undefined;
  const eventPipeline = await buildPipeline({
    ...{ ...commonContext, config, environment, transport, createReplacementSink, startedAtMs },
    ...{ page: pageSettings, store: openedStore },
    ticker: createCronTicker(clock, clockCheck),
    guards: createFolderWritingGuards(config.state.folder),
    settingsAffectingWrites: settingsAffectingTagWrites(config),
    armsWriting: options.armWriting ?? false,
    processStatus: {
      configuration: () => reloader?.state() ?? null,
      notices: () => [...(reloader?.notices() ?? []), ...clockCheck.notices()],
    },
  });
  const { pageApi, commands, commitFailure, parts, sources, status, store, activities } = eventPipeline;
  const { accept, changeLock, expectedWaitMs } = commands;
  if (configFile !== undefined) reloader = createReloader({ ...commonContext, ...configFile, config, store, parts });
  const reload = reloader?.reload ?? null;

  const notReadyReason = () => (runner.isReady() ? null : "The worker is starting or stopping.");
  const operatorRoutesByPath = operatorRoutes({
    sources,
    acceptCommand: accept,
    changeLock,
    expectedWaitMs,
    clock,
    report: status.report,
    notReadyReason,
    sourcePlanOptions: { sources: activities },
    configuration() {
      const liveConfig = reloader?.configInForce() ?? config;
      return {
        file: configFile?.file ?? null,
        config: { ...liveConfig, state: withAbsoluteStatePaths(liveConfig.state) },
      };
    },
    ...(reload && { reload: (isDryRun: boolean) => reload("command", isDryRun) }),
  });
  const controlSocket = createControlSocket({ stateFolder: config.state.folder, routes: operatorRoutesByPath });
  const pageServer = createStatusServer({
    ...{ config: config.status, clock, log, status, pageApi, outbox: store.outbox },
    metrics: { contentType: metrics.registry.contentType, metrics: () => formatMetrics(metrics.registry) },
    get credentials() {
      return pageSettings.credentials;
    },
    findSilenceStore: () => store,
    endSilence: (...silenceArguments) => endSilence(store, ...silenceArguments),
    actions: buildPageActions({ clock, accept, notReadyReason }),
    readiness: createReadinessCheck({
      clock,
      health: status.health,
      isRunning: () => runner.isReady(),
      currentCommitFailure: commitFailure,
    }),
    refreshMetrics: eventPipeline.refreshGauges,
    get stopWrites() {
      return pageSettings.areWritesEnabled ? (by: string) => commands.killSwitch.turnOn(by, isoUtc(clock.now())) : null;
    },
  });

  const workerServices = orderServices(
    [
      { service: createClockWatchService(clockCheck), stopTimeShare: 0.1 },
      // The control socket starts first and stops last, so callers learn that the worker is starting or stopping.
      { service: controlSocket, stopTimeShare: 0.1 },
      { service: pageServer, stopTimeShare: 0.1 },
      { service: { name: "pipeline", start: eventPipeline.start, stop: eventPipeline.stop }, stopTimeShare: 1 },
      ...(reloader ? [{ service: reloader, stopTimeShare: 0.2 }] : []),
    ],
    { clock, log },
  );
  const runner = createServiceRunner(workerServices, {
    log,
    onStarted: () => log.info({ version: VERSION, status: pageServer.url() }, "started"),
    async onEnded() {
      await eventPipeline.close();
      await store.close();
    },
  });

  return { store, sources, accept, statusUrl: () => pageServer.url(), reload, start: runner.start, stop: runner.stop };
}

export type Worker = Awaited<ReturnType<typeof createWorker>>;
