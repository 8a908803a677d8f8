import type { Site } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { rejectOnAbort, runLoop } from "../../core/runtime/waiting.ts";
import { type DocumentChange, documentSet } from "../store/store.ts";
import type { ServiceAvailability } from "./availability.ts";
import type { ServiceOutage } from "./outage.ts";
import type { StoredObject, StoredToken } from "./snapshot.ts";
import type { SyncState } from "./sync-state.ts";
import type { TokenScope } from "./token-scope.ts";

/** Emits one event when a site leaves the token's scope and one when the site is back, until the signal aborts. */
export function watchLostSites(
  options: {
    readonly source: string;
    readonly availability: Pick<ServiceAvailability, "sitesDown" | "siteDown" | "siteUp" | "siteGone">;
    readonly outage: Pick<ServiceOutage, "over">;
    readonly scope: Pick<TokenScope, "known" | "lost" | "sees" | "changes">;
    readonly syncState: Pick<SyncState, "get">;
    readonly clock: Clock;
    readonly random?: (() => number) | undefined;
    readonly log: Pick<Log, "info" | "warn">;
  },
  signal: AbortSignal,
): Promise<void> {
  const { source, availability, outage, scope, syncState, clock, log } = options;
  const storedSites = () => syncState.get<StoredObject<Site>>(documentSet("site", source));

  /** Removes the loss from the stored token, because the next poll of the token may come after a restart. */
  function tokenWithVisibleSite(siteId: number): readonly DocumentChange[] {
    const tokenDocumentSet = documentSet("token", source);
    const oldToken = syncState.get<StoredToken>(tokenDocumentSet).get("token");
    if (oldToken === undefined) return [];
    const site = storedSites().get(String(siteId))?.value ?? { id: siteId, displayName: String(siteId) };
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
      const siteName = storedSites().get(id)?.value.displayName;
      await availability.siteDown(Number(id), since, describeLostSite(id, siteName));
      log.warn({ site: Number(id), since }, "the token does not see a site any more");
    }
    for (const siteId of reportedLostSites.keys()) {
      if (scope.sees(siteId)) {
        await availability.siteUp(siteId, tokenWithVisibleSite(siteId));
        log.info({ site: siteId }, "the token sees a site again");
      } else if (!lostSites.some(([id]) => Number(id) === siteId)) {
        await availability.siteGone(siteId);
      }
    }
  }

  return runLoop({
    clock,
    signal,
    ...(options.random && { random: options.random }),
    wakeup: scope.changes,
    async turn() {
      // During an outage, `source-available` comes first.
      await rejectOnAbort(outage.over(signal), signal);
      await emitLostSiteChanges();
      return Number.POSITIVE_INFINITY;
    },
    fault: (error, inMs) => log.warn({ err: error, inMs }, "a lost site could not be told; it is tried again"),
  });
}

function describeLostSite(id: string, name: string | undefined): string {
  return `The token does not see site ${id}${name === undefined ? "" : ` (${name})`} any more, so nothing of it is read. Have its user given the site again at the service, or leave the site out with inventory.sites.`;
}
