import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import type { LogPressure, Outbox } from "../store/store.ts";

/**
 * Whether more may be fetched of the past. While a sink has much to take still, a backfill would fill the log until
 * events that this sink has not got are dropped; at the service it stays where it is. Nor may it push out what sinks
 * have taken just now, because some lose it when they crash. What happens now goes on, and so a sink that is down
 * delays nothing but the backfill of the others.
 */
export interface BackPressure {
  mayFetchPast(): Promise<boolean>;
  /** Other bytes that the log may take. */
  change(maxBytes: number): void;
  /** For a person; empty while nothing waits. */
  notices(): readonly string[];
}

/**
 * Share of the log that may wait for a sink: above it no history is fetched. Small, because an alarm waits behind it, and the
 * rest is for events that cannot be fetched again.
 */
const HELD_ABOVE = 0.1;
const FREE_BELOW = 0.05;
/** Share of the log of one history response; several may be in flight. */
const REPLY_SHARE = 0.02;
/** From here on a log counts as full, and the next large step of retention is near. */
const FULL = 0.9;
/** Delivered events can be sent again for at least this long (docs/promise.md), in milliseconds. */
const REPLAY_LEAST_MS = 15 * 60_000;
/** Lifetime of the cached size of the log, in milliseconds. */
const SAME_MS = 1_000;
const MEBIBYTE = 1024 ** 2;

/** Bytes that one reply of history may have, so that the last before a pause still fits into a log of so many bytes. */
export function largestReply(maxBytes: number): number {
  return Math.floor(maxBytes * REPLY_SHARE);
}

/** Whether a backfill waits for the sinks, when it has not, or has, waited before. */
export function isBehind({ pendingBytes }: LogPressure, maxBytes: number, wasHeld: boolean): boolean {
  return pendingBytes > maxBytes * (wasHeld ? FREE_BELOW : HELD_ABOVE);
}

export function createBackPressure(options: {
  readonly outbox: Pick<Outbox, "pressure">;
  /** Bytes that the log may take. */
  readonly maxBytes: number;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn">;
}): BackPressure {
  const { clock, log, outbox } = options;
  let { maxBytes } = options;
  let isHeld = false;
  let pendingBytes = 0;
  let lookedAtMs = Number.NEGATIVE_INFINITY;
  let looked: Promise<boolean> = Promise.resolve(true);

  const isYoung = ({ bytes, oldestTelemetry }: LogPressure) =>
    bytes > maxBytes * FULL && oldestTelemetry !== null && clock.now() - Date.parse(oldestTelemetry) < REPLAY_LEAST_MS;

  async function look(): Promise<boolean> {
    const pressure = await outbox.pressure();
    pendingBytes = pressure.pendingBytes;
    const wasHeld = isHeld;
    isHeld = isBehind(pressure, maxBytes, wasHeld);
    if (isHeld && !wasHeld) log.warn({ bytes: pendingBytes }, "the backfill waits until the sinks have taken more");
    if (wasHeld && !isHeld) log.info({ bytes: pendingBytes }, "the backfill goes on");
    return !isHeld && !isYoung(pressure);
  }

  return {
    mayFetchPast() {
      const nowMs = clock.monotonic();
      if (nowMs - lookedAtMs >= SAME_MS) {
        lookedAtMs = nowMs;
        looked = look();
      }
      return looked;
    },
    change(next) {
      maxBytes = next;
      lookedAtMs = Number.NEGATIVE_INFINITY;
    },
    notices: () =>
      isHeld
        ? [
            `The past is not fetched for now, because ${(pendingBytes / MEBIBYTE).toFixed(0)} MiB of events have not reached every sink; it goes on by itself, and nothing of it is lost.`,
          ]
        : [],
  };
}
