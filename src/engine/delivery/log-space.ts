import type { Log } from "../../core/runtime/log.ts";
import type { Metrics } from "../../core/runtime/metrics.ts";
import type { Outbox } from "../store/store.ts";

const SCARCE = 0.8;
const MEBIBYTE = 1024 ** 2;

/** Warns before undelivered events fill the log; then the oldest values are dropped. */
export type LogSpace = ReturnType<typeof createLogSpace>;

export function createLogSpace(options: {
  readonly outbox: Pick<Outbox, "lag" | "pressure">;
  readonly metrics: Pick<Metrics, "logBytes" | "logPendingBytes" | "logLimitBytes">;
  readonly log: Pick<Log, "warn">;
}) {
  const { outbox, metrics, log } = options;
  let notice: string | null = null;

  async function slowest(): Promise<readonly string[]> {
    const inUse = (await outbox.lag()).filter(({ ended }) => ended === null);
    const least = Math.min(...inUse.map(({ position }) => position));
    return inUse.filter(({ position }) => position === least).map(({ sink }) => sink);
  }

  return {
    async look(maxBytes: number): Promise<void> {
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
    notices: (): readonly string[] => (notice === null ? [] : [notice]),
  };
}

function noticeOf(pendingBytes: number, maxBytes: number, sinks: readonly string[]): string {
  const mebibytes = (bytes: number) => (bytes / MEBIBYTE).toFixed(bytes < 10 * MEBIBYTE ? 1 : 0);
  const share = Math.floor((100 * pendingBytes) / maxBytes);
  return `The log of events is ${share} % full of what ${sinks.join(", ")} has not taken (${mebibytes(pendingBytes)} of ${mebibytes(maxBytes)} MiB). When it is full the oldest values are lost to it, alarms last: bring it back, end it with enabled: false, or raise state.max_bytes.`;
}
