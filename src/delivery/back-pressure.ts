import type { Log } from "../log.ts";
import type { Outbox } from "../store/store.ts";

/**
 * Whether more may be fetched of what the service keeps anyway. While a sink has much to take still, the past would
 * fill the log until events that this sink has not got are dropped; at the service it stays where it is.
 */
export interface BackPressure {
  mayFetch(): Promise<boolean>;
  /** Of what one request may bring at most, so that the last before a pause still has room. */
  readonly mostBytes: number;
  /** For a person; empty while nothing waits. */
  notices(): readonly string[];
}

/** Of the bytes of the log that may be on their way to a sink: nothing is fetched above, and again below. */
const HELD_ABOVE = 0.5;
const FREE_BELOW = 0.4;
/** Of the log, one reply of history; a few may be under way. */
const REPLY_SHARE = 0.1;
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
    async mayFetch() {
      pending = await outbox.pendingBytes();
      const wasHeld = isHeld;
      isHeld = pending > maxBytes * (wasHeld ? FREE_BELOW : HELD_ABOVE);
      if (isHeld && !wasHeld) log.warn({ bytes: pending }, "history waits until the sinks have taken more");
      if (wasHeld && !isHeld) log.info({ bytes: pending }, "history goes on");
      return !isHeld;
    },
    notices: () =>
      isHeld
        ? [
            `History is not fetched for now, because ${(pending / MEBIBYTE).toFixed(0)} MiB of events have not reached every sink; it goes on by itself, and nothing of it is lost.`,
          ]
        : [],
  };
}
