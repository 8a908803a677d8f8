import type { Failure } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import type { AlarmFilter } from "../../source/source.ts";
import { documentSet } from "../../store/store.ts";
import {
  fingerprint,
  joinItemsById,
  type Listing,
  lacksOnlyUnreadableRecords,
  listItems,
  readPages,
  readTwice,
} from "../listing.ts";
import type { PollContext } from "../poll-dependencies.ts";
import { visitSites } from "../site-visits.ts";
import type { StoredAlarm } from "../snapshot.ts";
import type { Coverage } from "./diff-alarms.ts";
import { createPageTrust } from "./list-page-faults.ts";
import { alarmId, createSiteListReader, type ReadLimits, type ReadOptions, stateKey } from "./site-alarm-list.ts";

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

/** Most pages read of the alarm list of all sites: 100,000 alarms at 500 a page. */
const MAX_PAGES = 200;
/** Share of the list rate for each site listed singly: at 30 lists a minute, one poll lists 10 sites. */
const LISTS_PER_MINUTE_PER_SITE = 3;
/** Gap between two pages, in milliseconds, from which alarms may have moved between these pages. */
const SLOW_PAGE_GAP_MS = 10_000;

/** Reads one alarm list of all sites, and some sites singly while that list's pages are unreliable. */
export function createAlarmList({ source, config, scope, syncState, clock, log }: PollContext) {
  const configuredSites = config.alarms.sites ?? null;
  const alarms = syncState.get<StoredAlarm>(documentSet("alarm", source.name));
  const sites = syncState.get(documentSet("site", source.name));
  const isFollowed = (siteId: number) => configuredSites === null || configuredSites.includes(siteId);
  const pageTrust = createPageTrust(clock, log);
  let wasPerSite = false;
  let isOneSite = false;
  let nextSite = 0;
  let pageGapMs = 0;

  async function readList(
    filter: Omit<AlarmFilter, "status">,
    { careful, onPage, signal }: ReadOptions,
    { maxPages, twice }: ReadLimits,
  ): Promise<Listing<Alarm>> {
    const readActive = () => source.alarms({ status: "active", ...filter }, signal, (id) => alarms.get(id)?.alarm);
    let lastPageMs = Number.POSITIVE_INFINITY;
    pageGapMs = 0;
    const emitFollowed = (items: readonly Alarm[]) => {
      pageGapMs = Math.max(pageGapMs, clock.monotonic() - lastPageMs);
      lastPageMs = clock.monotonic();
      return onPage(items.filter((alarm) => isFollowed(alarm.site.id)));
    };
    const settings = { idOf: alarmId, keepsShown: true, maxPages, onPage: emitFollowed };
    const listing = twice
      ? await readTwice(readActive, { ...settings, sameAs: stateKey, always: careful })
      : await readPages(readActive(), settings);
    signal.throwIfAborted();
    return listing;
  }

  const isOneSiteDistrusted = () => isOneSite && pageTrust.distrust() !== null;
  const readSite = createSiteListReader(readList, isOneSiteDistrusted, clock, log);

  async function readAllSites(how: ReadOptions): Promise<Listing<Alarm> | null> {
    if (isOneSite && !pageTrust.isDue()) return null;
    if (!pageTrust.hasUsablePages()) return readList({}, how, { maxPages: 1, twice: false });
    const listing = await readList({}, how, { maxPages: MAX_PAGES, twice: how.careful });
    pageTrust.judge(listing, isOneSite, pageGapMs >= SLOW_PAGE_GAP_MS);
    // A page that failed once or twice may succeed at the next poll, so this poll fails.
    if (!listing.complete && listing.failure !== undefined && pageTrust.distrust() === null) throw listing.failure;
    return listing;
  }

  function takeNextSites(followedSites: readonly number[]): readonly number[] {
    const siteCount = Math.max(1, Math.floor(source.listRate().perMinute / LISTS_PER_MINUTE_PER_SITE));
    if (followedSites.length <= siteCount) return followedSites;
    const firstIndex = nextSite % followedSites.length;
    nextSite = firstIndex + siteCount;
    return [...followedSites, ...followedSites].slice(firstIndex, firstIndex + siteCount);
  }

  return {
    /** True when the last reading listed sites one by one, so it cannot have shown unknown sites. */
    wasPerSite: () => wasPerSite,
    async read(how: ReadOptions): Promise<ActiveAlarms> {
      const followedSites = [...(configuredSites ?? scope.known() ?? sites.keys().map(Number))];
      isOneSite = followedSites.length === 1;
      const allSites = await readAllSites(how);
      // Alarm records without a site id state it only in the list of their own site.
      const haveSiteIds = allSites === null || listItems(allSites).every((alarm) => alarm.site.id !== 0);
      const distrustReason = pageTrust.distrust();
      wasPerSite = allSites === null || distrustReason !== null || !haveSiteIds;
      if (allSites !== null && (!wasPerSite || followedSites.length === 0)) {
        return {
          listed: listItems(allSites).filter((alarm) => isFollowed(alarm.site.id)),
          coverage: (siteId) => (isFollowed(siteId) ? (haveSiteIds ? determineCoverage(allSites) : "moving") : "none"),
          isConfirmed: how.careful || !allSites.complete || allSites.pages === 1,
          failures: new Map(),
          remarks: [],
          ...collectFaults([allSites]),
        };
      }
      const nextSites = takeNextSites(followedSites);
      const siteVisits = await visitSites(nextSites, (siteId) => readSite(siteId, how), how.signal);
      const readings = [...siteVisits.seen.values()];
      const lists = readings.map(({ listing }) => listing);
      const { reasons, unreadable } = collectFaults(lists);
      const siteRemarks = readings.flatMap(({ remark }) => remark ?? []);
      return {
        listed: lists.flatMap(listItems),
        coverage: (siteId) => determineCoverage(siteVisits.seen.get(siteId)?.listing),
        isConfirmed: true,
        failures: siteVisits.failures,
        reasons,
        remarks:
          distrustReason === null || followedSites.length <= 1
            ? siteRemarks
            : [describeDistrust(distrustReason, nextSites.length, followedSites.length), ...siteRemarks],
        unreadable: allSites === null ? unreadable : [...unreadable, ...collectFaults([allSites]).unreadable],
      };
    },
  };
}

function describeDistrust(reason: string, sites: number, of: number): string {
  const listingMethod =
    sites === of ? "each site is listed by itself" : `sites are listed one by one, ${sites} of ${of} at each poll`;
  return `The pages of the list of active alarms cannot be trusted, so ${listingMethod}. ${reason}`;
}

/** Joins two readings of the active alarms: keeps all records; an absence counts only where both agree. */
export function joinReadings(first: ActiveAlarms, second: ActiveAlarms): ActiveAlarms {
  const fingerprintSites = ({ listed }: ActiveAlarms) => {
    const bySite = Map.groupBy(listed, (alarm) => alarm.site.id);
    return new Map([...bySite].map(([siteId, alarms]) => [siteId, fingerprint(alarms, stateKey)]));
  };
  const [firstStates, secondStates] = [fingerprintSites(first), fingerprintSites(second)];
  const isSameAtSite = (siteId: number) => firstStates.get(siteId) === secondStates.get(siteId);
  const hasUnconfirmed = !(first.isConfirmed && second.isConfirmed);
  const areAllSame = [...firstStates.keys(), ...secondStates.keys()].every(isSameAtSite);
  return {
    ...second,
    listed: joinItemsById(first.listed, second.listed, alarmId),
    coverage(siteId) {
      const coverages = [first.coverage(siteId), second.coverage(siteId)];
      if (coverages.includes("none")) return coverages.every((each) => each === "none") ? "none" : "moving";
      const readingsAgree = hasUnconfirmed ? areAllSame : isSameAtSite(siteId);
      return readingsAgree && !coverages.includes("moving") ? "complete" : "moving";
    },
    isConfirmed: true,
    reasons: hasUnconfirmed && !areAllSame ? [...second.reasons, "Two readings of the list differ."] : second.reasons,
  };
}

/** Collects unreadable records and the reasons to read lists again; unreadable records alone are no such reason. */
function collectFaults(lists: readonly Listing<Alarm>[]): Pick<ActiveAlarms, "reasons" | "unreadable"> {
  const incompleteLists = lists.filter((list) => !list.complete);
  return {
    reasons: incompleteLists.filter((list) => !lacksOnlyUnreadableRecords(list)).map(({ reason }) => reason),
    unreadable: incompleteLists.flatMap(({ unreadable }) => unreadable ?? []),
  };
}

function determineCoverage(listing: Listing<Alarm> | undefined): Coverage {
  if (listing?.complete === true) return "complete";
  return listing === undefined || listing.shown === null ? "none" : "moving";
}
