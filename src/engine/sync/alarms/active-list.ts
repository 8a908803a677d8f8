import type { Failure } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import type { AlarmFilter } from "../../source/source.ts";
import { documentSet } from "../../store/store.ts";
import type { PollContext } from "../poll-context.ts";
import { pollEachSite } from "../poll-each-site.ts";
import {
  fingerprint,
  joinItemsById,
  type Listing,
  lacksOnlyUnreadableRecords,
  listItems,
  readPages,
  readTwice,
} from "../read-list-pages.ts";
import type { StoredAlarm } from "../stored-documents.ts";
import type { ListCoverage } from "./diff-alarms.ts";
import { createSiteListReader, getAlarmId, type ListLimits, type ListOptions, stateKey } from "./site-alarm-list.ts";
import { createListPageTrust } from "./unreliable-list-pages.ts";

export interface ActiveAlarmList {
  readonly listed: readonly Alarm[];
  readonly coverage: (siteId: number) => ListCoverage;
  /** False if the list has several pages and was read only once: alarms that it lacks may still be active. */
  readonly isConfirmed: boolean;
  readonly failures: ReadonlyMap<number, Failure>;
  readonly reasons: readonly string[];
  readonly remarks: readonly string[];
  readonly unreadable: readonly string[];
}

const MAX_ALARM_LIST_PAGES = 200;
const LISTS_PER_MINUTE_PER_SITE = 3;
/** Time between two pages of a list after which alarms may have moved from one page to the other. */
const SLOW_PAGE_GAP_MS = 10_000;

/** Reads the active alarms of all sites in one list; while its pages are unreliable, in one list per site. */
export function createAlarmList({ source, config, scope, syncState, clock, log }: PollContext) {
  const configuredSites = config.alarms.sites ?? null;
  const alarms = syncState.get<StoredAlarm>(documentSet("alarm", source.name));
  const storedSites = syncState.get(documentSet("site", source.name));
  const isFollowed = (siteId: number) => configuredSites === null || configuredSites.includes(siteId);
  const listPageTrust = createListPageTrust(clock, log);
  let wasListedPerSite = false;
  let isOnlyOneSiteFollowed = false;
  let nextSiteIndex = 0;
  let pageGapMs = 0;

  async function readAlarmList(
    filter: Omit<AlarmFilter, "status">,
    { readsTwice, onPage, signal }: ListOptions,
    { maxPages, twice }: ListLimits,
  ): Promise<Listing<Alarm>> {
    const requestAlarms = () => source.alarms({ status: "active", ...filter }, signal, (id) => alarms.get(id)?.alarm);
    let lastPageMs = Number.POSITIVE_INFINITY;
    pageGapMs = 0;
    const emitFollowedAlarms = (pageAlarms: readonly Alarm[]) => {
      pageGapMs = Math.max(pageGapMs, clock.monotonic() - lastPageMs);
      lastPageMs = clock.monotonic();
      return onPage(pageAlarms.filter((alarm) => isFollowed(alarm.site.id)));
    };
    const listReadSettings = { idOf: getAlarmId, keepsPartial: true, maxPages, onPage: emitFollowedAlarms };
    const listing = twice
      ? await readTwice(requestAlarms, { ...listReadSettings, compareKeyOf: stateKey, alwaysTwice: readsTwice })
      : await readPages(requestAlarms(), listReadSettings);
    signal.throwIfAborted();
    return listing;
  }

  const isOnlySiteListUnreliable = () => isOnlyOneSiteFollowed && listPageTrust.distrustReason() !== null;
  const readSiteAlarms = createSiteListReader(readAlarmList, isOnlySiteListUnreliable, clock, log);

  async function readAlarmsOfAllSites(listOptions: ListOptions): Promise<Listing<Alarm> | null> {
    if (isOnlyOneSiteFollowed && !listPageTrust.isRetryDue()) return null;
    if (!listPageTrust.hasUsablePages()) return readAlarmList({}, listOptions, { maxPages: 1, twice: false });
    const limits = { maxPages: MAX_ALARM_LIST_PAGES, twice: listOptions.readsTwice };
    const listing = await readAlarmList({}, listOptions, limits);
    listPageTrust.judgePages(listing, isOnlyOneSiteFollowed, pageGapMs >= SLOW_PAGE_GAP_MS);
    // A single failed page does not make the pages unreliable: this poll fails, and the next poll reads them again.
    if (!listing.complete && listing.failure !== undefined && listPageTrust.distrustReason() === null)
      throw listing.failure;
    return listing;
  }

  function takeNextSitesToList(followedSites: readonly number[]): readonly number[] {
    const sitesPerPoll = Math.max(1, Math.floor(source.listRate().perMinute / LISTS_PER_MINUTE_PER_SITE));
    if (followedSites.length <= sitesPerPoll) return followedSites;
    const firstSiteIndex = nextSiteIndex % followedSites.length;
    nextSiteIndex = firstSiteIndex + sitesPerPoll;
    return [...followedSites, ...followedSites].slice(firstSiteIndex, firstSiteIndex + sitesPerPoll);
  }

  return {
    wasReadPerSite: () => wasListedPerSite,
    async read(listOptions: ListOptions): Promise<ActiveAlarmList> {
      const followedSites = [...(configuredSites ?? scope.known() ?? storedSites.keys().map(Number))];
      isOnlyOneSiteFollowed = followedSites.length === 1;
      const completeList = await readAlarmsOfAllSites(listOptions);
      // If alarm records lack a site id, only lists of single sites show to which site each alarm belongs.
      const haveSiteIds = completeList === null || listItems(completeList).every((alarm) => alarm.site.id !== 0);
      const pageDistrustReason = listPageTrust.distrustReason();
      wasListedPerSite = completeList === null || pageDistrustReason !== null || !haveSiteIds;
      if (completeList !== null && (!wasListedPerSite || followedSites.length === 0)) {
        return {
          listed: listItems(completeList).filter((alarm) => isFollowed(alarm.site.id)),
          coverage: (siteId) =>
            isFollowed(siteId) ? (haveSiteIds ? determineCoverage(completeList) : "moving") : "none",
          isConfirmed: listOptions.readsTwice || !completeList.complete || completeList.pages === 1,
          failures: new Map(),
          remarks: [],
          ...collectListFaults([completeList]),
        };
      }
      const nextSitesToList = takeNextSitesToList(followedSites);
      const readSite = (siteId: number) => readSiteAlarms(siteId, listOptions);
      const { results, failures } = await pollEachSite(nextSitesToList, readSite, listOptions.signal);
      const siteReadings = [...results.values()];
      const siteListings = siteReadings.map(({ listing }) => listing);
      const { reasons, unreadable } = collectListFaults(siteListings);
      const distrustRemarks =
        pageDistrustReason === null || followedSites.length <= 1
          ? []
          : [describePageDistrust(pageDistrustReason, nextSitesToList.length, followedSites.length)];
      return {
        listed: siteListings.flatMap(listItems),
        coverage: (siteId) => determineCoverage(results.get(siteId)?.listing),
        isConfirmed: true,
        failures,
        reasons,
        remarks: [...distrustRemarks, ...siteReadings.flatMap(({ remark }) => remark ?? [])],
        unreadable:
          completeList === null ? unreadable : [...unreadable, ...collectListFaults([completeList]).unreadable],
      };
    },
  };
}

function describePageDistrust(reason: string, listedSiteCount: number, siteCount: number): string {
  const siteListingMethod =
    listedSiteCount === siteCount
      ? "each site is listed by itself"
      : `sites are listed one by one, ${listedSiteCount} of ${siteCount} at each poll`;
  return `The pages of the list of active alarms cannot be trusted, so ${siteListingMethod}. ${reason}`;
}

/** Joins two readings of the active alarms. Keeps all records; coverage is complete only where both readings agree. */
export function joinAlarmListReadings(firstReading: ActiveAlarmList, secondReading: ActiveAlarmList): ActiveAlarmList {
  const fingerprintSiteAlarms = ({ listed }: ActiveAlarmList) => {
    const alarmsBySite = Map.groupBy(listed, (alarm) => alarm.site.id);
    return new Map([...alarmsBySite].map(([siteId, alarms]) => [siteId, fingerprint(alarms, stateKey)]));
  };
  const [firstStates, secondStates] = [fingerprintSiteAlarms(firstReading), fingerprintSiteAlarms(secondReading)];
  const areSiteAlarmsEqual = (siteId: number) => firstStates.get(siteId) === secondStates.get(siteId);
  const hasUnconfirmedReading = !(firstReading.isConfirmed && secondReading.isConfirmed);
  const areAllSitesEqual = [...firstStates.keys(), ...secondStates.keys()].every(areSiteAlarmsEqual);
  return {
    ...secondReading,
    listed: joinItemsById(firstReading.listed, secondReading.listed, getAlarmId),
    coverage(siteId) {
      const siteCoverages = [firstReading.coverage(siteId), secondReading.coverage(siteId)];
      if (siteCoverages.includes("none"))
        return siteCoverages.every((coverage) => coverage === "none") ? "none" : "moving";
      const doBothReadingsAgree = hasUnconfirmedReading ? areAllSitesEqual : areSiteAlarmsEqual(siteId);
      return doBothReadingsAgree && !siteCoverages.includes("moving") ? "complete" : "moving";
    },
    isConfirmed: true,
    reasons:
      hasUnconfirmedReading && !areAllSitesEqual
        ? [...secondReading.reasons, "Two readings of the list differ."]
        : secondReading.reasons,
  };
}

function collectListFaults(lists: readonly Listing<Alarm>[]): Pick<ActiveAlarmList, "reasons" | "unreadable"> {
  const incompleteLists = lists.filter((list) => !list.complete);
  return {
    reasons: incompleteLists.filter((list) => !lacksOnlyUnreadableRecords(list)).map(({ reason }) => reason),
    unreadable: incompleteLists.flatMap(({ unreadable }) => unreadable ?? []),
  };
}

function determineCoverage(listing: Listing<Alarm> | undefined): ListCoverage {
  if (listing?.complete === true) return "complete";
  return listing === undefined || listing.readItems === null ? "none" : "moving";
}
