import { buildActions, buildAnswers } from "./build-answers.ts";
import { buildPlots } from "./build-plots.ts";
import { boundsOf, reconfigurableParts } from "./build-reload.ts";
import { buildSinks, listenersOf, listening, type StandIn, sinksOf, ticketMakers } from "./build-sinks.ts";
import { buildSource } from "./build-source.ts";
import { buildStatus, noticesOf, pageSettings } from "./build-status.ts";
import { buildSync } from "./build-sync.ts";
import { type Clock, isoUtc, systemClock } from "./clock.ts";
import { createClockDoubt, watching } from "./clock-doubt.ts";
import { createCommands } from "./commands/commands.ts";
import { aroundWriting } from "./config/around-writing.ts";
import type { Config } from "./config/config.ts";
import type { Accept } from "./connector.ts";
import { createBackPressure } from "./delivery/back-pressure.ts";
import { createDispatcher } from "./delivery/dispatcher.ts";
import { createLogSpace } from "./delivery/log-space.ts";
import { createPruning } from "./delivery/pruning.ts";
import { inOrder, Stopping, sideBySide } from "./lifecycle.ts";
import { createLog, type Log } from "./log.ts";
import { addProcessMetrics, createMetrics, type Metrics } from "./metrics.ts";
import { createDoor } from "./operator/door.ts";
import { lastPolls } from "./operator/last-polls.ts";
import { operatorRoutes } from "./operator/routes.ts";
import { createPicture } from "./picture.ts";
import { withTickets } from "./receiver/tickets.ts";
import { createReloader } from "./reload/reloader.ts";
import type { ReloadedBy, ReloadReport } from "./reload-facts.ts";
import { createSilenceKeeper } from "./silence/keeper.ts";
import type { Source } from "./source/source.ts";
import type { Transport } from "./source/transport.ts";
import { type CommitTrouble, commitNotices, watchCommits } from "./status/commits.ts";
import { readCredentials } from "./status/credentials.ts";
import { refreshGauges } from "./status/gauges.ts";
import { createReadiness } from "./status/readiness.ts";
import { createStatusServer } from "./status/server.ts";
import { counted } from "./store/counted.ts";
import { openStore } from "./store/open.ts";
import type { QuotaMemory, Store } from "./store/store.ts";
import { createTogether } from "./sync/read/together.ts";
import { clockTicker } from "./sync/schedule.ts";
import { refuseUnverifiedTls } from "./verified-tls.ts";
import { VERSION } from "./version.ts";

/**
 * The story: everything is built here, wired here, started bottom-up (what receives before what sends) and stopped
 * top-down. There is no logic of its own in this file.
 *
 *   store ◄─ delivery ◄─ sinks          commands ◄─ MQTT, command line
 *     ▲                                    │
 *     └── sync ◄── source ◄── service ◄────┘
 */
export interface Worker {
  readonly store: Store;
  readonly sources: ReadonlyMap<string, Source>;
  start(): Promise<void>;
  /** Lets what is under way finish until `deadlineMs` from now; a second call waits for the first. */
  stop(deadlineMs: number): Promise<void>;
  /** Where commands arrive that no listener brings: those of a simulation. */
  readonly accept: Accept;
  /** Base address of the status page, once started. */
  statusUrl(): string;
  /** Reads the configuration again and takes over what can be; null where it was given no way to read one. */
  readonly reload: ((by: ReloadedBy, isDryRun: boolean) => Promise<ReloadReport>) | null;
}

export interface WorkerOptions {
  readonly config: Config;
  readonly environment?: Readonly<Record<string, string | undefined>>;
  readonly clock?: Clock;
  readonly log?: Log;
  /** The last lines of that log, for whoever asks through the door. */
  readonly recentLog?: () => readonly string[];
  /** Arms the state for writing, should it not be armed yet. */
  readonly armWriting?: boolean;
  /** Where the configuration came from, so that a change of it counts without a restart. */
  readonly configFile?: ConfigFile;
  /** In place of the state's own: what is sent counts for another worker, which rests meanwhile. */
  readonly quotaMemory?: QuotaMemory;
  /** In place of HTTP, for simulations. */
  readonly transport?: Transport;
  /** In place of connectors, for simulations. */
  readonly standIn?: StandIn;
}

export interface ConfigFile {
  readonly file: string;
  /** Reads it now; throws what is wrong with it. */
  load(): Config;
  /** Whether a change is noticed; otherwise it is read again when somebody asks. */
  readonly isWatched: boolean;
}

export async function createWorker(options: WorkerOptions): Promise<Worker> {
  refuseUnverifiedTls();
  const { config } = options;
  const clock = options.clock ?? systemClock;
  const log = options.log ?? createLog({ level: config.log.level });
  const metrics = createMetrics();
  // In a simulation they would not be its own, and what they throw dice for would make no two runs alike.
  if (options.clock === undefined) addProcessMetrics(metrics);
  const opened = await openStore({ folder: config.state.folder, clock, log });
  const { quotaMemory = opened.quotaMemory } = options;
  const { store, trouble: commitTrouble } = watchCommits({ ...opened, quotaMemory }, clock);
  const shared = { store: counted(store, metrics), commitTrouble, clock, log, metrics };
  try {
    return await build(options, shared);
  } catch (error) {
    await opened.close();
    throw error;
  }
}

interface Shared {
  readonly store: Store;
  readonly commitTrouble: () => CommitTrouble | null;
  readonly clock: Clock;
  readonly log: Log;
  readonly metrics: Metrics;
}

async function build(options: WorkerOptions, shared: Shared): Promise<Worker> {
  const { config, environment, transport } = options;
  const { store, clock, log, metrics, commitTrouble } = shared;
  const startedAtMs = clock.now();
  const [latest] = await store.outbox.latest(1);
  const lastKnownMs = Date.parse(latest?.committedAt ?? "1970-01-01T00:00:00Z");
  const clockDoubt = createClockDoubt({ clock, log, metrics, lastKnownMs });
  const ticker = clockTicker(clock, clockDoubt);

  const sources = Object.entries(config.sources).map(([name, entry]) =>
    buildSource({
      ...shared,
      name,
      entry,
      clockDoubt,
      ...(environment === undefined ? {} : { environment }),
      ...(transport === undefined ? {} : { transport }),
    }),
  );
  const byName = new Map(sources.map(({ name, source }) => [name, source]));
  const { max_bytes: maxBytes } = config.state;
  const backPressure = createBackPressure({ outbox: store.outbox, maxBytes, clock, log });
  const zones = Object.entries(config.sources).map(([name, { time_zone }]) => [name, time_zone] as const);
  const picture = createPicture(store, new Map(zones));
  const { standIn } = options;
  const sinkParts = { ...shared, picture, ...(standIn === undefined ? {} : { standIn }) };
  const sinks = { built: await buildSinks(config.sinks, sinkParts) };
  const ticketed = withTickets(store, () => ticketMakers(sinks.built));
  const together = createTogether(ticketed, clock);
  const { state } = config;
  const forSync = { ...shared, store: ticketed, clockDoubt, ticker, together, backPressure, state };
  const plots = await buildPlots({ ...shared, config, known: () => ({ status, works }) });
  const onRead = plots?.read ?? (() => {});
  const syncs = await Promise.all(sources.map((built) => buildSync({ ...forSync, built, onRead })));
  const syncsByName = new Map(syncs.map((sync, i) => [sources[i]?.name ?? "", sync]));
  const works = new Map([...syncsByName].map(([name, { work }]) => [name, work]));

  const delivered = { ...shared, sinks: sinksOf(sinks.built), outbox: store.outbox };
  const dispatcher = createDispatcher({ ...delivered, picture });
  const silences = createSilenceKeeper({ store, clock, log });
  const space = createLogSpace({ outbox: store.outbox, metrics, log });
  const pruning = createPruning({ ...delivered, clockDoubt, bounds: boundsOf(config.state), space });

  const commands = await createCommands({
    ...shared,
    clockDoubt,
    config: config.commands,
    sources: sources.map(({ source, entry }) => ({ source, timeZone: entry.time_zone })),
    stateFolder: config.state.folder,
    armAtStart: options.armWriting ?? false,
    around: aroundWriting(config),
  });

  const page = pageSettings(config, readCredentials(config.status, environment));
  const listens = listening(listenersOf(sinks.built), commands.accept);
  const parts = reconfigurableParts({
    ...{ config, environment, log, page, backPressure, pruning, commands, dispatcher, sinks, sinkParts },
    listening: listens,
    syncs: syncsByName,
  });
  const { configFile } = options;
  const reloader = configFile && createReloader({ ...shared, ...configFile, config, parts });

  let ready = false;
  const notices = await noticesOf(store);
  const status = buildStatus({
    ...shared,
    startedAtMs,
    page,
    sources: byName,
    works,
    dispatcher,
    commands,
    configuration: () => reloader?.state() ?? null,
    notices: () => [
      ...notices,
      ...(reloader?.notices() ?? []),
      ...clockDoubt.notices(),
      ...commitNotices(commitTrouble()),
      ...commands.notices(),
      ...space.notices(),
      ...backPressure.notices(),
      ...dispatcher.notices(),
    ],
  });
  const answers = buildAnswers({
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
  const notReady = () => (ready ? null : "The worker is starting or stopping.");
  const routes = operatorRoutes({
    sources: byName,
    accept: commands.accept,
    expectedWaitMs: commands.expectedWaitMs,
    clock,
    report: status.report,
    notReady,
    log: options.recentLog ?? (() => []),
    work: { sources: works, lastPolls: (name) => lastPolls(metrics, name) },
    ...(reloader && { reload: (isDryRun: boolean) => reloader.reload("command", isDryRun) }),
  });
  const door = createDoor({ stateFolder: config.state.folder, routes });
  const server = createStatusServer({
    config: config.status,
    get credentials() {
      return page.credentials;
    },
    clock,
    store,
    status,
    answers,
    actions: buildActions({ clock, accept: commands.accept, notReady }),
    outbox: store.outbox,
    metrics: metrics.registry,
    readiness: createReadiness({ clock, report: status.report, isRunning: () => ready, commitTrouble }),
    async refresh() {
      for (const sync of syncs) sync.refreshGauges();
      await refreshGauges({ status, metrics, log });
    },
    get stopWrites() {
      return page.writes ? (by: string) => commands.killSwitch.throwIt(by, isoUtc(clock.now())) : null;
    },
    log,
  });

  const polling = syncs.map(({ service }) => service);
  const sensors = syncs.map(({ sensors }) => sensors);
  const services = inOrder(
    [
      { service: watching(clockDoubt), share: 0.1 },
      // First and last: whoever asks meanwhile is told that the worker starts or stops.
      { service: door, share: 0.1 },
      { service: server, share: 0.1 },
      { service: pruning, share: 0.1 },
      { service: silences, share: 0.1 },
      ...(plots === null ? [] : [{ service: plots, share: 0.1 }]),
      { service: dispatcher, share: 0.6 },
      { service: commands, share: 0.2 },
      { service: listens, share: 0.1 },
      { service: sideBySide("sensors", sensors, log), share: 0.1 },
      // What asks the service is cut short: asking again after a start costs one request.
      { service: sideBySide("sources", polling, log), share: 0.2 },
      ...(reloader ? [{ service: reloader, share: 0.2 }] : []),
    ],
    { clock, log },
  );
  const running = new AbortController();
  let stopped: Promise<void> | undefined;

  async function stop(deadlineMs: number): Promise<void> {
    ready = false;
    answers.stop();
    await services.stop(deadlineMs);
    running.abort(new Stopping());
    await Promise.all(sources.map(({ source }) => source.close()));
    await store.close();
    log.info("stopped");
  }

  return {
    store,
    sources: byName,
    accept: commands.accept,
    statusUrl: () => server.url(),
    reload: reloader?.reload ?? null,
    async start() {
      try {
        await services.start(running.signal);
      } catch (error) {
        stopped = stop(1_000);
        await stopped;
        throw error;
      }
      ready = true;
      log.info({ version: VERSION, status: server.url() }, "started");
    },
    stop(deadlineMs) {
      stopped ??= stop(deadlineMs);
      return stopped;
    },
  };
}
