import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import type { Outbox } from "../store/store.ts";

/**
 * Space of the log that undelivered events take. Delivered events free it; when the rest fills the log, the oldest values are dropped,
 * so a warning comes early.
 */
export interface LogSpace {
  /** Asked every minute; `maxBytes` is what the log may take now. */
  look(maxBytes: number): Promise<void>;
  /** For a person; empty while there is room. */
  notices(): readonly string[];
}

/** Share of the log from which a warning is shown. */
const SCARCE = 0.8;
const MEBIBYTE = 1024 ** 2;

export function createLogSpace(options: {
  readonly outbox: Pick<Outbox, "lag" | "pressure">;
  readonly metrics: Pick<Metrics, "logBytes" | "logPendingBytes" | "logLimitBytes">;
  readonly log: Pick<Log, "warn">;
}): LogSpace {
  const { outbox, metrics, log } = options;
  let notice: string | null = null;

  return {
    async look(maxBytes) {
      const { bytes, pendingBytes } = await outbox.pressure();
      metrics.logBytes.set(bytes);
      metrics.logPendingBytes.set(pendingBytes);
      metrics.logLimitBytes.set(maxBytes);
      const wasScarce = notice !== null;
      const isScarce = pendingBytes >= SCARCE * maxBytes;
      notice = isScarce ? noticeOf(pendingBytes, maxBytes, await slowest()) : null;
      if (isScarce && !wasScarce) {
        log.warn({ pendingBytes, maxBytes }, "the log is nearly full of events that a sink has not got");
      }
    },
    notices: () => (notice === null ? [] : [notice]),
  };

  /** The sinks in use that have taken least. */
  async function slowest(): Promise<readonly string[]> {
    const inUse = (await outbox.lag()).filter(({ ended }) => ended === null);
    const least = Math.min(...inUse.map(({ position }) => position));
    return inUse.filter(({ position }) => position === least).map(({ sink }) => sink);
  }
}

function noticeOf(pendingBytes: number, maxBytes: number, sinks: readonly string[]): string {
  const mebibytes = (bytes: number) => (bytes / MEBIBYTE).toFixed(bytes < 10 * MEBIBYTE ? 1 : 0);
  const share = Math.floor((100 * pendingBytes) / maxBytes);
  return `The log of events is ${share} % full of what ${sinks.join(", ")} has not taken (${mebibytes(pendingBytes)} of ${mebibytes(maxBytes)} MiB). When it is full the oldest values are lost to it, alarms last: bring it back, end it with enabled: false, or raise state.max_bytes.`;
}
