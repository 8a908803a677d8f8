import type { Clock } from "../../clock.ts";
import { isStopping } from "../../lifecycle.ts";
import type { Log } from "../../log.ts";
import { createBell, loop } from "../../waiting.ts";
import type { Follower } from "../follower.ts";

/**
 * Reads the list of gateways of one site between two polls, because many of its values turned null at once: a gateway that
 * is offline is then known within seconds. The interface links no tag to a gateway, so the site decides.
 */
export interface GatewayRecheck extends Follower {
  /** Has the list of this site read soon; ignored while it would say nothing new. */
  request(siteId: number): void;
}

/** From one list of a site to the next, in milliseconds: no more often than the default schedule polls. */
const AGAIN_MS = 300_000;
/** The same while a gateway of the site is offline, which explains the nulls that are still to come. */
const EXPLAINED_MS = 3_600_000;

export function createGatewayRecheck(options: {
  readonly read: (siteId: number, signal: AbortSignal) => Promise<void>;
  /** Whether gateways of the site are polled at all. */
  readonly isFollowed: (siteId: number) => boolean;
  /** Whether the only gateway of the site is known to be offline. */
  readonly isExplained: (siteId: number) => boolean;
  /** Whether any gateway of the site is known to be offline. */
  readonly hasOffline: (siteId: number) => boolean;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn" | "error">;
}): GatewayRecheck {
  const { clock, log } = options;
  const requested = createBell();
  const waiting = new Set<number>();
  /** When each site was requested last, on the monotonic clock. */
  const requestedMs = new Map<number, number>();

  async function recheck(siteId: number, signal: AbortSignal): Promise<void> {
    log.info({ site: siteId }, "many values of a site turned null at once: its list of gateways is read now");
    try {
      await options.read(siteId, signal);
    } catch (error) {
      if (isStopping(error) || signal.aborted) throw error;
      log.warn(
        { site: siteId, err: error },
        "the list of gateways could not be read; the next poll reads it",
      );
    }
  }

  return {
    name: "gateway_recheck",
    ability: "read:gateways",
    request(siteId) {
      const nowMs = clock.monotonic();
      const sinceMs = nowMs - (requestedMs.get(siteId) ?? Number.NEGATIVE_INFINITY);
      if (sinceMs < (options.hasOffline(siteId) ? EXPLAINED_MS : AGAIN_MS)) return;
      if (!options.isFollowed(siteId) || options.isExplained(siteId)) return;
      requestedMs.set(siteId, nowMs);
      waiting.add(siteId);
      requested.ring();
    },
    async follow({ draining, forced }) {
      const signal = AbortSignal.any([draining, forced]);
      await loop({
        clock,
        signal,
        bell: requested,
        async turn() {
          for (const siteId of waiting) {
            waiting.delete(siteId);
            await recheck(siteId, signal);
          }
          return Number.POSITIVE_INFINITY;
        },
        fault: (error) => log.error({ err: error }, "reading the gateways of a site broke"),
      });
    },
  };
}
