import type { Failure } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { AlarmFilter, Source } from "../../source/source.ts";
import {
  collect,
  collectSteady,
  fingerprint,
  type Listing,
  lacksOnlyUnreadable,
  listedCoverage,
  union,
} from "../listing.ts";
import { perSite } from "../per-site.ts";
import type { Coverage } from "./diff-alarms.ts";
import { createPageTrust } from "./page-trust.ts";
import { createSiteList, type ReadHow, sameAs } from "./site-list.ts";

/** Active alarms of one poll. */
export interface ActiveAlarms {
  readonly listed: readonly Alarm[];
  readonly coverage: (siteId: number) => Coverage;
  /** False for several pages that were read once: an absence counts only when a second reading shows the same. */
  readonly isConfirmed: boolean;
  readonly failures: ReadonlyMap<number, Failure>;
  /** Why not everything is covered completely, as sentences. */
  readonly reasons: readonly string[];
  /** Messages for people about the reading. */
  readonly remarks: readonly string[];
  /** Records that cannot be read, each as the service sent it, cut. */
  readonly unreadable: readonly string[];
}

export interface ReadActive {
  /** Reads everything twice, however few pages. */
  readonly careful: boolean;
  /** Called with the followed alarms of each page before the next page is requested. */
  readonly onPage: (shown: readonly Alarm[]) => Promise<void>;
  readonly signal: AbortSignal;
}

export interface AlarmList {
  read(how: ReadActive): Promise<ActiveAlarms>;
  /** True when the last reading listed sites one by one: then only sites that are known were seen completely. */
  wasPerSite(): boolean;
}

export interface AlarmListOptions {
  readonly source: Source;
  /** The sites to follow; null for every one. */
  readonly only: readonly number[] | null;
  /** The sites that the token is known to see. */
  readonly sites: () => Iterable<number>;
  /** Returns the stored alarm. */
  readonly held: (id: string) => Alarm | undefined;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn">;
}

/** Most pages of the list of all sites: 100,000 alarms at 500 a page. */
const MOST_PAGES = 200;
/** Sites that one poll lists one by one: 20 s at 30 lists a minute, so that the next poll is not late. */
const SITES_PER_POLL = 10;
const idOf = (alarm: Alarm) => alarm.id;

/**
 * Reads the active alarms: one list of all sites, page by page. Where its pages cannot be trusted (page-trust.ts), they
 * show what they show, and what they do not show says nothing: then the sites are listed one by one (site-list.ts), ten
 * at each poll, so that most come in one page each.
 */
export function createAlarmList(options: AlarmListOptions): AlarmList {
  const { source, only, sites, held, clock, log } = options;
  const follows = (siteId: number) => only === null || only.includes(siteId);
  const trust = createPageTrust(clock, log);
  let perSiteLast = false;
  let isOneSite = false;
  let nextSite = 0;
  let current: Pick<ReadActive, "careful" | "onPage"> = { careful: false, onPage: async () => {} };

  function listOf(filter: Omit<AlarmFilter, "status">, maxPages: number, signal: AbortSignal) {
    const { onPage } = current;
    const shown = (items: readonly Alarm[]) => onPage(items.filter((alarm) => follows(alarm.site.id)));
    return {
      read: () => source.alarms({ status: "active", ...filter }, signal, held),
      settings: { idOf, keepsShown: true, maxPages, onPage: shown },
    };
  }

  async function steady(filter: Omit<AlarmFilter, "status">, maxPages: number, signal: AbortSignal) {
    const { read, settings } = listOf(filter, maxPages, signal);
    const listing = await collectSteady(read, { ...settings, sameAs, always: current.careful });
    signal.throwIfAborted();
    return listing;
  }

  async function once(filter: Omit<AlarmFilter, "status">, maxPages: number, signal: AbortSignal) {
    const { read, settings } = listOf(filter, maxPages, signal);
    const listing = await collect(read(), settings);
    signal.throwIfAborted();
    return listing;
  }

  const siteList = createSiteList({
    clock,
    log,
    isBroken: () => isOneSite && trust.distrust() !== null,
    read: (siteId, part, { maxPages, twice, signal }: ReadHow) =>
      twice ? steady({ siteId, ...part }, maxPages, signal) : once({ siteId, ...part }, maxPages, signal),
  });

  /** The list of all sites; null where not even its first page is worth a request. */
  async function readPaged({ careful, signal }: ReadActive) {
    // The list of the only site shows the same.
    if (isOneSite && !trust.isDue()) return null;
    if (!trust.leadsOn()) return once({}, 1, signal);
    const listing = careful ? await steady({}, MOST_PAGES, signal) : await once({}, MOST_PAGES, signal);
    trust.judge(listing, isOneSite);
    // A page that failed once or twice may come again: such a list proves no absence.
    if (!listing.complete && listing.failure !== undefined && trust.distrust() === null) throw listing.failure;
    return listing;
  }

  /** The next sites in turn; every one where they are few. */
  function inTurn(followed: readonly number[]): readonly number[] {
    if (followed.length <= SITES_PER_POLL) return followed;
    const from = nextSite % followed.length;
    nextSite = from + SITES_PER_POLL;
    return [...followed, ...followed].slice(from, from + SITES_PER_POLL);
  }

  return {
    wasPerSite: () => perSiteLast,

    async read(how) {
      current = how;
      const followed = [...(only ?? sites())];
      isOneSite = followed.length === 1;
      const paged = await readPaged(how);
      const shown = paged === null ? [] : listedCoverage(paged).filter((alarm) => follows(alarm.site.id));
      // A record that does not say its site says it in the list of that site.
      const isPlaced = paged === null || listedCoverage(paged).every((alarm) => alarm.site.id !== 0);
      const distrust = trust.distrust();
      perSiteLast = paged === null || distrust !== null || !isPlaced;
      if (paged !== null && (!perSiteLast || followed.length === 0)) {
        return {
          listed: shown,
          coverage: (siteId) => (follows(siteId) ? (isPlaced ? coverageOf(paged) : "moving") : "none"),
          isConfirmed: how.careful || !paged.complete || paged.pages === 1,
          failures: new Map(),
          reasons: reasonsOf([paged]),
          remarks: [],
          unreadable: unreadableIn([paged]),
        };
      }
      const listedNow = inTurn(followed);
      const visits = await perSite(listedNow, (siteId) => siteList.read(siteId, how.careful, how.signal), how.signal);
      const lists = [...visits.seen.values()].map(({ listing }) => listing);
      return {
        // Alarms of other sites were emitted when their pages arrived.
        listed: lists.flatMap(listedCoverage),
        coverage: (siteId) => {
          const one = visits.seen.get(siteId);
          return one === undefined ? "none" : coverageOf(one.listing);
        },
        isConfirmed: true,
        failures: visits.failures,
        reasons: reasonsOf(lists),
        remarks: [
          ...(distrust === null || followed.length <= 1
            ? []
            : [distrustOf(distrust, listedNow.length, followed.length)]),
          ...[...visits.seen.values()].flatMap(({ remark }) => remark ?? []),
        ],
        unreadable: [...unreadableIn(lists), ...(paged === null ? [] : unreadableIn([paged]))],
      };
    },
  };
}

function distrustOf(reason: string, sites: number, of: number): string {
  const how =
    sites === of ? "each site is listed by itself" : `sites are listed one by one, ${sites} of ${of} at each poll`;
  return `The pages of the list of active alarms cannot be trusted, so ${how}. ${reason}`;
}

/** Two readings as one: both show what they show, and only where they agree they say that there is nothing else. */
export function bothReadings(first: ActiveAlarms, second: ActiveAlarms): ActiveAlarms {
  const printsOf = ({ listed }: ActiveAlarms) => {
    const bySite = Map.groupBy(listed, (alarm) => alarm.site.id);
    return new Map([...bySite].map(([siteId, alarms]) => [siteId, fingerprint(alarms, sameAs)]));
  };
  const [one, two] = [printsOf(first), printsOf(second)];
  const isSame = (siteId: number) => one.get(siteId) === two.get(siteId);
  // Between pages a record can slip at one site because another site changed.
  const isPaged = !(first.isConfirmed && second.isConfirmed);
  const areSame = [...one.keys(), ...two.keys()].every(isSame);
  return {
    listed: union(first.listed, second.listed, idOf),
    coverage(siteId) {
      const both = [first.coverage(siteId), second.coverage(siteId)];
      if (both.includes("none")) return both.every((each) => each === "none") ? "none" : "moving";
      const agree = isPaged ? areSame : isSame(siteId);
      return agree && !both.includes("moving") ? "complete" : "moving";
    },
    isConfirmed: true,
    failures: second.failures,
    reasons: isPaged && !areSame ? [...second.reasons, "Two readings of the list differ."] : second.reasons,
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
