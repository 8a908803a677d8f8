import type { Failure } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import type { AlarmFilter } from "../../source/source.ts";
import { documentSet } from "../../store/store.ts";
import { collect, collectTwice, fingerprint, type Listing, lacksOnlyUnreadable, recordsOf, union } from "../listing.ts";
import { perSite } from "../per-site.ts";
import type { PollParts } from "../poll-parts.ts";
import type { StoredAlarm } from "../snapshot.ts";
import type { Coverage } from "./diff-alarms.ts";
import { createPageTrust } from "./page-trust.ts";
import { createSiteListReader, idOf, type ReadActive, type ReadLimits, stateOf } from "./site-list.ts";

export interface ActiveAlarms {
  readonly listed: readonly Alarm[];
  readonly coverage: (siteId: number) => Coverage;
  /** False for several pages that were read once: an absence counts only when a second reading shows the same. */
  readonly isConfirmed: boolean;
  readonly failures: ReadonlyMap<number, Failure>;
  readonly reasons: readonly string[];
  readonly remarks: readonly string[];
  readonly unreadable: readonly string[];
}

/** Most pages of the list of all sites: 100,000 alarms at 500 a page. */
const MAX_PAGES = 200;
/** Lists per minute for each site that one poll lists singly: 10 sites, twice each, take 20 s at 30 lists a minute. */
const RATE_PER_SITE = 3;
/** Pages that are this far apart, in milliseconds, show different moments: alarms that moved meanwhile are no evidence. */
const SLOW_PAGES_MS = 10_000;

/** Reads one list of all sites, and some sites singly while its pages prove no absence (page-trust.ts). */
export function createAlarmList({ source, config, scope, syncState, clock, log }: PollParts) {
  const only = config.alarms.sites ?? null;
  const alarms = syncState.get<StoredAlarm>(documentSet("alarm", source.name));
  const sites = syncState.get(documentSet("site", source.name));
  const follows = (siteId: number) => only === null || only.includes(siteId);
  const trust = createPageTrust(clock, log);
  let wasPerSite = false;
  let isOneSite = false;
  let nextSite = 0;
  let pageGapMs = 0;

  async function readList(
    filter: Omit<AlarmFilter, "status">,
    { careful, onPage, signal }: ReadActive,
    { maxPages, twice }: ReadLimits,
  ): Promise<Listing<Alarm>> {
    const read = () => source.alarms({ status: "active", ...filter }, signal, (id) => alarms.get(id)?.alarm);
    let lastPageMs = Number.POSITIVE_INFINITY;
    pageGapMs = 0;
    const followed = (items: readonly Alarm[]) => {
      pageGapMs = Math.max(pageGapMs, clock.monotonic() - lastPageMs);
      lastPageMs = clock.monotonic();
      return onPage(items.filter((alarm) => follows(alarm.site.id)));
    };
    const settings = { idOf, keepsShown: true, maxPages, onPage: followed };
    const listing = twice
      ? await collectTwice(read, { ...settings, sameAs: stateOf, always: careful })
      : await collect(read(), settings);
    signal.throwIfAborted();
    return listing;
  }

  const isBroken = () => isOneSite && trust.distrust() !== null;
  const readSite = createSiteListReader(readList, isBroken, clock, log);

  /** Reads the list of all sites; null when not even its first page is worth a request. */
  async function readAllSites(how: ReadActive): Promise<Listing<Alarm> | null> {
    // The list of the only site has the same pages.
    if (isOneSite && !trust.isDue()) return null;
    if (!trust.hasUsablePages()) return readList({}, how, { maxPages: 1, twice: false });
    const listing = await readList({}, how, { maxPages: MAX_PAGES, twice: how.careful });
    trust.judge(listing, isOneSite, pageGapMs >= SLOW_PAGES_MS);
    // A page that failed once or twice may come again: such a list proves no absence.
    if (!listing.complete && listing.failure !== undefined && trust.distrust() === null) throw listing.failure;
    return listing;
  }

  function takeNextSites(followed: readonly number[]): readonly number[] {
    const count = Math.max(1, Math.floor(source.listRate().perMinute / RATE_PER_SITE));
    if (followed.length <= count) return followed;
    const from = nextSite % followed.length;
    nextSite = from + count;
    return [...followed, ...followed].slice(from, from + count);
  }

  return {
    /** True when the last reading listed sites singly: then it cannot show unknown sites. */
    wasPerSite: () => wasPerSite,
    async read(how: ReadActive): Promise<ActiveAlarms> {
      const followed = [...(only ?? scope.known() ?? sites.keys().map(Number))];
      isOneSite = followed.length === 1;
      const all = await readAllSites(how);
      // A record without its site states the site in the list of that site.
      const haveSites = all === null || recordsOf(all).every((alarm) => alarm.site.id !== 0);
      const distrust = trust.distrust();
      wasPerSite = all === null || distrust !== null || !haveSites;
      if (all !== null && (!wasPerSite || followed.length === 0)) {
        return {
          listed: recordsOf(all).filter((alarm) => follows(alarm.site.id)),
          coverage: (siteId) => (follows(siteId) ? (haveSites ? coverageOf(all) : "moving") : "none"),
          isConfirmed: how.careful || !all.complete || all.pages === 1,
          failures: new Map(),
          remarks: [],
          ...faultsOf([all]),
        };
      }
      const next = takeNextSites(followed);
      const visits = await perSite(next, (siteId) => readSite(siteId, how), how.signal);
      const readings = [...visits.seen.values()];
      const lists = readings.map(({ listing }) => listing);
      const { reasons, unreadable } = faultsOf(lists);
      const remarks = readings.flatMap(({ remark }) => remark ?? []);
      return {
        listed: lists.flatMap(recordsOf),
        coverage: (siteId) => coverageOf(visits.seen.get(siteId)?.listing),
        isConfirmed: true,
        failures: visits.failures,
        reasons,
        remarks:
          distrust === null || followed.length <= 1
            ? remarks
            : [describeDistrust(distrust, next.length, followed.length), ...remarks],
        unreadable: all === null ? unreadable : [...unreadable, ...faultsOf([all]).unreadable],
      };
    },
  };
}

function describeDistrust(reason: string, sites: number, of: number): string {
  const how =
    sites === of ? "each site is listed by itself" : `sites are listed one by one, ${sites} of ${of} at each poll`;
  return `The pages of the list of active alarms cannot be trusted, so ${how}. ${reason}`;
}

/** Joins two readings. All their records count; an absence counts only where both show the same. */
export function bothReadings(first: ActiveAlarms, second: ActiveAlarms): ActiveAlarms {
  const statesOf = ({ listed }: ActiveAlarms) => {
    const bySite = Map.groupBy(listed, (alarm) => alarm.site.id);
    return new Map([...bySite].map(([siteId, alarms]) => [siteId, fingerprint(alarms, stateOf)]));
  };
  const [one, two] = [statesOf(first), statesOf(second)];
  const isSame = (siteId: number) => one.get(siteId) === two.get(siteId);
  const isPaged = !(first.isConfirmed && second.isConfirmed);
  const areSame = [...one.keys(), ...two.keys()].every(isSame);
  return {
    ...second,
    listed: union(first.listed, second.listed, idOf),
    coverage(siteId) {
      const both = [first.coverage(siteId), second.coverage(siteId)];
      if (both.includes("none")) return both.every((each) => each === "none") ? "none" : "moving";
      const agree = isPaged ? areSame : isSame(siteId);
      return agree && !both.includes("moving") ? "complete" : "moving";
    },
    isConfirmed: true,
    reasons: isPaged && !areSame ? [...second.reasons, "Two readings of the list differ."] : second.reasons,
  };
}

/** Unreadable records, and why lists must be read again: not because of these, which the next reading shows too. */
function faultsOf(lists: readonly Listing<Alarm>[]): Pick<ActiveAlarms, "reasons" | "unreadable"> {
  const partial = lists.filter((list) => !list.complete);
  return {
    reasons: partial.filter((list) => !lacksOnlyUnreadable(list)).map(({ reason }) => reason),
    unreadable: partial.flatMap(({ unreadable }) => unreadable ?? []),
  };
}

function coverageOf(listing: Listing<Alarm> | undefined): Coverage {
  if (listing?.complete === true) return "complete";
  return listing === undefined || listing.shown === null ? "none" : "moving";
}
