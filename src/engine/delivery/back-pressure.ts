import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import type { LogPressure, Outbox } from "../store/store.ts";

/** Share of the log that may wait for a sink while history is fetched. Small, because alarms wait behind history. */
const PAUSE_ABOVE_SHARE = 0.1;
const CONTINUE_BELOW_SHARE = 0.05;
/** Share of the log for one history response; several may be in flight. */
const HISTORY_RESPONSE_SHARE = 0.02;
const FULL_LOG_SHARE = 0.9;
/** Delivered events can be sent again for at least this long (docs/promise.md). */
const MIN_REPLAY_MS = 15 * 60_000;
const CHECK_INTERVAL_MS = 1_000;
const MEBIBYTE = 1024 ** 2;

/** Largest history response, so that the last response before a pause fits into the log. */
export function maxHistoryResponseBytes(maxBytes: number): number {
  return Math.floor(maxBytes * HISTORY_RESPONSE_SHARE);
}

export function areSinksBehind({ pendingBytes }: LogPressure, maxBytes: number, wasPaused: boolean): boolean {
  return pendingBytes > maxBytes * (wasPaused ? CONTINUE_BELOW_SHARE : PAUSE_ABOVE_SHARE);
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
  let isPaused = false;
  let pendingBytes = 0;
  let checkedAtMs = Number.NEGATIVE_INFINITY;
  let checkPromise: Promise<boolean> = Promise.resolve(true);

  const isFullOfRecentEvents = ({ bytes, oldestTelemetry }: LogPressure) =>
    bytes > maxBytes * FULL_LOG_SHARE &&
    oldestTelemetry !== null &&
    clock.now() - Date.parse(oldestTelemetry) < MIN_REPLAY_MS;

  async function checkPressure(): Promise<boolean> {
    const logPressure = await outbox.pressure();
    pendingBytes = logPressure.pendingBytes;
    const wasPaused = isPaused;
    isPaused = areSinksBehind(logPressure, maxBytes, wasPaused);
    if (isPaused && !wasPaused) log.warn({ bytes: pendingBytes }, "the backfill waits until the sinks have taken more");
    if (wasPaused && !isPaused) log.info({ bytes: pendingBytes }, "the backfill goes on");
    return !isPaused && !isFullOfRecentEvents(logPressure);
  }

  return {
    mayFetchPast(): Promise<boolean> {
      const nowMs = clock.monotonic();
      if (nowMs - checkedAtMs >= CHECK_INTERVAL_MS) {
        checkedAtMs = nowMs;
        checkPromise = checkPressure();
      }
      return checkPromise;
    },
    change(nextMaxBytes: number): void {
      maxBytes = nextMaxBytes;
      checkedAtMs = Number.NEGATIVE_INFINITY;
    },
    notices(): readonly string[] {
      if (!isPaused) return [];
      const mebibytes = (pendingBytes / MEBIBYTE).toFixed(0);
      return [
        `The past is not fetched for now, because ${mebibytes} MiB of events have not reached every sink; it goes on by itself, and nothing of it is lost.`,
      ];
    },
  };
}

const WARN_ABOVE_SHARE = 0.8;

/** Warns before undelivered events fill the log; then the oldest values are dropped. */
export type LogSpaceMonitor = ReturnType<typeof createLogSpaceMonitor>;

export function createLogSpaceMonitor(options: {
  readonly outbox: Pick<Outbox, "lag" | "pressure">;
  readonly metrics: Pick<Metrics, "logBytes" | "logPendingBytes" | "logLimitBytes">;
  readonly log: Pick<Log, "warn">;
}) {
  const { outbox, metrics, log } = options;
  let spaceWarning: string | null = null;

  async function findSlowestSinks(): Promise<readonly string[]> {
    const activeSinks = (await outbox.lag()).filter(({ ended }) => ended === null);
    const lowestPosition = Math.min(...activeSinks.map(({ position }) => position));
    return activeSinks.filter(({ position }) => position === lowestPosition).map(({ sink }) => sink);
  }

  return {
    async check(maxBytes: number): Promise<void> {
      const { bytes, pendingBytes } = await outbox.pressure();
      metrics.logBytes.set(bytes);
      metrics.logPendingBytes.set(pendingBytes);
      metrics.logLimitBytes.set(maxBytes);
      const wasScarce = spaceWarning !== null;
      const isScarce = pendingBytes >= WARN_ABOVE_SHARE * maxBytes;
      spaceWarning = isScarce ? formatSpaceWarning(pendingBytes, maxBytes, await findSlowestSinks()) : null;
      if (isScarce && !wasScarce) {
        log.warn({ pendingBytes, maxBytes }, "the log is nearly full of events that a sink has not got");
      }
    },
    notices: (): readonly string[] => (spaceWarning === null ? [] : [spaceWarning]),
  };
}

function formatSpaceWarning(pendingBytes: number, maxBytes: number, sinks: readonly string[]): string {
  const mebibytes = (bytes: number) => (bytes / MEBIBYTE).toFixed(bytes < 10 * MEBIBYTE ? 1 : 0);
  const share = Math.floor((100 * pendingBytes) / maxBytes);
  return `The log of events is ${share} % full of what ${sinks.join(", ")} has not taken (${mebibytes(pendingBytes)} of ${mebibytes(maxBytes)} MiB). When it is full the oldest values are lost to it, alarms last: bring it back, end it with enabled: false, or raise state.max_bytes.`;
}
