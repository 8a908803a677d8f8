import { CATALOG } from "../connectors/catalog.ts";
import { buildSource } from "./build-source.ts";
import { buildSync } from "./build-sync.ts";
import { type Clock, isoUtc, systemClock } from "./clock.ts";
import { createCommands } from "./commands/commands.ts";
import { type Config, connectorOf } from "./config/config.ts";
import type { CommandSource, ConnectorContext, ConnectorDefinition } from "./connector.ts";
import { type ConfiguredSink, createDispatcher } from "./delivery/dispatcher.ts";
import { createRetention } from "./delivery/retention.ts";
import { type Service, Stopping } from "./lifecycle.ts";
import { createLog, type Log } from "./log.ts";
import { createMetrics } from "./metrics.ts";
import { writeDoor } from "./operator/key.ts";
import { operatorRoutes } from "./operator/routes.ts";
import { readSecret } from "./secret.ts";
import type { Source } from "./source/source.ts";
import type { Transport } from "./source/transport.ts";
import { createStatus } from "./status/report.ts";
import { createStatusServer } from "./status/server.ts";
import { counted } from "./store/counted.ts";
import { openStore } from "./store/open.ts";
import type { Store } from "./store/store.ts";
import { cronTicker, type Ticker } from "./sync/schedule.ts";
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
  /** Base address of the status page, once started. */
  statusUrl(): string;
}

export interface WorkerOptions {
  readonly config: Config;
  readonly environment?: Readonly<Record<string, string | undefined>>;
  readonly clock?: Clock;
  readonly log?: Log;
  /** In place of HTTP, for simulations. */
  readonly transport?: Transport;
  /** In place of node-cron, for simulations. */
  readonly ticker?: Ticker;
}

export async function createWorker(options: WorkerOptions): Promise<Worker> {
  const { config } = options;
  const clock = options.clock ?? systemClock;
  const log = options.log ?? createLog({ level: config.log.level });
  const metrics = createMetrics();
  const startedAtMs = clock.now();

  const store = counted(await openStore({ folder: config.state.folder, clock, log }), metrics);
  try {
    const { bounds, ...built } = buildAll();
    return await assemble(bounds, built);
  } catch (error) {
    await store.close();
    throw error;
  }

  function buildAll() {
    const sources = Object.entries(config.sources).map(([name, entry]) =>
      buildSource({
        name,
        entry,
        store,
        clock,
        log,
        metrics,
        ...(options.environment === undefined ? {} : { environment: options.environment }),
        ...(options.transport === undefined ? {} : { transport: options.transport }),
      }),
    );
    const entries = Object.entries(config.sinks).filter(([, entry]) => entry.enabled);
    const sinks: ConfiguredSink[] = [];
    const listeners: CommandSource[] = [];
    for (const [name, entry] of entries) {
      const connector = connectorOf(entry);
      const definition = CATALOG[connector] as ConnectorDefinition;
      const context: ConnectorContext = { name, log: log.child({ sink: name }), clock, metrics };
      const sink = definition.sink?.(entry[connector], context);
      if (sink !== undefined) sinks.push({ name, connector, sink, delivery: entry });
      if (entry.mqtt?.commands.enabled === true) {
        const listener = definition.commands?.(entry.mqtt, context);
        if (listener !== undefined) listeners.push(listener);
      }
    }
    const { max_bytes, max_age, replay_window } = config.state;
    return {
      sources,
      sinks,
      listeners,
      bounds: { maxBytes: max_bytes, maxAgeMs: max_age, replayMs: replay_window },
    };
  }

  async function assemble(
    bounds: ReturnType<typeof buildAll>["bounds"],
    { sources, sinks, listeners }: Omit<ReturnType<typeof buildAll>, "bounds">,
  ): Promise<Worker> {
    const byName = new Map(sources.map(({ name, source }) => [name, source]));
    const dispatcher = createDispatcher({ sinks, outbox: store.outbox, clock, log, metrics });
    const retention = createRetention({ outbox: store.outbox, bounds, sinks, clock, log, metrics });
    const commands = await createCommands({
      config: config.commands,
      sources: sources.map(({ source, entry }) => ({ source, timeZone: entry.time_zone })),
      store,
      stateFolder: config.state.folder,
      clock,
      log,
      metrics,
    });
    const ticker = options.ticker ?? cronTicker(log);
    const syncs = await Promise.all(
      sources.map((built) => buildSync({ built, store, clock, log, metrics, ticker })),
    );
    const intake = listening(listeners, commands.accept);

    let ready = false;
    const status = createStatus({
      version: VERSION,
      clock,
      store,
      sources: sources.map(({ name, entry }) => ({ name, origin: new URL(entry.base_url).origin })),
      live: {
        startedAtMs,
        quota: (name) => byName.get(name)?.quota() ?? null,
        sinks: () => dispatcher.status(),
        commands: () => commands.status(),
        notices: () => notices,
      },
    });
    const notices = await noticesOf(store);
    const door = writeDoor(config.state.folder);
    const server = createStatusServer({
      config: config.status,
      password: config.status.password === undefined ? null : readSecret(config.status.password),
      status,
      outbox: store.outbox,
      metrics: metrics.registry,
      notReady: () => (ready ? null : "The worker is starting or stopping."),
      refresh: async () => {},
      mounted: [
        {
          path: "/operator",
          app: operatorRoutes({
            key: door.key,
            sources: byName,
            accept: commands.accept,
            clock,
            report: status.report,
          }),
        },
      ],
      log,
    });

    /** Bottom-up: what receives is there before what sends. Stopped in the opposite order. */
    const services: readonly Service[] = [
      server,
      retention,
      dispatcher,
      commands,
      intake,
      ...syncs.map(({ service }) => service),
    ];
    const stopping = new AbortController();
    let stopped: Promise<void> | undefined;

    async function stop(deadlineMs: number): Promise<void> {
      const until = clock.monotonic() + deadlineMs;
      ready = false;
      for (const service of services.toReversed()) {
        // What asks the service is cut short, because asking again costs one request; deliveries get the rest.
        const share = service === dispatcher ? 1 : 0.2;
        const left = Math.max(100, Math.min(until - clock.monotonic(), deadlineMs * share));
        try {
          await service.stop(left);
        } catch (error) {
          log.warn({ service: service.name, err: error }, "a part did not stop cleanly");
        }
      }
      stopping.abort(new Stopping());
      for (const { source } of sources) await source.close();
      door.close();
      await store.close();
      log.info("stopped");
    }

    return {
      store,
      sources: byName,
      statusUrl: () => server.url(),
      async start() {
        try {
          for (const service of services) await service.start(stopping.signal);
        } catch (error) {
          await stop(1_000);
          throw error;
        }
        door.open(server.url());
        ready = true;
        log.info({ version: VERSION, status: server.url(), startedAt: isoUtc(startedAtMs) }, "started");
      },
      stop(deadlineMs) {
        stopped ??= stop(deadlineMs);
        return stopped;
      },
    };
  }

  function listening(
    listeners: readonly CommandSource[],
    accept: Parameters<CommandSource["open"]>[0],
  ): Service {
    return {
      name: "command intake",
      async start(signal) {
        for (const listener of listeners) await listener.open(accept, signal);
      },
      async stop() {
        for (const listener of listeners) await listener.close();
      },
    };
  }

  async function noticesOf(opened: Store): Promise<readonly string[]> {
    const { setAside } = await opened.describe();
    return setAside === undefined
      ? []
      : [
          `The state file was damaged and set aside as ${setAside}; what follows starts from a fresh baseline.`,
        ];
  }
}
