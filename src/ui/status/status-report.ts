import type { ConfigurationState } from "../../core/model/config-change-report.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { getSilences } from "../../engine/silence/alarm-silences.ts";
import type { LagFilter, Store } from "../../engine/store/store.ts";
import { type AlarmRow, alarmRows } from "./alarm-responses.ts";
import { createCachedDocuments, SLOW_DATA_MS, WATCHED_DATA_AGE_MS } from "./cached-documents.ts";
import { noticesOf } from "./page-warnings.ts";
import type { ScopeQuery } from "./query-parameters.ts";
import { isActive, type SilenceRow, silenceRows } from "./silence-routes.ts";
import { type LiveSink, type SinkReport, sinkReports } from "./sink-reports.ts";
import {
  type ConfiguredSource,
  type LiveSource,
  type SourceHealth,
  type SourceReport,
  sourceHealth,
  sourceReport,
} from "./source-reports.ts";
import { type DiskSpace, diskSpace, type StateReport } from "./state-disk-space.ts";

/** State of a worker for the web page, `plenum status`, health and metrics. */
export interface StatusReport {
  readonly version: string;
  readonly now: string;
  /** Null when no worker is running: then the report contains the stored state. */
  readonly startedAt: string | null;
  /** Name of this member of the fleet; absent without a fleet. */
  readonly member?: string;
  readonly notices: readonly string[];
  readonly sources: readonly SourceReport[];
  readonly sinks: readonly SinkReport[];
  readonly commands: CommandsReport | null;
  /** The configuration file and the result of its last change; null without a worker that reloads it. */
  readonly configuration: ConfigurationState | null;
  readonly store: StateReport;
}

export interface CommandsReport {
  readonly enabled: boolean;
  readonly rehearsal: boolean;
  readonly stopped: boolean;
  readonly writable: number;
  readonly waiting: number;
}

export interface StatusHealth {
  readonly now: string;
  readonly sources: readonly SourceHealth[];
  readonly sinks: readonly LiveSink[];
  readonly commands: CommandsReport | null;
  readonly disk: DiskSpace;
}

export interface WorkerParts {
  readonly startedAtMs: number;
  source(name: string): LiveSource | null;
  sinks(): readonly LiveSink[];
  commands(): CommandsReport | null;
  configuration?(): ConfigurationState | null;
  notices(): readonly string[];
}

export interface StatusOptions {
  readonly version: string;
  readonly clock: Clock;
  readonly store: Store;
  readonly sources: readonly ConfiguredSource[];
  /** Configured sinks; absent: those of the running worker. */
  readonly sinks?: readonly string[];
  /** Filters of the sinks; a sink without one receives everything. */
  readonly filterBySink?: ReadonlyMap<string, LagFilter>;
  readonly live: WorkerParts | null;
}

export interface Status {
  report(): Promise<StatusReport>;
  health(): Promise<StatusHealth>;
  alarms(): Promise<readonly AlarmRow[]>;
  sinks(): Promise<readonly SinkReport[]>;
  /** Active and future silences; never cached, so that a change is visible at once. */
  silences(scope: ScopeQuery): Promise<readonly SilenceRow[]>;
}

export function createStatus(options: StatusOptions): Status {
  const { clock, live, store } = options;
  const cache = createCachedDocuments(store, clock);
  const now = () => ({ atMs: clock.now(), monotonicMs: clock.monotonic() });
  const started = live && { atMs: live.startedAtMs, monotonicMs: clock.monotonic() - clock.now() + live.startedAtMs };
  const names = options.sources.map((source) => source.name);
  const ofSources = <T>(report: (source: ConfiguredSource, liveSource: LiveSource | null) => Promise<T>) =>
    Promise.all(options.sources.map((source) => report(source, live?.source(source.name) ?? null)));
  async function sinks(): Promise<readonly SinkReport[]> {
    // Counting filtered events is expensive, so all open pages share one result.
    const lags = await cache.computed("lag", WATCHED_DATA_AGE_MS, () => store.outbox.lag(options.filterBySink));
    const liveSinks = live?.sinks() ?? [];
    return sinkReports(lags, liveSinks, options.sinks ?? liveSinks.map(({ name }) => name));
  }
  return {
    sinks,
    async health() {
      const time = { started, now: now() };
      const [sources, { file }] = await Promise.all([
        ofSources((source, liveSource) => sourceHealth(cache, source, liveSource, time)),
        cache.computed("store", SLOW_DATA_MS, store.describe),
      ]);
      return {
        now: isoUtc(time.now.atMs),
        sources,
        sinks: live?.sinks() ?? [],
        commands: live?.commands() ?? null,
        disk: diskSpace(file),
      };
    },
    async report() {
      const time = { started, now: now() };
      const [sources, sinkList, { file, bytes, damaged, copy = null }] = await Promise.all([
        ofSources((source, liveSource) => sourceReport(cache, source, liveSource, time)),
        sinks(),
        store.describe(),
      ]);
      const state = { file, bytes, ...diskSpace(file), copy, damaged };
      const commands = live?.commands() ?? null;
      const parts = { sources, sinks: sinkList, commands, store: state };
      return {
        version: options.version,
        now: isoUtc(time.now.atMs),
        startedAt: live && isoUtc(live.startedAtMs),
        notices: [...(live?.notices() ?? []), ...noticesOf(parts, time.now.atMs)],
        configuration: live?.configuration?.() ?? null,
        ...parts,
      };
    },
    async alarms() {
      const at = isoUtc(clock.now());
      const silences = (await getSilences(store)).filter((silence) => isActive(silence, at));
      return alarmRows(cache, names, options.sinks ?? [], silences);
    },
    async silences(scope) {
      return silenceRows(cache, names, await getSilences(store), isoUtc(clock.now()), scope);
    },
  };
}
