import { buildPipeline, type Pipeline, type PipelineOptions, type SourceLeaseContext } from "../app/build-pipeline.ts";
import { type Config, settingsAffectingTagWrites } from "../app/config/config.ts";
import { createStatusPageSettings } from "../app/status-page-settings.ts";
import { LocalFailure } from "../core/errors/errors.ts";
import { openProxy } from "../core/http/proxy.ts";
import { assignEventToWorker } from "../core/model/event.ts";
import type { Clock } from "../core/runtime/clock.ts";
import { elapsedMs } from "../core/runtime/elapsed-time.ts";
import { isOrderlyStop, OrderlyStop } from "../core/runtime/lifecycle.ts";
import type { Log } from "../core/runtime/log.ts";
import { createMetrics, type Metrics } from "../core/runtime/metrics.ts";
import { createHttpTransport, reportOutages } from "../engine/source/transport.ts";
import { createFencedStore } from "../engine/store/fenced-store.ts";
import type { Store } from "../engine/store/store.ts";
import { type DatabaseTime, storeQuotaInSteadyTime } from "./database-time.ts";
import type { Lease } from "./fleet/running-sources.ts";
import { openSourceState } from "./postgres/source-state.ts";
import type { StateDatabase, StateDatabaseDescription } from "./postgres/state-database.ts";

/** A request is sent at most this long after its quota slot, so that a suspended machine does not send later. */
const MAX_SEND_DELAY_MS = 2_000;
const MAX_TRANSIT_MS = 3_000;
const FAILED_START_STOP_TIMEOUT_MS = 1_000;

/** Runs the pipeline of a leased source. Rejects with `OrderlyStop` when the lease ends meanwhile. */
export async function runSource(
  options: Pick<PipelineOptions, "config" | "environment" | "guards" | "clock" | "clockCheck" | "ticker" | "log"> & {
    readonly lease: Lease;
    readonly fleet: string;
    readonly database: StateDatabase;
    readonly time: DatabaseTime;
    readonly describeDatabase: () => Promise<StateDatabaseDescription>;
  },
) {
  const { clock, clockCheck, config, database, environment, lease, ticker, time } = options;
  const { source } = lease;
  const { entry, sourceConfig } = reduceConfigToSource(config, source);
  const pipelineController = new AbortController();
  const log = quietLogAfterAbort(pipelineController.signal, options.log.child({ source }));
  const abortPipeline = () => pipelineController.abort(new OrderlyStop());
  lease.signal.addEventListener("abort", abortPipeline, { once: true });
  if (lease.signal.aborted) abortPipeline();
  const sourceState = await openSourceState(database, { source, access: { epoch: lease.epoch }, clock, log });
  const httpTransport = createHttpTransport(entry, openProxy(entry.proxy, clock, environment));
  const store: Store = {
    ...sourceState,
    commit: ({ events = [], ...change }) =>
      sourceState.commit({ ...change, events: events.map((event) => assignEventToWorker(source, event)) }),
    async describe() {
      const { bytes, schemaVersion } = await options.describeDatabase();
      return { file: database.name, bytes, schemaVersion, damaged: [] };
    },
    quotaStore: storeQuotaInSteadyTime(sourceState.quotaStore, time, clock),
  };
  let pipeline: Pipeline | null = null;

  async function stopSource(deadlineMs: number): Promise<void> {
    try {
      await pipeline?.stop(deadlineMs);
    } finally {
      lease.signal.removeEventListener("abort", abortPipeline);
      abortPipeline();
      await pipeline?.close();
      await httpTransport.close();
      await sourceState.close();
    }
  }

  try {
    pipeline = await buildPipeline({
      ...{ clock, clockCheck, environment, log, ticker, guards: options.guards },
      // Measure the lateness of polls from the takeover by this member.
      startedAtMs: clock.now(),
      config: sourceConfig,
      transport: reportOutages(httpTransport.send, lease.noteReached, clock),
      store: createFencedStore(store, lease.noteLeaseFenced),
      settingsAffectingWrites: settingsAffectingTagWrites(config),
      fleetCommandsConfig: config.commands,
      armsWriting: false,
      page: createStatusPageSettings(sourceConfig, null),
      lease: createLeaseContext(lease, options.fleet, time, clock),
      metrics: createSourceMetrics(source),
      // The member reports configuration and notices once for all its sources.
      processStatus: { configuration: () => null, notices: () => [] },
    });
    pipelineController.signal.throwIfAborted();
    await pipeline.start(pipelineController.signal);
    pipelineController.signal.throwIfAborted();
    return { pipeline, stop: stopSource };
  } catch (error) {
    abortPipeline();
    await stopSource(FAILED_START_STOP_TIMEOUT_MS).catch(() => undefined);
    throw error;
  }
}

/** Logger that writes errors and warnings of a stop at `debug`, because the source's next holder continues the work. */
function quietLogAfterAbort(abortSignal: AbortSignal, log: Log): Log {
  const quietLog = Object.create(log) as Log;
  const isExpectedStop = (firstArgument: unknown) =>
    abortSignal.aborted || isOrderlyStop((firstArgument as { readonly err?: unknown } | null)?.err ?? firstArgument);
  for (const logLevel of ["warn", "error", "fatal"] as const)
    quietLog[logLevel] = ((...logArguments: Parameters<Log["warn"]>) =>
      log[isExpectedStop(logArguments[0]) ? "debug" : logLevel](...logArguments)) as Log["warn"];
  quietLog.child = ((bindings: object) =>
    quietLogAfterAbort(abortSignal, log.child(bindings))) as unknown as Log["child"];
  return quietLog;
}

function createLeaseContext(
  { remainingMs, source }: Lease,
  fleet: string,
  time: DatabaseTime,
  clock: Clock,
): SourceLeaseContext {
  return {
    fleet,
    source,
    now: time.latestSteadyMs,
    checkBeforeRequest(slotTakenAt) {
      if (remainingMs() <= 0)
        throw new LocalFailure(`The lease on the source ${source} is over, so nothing is asked any more.`);
      const sendDelayMs = elapsedMs(clock, slotTakenAt);
      if (sendDelayMs > MAX_SEND_DELAY_MS)
        throw new LocalFailure(
          `A request was held up for ${Math.round(sendDelayMs)} ms after its slot was taken, and is not sent.`,
        );
    },
    maxRequestTransitMs: MAX_SEND_DELAY_MS + MAX_TRANSIT_MS,
  };
}

function reduceConfigToSource(config: Config, source: string) {
  const { commands, sinks, sources } = config;
  const entry = sources[source];
  if (entry === undefined) throw new Error(`The source ${source} is not configured.`);
  const sinksOfSource = Object.entries(sinks).filter(
    ([, { filter }]) => filter.sources.length === 0 || filter.sources.includes(source),
  );
  const allowedTags = commands.allow.filter((tag) => tag.source === undefined || tag.source === source);
  const sourceConfig: Config = {
    ...config,
    sources: { [source]: entry },
    sinks: Object.fromEntries(sinksOfSource),
    commands: { ...commands, allow: allowedTags },
  };
  return { entry, sourceConfig };
}

function createSourceMetrics(source: string): Metrics {
  const metrics = createMetrics();
  metrics.registry.setDefaultLabels({ source });
  for (const name of PROCESS_METRIC_NAMES) metrics.registry.removeSingleMetric(name);
  return metrics;
}

const PROCESS_METRIC_NAMES = [
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
