import type { Failure } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import { sourceUri } from "../../../core/model/event.ts";
import { endsWithin, runInSlices, type SerialRunner, yieldUnlessAborted } from "../../../core/runtime/waiting.ts";
import { formatSeconds } from "../../../core/values/duration.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { DocumentChange } from "../../store/store.ts";
import { incompleteJobOutcome, type JobOutcome } from "../job.ts";
import type { PollContext } from "../poll-context.ts";
import { buildJobOutcome, isSiteRefusal } from "../poll-each-site.ts";
import type { StoredAlarm } from "../stored-documents.ts";
import { type ActiveAlarmList, createAlarmList, joinAlarmListReadings } from "./active-list.ts";
import { classifyRecords, createRecordReport, isUndisputed, type RecordCounts } from "./classify-alarm-records.ts";
import { isOpenAlarm } from "./diff-alarm.ts";
import {
  type AlarmDiff,
  type AlarmDiffOptions,
  diffAlarms,
  findAbsentAlarms,
  type SeenAlarms,
  splitAlarmDiff,
} from "./diff-alarms.ts";
import { contradictsItself, endsBeforeStart, isEmittedAlarmEnd, isResolvedAlarm } from "./episode.ts";
import { createMassAlarmChangeGuard, findMassAlarmChange, findMassAlarmEnds } from "./mass-alarm-changes.ts";
import {
  type AlarmEndCheck,
  type AlarmSearchCounts,
  checkAlarmEnds,
  countAlarmSearches,
  findAlarmsToSearch,
  joinSearchResults,
  restrictEndCheck,
  searchMissingAlarms,
} from "./missing-alarm-search.ts";
import type { ListOptions } from "./site-alarm-list.ts";
import { type AlarmStore, expiredAlarmIds, openAlarmStore, recordFirstSiteLists } from "./stored-alarms.ts";

/**
 * Follows the active alarms of one source. One poll:
 *
 *   read the list ──► verify absences ─────────────► compare ──────────────► commit
 *     │                 search absent alarms,          withhold unconfirmed    alarms and events,
 *     │ each page       check ends of listed alarms,   mass changes            250 alarms at a time
 *     ▼                 read the list again,
 *   emit undisputed     refresh the token's scope
 *   records at once
 *
 * If the service has lowered the list rate, these requests may take minutes. A later poll then uses the responses.
 */
export function createAlarmPoll(pollContext: PollContext, runSerially: SerialRunner, intervalMs: () => number | null) {
  const state = createAlarmPollState(pollContext, intervalMs);
  return {
    run: (signal: AbortSignal) => runSerially(() => pollAlarms(state, false, signal)),
    /** Runs the first poll after an outage: reads lists twice, and emits each page at once after `source-available`. */
    reconcile: (signal: AbortSignal) => runSerially(() => pollAlarms(state, true, signal)),
  };
}

type PollState = ReturnType<typeof createAlarmPollState>;

/** Interval at which Plenum looks for sites newly visible to the token, while no alarm list would show them. */
const TOKEN_SCOPE_CHECK_INTERVAL_MS = 300_000;
/** Alarms compared or committed at once: 5,000 would block the event loop for half a second. */
const ALARMS_PER_COMMIT = 250;
const MIN_ALARMS_TO_YIELD = 5_000;
const AVERAGED_POLL_INTERVALS = 10;
const LATE_POLL_FACTOR = 1.15;

function createAlarmPollState(pollContext: PollContext, intervalMs: () => number | null) {
  return {
    ...{ context: pollContext, everyMs: intervalMs, startedAt: isoUtc(pollContext.clock.now()) },
    store: openAlarmStore(pollContext),
    list: createAlarmList(pollContext),
    massGuard: createMassAlarmChangeGuard(pollContext.log),
    reportUnverifiedRecords: createRecordReport(pollContext),
    /** Sites whose complete list was read since Plenum started. `emittedAlarmIds`: alarms emitted for other sites. */
    listedSiteIds: new Set<number>(),
    emittedAlarmIds: new Set<string>(),
    recordCounts: new Map() as RecordCounts,
    absenceCounts: new Map() as AlarmSearchCounts,
    endCheck: { counts: new Map(), staleRecordIds: new Set() } as Pick<AlarmEndCheck, "counts" | "staleRecordIds">,
    unfinishedWork: new Map<string, Promise<() => unknown>>(),
    pollStartsMs: [] as readonly number[],
    pagesRead: 0,
  };
}

async function pollAlarms(state: PollState, readsTwice: boolean, signal: AbortSignal): Promise<JobOutcome> {
  const { context, store, massGuard } = state;
  const { clock, config, scope, source } = context;
  state.pollStartsMs = [...state.pollStartsMs, clock.monotonic()].slice(-(AVERAGED_POLL_INTERVALS + 1));
  state.pagesRead = 0;
  await refreshOldTokenScope(state, signal);
  const oldAlarms: ReadonlyMap<string, StoredAlarm> = new Map(store.alarms);
  const listRequestedAtMs = clock.now();
  const onPage = createAlarmPageEmitter(state, readsTwice, signal);
  const listReadOptions: ListOptions = { readsTwice, onPage, signal };
  let firstList = await state.list.read(listReadOptions);
  await yieldForManyAlarms(state, firstList.listed.length, signal);
  if (!readsTwice && isMassDrop(oldAlarms, firstList))
    firstList = await readListAgain(state, firstList, listReadOptions);
  await yieldForManyAlarms(state, firstList.listed.length, signal);
  if (readsTwice && firstList.reasons.length > 0) return incompleteJobOutcome(firstList.reasons.join(" "));
  const verifiedAbsences = await verifyAlarmAbsences(state, firstList, listReadOptions);
  const { list, sorted, endCheck } = verifiedAbsences;
  await recheckGatewaysOfNewAlarms(state, sorted.listed, signal);
  const diffGenerator = diffAlarms(store.alarms, verifiedAbsences.observation, alarmDiffOptions(state));
  const fullAlarmDiff = await runInSlices(diffGenerator, ALARMS_PER_COMMIT, clock, signal);
  const confirmedMassEnds = await confirmMassAlarmEnds(state, findMassAlarmEnds(oldAlarms, fullAlarmDiff), signal);
  const massChanges = massGuard.withholdMassChanges(oldAlarms, fullAlarmDiff, list.coverage, confirmedMassEnds);
  const { diff } = massChanges;
  const siteIds = new Set([...(scope.known() ?? []), ...list.listed.map((alarm) => alarm.site.id)]);
  const completeSites = [...siteIds].filter((siteId) => list.coverage(siteId) === "complete");
  // Alarms that began after this time by the service's clock are new, not initial.
  const sitesFollowedSince = isoUtc(listRequestedAtMs - (source.clockSkewMs() ?? 0));
  const alarmRetention = { nowMs: clock.now(), overlapMs: config.alarms.resolved_overlap };
  const documentsOfLastCommit = [
    { set: store.alarmSet, remove: expiredAlarmIds(store, diff.put, alarmRetention) },
    { set: store.siteSet, put: recordFirstSiteLists(store.sites, completeSites, "activeSince", sitesFollowedSince) },
  ];
  await commitAlarmDiff(state, diff, documentsOfLastCommit, readsTwice, signal);
  state.absenceCounts = countAlarmSearches(state.absenceCounts, verifiedAbsences.absent, verifiedAbsences.postponed);
  state.endCheck = endCheck;
  state.recordCounts = sorted.newCounts;
  for (const siteId of completeSites) state.listedSiteIds.add(siteId);
  const pollRemarks = [
    ...list.remarks,
    ...massChanges.remarks,
    ...state.reportUnverifiedRecords(sorted, endCheck, list.unreadable),
    ...describeLatePolls(state),
  ];
  return buildJobOutcome(new Map([...verifiedAbsences.failures, ...list.failures]), list.reasons, pollRemarks);
}

async function refreshOldTokenScope(state: PollState, signal: AbortSignal) {
  const { list, context, store } = state;
  const { clock, scope } = context;
  if (clock.monotonic() - scope.respondedAtMs() < TOKEN_SCOPE_CHECK_INTERVAL_MS) return;
  const hasOutOfScopeAlarms = store.alarms.values().some((storedAlarm) => storedAlarm.state === "out-of-scope");
  if (list.wasReadPerSite() || hasOutOfScopeAlarms) await finishInTime(state, "scope", () => scope.tryRefresh(signal));
}

/** Returns the result; null if the service lowered the list rate and the work takes over half of a poll interval. */
async function finishInTime<T>(
  state: PollState,
  name: string,
  work: () => Promise<T>,
  untilMs = halfPollIntervalEndMs(state),
): Promise<T | null> {
  const { context, unfinishedWork } = state;
  const pendingWork =
    unfinishedWork.get(name) ??
    work().then(
      (result) => () => result,
      (error: unknown) => () => {
        throw error;
      },
    );
  unfinishedWork.set(name, pendingWork);
  const { configured, perMinute } = context.source.listRate();
  const timeLeftMs = untilMs - context.clock.monotonic();
  const isListRateLowered = perMinute < configured && timeLeftMs < Number.POSITIVE_INFINITY;
  if (isListRateLowered && !(await endsWithin(context.clock, timeLeftMs, pendingWork))) return null;
  unfinishedWork.delete(name);
  return (await pendingWork)() as T;
}

function halfPollIntervalEndMs({ everyMs, context }: PollState): number {
  return context.clock.monotonic() + (everyMs() ?? Number.POSITIVE_INFINITY) / 2;
}

/** Emits a page's alarms at once unless they contradict stored ones. After a failed commit, waits for the full list. */
function createAlarmPageEmitter(state: PollState, isAfterOutage: boolean, signal: AbortSignal): ListOptions["onPage"] {
  const { context, store } = state;
  const { alarms } = store;
  let hasCommitFailed = false;
  let isAvailabilityEmitted = !isAfterOutage;
  return async (records) => {
    state.pagesRead += 1;
    if (hasCommitFailed) return;
    const undisputedRecords = records.filter((record) => {
      const storedAlarm = alarms.get(record.id);
      return !(storedAlarm?.alarm === record && storedAlarm.state === "active") && isUndisputed(storedAlarm, record);
    });
    if (undisputedRecords.length === 0) return;
    if (!isAvailabilityEmitted) await context.commit("alarms", {}, true);
    isAvailabilityEmitted = true;
    await recheckGatewaysOfNewAlarms(state, undisputedRecords, signal);
    const listedAlarmIds = new Set(undisputedRecords.map(({ id }) => id));
    const storedAlarmsById = new Map([...alarms].filter(([id]) => listedAlarmIds.has(id)));
    const seenAlarms: SeenAlarms = {
      listed: undisputedRecords,
      coverage: () => "moving",
      foundRecords: [],
      searchedIds: new Set(),
      scope: null,
    };
    const diffGenerator = diffAlarms(storedAlarmsById, seenAlarms, alarmDiffOptions(state));
    try {
      const alarmDiff = await runInSlices(diffGenerator, ALARMS_PER_COMMIT, context.clock, signal);
      await commitAlarmDiff(state, alarmDiff, [], false, signal);
      await yieldUnlessAborted(context.clock, signal);
      if (context.config.alarms.startup === "reconcile") return;
      for (const { id, site } of undisputedRecords)
        if (!state.listedSiteIds.has(site.id)) state.emittedAlarmIds.add(id);
    } catch (error) {
      hasCommitFailed = true;
      context.log.debug({ err: error }, "a page of active alarms was not committed");
    }
  };
}

function isMassDrop(alarmsBefore: ReadonlyMap<string, StoredAlarm>, { listed, coverage }: ActiveAlarmList): boolean {
  const listedAlarmIds = new Set(listed.map(({ id }) => id));
  const isSiteObserved = (siteId: number) => coverage(siteId) === "complete";
  return findMassAlarmChange(alarmsBefore, ({ alarm }) => !listedAlarmIds.has(alarm.id), isSiteObserved) !== null;
}

async function readListAgain({ list }: PollState, firstReading: ActiveAlarmList, listOptions: ListOptions) {
  return joinAlarmListReadings(firstReading, await list.read({ ...listOptions, readsTwice: false }));
}

async function verifyAlarmAbsences(state: PollState, firstReading: ActiveAlarmList, listOptions: ListOptions) {
  const { context, store, massGuard } = state;
  const { config, clock, scope, source } = context;
  const { vanish_after_misses: vanishAfter } = config.alarms;
  const { alarms } = store;
  const { signal } = listOptions;
  const isSiteVisible = (siteId: number) => scope.known()?.has(siteId) ?? false;
  const classifyListedAlarms = (list: ActiveAlarmList) => {
    const records = classifyRecords(state.recordCounts, alarms, list.listed, list.coverage);
    return { list, records, absent: findAbsentAlarms(alarms, records.listed, list.coverage, isSiteVisible) };
  };
  let classified = classifyListedAlarms(firstReading);
  await yieldForManyAlarms(state, firstReading.listed.length, signal);
  const alarmsToSearch = findAlarmsToSearch(state.absenceCounts, classified.absent, vanishAfter);
  const isUnverified = ({ alarm }: StoredAlarm) => classified.records.unverifiedIds.has(alarm.id);
  const isLastAlarmSearch = (storedAlarm: StoredAlarm) =>
    storedAlarm.misses + 1 >= vanishAfter && !isUnverified(storedAlarm);
  const alarmSearch = await searchAbsentAlarms(state, "absent alarms", alarmsToSearch, isLastAlarmSearch, signal);
  const foundRecordsById = Map.groupBy(alarmSearch.found, ({ id }) => id);
  const isAbsenceExplained = (storedAlarm: StoredAlarm) =>
    (foundRecordsById.get(storedAlarm.alarm.id) ?? []).some(
      (foundRecord) =>
        !isResolvedAlarm(foundRecord) ||
        !(isEmittedAlarmEnd(storedAlarm, foundRecord) || endsBeforeStart(storedAlarm, foundRecord)),
    );
  // Read the list again only if the search does not explain an absence: of a searched alarm, or in a mass change.
  const massDrops = classified.absent.filter(({ alarm }) => massGuard.isAbsencePending(alarm.site.id));
  const unexplained = [...alarmsToSearch, ...massDrops].filter(({ alarm }) => !alarmSearch.postponed.has(alarm.id));
  if (!classified.list.isConfirmed && !unexplained.every(isAbsenceExplained))
    classified = classifyListedAlarms(await readListAgain(state, firstReading, listOptions));
  const { list, records, absent } = classified;
  const endCheckLimits = { always: vanishAfter, nowMs: clock.now() };
  const checkContestedEnds = () =>
    checkAlarmEnds(alarms, records.outdatedRecords, state.endCheck, endCheckLimits, source, signal);
  const finishedEndCheck = await finishInTime(state, "ends", checkContestedEnds);
  const endCheck = restrictEndCheck(finishedEndCheck, state.endCheck, records.outdatedRecords);
  const followedAlarms = [...alarms.values()].filter(
    (stored) => isOpenAlarm(stored) && stored.state !== "out-of-scope",
  );
  const alarmsOfHiddenSites = followedAlarms.filter(({ alarm }) => !scope.sees(alarm.site.id));
  const listedAlarmIds = new Set(alarmsOfHiddenSites.length === 0 ? [] : records.listed.map(({ id }) => id));
  const notFound = unexplained.filter(({ alarm }) => !foundRecordsById.has(alarm.id));
  const needsScope =
    notFound.length > 0 ||
    // A listed alarm proves that the token sees the alarm's site, even if the stored scope lacks the site.
    alarmsOfHiddenSites.some(({ alarm }) => !listedAlarmIds.has(alarm.id)) ||
    followedAlarms.some(({ alarm }) => isSiteRefusal(list.failures.get(alarm.site.id)));
  const refreshedTokenScope = needsScope ? await finishInTime(state, "scope", () => scope.tryRefresh(signal)) : null;
  // The next poll uses a token scope that arrives late: search these alarms again then, not up to 16 polls later.
  const awaitingScope = state.unfinishedWork.has("scope") ? notFound : [];
  const postponed = alarmSearch.postponed.union(new Set(awaitingScope.map(({ alarm }) => alarm.id)));
  const unclearRecords = alarmSearch.found.filter((record) => record.status === "active" && contradictsItself(record));
  // An alarm absent from pages that were read only once may still be active.
  const unconfirmedAlarms = list.isConfirmed ? [] : absent.filter((stored) => !isAbsenceExplained(stored));
  const observation: SeenAlarms = {
    listed: records.listed,
    acceptedOutdatedIds: records.acceptedOutdatedIds.difference(endCheck.staleRecordIds).union(endCheck.revokedEndIds),
    correctedStartIds: records.correctedStartIds,
    unverifiedIds: new Set([
      ...records.unverifiedIds,
      ...unclearRecords.map(({ id }) => id),
      ...postponed,
      ...unconfirmedAlarms.map(({ alarm }) => alarm.id),
    ]),
    coverage: list.coverage,
    foundRecords: alarmSearch.found.filter((record) => !unclearRecords.includes(record)),
    searchedIds: alarmSearch.searched,
    scope: refreshedTokenScope,
  };
  const failures: ReadonlyMap<number, Failure> = new Map([...endCheck.failures, ...alarmSearch.failures]);
  return { list, sorted: records, absent, endCheck, observation, failures, postponed };
}

async function searchAbsentAlarms(
  state: PollState,
  name: "absent alarms" | "ended alarms",
  alarms: readonly StoredAlarm[],
  isLastSearch: (storedAlarm: StoredAlarm) => boolean,
  signal: AbortSignal,
) {
  const { clock, config, scope, source } = state.context;
  const endMs = halfPollIntervalEndMs(state);
  const isTimeOver = () => clock.monotonic() >= endMs;
  const visibleAlarms = alarms.filter(({ alarm }) => scope.sees(alarm.site.id));
  const searchSettings = { source, maxPages: config.alarms.resolved_pages_max, isLastSearch, isTimeOver, signal };
  const search = (absent: readonly StoredAlarm[]) =>
    finishInTime(state, name, () => searchMissingAlarms(absent, searchSettings), endMs);
  const hasUnfinishedSearch = state.unfinishedWork.has(name);
  const firstSearch = await search(visibleAlarms);
  const unfinishedAlarms = visibleAlarms.filter(({ alarm }) => firstSearch?.finishedIds.has(alarm.id) === false);
  if (!hasUnfinishedSearch || unfinishedAlarms.length === 0) return joinSearchResults([firstSearch], visibleAlarms);
  return joinSearchResults([firstSearch, await search(unfinishedAlarms)], visibleAlarms);
}

async function confirmMassAlarmEnds(state: PollState, endedIds: ReadonlySet<string>, signal: AbortSignal) {
  const endedAlarms = [...endedIds].flatMap((id) => state.store.alarms.get(id) ?? []);
  const { found } = await searchAbsentAlarms(state, "ended alarms", endedAlarms, () => false, signal);
  return new Set(found.filter(isResolvedAlarm).map(({ id }) => id));
}

async function recheckGatewaysOfNewAlarms(
  { context, store }: PollState,
  listedAlarms: readonly Alarm[],
  signal: AbortSignal,
) {
  const isNewAlarm = ({ id, site }: Alarm) => {
    const storedAlarm = store.alarms.get(id);
    return (storedAlarm === undefined || !isOpenAlarm(storedAlarm)) && isSiteFollowed(store, site.id);
  };
  const newAlarms = listedAlarms.filter(isNewAlarm);
  if (newAlarms.length === 0) return;
  const findOnlineGateway = store.onlineGatewayFinder();
  const siteIds = new Set(newAlarms.filter((alarm) => findOnlineGateway(alarm) !== null).map(({ site }) => site.id));
  await context.recheckGateways([...siteIds], signal);
}

function isSiteFollowed({ sites }: AlarmStore, siteId: number): boolean {
  return (sites.get(String(siteId))?.activeSince ?? null) !== null;
}

function alarmDiffOptions({ context, store, startedAt, listedSiteIds, emittedAlarmIds }: PollState): AlarmDiffOptions {
  const { clock, config, source } = context;
  return {
    source: sourceUri(source.name),
    at: isoUtc(clock.now()),
    late: false,
    behindGateway: store.gatewayFinder(),
    vanishAfterMisses: config.alarms.vanish_after_misses,
    isKnownSite: (siteId) => isSiteFollowed(store, siteId),
    startup: config.alarms.startup,
    startedAt,
    isStartupOver: ({ id, site }) => listedSiteIds.has(site.id) || emittedAlarmIds.has(id),
  };
}

async function commitAlarmDiff(
  { context, store }: PollState,
  diff: AlarmDiff,
  documentsOfLastCommit: readonly DocumentChange[],
  isAfterOutage: boolean,
  signal: AbortSignal,
): Promise<void> {
  for (const { put, events, isLast } of splitAlarmDiff(diff, ALARMS_PER_COMMIT)) {
    const documents = [{ set: store.alarmSet, put }, ...(isLast ? documentsOfLastCommit : [])];
    await context.commit("alarms", { documents, events }, isAfterOutage);
    if (!isLast) await yieldUnlessAborted(context.clock, signal);
  }
}

async function yieldForManyAlarms({ context }: PollState, alarmCount: number, signal: AbortSignal): Promise<void> {
  if (alarmCount >= MIN_ALARMS_TO_YIELD) await yieldUnlessAborted(context.clock, signal);
}

function describeLatePolls({ context: { source }, everyMs, pollStartsMs, pagesRead }: PollState): readonly string[] {
  const configuredPollIntervalMs = everyMs();
  const pollIntervalsMs = pollStartsMs.slice(1).map((startMs, index) => startMs - (pollStartsMs[index] ?? startMs));
  if (configuredPollIntervalMs === null || pollIntervalsMs.length < AVERAGED_POLL_INTERVALS) return [];
  const usualPollIntervalsMs = pollIntervalsMs.sort((a, b) => a - b).slice(0, -1);
  const meanPollIntervalMs = usualPollIntervalsMs.reduce((sum, gapMs) => sum + gapMs, 0) / usualPollIntervalsMs.length;
  if (meanPollIntervalMs < LATE_POLL_FACTOR * configuredPollIntervalMs) return [];
  const { perMinute, configured } = source.listRate();
  const listRateReason =
    perMinute < configured
      ? `the service allows ${perMinute} lists a minute`
      : `${perMinute} lists a minute are configured`;
  const pagesText = pagesRead > 1 ? `a poll reads ${pagesRead} pages, and ` : "";
  const meanInterval = formatSeconds(Math.round(meanPollIntervalMs / 1_000));
  const targetInterval = formatSeconds(configuredPollIntervalMs / 1_000);
  return [`Alarms are polled every ${meanInterval} instead of every ${targetInterval}: ${pagesText}${listRateReason}.`];
}
