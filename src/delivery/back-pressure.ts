import type { Log } from "../log.ts";
import type { Outbox } from "../store/store.ts";

/**
 * Whether more may be fetched of the past. While a sink has much to take still, a backfill would fill the log until
 * events that this sink has not got are dropped; at the service it stays where it is. What happens now goes on, and so
 * a sink that is down delays nothing but the backfill of the others.
 */
export interface BackPressure {
  mayFetchPast(): Promise<boolean>;
  /** Of what one request may bring at most, so that the last before a pause still has room. */
  readonly mostBytes: number;
  /** For a person; empty while nothing waits. */
  notices(): readonly string[];
}

/**
 * Of the bytes of the log that may be on their way to a sink: nothing is fetched above, and again below. Little, because
 * an alarm waits behind them, and because the rest is for what cannot be fetched again.
 */
const HELD_ABOVE = 0.1;
const FREE_BELOW = 0.05;
/** Of the log, one reply of history; a few may be under way. */
const REPLY_SHARE = 0.02;
const MEBIBYTE = 1024 ** 2;

export function createBackPressure(options: {
  readonly outbox: Pick<Outbox, "pendingBytes">;
  /** Bytes that the log may take. */
  readonly maxBytes: number;
  readonly log: Pick<Log, "info" | "warn">;
}): BackPressure {
  const { log, maxBytes, outbox } = options;
  let isHeld = false;
  let pending = 0;

  return {
    mostBytes: Math.floor(maxBytes * REPLY_SHARE),
    async mayFetchPast() {
      pending = await outbox.pendingBytes();
      const wasHeld = isHeld;
      isHeld = pending > maxBytes * (wasHeld ? FREE_BELOW : HELD_ABOVE);
      if (isHeld && !wasHeld)
        log.warn({ bytes: pending }, "the backfill waits until the sinks have taken more");
      if (wasHeld && !isHeld) log.info({ bytes: pending }, "the backfill goes on");
      return !isHeld;
    },
    notices: () =>
      isHeld
        ? [
            `The past is not fetched for now, because ${(pending / MEBIBYTE).toFixed(0)} MiB of events have not reached every sink; it goes on by itself, and nothing of it is lost.`,
          ]
        : [],
  };
}
