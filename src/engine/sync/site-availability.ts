import type { Gateway, Site } from "../../core/model/building.ts";
import {
  type Event,
  eventSubject,
  makeEvent,
  SERVICE_SUBJECT,
  type SiteStatus,
  sourceUri,
} from "../../core/model/event.ts";
import type { StaleReason } from "../../core/model/tag-event-data.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import {
  combineWakeups,
  createWakeup,
  rejectOnAbort,
  runLoop,
  type Wakeup,
  yieldUnlessAborted,
} from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { type DocumentChange, documentSet } from "../store/store.ts";
import { presentObjects } from "./inventory/gateways.ts";
import type { ServiceAvailability } from "./service-availability.ts";
import type { ServiceOutage } from "./service-outage.ts";
import {
  type StoredObject,
  type StoredSiteStatus,
  type StoredToken,
  type StoredUnavailability,
  syncSet,
} from "./stored-documents.ts";
import type { SyncState } from "./sync-state.ts";
import type { TokenScope } from "./token-scope.ts";

interface SiteWatchOptions {
  readonly source: string;
  readonly scope: TokenScope;
  readonly syncState: SyncState;
  readonly clock: Clock;
  readonly random: () => number;
  readonly log: Pick<Log, "info" | "warn">;
}

/** Emits one event when a site leaves the token's scope and one when the site is back, until the signal aborts. */
export function watchLostSites(
  options: SiteWatchOptions & { readonly availability: ServiceAvailability; readonly outage: ServiceOutage },
  signal: AbortSignal,
): Promise<void> {
  const { source, availability, outage, scope, syncState, clock, log } = options;
  const getStoredSites = () => syncState.get<StoredObject<Site>>(documentSet("site", source));

  /** Makes the site visible in the stored token, because a restart may come before the next poll of the token. */
  function addSiteToStoredToken(siteId: number): readonly DocumentChange[] {
    const tokenDocumentSet = documentSet("token", source);
    const oldToken = syncState.get<StoredToken>(tokenDocumentSet).get("token");
    if (oldToken === undefined) return [];
    const site = getStoredSites().get(String(siteId))?.value ?? { id: siteId, displayName: String(siteId) };
    const { [String(siteId)]: _, ...lost } = oldToken.lost ?? {};
    const otherSites = oldToken.info.sites.filter(({ id }) => id !== siteId);
    const updatedToken: StoredToken = { ...oldToken, info: { ...oldToken.info, sites: [...otherSites, site] }, lost };
    return [{ set: tokenDocumentSet, put: [["token", updatedToken]] }];
  }

  async function emitLostSiteChanges(): Promise<void> {
    if (scope.known() === null) return;
    const lostSites = Object.entries(scope.lost()).filter(([name]) => /^\d+$/.test(name));
    const reportedLostSites = availability.sitesDown();
    for (const [id, since] of lostSites) {
      if (reportedLostSites.has(Number(id))) continue;
      const siteName = getStoredSites().get(id)?.value.displayName;
      await availability.siteDown(Number(id), since, describeLostSite(id, siteName));
      log.warn({ site: Number(id), since }, "the token does not see a site any more");
    }
    for (const siteId of reportedLostSites.keys()) {
      if (scope.sees(siteId)) {
        await availability.siteUp(siteId, addSiteToStoredToken(siteId));
        log.info({ site: siteId }, "the token sees a site again");
      } else if (!lostSites.some(([id]) => Number(id) === siteId)) {
        await availability.siteGone(siteId);
      }
    }
  }

  return runLoop({
    clock,
    signal,
    random: options.random,
    wakeup: scope.changes,
    async step() {
      // Wait for the end of an outage, so that `source-available` is emitted before events about single sites.
      await rejectOnAbort(outage.over(signal), signal);
      await emitLostSiteChanges();
      return Number.POSITIVE_INFINITY;
    },
    onFault: (error, inMs) => log.warn({ err: error, inMs }, "a lost site could not be told; it is tried again"),
  });
}

function describeLostSite(id: string, name: string | undefined): string {
  return `The token does not see site ${id}${name === undefined ? "" : ` (${name})`} any more, so nothing of it is read. Have its user given the site again at the service, or leave the site out with inventory.sites.`;
}

/** Reason of stale values that concerns the service or the token, and no single tag, gateway or site. */
export type UnreadableReason = Extract<StaleReason, "no-ability" | "source-unavailable">;

/**
 * Visible sites of which every known value is stale, with the reason. Null instead of `source-unavailable` until a read
 * fails after an outage or a restart.
 */
export type UnreadableSites = ReadonlyMap<number, UnreadableReason | null>;

/** State of the live reads on which the status of sites depends. */
export interface ValueReadability {
  /** Runs until its signal aborts, also during an outage. */
  readonly watchStaleValues: (signal: AbortSignal) => Promise<void>;
  /** Null before the values are known. */
  readonly unreadableSites: () => UnreadableSites | null;
  readonly unreadableSitesChanged: Wakeup;
}

interface SiteCondition {
  readonly status: SiteStatus;
  readonly reason: string | null;
  readonly since?: string;
}

const SITE_STATUSES_PER_COMMIT = 250;
const NAMED_GATEWAYS_MAX = 3;
const UNREADABLE_TEXTS: Readonly<Record<UnreadableReason, string>> = {
  "no-ability": "The token may not read values: it lacks read:tags.",
  "source-unavailable": "The service does not return values of the site.",
};

/** Emits `site-status-changed` for each known site, and after each change of its status, until the signal aborts. */
export function watchSiteStatuses(
  options: SiteWatchOptions & {
    /** Returns true when the gateways of a new site are listed, or cannot be listed. */
    readonly areGatewaysKnown: () => boolean;
    readonly readability: ValueReadability;
  },
  signal: AbortSignal,
): Promise<void> {
  const { source, syncState, scope, readability, clock, log } = options;
  const statusSet = syncSet("site-status", source);
  const siteSet = documentSet("site", source);
  const gatewaySet = documentSet("gateway", source);
  const availabilitySet = syncSet("availability", source);
  const pollSet = documentSet("poll", source);
  const statusCauseChanged = createWakeup();
  let wereGatewaysKnown = false;
  for (const setName of [siteSet, gatewaySet, availabilitySet]) syncState.observe(setName, statusCauseChanged.wakeUp);
  syncState.observe(pollSet, () => wereGatewaysKnown || statusCauseChanged.wakeUp());

  function findServiceOutage(): SiteCondition | null {
    const outage = syncState.get<StoredUnavailability>(availabilitySet).get(SERVICE_SUBJECT);
    if (outage === undefined) return null;
    return { status: "offline", reason: `The service is unavailable. ${outage.reason}`, since: outage.since };
  }

  function judgeSite(siteId: number, gateways: readonly Gateway[], lostSiteTimes: Readonly<Record<string, string>>) {
    const since = lostSiteTimes[String(siteId)];
    if (!scope.sees(siteId))
      return { status: "offline", reason: "The token does not see the site.", ...(since && { since }) } as const;
    const gatewayCondition = judgeGateways(gateways);
    const reason = readability.unreadableSites()?.get(siteId);
    if (reason == null || gatewayCondition.status === "offline") return gatewayCondition;
    return { status: "degraded", reason: UNREADABLE_TEXTS[reason] } as const;
  }

  /** After an outage or a restart, a site keeps its status until its values are read or known to be unreadable. */
  function isStatusUnsettled(siteId: number, before: StoredSiteStatus | undefined, condition: SiteCondition): boolean {
    if (before === undefined || before.status === "online" || condition.status !== "online") return false;
    const unreadableSites = readability.unreadableSites();
    return unreadableSites === null || unreadableSites.get(siteId) === null;
  }

  function* findStatusChanges(): Generator<readonly [string, StoredSiteStatus, Event]> {
    const outage = findServiceOutage();
    const lostSiteTimes = scope.lost();
    const storedStatuses = syncState.get<StoredSiteStatus>(statusSet);
    const gateways = presentObjects(syncState.get<StoredObject<Gateway>>(gatewaySet));
    const gatewaysBySite = Map.groupBy(gateways, (gateway) => gateway.siteId);
    const areGatewaysKnown = options.areGatewaysKnown();
    wereGatewaysKnown = areGatewaysKnown;
    for (const [id, { value: site, missingSince }] of syncState.get<StoredObject<Site>>(siteSet)) {
      const before = storedStatuses.get(id);
      const siteGateways = gatewaysBySite.get(site.id)?.map(({ value }) => value) ?? [];
      const condition = outage ?? judgeSite(site.id, siteGateways, lostSiteTimes);
      const isSameName = before?.name === undefined || before.name === site.displayName;
      if (before?.status === condition.status && before.reason === condition.reason && isSameName) continue;
      if (condition !== outage && isStatusUnsettled(site.id, before, condition)) continue;
      const isNew = before === undefined;
      if (isNew && (missingSince !== null || (outage === null && siteGateways.length === 0 && !areGatewaysKnown)))
        continue;
      yield buildStatusChange(site, condition, before);
    }
  }

  function buildStatusChange(site: Site, condition: SiteCondition, before: StoredSiteStatus | undefined) {
    const { status, reason } = condition;
    const time = isoUtc(clock.now());
    const since = before?.status === status ? before.since : (condition.since ?? time);
    const id = String(site.id);
    const eventFields = { source: sourceUri(source), subject: eventSubject("site", null, id), siteId: site.id, time };
    const data = { site, status, reason, since };
    const event = makeEvent({ type: "site-status-changed", ...eventFields, data, facts: [status, since, time] });
    return [id, { status, reason, since, name: site.displayName }, event] as const;
  }

  function findRemovedSites(): readonly string[] {
    const sites = syncState.get(siteSet);
    return [...syncState.get(statusSet).keys()].filter((id) => !sites.has(id));
  }

  return runLoop({
    clock,
    signal,
    random: options.random,
    wakeup: combineWakeups(statusCauseChanged, scope.changes, readability.unreadableSitesChanged),
    async step() {
      const removedIds = findRemovedSites();
      if (removedIds.length > 0) await syncState.commit({ documents: [{ set: statusSet, remove: removedIds }] });
      const statusChanges = [...findStatusChanges()];
      for (let start = 0; start < statusChanges.length; start += SITE_STATUSES_PER_COMMIT) {
        if (start > 0) await yieldUnlessAborted(clock, signal);
        const batch = statusChanges.slice(start, start + SITE_STATUSES_PER_COMMIT);
        const put = batch.map(([id, status]) => [id, status] as const);
        await syncState.commit({ documents: [{ set: statusSet, put }], events: batch.map(([, , event]) => event) });
      }
      return Number.POSITIVE_INFINITY;
    },
    onFault: (error, inMs) =>
      log.warn({ err: error, inMs }, "the status of sites could not be stored; this is tried again"),
  });
}

/** A site is offline without any online gateway, and degraded while some of its gateways are offline. */
function judgeGateways(gateways: readonly Gateway[]): SiteCondition {
  const offline = gateways.filter(({ online }) => online === false).map(({ displayName }) => displayName);
  if (offline.length === 0) return { status: "online", reason: null };
  if (gateways.length === 1) return { status: "offline", reason: `The only gateway (${offline[0]}) is offline.` };
  if (offline.length === gateways.length)
    return { status: "offline", reason: `All ${offline.length} gateways are offline.` };
  const names = offline.sort().slice(0, NAMED_GATEWAYS_MAX).join(", ");
  const suffix = offline.length > NAMED_GATEWAYS_MAX ? ", …" : "";
  return { status: "degraded", reason: `${offline.length} of ${gateways.length} gateways offline: ${names}${suffix}.` };
}
