import type { ConfigurationState } from "../../core/model/config-change-report.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { mapInSlices } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { WriteCommandsStatus } from "../../engine/commands/commands.ts";
import { getSilences } from "../../engine/silence/alarm-silences.ts";
import type { LagFilter, Store } from "../../engine/store/store.ts";
import { activeAlarmRows } from "./alarm-api-responses.ts";
import { createCachedDocuments, SLOW_DATA_AGE_MS, WATCHED_DATA_AGE_MS } from "./cache-of-stored-documents.ts";
import { statusWarnings } from "./page-warnings.ts";
import type { ScopeQuery } from "./query-parameters.ts";
import { isSilenceActive, silenceRows } from "./silence-routes.ts";
import { type RunningSink, type SinkReport, sinkReports } from "./sink-reports.ts";
import {
  type ConfiguredSource,
  type RunningSource,
  type SourceReport,
  sourceHealth,
  sourceReport,
} from "./source-reports.ts";
import { readDiskSpace, type StateReport } from "./state-disk-space.ts";

/** State of a worker for the status page, `plenum status`, health and metrics. */
export interface StatusReport {
  readonly version: string;
  readonly now: string;
  /** Start of the worker; null if none is running and the report contains the stored state. */
  readonly startedAt: string | null;
  readonly member?: string;
  readonly notices: readonly string[];
  readonly sources: readonly SourceReport[];
  readonly sinks: readonly SinkReport[];
  readonly commands: WriteCommandsStatus | null;
  /** Result of the last configuration change; null without a worker that reloads its configuration file. */
  readonly configuration: ConfigurationState | null;
  readonly store: StateReport;
}

export type StatusHealth = Awaited<ReturnType<Status["health"]>>;

export interface RunningWorkerState {
  readonly startedAtMs: number;
  source(name: string): RunningSource | null;
  sinks(): readonly RunningSink[];
  commands(): WriteCommandsStatus | null;
  configuration?(): ConfigurationState | null;
  notices(): readonly string[];
}

export type Status = ReturnType<typeof createStatus>;

export function createStatus(options: {
  readonly version: string;
  readonly clock: Clock;
  readonly store: Store;
  readonly sources: readonly ConfiguredSource[];
  /** Names of the configured sinks; if absent, the sinks of the running worker are reported. */
  readonly sinks?: readonly string[];
  readonly filterBySink?: ReadonlyMap<string, LagFilter>;
  readonly live: RunningWorkerState | null;
}) {
  const { clock, live, store } = options;
  const cache = createCachedDocuments(store, clock);
  const currentTimes = () => ({ atMs: clock.now(), monotonicMs: clock.monotonic() });
  const startTime = live && { atMs: live.startedAtMs, monotonicMs: clock.monotonic() - clock.now() + live.startedAtMs };
  const sourceNames = options.sources.map((source) => source.name);
  const mapSources = <T>(report: (source: ConfiguredSource, liveSource: RunningSource | null) => Promise<T>) =>
    mapInSlices(options.sources, (source) => report(source, live?.source(source.name) ?? null));
  async function readSinkReports(): Promise<readonly SinkReport[]> {
    // Counting filtered events is expensive, so all open pages share one result.
    const sinkLags = await cache.memoize("lag", WATCHED_DATA_AGE_MS, () => store.outbox.lag(options.filterBySink));
    const runningSinks = live?.sinks() ?? [];
    return sinkReports(sinkLags, runningSinks, options.sinks ?? runningSinks.map(({ name }) => name));
  }
  return {
    sinks: readSinkReports,
    async health() {
      const reportTimes = { started: startTime, now: currentTimes() };
      const [sources, { file }] = await Promise.all([
        mapSources((source, liveSource) => sourceHealth(cache, source, liveSource, reportTimes)),
        cache.memoize("store", SLOW_DATA_AGE_MS, store.describe),
      ]);
      return {
        now: isoUtc(reportTimes.now.atMs),
        sources,
        sinks: live?.sinks() ?? [],
        commands: live?.commands() ?? null,
        disk: readDiskSpace(file),
      };
    },
    async report(): Promise<StatusReport> {
      const reportTimes = { started: startTime, now: currentTimes() };
      const [sources, sinkList, { file, bytes, damaged, copy = null }] = await Promise.all([
        mapSources((source, liveSource) => sourceReport(cache, source, liveSource, reportTimes)),
        readSinkReports(),
        store.describe(),
      ]);
      const stateReport = { file, bytes, ...readDiskSpace(file), copy, damaged };
      const commands = live?.commands() ?? null;
      const reportParts = { sources, sinks: sinkList, commands, store: stateReport };
      return {
        version: options.version,
        now: isoUtc(reportTimes.now.atMs),
        startedAt: live && isoUtc(live.startedAtMs),
        notices: [...(live?.notices() ?? []), ...statusWarnings(reportParts, reportTimes.now.atMs)],
        configuration: live?.configuration?.() ?? null,
        ...reportParts,
      };
    },
    async alarms() {
      const nowIso = isoUtc(clock.now());
      const silences = (await getSilences(store)).filter((silence) => isSilenceActive(silence, nowIso));
      return activeAlarmRows(cache, sourceNames, options.sinks ?? [], silences);
    },
    /** Lists silences, which are never cached, so that a change is visible at once. */
    async silences(scope: ScopeQuery) {
      return silenceRows(cache, sourceNames, await getSilences(store), isoUtc(clock.now()), scope);
    },
  };
}
