import type { Alarm } from "../../building.ts";
import type { Clock } from "../../clock.ts";
import type { Failure } from "../../errors.ts";
import type { Log } from "../../log.ts";
import type { AlarmFilter, Source } from "../../source/source.ts";
import {
  collect,
  collectSteady,
  fingerprint,
  type Listing,
  lacksOnlyUnreadable,
  shownBy,
  union,
} from "../listing.ts";
import { perSite } from "../per-site.ts";
import type { Coverage } from "./diff-alarms.ts";
import { createSiteList, PAGES, type ReadHow, sameAs } from "./site-list.ts";

/** What the active lists of one poll show. */
export interface ActiveAlarms {
  readonly listed: readonly Alarm[];
  readonly coverage: (siteId: number) => Coverage;
  readonly failures: ReadonlyMap<number, Failure>;
  /** Why not everything is covered completely, as sentences. */
  readonly reasons: readonly string[];
  /** What a person should know of how it was read, as sentences. */
  readonly remarks: readonly string[];
  /** Records that cannot be read, each as the service sent it, cut. */
  readonly unreadable: readonly string[];
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
  /** What is held of an alarm. */
  readonly held: (id: string) => Alarm | undefined;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn">;
}

/** When the alarms of all sites would fill this share of a page, one list of them all is tried again. */
const FITS = 0.8;
const idOf = (alarm: Alarm) => alarm.id;

/**
 * One list of all sites while everything fits into one page: one request, and one answer that nothing can slip out
 * of. When it does not, a list for each site, so that most still come in one page each (site-list.ts).
 */
export function createAlarmList(options: AlarmListOptions): AlarmList {
  const { source, only, sites, held, clock, log } = options;
  const follows = (siteId: number) => only === null || only.includes(siteId);
  /** Records on a page that was not the last one; null while one page is enough for all sites. */
  let full: number | null = null;
  let perSiteLast = false;

  async function list(filter: Omit<AlarmFilter, "status">, careful: boolean, how: Partial<ReadHow>) {
    const { maxPages, twice = true, signal = new AbortController().signal } = how;
    const read = () => source.alarms({ status: "active", ...filter }, signal, held);
    const limit = maxPages === undefined ? {} : { maxPages };
    const settings = { idOf, keepsShown: true, ...limit };
    const listing = twice
      ? await collectSteady(read, { ...settings, sameAs, always: careful })
      : await collect(read(), settings);
    signal.throwIfAborted();
    return listing;
  }

  let carefully = false;
  const siteList = createSiteList({
    clock,
    log,
    read: (siteId, part, how) => list({ siteId, ...part }, carefully, how),
  });

  return {
    wasPerSite: () => perSiteLast,

    async read(careful, signal) {
      const followed = [...(only ?? sites())];
      let shown: readonly Alarm[] = [];
      perSiteLast = false;
      if (full === null) {
        const all = await list({}, careful, { signal, maxPages: followed.length > 1 ? 1 : PAGES });
        shown = shownBy(all).filter((alarm) => follows(alarm.site.id));
        // A record that does not say its site says it in the list of that site.
        const placed = shownBy(all).every((alarm) => alarm.site.id !== 0);
        const walked = all.complete || (all.brokenBy === undefined && all.shown !== null);
        if ((walked && placed) || followed.length === 0) {
          return {
            listed: shown,
            coverage: (siteId) => (follows(siteId) ? (placed ? coverageOf(all) : "moving") : "none"),
            failures: new Map(),
            reasons: reasonsOf([all]),
            remarks: [],
            unreadable: unreadableIn([all]),
          };
        }
        if (!walked) full = shownBy(all).length;
      }
      perSiteLast = true;
      carefully = careful;
      const visits = await perSite(followed, (siteId) => siteList.read(siteId, careful, signal), signal);
      const lists = [...visits.seen.values()].map(({ listing }) => listing);
      const listed = lists.flatMap(shownBy);
      if (full !== null && listed.length <= FITS * full && lists.every((one) => one.complete)) full = null;
      return {
        listed: [...listed, ...shown.filter((alarm) => visits.failures.has(alarm.site.id))],
        coverage: (siteId) => {
          const one = visits.seen.get(siteId);
          return one === undefined ? "none" : coverageOf(one.listing);
        },
        failures: visits.failures,
        reasons: reasonsOf(lists),
        remarks: [...visits.seen.values()].flatMap(({ remark }) => remark ?? []),
        unreadable: unreadableIn(lists),
      };
    },
  };
}

/** Two readings as one: both show what they show, and only where they agree they say that there is nothing else. */
export function bothReadings(first: ActiveAlarms, second: ActiveAlarms): ActiveAlarms {
  const ofSite = (seen: ActiveAlarms, siteId: number) =>
    fingerprint(
      seen.listed.filter((alarm) => alarm.site.id === siteId),
      sameAs,
    );
  return {
    listed: union(first.listed, second.listed, idOf),
    coverage(siteId) {
      const both = [first.coverage(siteId), second.coverage(siteId)];
      if (both.includes("none")) return both.every((one) => one === "none") ? "none" : "moving";
      const same = ofSite(first, siteId) === ofSite(second, siteId);
      return same && !both.includes("moving") ? "complete" : "moving";
    },
    failures: second.failures,
    reasons: second.reasons,
    remarks: second.remarks,
    unreadable: second.unreadable,
  };
}

/** Why lists have to be read again. Records that cannot be read are no reason: the next reading would show them, too. */
function reasonsOf(lists: readonly Listing<Alarm>[]): readonly string[] {
  return lists.flatMap((one) => (one.complete || lacksOnlyUnreadable(one) ? [] : [one.reason]));
}

function unreadableIn(lists: readonly Listing<Alarm>[]): readonly string[] {
  return lists.flatMap((one) => (one.complete ? [] : (one.unreadable ?? [])));
}

function coverageOf(listing: Listing<Alarm>): Coverage {
  if (listing.complete) return "complete";
  return listing.shown === null ? "none" : "moving";
}
