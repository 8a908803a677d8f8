import { buildPipeline, type LeaseContext, type Pipeline } from "../app/build-pipeline.ts";
import { pageSettings } from "../app/build-status.ts";
import { aroundWriting } from "../app/config/around-writing.ts";
import type { Config } from "../app/config/config.ts";
import { LocalFailure } from "../core/errors/errors.ts";
import { proxyOf } from "../core/http/proxy.ts";
import { ofWorkerFor } from "../core/model/event.ts";
import type { Clock } from "../core/runtime/clock.ts";
import type { ClockCheck } from "../core/runtime/clock-check.ts";
import { isStopping, Stopping } from "../core/runtime/lifecycle.ts";
import type { Log } from "../core/runtime/log.ts";
import { createMetrics, type Metrics } from "../core/runtime/metrics.ts";
import { elapsedMs } from "../core/runtime/moment.ts";
import type { Guards } from "../engine/commands/guards.ts";
import type { Leaving } from "../engine/source/send.ts";
import { createHttpTransport, reporting } from "../engine/source/transport.ts";
import { fencedStore } from "../engine/store/fenced-store.ts";
import type { Ticker } from "../engine/sync/schedule.ts";
import type { Lease } from "./fleet/fleet.ts";
import { type DatabaseTime, inSteadyTime } from "./member-time.ts";
import type { StateDatabase, StateDatabaseDescription } from "./postgres/state-database.ts";
import { openShard } from "./postgres/store.ts";

/** One source while this member holds it. */
export interface RunningSource {
  readonly pipeline: Pipeline;
  /** Finishes what is under way; where the lease is over already, it only ends. */
  stop(deadlineMs: number): Promise<void>;
}

export interface RunningSourceOptions {
  readonly lease: Lease;
  /** Configuration of the complete fleet. */
  readonly config: Config;
  /** Tells this fleet from others. */
  readonly fleet: string;
  readonly environment?: Readonly<Record<string, string | undefined>> | undefined;
  readonly database: StateDatabase;
  readonly time: DatabaseTime;
  /** Description of the database, equal for all sources. */
  readonly described: () => Promise<StateDatabaseDescription>;
  readonly guards: Guards;
  readonly clock: Clock;
  readonly clockDoubt: ClockCheck;
  readonly ticker: Ticker;
  readonly log: Log;
}

/**
 * A request leaves within so many milliseconds after its slot was recorded, or not at all: a suspended machine would otherwise send it in
 * a minute in which the service counts other requests.
 */
const LEAVES_WITHIN_MS = 2_000;
/** From then on the longest believable way to the service, in milliseconds; as for a lone worker. */
const WAY_MS = 3_000;

/** Begins to work for a source. Ends early, with `Stopping`, where its lease is over meanwhile. */
export async function runSource(options: RunningSourceOptions): Promise<RunningSource> {
  const { clock, clockDoubt, config, database, environment, lease, ticker, time } = options;
  const { source } = lease;
  const own = onlySource(config, source);
  const running = new AbortController();
  const log = quietOnceOver(options.log.child({ source }), running.signal);
  const end = () => running.abort(new Stopping());
  lease.signal.addEventListener("abort", end, { once: true });
  if (lease.signal.aborted) end();

  const shard = await openShard(database, { source, as: { epoch: lease.epoch }, clock, log });
  const entry = own.sources[source];
  if (entry === undefined) throw new Error(`The source ${source} is not configured.`);
  const http = createHttpTransport(entry, proxyOf(entry.proxy, clock, environment));
  let pipeline: Pipeline | null = null;

  async function close(): Promise<void> {
    lease.signal.removeEventListener("abort", end);
    end();
    await pipeline?.close();
    await http.close();
    await shard.close();
  }

  async function start(): Promise<Pipeline> {
    pipeline = await buildPipeline({
      ...{ clock, clockDoubt, environment, log, ticker },
      // A poll is late by what this member could do: it holds the source from now on.
      startedAtMs: clock.now(),
      config: own,
      transport: reporting(http.send, lease.reached, clock),
      store: fencedStore(
        {
          ...shard,
          commit: ({ events = [], ...change }) =>
            shard.commit({ ...change, events: events.map((event) => ofWorkerFor(source, event)) }),
          async describe() {
            const { bytes, schemaVersion } = await options.described();
            return { file: database.name, bytes, schemaVersion, damaged: [] };
          },
          quotaStore: inSteadyTime(shard.quotaStore, time, clock),
        },
        lease.fenced,
      ),
      guards: options.guards,
      around: aroundWriting(config),
      approved: config.commands,
      armWriting: false,
      page: pageSettings(own, null),
      tenure: tenureOf(lease, options.fleet, time, clock),
      metrics: sourceMetrics(source),
      // The member says these once for all of its sources.
      beside: { configuration: () => null, notices: () => [] },
    });
    running.signal.throwIfAborted();
    await pipeline.start(running.signal);
    running.signal.throwIfAborted();
    return pipeline;
  }

  try {
    return {
      pipeline: await start(),
      async stop(deadlineMs) {
        try {
          await pipeline?.stop(deadlineMs);
        } finally {
          await close();
        }
      },
    };
  } catch (error) {
    end();
    await (pipeline as Pipeline | null)?.stop(STOP_MS).catch(() => undefined);
    await close();
    throw error;
  }
}

/**
 * The same log, with which a pipeline that loses its source ends quietly. What fails because this member stops is no fault,
 * and neither is what fails after the lease is over: the next holder does it. Such lines are written at level `debug`.
 */
function quietOnceOver(log: Log, over: AbortSignal): Log {
  const quiet = Object.create(log) as Log;
  const isNoFault = (first: unknown) =>
    over.aborted || isStopping((first as { readonly err?: unknown } | null)?.err ?? first);
  for (const level of ["warn", "error", "fatal"] as const) {
    quiet[level] = ((...line: Parameters<Log["warn"]>) =>
      log[isNoFault(line[0]) ? "debug" : level](...line)) as Log["warn"];
  }
  quiet.child = ((bindings: object) => quietOnceOver(log.child(bindings), over)) as unknown as Log["child"];
  return quiet;
}

/** Time limit for ending a failed start, in milliseconds. */
const STOP_MS = 1_000;

function tenureOf({ leftMs, source }: Lease, fleet: string, time: DatabaseTime, clock: Clock): LeaseContext {
  const leaving: Leaving = (since) => {
    if (leftMs() <= 0)
      throw new LocalFailure(`The lease on the source ${source} is over, so nothing is asked any more.`);
    const heldUpMs = elapsedMs(clock, since);
    if (heldUpMs > LEAVES_WITHIN_MS)
      throw new LocalFailure(
        `A request was held up for ${Math.round(heldUpMs)} ms after its slot was taken, and is not sent.`,
      );
  };
  return { fleet, source, now: time.latest, leaving, longestWayMs: LEAVES_WITHIN_MS + WAY_MS };
}

/** The configuration as if there were no other source. */
function onlySource(config: Config, source: string): Config {
  const { commands, sinks, sources } = config;
  const entry = sources[source];
  if (entry === undefined) throw new Error(`The source ${source} is not configured.`);
  const wanted = Object.entries(sinks).filter(
    ([, { filter }]) => filter.sources.length === 0 || filter.sources.includes(source),
  );
  const allow = commands.allow.filter((tag) => tag.source === undefined || tag.source === source);
  return {
    ...config,
    sources: { [source]: entry },
    sinks: Object.fromEntries(wanted),
    commands: { ...commands, allow },
  };
}

/** Every sample says of which source it is; what belongs to the process is in the member's own. */
function sourceMetrics(source: string): Metrics {
  const metrics = createMetrics();
  metrics.registry.setDefaultLabels({ source });
  for (const name of OF_THE_PROCESS) metrics.registry.removeSingleMetric(name);
  return metrics;
}

const OF_THE_PROCESS = [
  "plenum_clock_steps_total",
  "plenum_clock_in_doubt",
  "plenum_config_reloads_total",
  "plenum_config_refused",
  "plenum_config_pending_changes",
  "plenum_fleet_members",
  "plenum_fleet_sources",
  "plenum_fleet_takeovers_total",
  "plenum_fleet_renewed_timestamp_seconds",
];
