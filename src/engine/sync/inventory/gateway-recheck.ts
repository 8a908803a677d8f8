import type { Clock } from "../../../core/runtime/clock.ts";
import { isStopping } from "../../../core/runtime/lifecycle.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { createWakeup, loop, within } from "../../../core/runtime/waiting.ts";
import type { Follower } from "../job.ts";

/**
 * Reads the list of gateways of one site between two polls, because many of its values turned null at once: a gateway that
 * is offline is then known within seconds. The interface links no tag to a gateway, so the site decides.
 */
export interface GatewayRecheck extends Follower {
  /** Has the list of this site read soon; ignored while it would say nothing new. */
  request(siteId: number): void;
  /**
   * Reads the gateway lists of sites with new alarms and one gateway that is not known as offline, so that the alarms can be
   * attributed to it. Waits 5 seconds at most; the rest is read later. Null when there is nothing to read.
   */
  beforeAlarms(siteIds: readonly number[], signal: AbortSignal): Promise<unknown> | null;
}

/** From one list of a site to the next, in milliseconds: no more often than the default schedule polls. */
const AGAIN_MS = 300_000;
/** The same for the only gateway of a site with new alarms: a burst may begin with one of them. */
const ALARMS_AGAIN_MS = 60_000;
/** New alarms wait so long for the lists, in milliseconds, and for so many sites. */
const ALARMS_WAIT_MS = 5_000;
const ALARMS_SITES = 5;
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
  /** Whether the site has exactly one gateway, and it is not known to be offline. */
  readonly hasOnlyOneOnline: (siteId: number) => boolean;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn" | "error">;
}): GatewayRecheck {
  const { clock, log } = options;
  const requested = createWakeup();
  const waiting = new Set<number>();
  /** When each site was requested last, on the monotonic clock. */
  const requestedMs = new Map<number, number>();

  async function recheck(siteId: number, why: string, signal: AbortSignal): Promise<void> {
    log.info({ site: siteId, why }, "the list of gateways of a site is read now");
    try {
      await options.read(siteId, signal);
    } catch (error) {
      if (isStopping(error) || signal.aborted) throw error;
      log.warn({ site: siteId, err: error }, "the list of gateways could not be read; the next poll reads it");
    }
  }

  async function oneByOne(siteIds: readonly number[], signal: AbortSignal): Promise<void> {
    for (const siteId of siteIds) await recheck(siteId, "the site has a new alarm", signal);
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
      requested.wakeUp();
    },
    beforeAlarms(siteIds, signal) {
      const nowMs = clock.monotonic();
      const due = siteIds.filter(
        (siteId) =>
          options.hasOnlyOneOnline(siteId) &&
          options.isFollowed(siteId) &&
          nowMs - (requestedMs.get(siteId) ?? Number.NEGATIVE_INFINITY) >= ALARMS_AGAIN_MS,
      );
      for (const siteId of due) requestedMs.set(siteId, nowMs);
      if (due.length === 0) return null;
      const first = due.slice(0, ALARMS_SITES);
      for (const siteId of due.slice(ALARMS_SITES)) waiting.add(siteId);
      if (due.length > first.length) requested.wakeUp();
      return within(clock, ALARMS_WAIT_MS, oneByOne(first, signal));
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
            await recheck(siteId, "many values of the site turned null at once", signal);
          }
          return Number.POSITIVE_INFINITY;
        },
        fault: (error) => log.error({ err: error }, "reading the gateways of a site broke"),
      });
    },
  };
}
