import type { Alarm } from "../../building.ts";
import type { Failure } from "../../errors.ts";
import type { Source } from "../../source/source.ts";
import { collectSteady, type Listing } from "../listing.ts";
import { perSite } from "../per-site.ts";
import type { Coverage } from "./diff-alarms.ts";
import { episodeOf } from "./episode.ts";

/** What the active lists of one poll show. */
export interface ActiveAlarms {
  readonly listed: readonly Alarm[];
  readonly coverage: (siteId: number) => Coverage;
  readonly failures: ReadonlyMap<number, Failure>;
  /** Why not everything is covered completely, as sentences. */
  readonly reasons: readonly string[];
}

export interface AlarmList {
  /** Reads the active alarms; `careful`: everything twice, however few pages. */
  read(careful: boolean, signal: AbortSignal): Promise<ActiveAlarms>;
  /** True when the last reading listed each site for itself: then only a site that is known of was seen. */
  wasPerSite(): boolean;
}

export interface AlarmListOptions {
  readonly source: Source;
  /** The sites to follow; null for every one. */
  readonly only: readonly number[] | null;
  /** The sites that the token is known to see. */
  readonly sites: () => Iterable<number>;
}

/** When the alarms of all sites would fill this share of a page, one list of them all is tried again. */
const FITS = 0.8;

/**
 * One list of all sites while everything fits into one page: one request, and one answer that nothing can slip out
 * of. When it does not, a list for each site, so that most still come in one page each.
 */
export function createAlarmList(options: AlarmListOptions): AlarmList {
  const { source, only, sites } = options;
  const follows = (siteId: number) => only === null || only.includes(siteId);
  /** Records on a page that was not the last one; null while one page is enough for all sites. */
  let full: number | null = null;
  let perSiteLast = false;

  const list = (siteId: number | null, careful: boolean, maxPages: number | null, signal: AbortSignal) =>
    collectSteady(() => source.alarms({ status: "active", ...(siteId === null ? {} : { siteId }) }, signal), {
      idOf: (alarm) => alarm.id,
      sameAs: (alarm) => `${episodeOf(alarm)} ${alarm.status}`,
      always: careful,
      ...(maxPages === null ? {} : { maxPages }),
    });

  return {
    wasPerSite: () => perSiteLast,

    async read(careful, signal) {
      const followed = [...(only ?? sites())];
      perSiteLast = false;
      if (full === null) {
        const all = await list(null, careful, followed.length > 1 ? 1 : null, signal);
        if (all.complete || all.shown !== null) {
          return {
            listed: (all.complete ? all.items : (all.shown ?? [])).filter((alarm) => follows(alarm.site.id)),
            coverage: (siteId) => (follows(siteId) ? coverageOf(all) : "none"),
            failures: new Map(),
            reasons: all.complete ? [] : [all.reason],
          };
        }
        full = all.count;
      }
      perSiteLast = true;
      const visits = await perSite(followed, (siteId) => list(siteId, careful, null, signal), signal);
      const lists = [...visits.seen.values()];
      const listed = lists.flatMap((one) => (one.complete ? one.items : (one.shown ?? [])));
      if (listed.length <= FITS * full && lists.every((one) => one.complete)) full = null;
      return {
        listed,
        coverage: (siteId) => {
          const one = visits.seen.get(siteId);
          return one === undefined ? "none" : coverageOf(one);
        },
        failures: visits.failures,
        reasons: lists.flatMap((one) => (one.complete ? [] : [one.reason])),
      };
    },
  };
}

function coverageOf(listing: Listing<Alarm>): Coverage {
  if (listing.complete) return "complete";
  return listing.shown === null ? "none" : "moving";
}
