import type { ConfigurationState } from "../../core/model/reload-facts.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { silencesIn } from "../../engine/silence/silence.ts";
import type { DamagedRows, SeenCopy, Store, Wanted } from "../../engine/store/store.ts";
import { createCachedDocuments, STEADY_MS, WATCHED_MS } from "./cached-documents.ts";
import { diskSpace } from "./disk.ts";
import { noticesOf } from "./notices.ts";
import { type AlarmRow, alarmRows } from "./rows.ts";
import { type AskedSilences, isActive, type SilenceRow, silenceRows } from "./silence-rows.ts";
import { type LiveSink, type SinkReport, sinkReports } from "./sink-report.ts";
import { type SourceHealth, sourceHealth } from "./source-health.ts";
import { type LiveSource, type ShownSource, type SourceReport, sourceReport } from "./source-report.ts";

/**
 * State of a worker for the web page, `plenum status`, health and metrics.
 *
 * Durable facts come from the store, so that they are available without a worker; facts of a running worker come through `LiveParts`.
 */
export interface StatusReport {
  readonly version: string;
  readonly now: string;
  /** Null when no worker is running: then the report is what the state folder remembers. */
  readonly startedAt: string | null;
  /** Name of the member of a fleet whose sources and sinks these are; absent where there is no fleet. */
  readonly member?: string;
  /** Sentences that a person should read, worst first; empty when all is well. */
  readonly notices: readonly string[];
  readonly sources: readonly SourceReport[];
  readonly sinks: readonly SinkReport[];
  readonly commands: CommandsReport | null;
  /** The configuration file and what became of its last change; null without a worker that can read it again. */
  readonly configuration: ConfigurationState | null;
  readonly store: {
    readonly file: string;
    readonly bytes: number;
    /** Bytes that are left on the disk for us; null where that cannot be known. */
    readonly free: number | null;
    /** Size of that disk, bytes; null where that cannot be known. */
    readonly diskBytes: number | null;
    /** Origin of a copied state; null when it is no known copy. */
    readonly copy: SeenCopy | null;
    /** Rows that were not what had been written and are kept apart since. */
    readonly damaged: readonly DamagedRows[];
  };
}

export interface CommandsReport {
  readonly enabled: boolean;
  readonly rehearsal: boolean;
  readonly stopped: boolean;
  readonly writable: number;
  readonly waiting: number;
}

/** Content of `/readyz` and `/metrics`, without reading the building. */
export interface StatusHealth {
  readonly now: string;
  readonly sources: readonly SourceHealth[];
  readonly sinks: readonly LiveSink[];
  readonly commands: CommandsReport | null;
  readonly disk: Pick<StatusReport["store"], "free" | "diskBytes">;
}

/** Parts that only a running worker has. */
export interface LiveParts {
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
  readonly sources: readonly ShownSource[];
  /** Configured sinks, to separate them from earlier ones; a running worker's own when absent. */
  readonly sinks?: readonly string[];
  /** Filters of the sinks; a sink without one gets everything. */
  readonly wanted?: ReadonlyMap<string, Wanted>;
  readonly live: LiveParts | null;
}

export interface Status {
  report(): Promise<StatusReport>;
  health(): Promise<StatusHealth>;
  alarms(): Promise<readonly AlarmRow[]>;
  sinks(): Promise<readonly SinkReport[]>;
  /** Active and future silences; never cached, so that a person sees a change at once. */
  silences(asked: AskedSilences): Promise<readonly SilenceRow[]>;
}

export function createStatus(options: StatusOptions): Status {
  const { clock, live, store } = options;
  const remembered = createCachedDocuments(store, clock);
  const started =
    live === null
      ? null
      : {
          atMs: live.startedAtMs,
          monotonicMs: clock.monotonic() - (clock.now() - live.startedAtMs),
        };
  const time = () => ({ started, now: { atMs: clock.now(), monotonicMs: clock.monotonic() } });
  const names = options.sources.map((source) => source.name);

  async function sinks(): Promise<readonly SinkReport[]> {
    // Counting what filters let through is worth doing once, however many pages are open.
    const lags = await remembered.made("lag", WATCHED_MS, () => store.outbox.lag(options.wanted));
    const running = live?.sinks() ?? [];
    return sinkReports(lags, running, options.sinks ?? running.map(({ name }) => name));
  }

  return {
    sinks,
    async health() {
      const now = clock.now();
      const [sources, { file }] = await Promise.all([
        Promise.all(
          options.sources.map((source) => sourceHealth(remembered, source, live?.source(source.name) ?? null, time())),
        ),
        remembered.made("store", STEADY_MS, store.describe),
      ]);
      const space = diskSpace(file);
      return {
        now: isoUtc(now),
        sources,
        sinks: live?.sinks() ?? [],
        commands: live?.commands() ?? null,
        disk: { free: space?.free ?? null, diskBytes: space?.size ?? null },
      };
    },
    async report() {
      const now = clock.now();
      const [sources, shownSinks, { file, bytes, damaged, copy = null }] = await Promise.all([
        Promise.all(
          options.sources.map((source) => sourceReport(remembered, source, live?.source(source.name) ?? null, time())),
        ),
        sinks(),
        store.describe(),
      ]);
      const space = diskSpace(file);
      const disk = { free: space?.free ?? null, diskBytes: space?.size ?? null };
      const kept = { file, bytes, ...disk, copy, damaged };
      const commands = live?.commands() ?? null;
      return {
        version: options.version,
        now: isoUtc(now),
        startedAt: live === null ? null : isoUtc(live.startedAtMs),
        notices: [
          ...(live?.notices() ?? []),
          ...noticesOf({ sources, sinks: shownSinks, commands, store: kept, nowMs: now }),
        ],
        sources,
        sinks: shownSinks,
        commands,
        configuration: live?.configuration?.() ?? null,
        store: kept,
      };
    },

    async alarms() {
      const at = isoUtc(clock.now());
      const silences = (await silencesIn(store)).filter((silence) => isActive(silence, at));
      return alarmRows(remembered, names, options.sinks ?? [], silences);
    },
    async silences(asked) {
      return silenceRows(remembered, names, await silencesIn(store), isoUtc(clock.now()), asked);
    },
  };
}
