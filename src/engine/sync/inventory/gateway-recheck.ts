import type { Clock } from "../../../core/runtime/clock.ts";
import { isOrderlyStop } from "../../../core/runtime/lifecycle.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { createWakeup, endsWithin, runLoop } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { Source } from "../../source/source.ts";
import type { LoopJobRun } from "../job.ts";
import { type StoredGatewayCheck, syncSet } from "../stored-documents.ts";
import type { SyncState } from "../sync-state.ts";
import { findOnlyOnlineGateway, hasOfflineGateway, type StoredGateways } from "./gateways.ts";

const MIN_RECHECK_MS = 300_000;
/** Minimum time between two rechecks because of new alarms: less than the usual 30 s between alarm polls. */
const ALARM_RECHECK_MS = 25_000;
/** Minimum time between two rechecks of a site while an offline gateway already explains its null values. */
const EXPLAINED_RECHECK_MS = 3_600_000;
const MAX_ALARM_WAIT_MS = 5_000;
const MAX_SITES_RECHECKED_AT_ONCE = 5;

/** Reads a site's gateways at once when many values turn null: the service does not state which gateway a tag uses. */
export function createGatewayRecheck(options: {
  readonly readGateways: (siteId: number, signal: AbortSignal) => Promise<void>;
  readonly isFollowed: (siteId: number) => boolean;
  readonly hasOfflineGateway: (siteId: number) => boolean;
  readonly gateways: () => StoredGateways;
  readonly source: Pick<Source, "listRate" | "name">;
  readonly syncState: Pick<SyncState, "commit" | "get">;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn" | "error">;
}) {
  const { clock, log, syncState } = options;
  const gatewayRecheckRequested = createWakeup();
  const pendingCheckSet = syncSet("gateway-check", options.source.name);
  const storedPendingChecks = syncState.get<StoredGatewayCheck>(pendingCheckSet);
  /** Sites with new alarms whose gateways are not read yet. */
  const sitesWithUncheckedAlarms = new Set<number>();
  const sitesWaitingForRecheck = new Set<number>();
  let hasLastReadFailed = false;
  const lastRecheckRequestMs = new Map<number, number>();
  const hasOnlyGateway = (siteId: number) => findOnlyOnlineGateway(options.gateways(), siteId) !== null;
  const isRecheckDue = (siteId: number, everyMs: number) =>
    clock.monotonic() - (lastRecheckRequestMs.get(siteId) ?? Number.NEGATIVE_INFINITY) >= everyMs;

  async function recheckSites(siteIds: Iterable<number>, signal: AbortSignal): Promise<void> {
    for (const siteId of siteIds) {
      sitesWaitingForRecheck.delete(siteId);
      const hasAlarm = sitesWithUncheckedAlarms.has(siteId);
      const reason = hasAlarm ? "the site has a new alarm" : "many values of the site turned null at once";
      log.info({ site: siteId, why: reason }, "the list of gateways of a site is read now");
      try {
        await options.readGateways(siteId, signal);
        hasLastReadFailed = false;
      } catch (error) {
        if (isOrderlyStop(error) || signal.aborted) throw error;
        hasLastReadFailed = true;
        log.warn({ site: siteId, err: error }, "the list of gateways could not be read; the next poll reads it");
      }
      sitesWithUncheckedAlarms.delete(siteId);
      if (!storedPendingChecks.has(String(siteId))) continue;
      await syncState.commit({ documents: [{ set: pendingCheckSet, remove: [String(siteId)] }] });
    }
  }

  /**
   * Reads gateways for 5 s at most, then stores the unread sites, so that receivers delay messages about their alarms.
   * At 30 lists a minute, 56 sites can be read before receivers stop waiting. Stores none if lists fail or are slowed.
   */
  async function recheckSitesInTime(siteIds: readonly number[], signal: AbortSignal): Promise<void> {
    const sitesToRecheckNow = siteIds.slice(0, MAX_SITES_RECHECKED_AT_ONCE);
    for (const siteId of siteIds) sitesWithUncheckedAlarms.add(siteId);
    for (const siteId of siteIds.slice(MAX_SITES_RECHECKED_AT_ONCE)) sitesWaitingForRecheck.add(siteId);
    if (siteIds.length > MAX_SITES_RECHECKED_AT_ONCE) gatewayRecheckRequested.wakeUp();
    await endsWithin(clock, MAX_ALARM_WAIT_MS, recheckSites(sitesToRecheckNow, signal));
    const { configured, perMinute } = options.source.listRate();
    const maxPendingSites = hasLastReadFailed || perMinute < configured ? 0 : 2 * perMinute;
    const isPending = (siteId: number) => sitesWithUncheckedAlarms.has(siteId) && hasOnlyGateway(siteId);
    const uncheckedSites = siteIds.filter(isPending).slice(0, maxPendingSites);
    const since = isoUtc(clock.now());
    const put = uncheckedSites.map((siteId) => [String(siteId), { since }] as const);
    await syncState.commit({ documents: [{ set: pendingCheckSet, put }] });
    // Remove the sites whose gateways were read during the commit.
    const remove = uncheckedSites.filter((siteId) => !sitesWithUncheckedAlarms.has(siteId)).map(String);
    await syncState.commit({ documents: [{ set: pendingCheckSet, remove }] });
  }

  return {
    name: "gateway_recheck",
    ability: "read:gateways",
    requestRecheck(siteId: number): void {
      if (!isRecheckDue(siteId, hasOfflineGateway(options.gateways(), siteId) ? EXPLAINED_RECHECK_MS : MIN_RECHECK_MS))
        return;
      if (!options.isFollowed(siteId) || options.hasOfflineGateway(siteId)) return;
      lastRecheckRequestMs.set(siteId, clock.monotonic());
      sitesWaitingForRecheck.add(siteId);
      gatewayRecheckRequested.wakeUp();
    },
    /** Reads gateways of sites where a gateway may explain new alarms, for 5 s at most. */
    async recheckBeforeAlarms(siteIds: readonly number[], signal: AbortSignal): Promise<void> {
      // A late list helps only at a site with one gateway: receivers can still assign waiting alarms to that gateway.
      const sitesToRecheck = siteIds
        .filter((siteId) => options.isFollowed(siteId) && isRecheckDue(siteId, ALARM_RECHECK_MS))
        .filter((siteId, index) => index < MAX_SITES_RECHECKED_AT_ONCE || hasOnlyGateway(siteId));
      if (sitesToRecheck.length === 0) return;
      for (const siteId of sitesToRecheck) lastRecheckRequestMs.set(siteId, clock.monotonic());
      await recheckSitesInTime(sitesToRecheck, signal);
    },
    async follow({ draining, forced }: LoopJobRun): Promise<void> {
      const signal = AbortSignal.any([draining, forced]);
      await runLoop({
        clock,
        signal,
        wakeup: gatewayRecheckRequested,
        async step() {
          await recheckSites(sitesWaitingForRecheck, signal);
          return Number.POSITIVE_INFINITY;
        },
        onFault: (error) => log.error({ err: error }, "the gateways of a site could not be rechecked"),
      });
    },
  };
}
