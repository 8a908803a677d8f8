import type { Clock } from "../../../core/runtime/clock.ts";
import { isOrderlyStop } from "../../../core/runtime/lifecycle.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { createWakeup, endsWithin, runLoop } from "../../../core/runtime/waiting.ts";
import type { FollowerRun } from "../job.ts";
import { hasOfflineGateway, hasSingleOnline, type StoredGateways } from "./gateways.ts";

const MIN_RECHECK_MS = 300_000;
/** Shorter than the interval of alarm polls, so that each poll with a new alarm can find the outage behind it. */
const ALARM_RECHECK_MS = 25_000;
/** Minimum time between two rechecks of a site while an offline gateway already explains its null values. */
const EXPLAINED_RECHECK_MS = 3_600_000;
const MAX_ALARM_WAIT_MS = 5_000;
const MAX_SITES_RECHECKED_AT_ONCE = 5;

/** Reads a site's gateways at once when many values turned null. No tag is linked to a gateway, so the site decides. */
export function createGatewayRecheck(options: {
  readonly read: (siteId: number, signal: AbortSignal) => Promise<void>;
  readonly isFollowed: (siteId: number) => boolean;
  readonly isExplained: (siteId: number) => boolean;
  readonly gateways: () => StoredGateways;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn" | "error">;
}) {
  const { clock, log } = options;
  const gatewayRecheckRequested = createWakeup();
  const sitesWaitingForRecheck = new Set<number>();
  const lastRecheckRequestMs = new Map<number, number>();
  const isRecheckDue = (siteId: number, everyMs: number) =>
    clock.monotonic() - (lastRecheckRequestMs.get(siteId) ?? Number.NEGATIVE_INFINITY) >= everyMs;

  async function recheckSites(siteIds: Iterable<number>, reason: string, signal: AbortSignal): Promise<void> {
    for (const siteId of siteIds) {
      sitesWaitingForRecheck.delete(siteId);
      log.info({ site: siteId, why: reason }, "the list of gateways of a site is read now");
      try {
        await options.read(siteId, signal);
      } catch (error) {
        if (isOrderlyStop(error) || signal.aborted) throw error;
        log.warn({ site: siteId, err: error }, "the list of gateways could not be read; the next poll reads it");
      }
    }
  }

  return {
    name: "gateway_recheck",
    ability: "read:gateways",
    request(siteId: number): void {
      if (!isRecheckDue(siteId, hasOfflineGateway(options.gateways(), siteId) ? EXPLAINED_RECHECK_MS : MIN_RECHECK_MS))
        return;
      if (!options.isFollowed(siteId) || options.isExplained(siteId)) return;
      lastRecheckRequestMs.set(siteId, clock.monotonic());
      sitesWaitingForRecheck.add(siteId);
      gatewayRecheckRequested.wakeUp();
    },
    /** Reads gateways of sites whose only gateway may explain new alarms, for 5 s at most; null without such sites. */
    beforeAlarms(siteIds: readonly number[], signal: AbortSignal): Promise<unknown> | null {
      const gateways = options.gateways();
      const sitesToRecheck = siteIds.filter(
        (siteId) =>
          hasSingleOnline(gateways, siteId) && options.isFollowed(siteId) && isRecheckDue(siteId, ALARM_RECHECK_MS),
      );
      if (sitesToRecheck.length === 0) return null;
      for (const siteId of sitesToRecheck) lastRecheckRequestMs.set(siteId, clock.monotonic());
      const sitesToRecheckLater = sitesToRecheck.slice(MAX_SITES_RECHECKED_AT_ONCE);
      for (const siteId of sitesToRecheckLater) sitesWaitingForRecheck.add(siteId);
      if (sitesToRecheckLater.length > 0) gatewayRecheckRequested.wakeUp();
      const sitesToRecheckNow = sitesToRecheck.slice(0, MAX_SITES_RECHECKED_AT_ONCE);
      return endsWithin(clock, MAX_ALARM_WAIT_MS, recheckSites(sitesToRecheckNow, "the site has a new alarm", signal));
    },
    async follow({ draining, forced }: FollowerRun): Promise<void> {
      const signal = AbortSignal.any([draining, forced]);
      await runLoop({
        clock,
        signal,
        wakeup: gatewayRecheckRequested,
        async turn() {
          await recheckSites(sitesWaitingForRecheck, "many values of the site turned null at once", signal);
          return Number.POSITIVE_INFINITY;
        },
        fault: (error) => log.error({ err: error }, "the gateways of a site could not be rechecked"),
      });
    },
  };
}
