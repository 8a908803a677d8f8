import { randomBytes } from "node:crypto";
import type { Pipeline } from "../app/build-pipeline.ts";
import { buildPageActions } from "../app/build-status-page.ts";
import { createStatusPageSettings } from "../app/status-page-settings.ts";
import type { WorkerOptions } from "../app/worker.ts";
import type { AcceptCommand } from "../core/connector.ts";
import { Retryable } from "../core/errors/errors.ts";
import { refuseUnverifiedTls } from "../core/http/verified-tls.ts";
import { type Clock, systemClock } from "../core/runtime/clock.ts";
import { createClockCheck, createClockWatchService } from "../core/runtime/clock-check.ts";
import { createServiceRunner, orderServices } from "../core/runtime/lifecycle.ts";
import { createLog, type Log } from "../core/runtime/log.ts";
import { addProcessMetrics, createMetrics } from "../core/runtime/metrics.ts";
import { VERSION } from "../core/runtime/version.ts";
import { endsWithin, mapInSlices } from "../core/runtime/waiting.ts";
import { isoUtc } from "../core/values/iso-utc.ts";
import { approvalsFilePath } from "../engine/commands/approval/approval-guard.ts";
import type { Source } from "../engine/source/source.ts";
import { canReachService } from "../engine/source/transport.ts";
import { withAbsoluteStatePaths } from "../engine/store/state-config.ts";
import { prepareStateFolder, readFileSystemType } from "../engine/store/state-folder.ts";
import { createCronTicker } from "../engine/sync/cron-schedule.ts";
import { operatorRoutes } from "../ui/operator/control-socket-routes.ts";
import { createControlSocket } from "../ui/operator/control-socket-server.ts";
import type { SourceActivity } from "../ui/operator/quota-plan-routes.ts";
import { readPageCredentials } from "../ui/status/access-control.ts";
import { createValueCache, WATCHED_DATA_AGE_MS } from "../ui/status/cache-of-stored-documents.ts";
import { createReadinessCheck, joinMetricTexts, type Readiness } from "../ui/status/health.ts";
import { createStatusServer } from "../ui/status/status-server.ts";
import { type DatabaseTime, openDatabaseTime } from "./database-time.ts";
import { createFleet } from "./fleet/fleet.ts";
import { describeSourceHolder, type FleetStatus } from "./fleet/fleet-status.ts";
import { digestSharedConfig } from "./fleet/fleet-tables.ts";
import { createFleetKillSwitch, releaseFleetKillSwitch } from "./fleet/kill-switch.ts";
import type { Lease, RunningSource } from "./fleet/running-sources.ts";
import { readOrWriteFleetDocument } from "./fleet/shared-json-document.ts";
import { createMemberConfigFile } from "./fleet-member-config-file.ts";
import { detectBackupRestore, type MemberDatabases, openMemberDatabases } from "./fleet-member-databases.ts";
import { createMemberStatusView, endSilenceOfFleet } from "./fleet-member-status.ts";
import { openFleetWritingGuards } from "./fleet-tag-write-guards.ts";
import { runSource } from "./leased-source.ts";

export interface FleetMemberOptions extends Omit<WorkerOptions, "quotaStore" | "transport" | "createReplacementSink"> {
  readonly name: string;
  /** Folder for the files of this member, such as the control socket. */
  readonly folder: string;
}

/** The size of the database is cached for this time, because it is computed from every table. */
const MAX_DATABASE_INFO_AGE_MS = 30_000;
/** Longest time that a caller waits until the kill switch is stored in the database. */
const KILL_SWITCH_WAIT_MS = 2_000;

/**
 * A fleet member: runs one pipeline for each source whose lease it holds. Throws `ConfigError` or `Retryable`.
 *
 *   fleet ── lease ──► pipeline of a source ◄─► its part of the database
 *     │                      │
 *     └── others' leases     └──► page · control socket · metrics (the sum of all pipelines)
 */
export async function createFleetMember(options: FleetMemberOptions) {
  refuseUnverifiedTls();
  const { config } = options;
  const { postgres } = config.state;
  if (postgres === undefined) throw new Error("A member of a fleet needs state.postgres.");
  const clock = options.clock ?? systemClock;
  const log = options.log ?? createLog({ level: config.log.level });
  // The first folder belongs to the machine, the second to the member. One folder may serve as both.
  for (const folder of [config.state.folder, options.folder]) prepareStateFolder(folder, readFileSystemType);
  const databases = await openMemberDatabases({ config: postgres, clock, log });
  try {
    const databaseTime = await openDatabaseTime({ database: databases.urgent, clock, log });
    return await buildFleetMember(options, databases, databaseTime, { ...clock, now: databaseTime.now }, log);
  } catch (error) {
    await databases.close();
    throw error;
  }
}

async function buildFleetMember(
  options: FleetMemberOptions,
  databases: MemberDatabases,
  time: DatabaseTime,
  /** Clock with the time of the database, so that all members use the same time. */
  clock: Clock,
  log: Log,
) {
  const { database, urgent } = databases;
  const { config, configFile, environment, name } = options;
  const sourceNames = Object.keys(config.sources);
  const singleSource = sourceNames.length === 1 ? (sourceNames[0] ?? null) : null;
  const startedAtMs = clock.now();
  const metrics = createMetrics();
  if (options.clock === undefined) addProcessMetrics(metrics);
  const databaseClockCheck = createClockCheck({ clock, log, metrics, clockName: "The database's clock" });
  const scheduleTicker = createCronTicker(clock, databaseClockCheck);
  // Identifies the fleet to servers: 8 hexadecimal digits, created once.
  const newIdentityJson = JSON.stringify(randomBytes(4).toString("hex"));
  const fleetIdentity = JSON.parse(await readOrWriteFleetDocument(urgent, "identity", newIdentityJson)) as string;
  const detectedRestore = await detectBackupRestore(database);
  if (detectedRestore !== null) log.warn({ lastHeardAt: detectedRestore.lastHeardAt }, detectedRestore.message);
  const killSwitch = createFleetKillSwitch({ database: urgent, clock, log });
  const throwKillSwitch = (by: string) =>
    endsWithin(clock, KILL_SWITCH_WAIT_MS, killSwitch.throwSwitch(by, isoUtc(clock.now())));
  const writingGuards = await openFleetWritingGuards({
    ...{ database: urgent, killSwitch, clock, log },
    stateFolder: config.state.folder,
    approvalsFile: approvalsFilePath(config.commands.approval ?? null, null),
  });
  if (options.armWriting === true) await writingGuards.armWriting(`the person who started the member ${name}`);
  const pageSettings = createStatusPageSettings(config, readPageCredentials(config.status, environment));
  const statusCache = createValueCache(clock);
  const describeDatabase = () => statusCache("database", MAX_DATABASE_INFO_AGE_MS, () => urgent.describe());
  const pipelines = new Map<string, Pipeline>();
  const sources = new Map<string, Source>();
  const activityBySource = new Map<string, SourceActivity>();

  async function runLeasedSource(lease: Lease): Promise<RunningSource> {
    const { epoch, source } = lease;
    const runningSource = await runSource({
      ...{ lease, config, environment, database, describeDatabase, time, clock, log },
      ...{ guards: writingGuards, clockCheck: databaseClockCheck, fleet: fleetIdentity, ticker: scheduleTicker },
    });
    const { pipeline } = runningSource;
    pipelines.set(source, pipeline);
    for (const [sourceName, client] of pipeline.sources) sources.set(sourceName, client);
    for (const [sourceName, activity] of pipeline.activities) activityBySource.set(sourceName, activity);
    log.debug({ source, epoch }, "this member works for the source now");
    return {
      async stop(deadlineMs) {
        const isLeaseOver = lease.signal.aborted;
        // Delete by source name: a later ownership of the source begins only after this stop.
        for (const mapKeyedBySource of [pipelines, sources, activityBySource]) mapKeyedBySource.delete(source);
        await runningSource.stop(isLeaseOver ? 0 : deadlineMs);
        const why = isLeaseOver ? "the lease is over" : "handed over";
        log.debug({ source, epoch, why }, "this member works for the source no more");
      },
    };
  }

  const fleet = createFleet({
    database: { ...urgent, describe: describeDatabase },
    ...{ name, sources: sourceNames, clock, log, metrics, startSource: runLeasedSource },
    async checkServiceHealth(source, signal) {
      const sourceConfig = config.sources[source];
      return sourceConfig === undefined || canReachService(sourceConfig, clock, environment, signal);
    },
    configDigest: digestSharedConfig(config),
    pageUrl: () => statusServer.url(),
  });
  const fleetStatus = () => statusCache("fleet", WATCHED_DATA_AGE_MS, fleet.status);
  const explainNotReady = () => (serviceRunner.isReady() ? null : "The member is starting or stopping.");
  const findOtherHolder = async (source: string) =>
    sourceNames.includes(source) ? describeSourceHolder(source, await fleetStatus()) : null;
  const explainMissingSource = async (source: string) => (await findOtherHolder(source))?.message ?? "No such source.";
  async function findCommandsOfSource(source: string | null) {
    if (source === null) throw new Retryable(`Name one of the sources: ${sourceNames.join(", ")}.`);
    const pipeline = pipelines.get(source);
    if (pipeline === undefined) throw new Retryable(await explainMissingSource(source));
    return pipeline.commands;
  }
  const acceptCommand: AcceptCommand = async (arrival) =>
    (await findCommandsOfSource(arrival.source ?? singleSource)).accept(arrival);

  const memberConfigFile = configFile && createMemberConfigFile({ configFile, config, clock, log });
  const memberStatusView = createMemberStatusView({
    ...{ clock, startedAtMs, name, databaseLocation: database.name, pipelines, findOtherHolder },
    configuration: () => memberConfigFile?.state() ?? null,
    notices: () => [
      ...(detectedRestore === null ? [] : [detectedRestore.message]),
      ...fleet.notices(),
      ...(memberConfigFile?.notices() ?? []),
      ...databaseClockCheck.notices(),
      ...time.notices(),
    ],
    databaseBytes: async () => (await describeDatabase()).bytes,
  });
  const controlRoutes = operatorRoutes({
    sources,
    acceptCommand,
    clock,
    notReadyReason: explainNotReady,
    missingSourceMessage: explainMissingSource,
    sourcePlanOptions: { sources: activityBySource },
    changeLock: async (change) => (await findCommandsOfSource(change.target.source)).changeLock(change),
    expectedWaitMs: (source) => pipelines.get(source ?? singleSource ?? "")?.commands.expectedWaitMs(source) ?? 0,
    report: memberStatusView.status.report,
    configuration: () => ({
      file: configFile?.file ?? null,
      config: { ...config, state: withAbsoluteStatePaths(config.state) },
    }),
    fleetWrites: { stopWrites: throwKillSwitch, resumeWrites: () => releaseFleetKillSwitch(urgent) },
    ...(memberConfigFile && { reload: (isDryRun: boolean) => memberConfigFile.reload("command", isDryRun) }),
  });
  const controlSocket = createControlSocket({ stateFolder: options.folder, routes: controlRoutes });
  const checkOwnReadiness = createReadinessCheck({
    clock,
    health: memberStatusView.status.health,
    isRunning: () => serviceRunner.isReady(),
    currentCommitFailure: () =>
      [...pipelines.values()].map((each) => each.commitFailure()).find((failure) => failure !== null) ?? null,
  });
  const statusServer = createStatusServer({
    ...{ config: config.status, credentials: pageSettings.credentials, clock, log, fleet: fleetStatus },
    ...memberStatusView,
    endSilence: (...silenceArgs) => endSilenceOfFleet(pipelines, database, { clock, log }, ...silenceArgs),
    actions: buildPageActions({ clock, accept: acceptCommand, notReadyReason: explainNotReady }),
    metrics: {
      contentType: metrics.registry.contentType,
      async metrics() {
        const allMetrics = [metrics, ...[...pipelines.values()].map((each) => each.metrics)];
        return joinMetricTexts(await mapInSlices(allMetrics, ({ registry }) => registry.metrics()));
      },
    },
    readiness: () => memberReadiness(checkOwnReadiness, fleetStatus),
    refreshMetrics: async () => {
      await Promise.all([...pipelines.values()].map((each) => each.refreshGauges()));
    },
    // Stops tag writes of this member at once. Other members stop within seconds or when the database responds again.
    stopWrites: pageSettings.areWritesEnabled ? async (by: string) => void (await throwKillSwitch(by)) : null,
  });

  const orderedServices = orderServices(
    [
      { service: createClockWatchService(databaseClockCheck), stopTimeShare: 0.1 },
      { service: controlSocket, stopTimeShare: 0.1 },
      { service: statusServer, stopTimeShare: 0.1 },
      { service: killSwitch, stopTimeShare: 0.1 },
      { service: fleet, stopTimeShare: 0.8 },
      ...(memberConfigFile !== undefined && configFile?.isWatched === true
        ? [{ service: memberConfigFile.watch, stopTimeShare: 0.1 }]
        : []),
    ],
    { clock, log },
  );
  const serviceRunner = createServiceRunner(orderedServices, {
    log,
    onStarted(signal) {
      void time.watchClock(signal);
      log.info({ version: VERSION, member: name, status: statusServer.url() }, "started");
    },
    async onEnded() {
      writingGuards.close();
      await databases.close();
    },
  });

  return {
    name,
    held: () => [...pipelines.keys()].toSorted(),
    fleet: fleetStatus,
    statusUrl: () => statusServer.url(),
    reload: memberConfigFile?.reload ?? null,
    start: serviceRunner.start,
    stop: serviceRunner.stop,
  };
}

export type FleetMember = Awaited<ReturnType<typeof createFleetMember>>;

async function memberReadiness(own: () => Promise<Readiness>, status: () => Promise<FleetStatus>): Promise<Readiness> {
  const [{ reasons }, { trouble }] = await Promise.all([own(), status()]);
  const databaseFailure = {
    reason: "commit-failed" as const,
    subject: "state",
    message: "The fleet's database cannot be asked; the log says why.",
  };
  const allReasons = trouble === null ? reasons : [databaseFailure, ...reasons];
  return { ready: allReasons.length === 0, reasons: allReasons };
}
