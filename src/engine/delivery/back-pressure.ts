import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import type { EventLogPressure, Outbox } from "../store/store.ts";

/** Backfill pauses when undelivered events fill this fraction of the log, because alarms wait behind history. */
const BACKFILL_PAUSE_LOG_SHARE = 0.1;
const BACKFILL_RESUME_LOG_SHARE = 0.05;
const HISTORY_RESPONSE_LOG_SHARE = 0.02;
const FULL_EVENT_LOG_SHARE = 0.9;
/** Time for which delivered events stay in the log, so that they can be sent again (docs/promise.md). */
const MIN_EVENT_RETENTION_MS = 15 * 60_000;
const LOG_PRESSURE_CHECK_MS = 1_000;
const BYTES_PER_MEBIBYTE = 1024 ** 2;

/** Returns the size limit of a history response, so that the last response before a pause fits into the log. */
export function maxHistoryResponseBytes(maxBytes: number): number {
  return Math.floor(maxBytes * HISTORY_RESPONSE_LOG_SHARE);
}

export function areSinksBehind({ pendingBytes }: EventLogPressure, maxBytes: number, wasPaused: boolean): boolean {
  return pendingBytes > maxBytes * (wasPaused ? BACKFILL_RESUME_LOG_SHARE : BACKFILL_PAUSE_LOG_SHARE);
}

/** Pauses a backfill while a sink is far behind, because a full log drops events; the service keeps its history. */
export type BackPressure = ReturnType<typeof createBackPressure>;

export function createBackPressure(options: {
  readonly outbox: Pick<Outbox, "pressure">;
  readonly maxBytes: number;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn">;
}) {
  const { clock, log, outbox } = options;
  let { maxBytes } = options;
  let isBackfillPaused = false;
  let pendingBytes = 0;
  let pressureCheckedAtMs = Number.NEGATIVE_INFINITY;
  let mayBackfillPromise: Promise<boolean> = Promise.resolve(true);

  const isLogFullOfRecentEvents = ({ bytes, oldestTelemetry }: EventLogPressure) =>
    bytes > maxBytes * FULL_EVENT_LOG_SHARE &&
    oldestTelemetry !== null &&
    clock.now() - Date.parse(oldestTelemetry) < MIN_EVENT_RETENTION_MS;

  async function checkLogPressure(): Promise<boolean> {
    const logPressure = await outbox.pressure();
    pendingBytes = logPressure.pendingBytes;
    const wasBackfillPaused = isBackfillPaused;
    isBackfillPaused = areSinksBehind(logPressure, maxBytes, wasBackfillPaused);
    if (isBackfillPaused && !wasBackfillPaused)
      log.warn({ bytes: pendingBytes }, "the backfill pauses until the sinks have received more events");
    if (wasBackfillPaused && !isBackfillPaused) log.info({ bytes: pendingBytes }, "the backfill continues");
    return !isBackfillPaused && !isLogFullOfRecentEvents(logPressure);
  }

  return {
    mayFetchHistory(): Promise<boolean> {
      const nowMs = clock.monotonic();
      if (nowMs - pressureCheckedAtMs >= LOG_PRESSURE_CHECK_MS) {
        pressureCheckedAtMs = nowMs;
        mayBackfillPromise = checkLogPressure();
      }
      return mayBackfillPromise;
    },
    setMaxBytes(nextMaxBytes: number): void {
      maxBytes = nextMaxBytes;
      pressureCheckedAtMs = Number.NEGATIVE_INFINITY;
    },
    notices(): readonly string[] {
      if (!isBackfillPaused) return [];
      const pendingMebibytes = (pendingBytes / BYTES_PER_MEBIBYTE).toFixed(0);
      return [
        `The past is not fetched for now, because ${pendingMebibytes} MiB of events have not reached every sink; it goes on by itself, and nothing of it is lost.`,
      ];
    },
  };
}

const LOG_SPACE_WARNING_SHARE = 0.8;

/** Warns before undelivered events fill the log, because a full log drops the oldest values. */
export type LogSpaceMonitor = ReturnType<typeof createLogSpaceMonitor>;

export function createLogSpaceMonitor(options: {
  readonly outbox: Pick<Outbox, "lag" | "pressure">;
  readonly metrics: Pick<Metrics, "logBytes" | "logPendingBytes" | "logLimitBytes">;
  readonly log: Pick<Log, "warn">;
}) {
  const { outbox, metrics, log } = options;
  let logSpaceWarning: string | null = null;

  async function findSlowestSinks(): Promise<readonly string[]> {
    const activeSinks = (await outbox.lag()).filter(({ ended }) => ended === null);
    const lowestSinkPosition = Math.min(...activeSinks.map(({ position }) => position));
    return activeSinks.filter(({ position }) => position === lowestSinkPosition).map(({ sink }) => sink);
  }

  return {
    async check(maxBytes: number): Promise<void> {
      const { bytes, pendingBytes } = await outbox.pressure();
      metrics.logBytes.set(bytes);
      metrics.logPendingBytes.set(pendingBytes);
      metrics.logLimitBytes.set(maxBytes);
      const wasLogSpaceScarce = logSpaceWarning !== null;
      const isLogSpaceScarce = pendingBytes >= LOG_SPACE_WARNING_SHARE * maxBytes;
      logSpaceWarning = isLogSpaceScarce ? formatSpaceWarning(pendingBytes, maxBytes, await findSlowestSinks()) : null;
      if (isLogSpaceScarce && !wasLogSpaceScarce) {
        log.warn({ pendingBytes, maxBytes }, "the event log is nearly full of events that a sink has not received");
      }
    },
    notices: (): readonly string[] => (logSpaceWarning === null ? [] : [logSpaceWarning]),
  };
}

function formatSpaceWarning(pendingBytes: number, maxBytes: number, sinks: readonly string[]): string {
  const toMebibytes = (bytes: number) => (bytes / BYTES_PER_MEBIBYTE).toFixed(bytes < 10 * BYTES_PER_MEBIBYTE ? 1 : 0);
  const filledPercent = Math.floor((100 * pendingBytes) / maxBytes);
  return `The log of events is ${filledPercent} % full of what ${sinks.join(", ")} has not taken (${toMebibytes(pendingBytes)} of ${toMebibytes(maxBytes)} MiB). When it is full the oldest values are lost to it, alarms last: bring it back, end it with enabled: false, or raise state.max_bytes.`;
}
