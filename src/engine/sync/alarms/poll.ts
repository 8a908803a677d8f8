import type { Failure } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import { sourceUri } from "../../../core/model/event.ts";
import { endsWithin, runInSlices, type SerialRunner, yieldUnlessAborted } from "../../../core/runtime/waiting.ts";
import { secondsText } from "../../../core/values/duration.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { DocumentChange } from "../../store/store.ts";
import { incompleteJobOutcome, type JobOutcome } from "../job.ts";
import type { PollContext } from "../poll-dependencies.ts";
import { buildJobOutcome, isSiteRefusal } from "../site-visits.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { type ActiveAlarms, createAlarmList, joinReadings } from "./active-list.ts";
import { isOpenAlarm } from "./diff-alarm.ts";
import { type AlarmDiff, type AlarmReading, cutDiff, type DiffOptions, diffAlarms, findAbsent } from "./diff-alarms.ts";
import { contradictsItself, endsBeforeStart, isEmittedEnd, isResolved } from "./episode.ts";
import { createMassGuard, findMassChange, findMassEnds } from "./mass-alarm-changes.ts";
import {
  checkEnds,
  countRequests,
  type EndCheck,
  joinSearches,
  type RequestCounts,
  restrictEndCheck,
  searchAlarms,
  selectDue,
} from "./missing-alarm-search.ts";
import type { ReadOptions } from "./site-alarm-list.ts";
import { type AlarmStore, expiredAlarmIds, noteFirstListings, openAlarmStore } from "./stored-alarms.ts";
import { createUnverifiedReport, isUndisputed, type Repetitions, sortRecords } from "./unverified-records.ts";

/**
 * Follows the active alarms of one source. One poll:
 *
 *   read the list ──► verify absences ─────────────► compare ──────────────► commit
 *     │                 search absent alarms,          withhold unconfirmed    alarms and events,
 *     │ each page       check contested ends,          mass changes            250 alarms at a time
 *     ▼                 read the list again,
 *   emit undisputed     refresh the token's scope
 *   records at once
 *
 * Counts of confirming polls change only after the last commit of a poll. At a lowered list rate, requests that verify
 * absences may wait for slots for minutes: a later poll then gets their result, so that new alarms are not delayed.
 */
export interface AlarmPoll {
  run(signal: AbortSignal): Promise<JobOutcome>;
  /** Runs the first poll after an outage: reads each list twice. Emits each page at once, after `source-available`. */
  reconcile(signal: AbortSignal): Promise<JobOutcome>;
}

type PollState = ReturnType<typeof createPollState>;

/** Interval of checks for new sites in the token's scope while no alarm list would show them. */
const SCOPE_CHECK_INTERVAL_MS = 300_000;
/** Alarms compared or committed at once: 5,000 would block the event loop for half a second. */
const ALARMS_PER_COMMIT = 250;
/** Number of alarms from which each step yields to the event loop: 5,000 alarms take 5 to 10 ms. */
const YIELD_FROM_ALARMS = 5_000;
const AVERAGED_POLL_INTERVALS = 10;
const LATE_POLL_FACTOR = 1.15;

export function createAlarmPoll(parts: PollContext, oneAtATime: SerialRunner, everyMs: () => number | null): AlarmPoll {
  const pollState = createPollState(parts, everyMs);
  return {
    run: (signal) => oneAtATime(() => pollAlarms(pollState, false, signal)),
    reconcile: (signal) => oneAtATime(() => pollAlarms(pollState, true, signal)),
  };
}

function createPollState(parts: PollContext, everyMs: () => number | null) {
  return {
    ...{ parts, everyMs, startedAt: isoUtc(parts.clock.now()) },
    store: openAlarmStore(parts),
    list: createAlarmList(parts),
    massGuard: createMassGuard(parts.log),
    reportUnverified: createUnverifiedReport(parts),
    /** Sites listed completely since the worker's start; and alarms of other sites emitted since then. */
    takenOverSites: new Set<number>(),
    takenOverAlarms: new Set<string>(),
    statements: new Map() as Repetitions,
    absenceCounts: new Map() as RequestCounts,
    ends: { counts: new Map(), stale: new Set() } as Pick<EndCheck, "counts" | "stale">,
    unfinished: new Map<string, Promise<() => unknown>>(),
    pollStartsMs: [] as readonly number[],
    pagesRead: 0,
  };
}

async function pollAlarms(state: PollState, careful: boolean, signal: AbortSignal): Promise<JobOutcome> {
  const { parts, store, massGuard } = state;
  const { clock, config, scope, source } = parts;
  state.pollStartsMs = [...state.pollStartsMs, clock.monotonic()].slice(-(AVERAGED_POLL_INTERVALS + 1));
  state.pagesRead = 0;
  await refreshOldScope(state, signal);
  const alarmsBefore: ReadonlyMap<string, StoredAlarm> = new Map(store.alarms);
  const requestedAtMs = clock.now();
  const readOptions: ReadOptions = { careful, onPage: createPageEmitter(state, careful, signal), signal };
  let firstList = await state.list.read(readOptions);
  await yieldForManyAlarms(state, firstList.listed.length, signal);
  if (!careful && isMassDrop(alarmsBefore, firstList)) firstList = await readListAgain(state, firstList, readOptions);
  await yieldForManyAlarms(state, firstList.listed.length, signal);
  if (careful && firstList.reasons.length > 0) return incompleteJobOutcome(firstList.reasons.join(" "));
  const verifiedAbsences = await verifyAbsences(state, firstList, readOptions);
  const { reading, sorted, ends } = verifiedAbsences;
  await recheckGateways(state, sorted.listed, signal);
  const diffSteps = diffAlarms(store.alarms, verifiedAbsences.observation, diffOptions(state));
  const fullDiff = await runInSlices(diffSteps, ALARMS_PER_COMMIT, clock, signal);
  const confirmedEnds = await confirmMassEnds(state, findMassEnds(alarmsBefore, fullDiff), signal);
  const { diff, remarks: massRemarks } = massGuard.judge(alarmsBefore, fullDiff, reading.coverage, confirmedEnds);
  const siteIds = new Set([...(scope.known() ?? []), ...reading.listed.map((alarm) => alarm.site.id)]);
  const listedSites = [...siteIds].filter((siteId) => reading.coverage(siteId) === "complete");
  // Alarms that began after this request, by the service's clock, are new.
  const followedSince = isoUtc(requestedAtMs - (source.clockSkewMs() ?? 0));
  const retention = { nowMs: clock.now(), overlapMs: config.alarms.resolved_overlap };
  const lastDocuments = [
    { set: store.alarmSet, remove: expiredAlarmIds(store, diff.put, retention) },
    { set: store.siteSet, put: noteFirstListings(store.sites, listedSites, "activeSince", followedSince) },
  ];
  await commitDiff(state, diff, lastDocuments, careful, signal);
  state.absenceCounts = countRequests(state.absenceCounts, verifiedAbsences.absent, verifiedAbsences.postponed);
  state.ends = ends;
  state.statements = sorted.statements;
  for (const siteId of listedSites) state.takenOverSites.add(siteId);
  const pollRemarks = [
    ...reading.remarks,
    ...massRemarks,
    ...state.reportUnverified(sorted, ends, reading.unreadable),
    ...describeLateness(state),
  ];
  return buildJobOutcome(new Map([...verifiedAbsences.failures, ...reading.failures]), reading.reasons, pollRemarks);
}

/** Refreshes an old token scope if lists of single sites hide new sites, or if alarms are out of scope. */
async function refreshOldScope(state: PollState, signal: AbortSignal) {
  const { list, parts, store } = state;
  const { clock, scope } = parts;
  if (clock.monotonic() - scope.respondedAtMs() < SCOPE_CHECK_INTERVAL_MS) return;
  const hasHiddenAlarms = store.alarms.values().some((known) => known.state === "out-of-scope");
  if (list.wasPerSite() || hasHiddenAlarms) await finishInTime(state, "scope", () => scope.tryRefresh(signal));
}

/**
 * Waits for verifying requests. While the service permits fewer lists than configured, waits for half of the poll
 * interval at most, and returns null when they take longer. A later call with the same name then gets their result, which
 * may be about other alarms.
 */
async function finishInTime<T>(
  state: PollState,
  name: string,
  work: () => Promise<T>,
  untilMs = halfIntervalEndMs(state),
): Promise<T | null> {
  const { parts, unfinished } = state;
  const pending =
    unfinished.get(name) ??
    work().then(
      (result) => () => result,
      (error: unknown) => () => {
        throw error;
      },
    );
  unfinished.set(name, pending);
  const { configured, perMinute } = parts.source.listRate();
  const leftMs = untilMs - parts.clock.monotonic();
  const isLimited = perMinute < configured && leftMs < Number.POSITIVE_INFINITY;
  if (isLimited && !(await endsWithin(parts.clock, leftMs, pending))) return null;
  unfinished.delete(name);
  return (await pending)() as T;
}

function halfIntervalEndMs({ everyMs, parts }: PollState): number {
  return parts.clock.monotonic() + (everyMs() ?? Number.POSITIVE_INFINITY) / 2;
}

/** Emits undisputed alarms of each page at once. After a failed commit, all later pages wait for the complete list. */
function createPageEmitter(state: PollState, returning: boolean, signal: AbortSignal): ReadOptions["onPage"] {
  const { parts, store } = state;
  const { alarms } = store;
  let hasCommitFailed = false;
  let isReturnEmitted = !returning;
  return async (records) => {
    state.pagesRead += 1;
    if (hasCommitFailed) return;
    const listed = records.filter((record) => {
      const storedAlarm = alarms.get(record.id);
      return !(storedAlarm?.alarm === record && storedAlarm.state === "active") && isUndisputed(storedAlarm, record);
    });
    if (listed.length === 0) return;
    if (!isReturnEmitted) await parts.commit("alarms", {}, true);
    isReturnEmitted = true;
    await recheckGateways(state, listed, signal);
    const listedIds = new Set(listed.map(({ id }) => id));
    const storedById = new Map([...alarms].filter(([id]) => listedIds.has(id)));
    const reading: AlarmReading = { listed, coverage: () => "moving", found: [], searched: new Set(), scope: null };
    const diffSteps = diffAlarms(storedById, reading, diffOptions(state));
    try {
      const diff = await runInSlices(diffSteps, ALARMS_PER_COMMIT, parts.clock, signal);
      await commitDiff(state, diff, [], false, signal);
      await yieldUnlessAborted(parts.clock, signal);
      if (parts.config.alarms.startup === "reconcile") return;
      for (const { id, site } of listed) if (!state.takenOverSites.has(site.id)) state.takenOverAlarms.add(id);
    } catch (error) {
      hasCommitFailed = true;
      parts.log.debug({ err: error }, "a page of active alarms was not committed");
    }
  };
}

function isMassDrop(before: ReadonlyMap<string, StoredAlarm>, { listed, coverage }: ActiveAlarms): boolean {
  const listedIds = new Set(listed.map(({ id }) => id));
  const isObserved = (siteId: number) => coverage(siteId) === "complete";
  return findMassChange(before, ({ alarm }) => !listedIds.has(alarm.id), isObserved) !== null;
}

async function readListAgain({ list }: PollState, first: ActiveAlarms, how: ReadOptions): Promise<ActiveAlarms> {
  return joinReadings(first, await list.read({ ...how, careful: false }));
}

async function verifyAbsences(state: PollState, first: ActiveAlarms, how: ReadOptions) {
  const { parts, store, massGuard } = state;
  const { config, clock, scope, source } = parts;
  const { vanish_after_misses: vanishAfter } = config.alarms;
  const { alarms } = store;
  const { signal } = how;
  const isVisible = (siteId: number) => scope.known()?.has(siteId) ?? false;
  const sortListedAlarms = (reading: ActiveAlarms) => {
    const sorted = sortRecords(state.statements, alarms, reading.listed, reading.coverage);
    return { reading, sorted, absent: findAbsent(alarms, sorted.listed, reading.coverage, isVisible) };
  };
  let sortedReading = sortListedAlarms(first);
  await yieldForManyAlarms(state, first.listed.length, signal);
  const dueSearches = selectDue(state.absenceCounts, sortedReading.absent, vanishAfter);
  const isDoubted = ({ alarm }: StoredAlarm) => sortedReading.sorted.doubted.has(alarm.id);
  const isLastSearch = (known: StoredAlarm) => known.misses + 1 >= vanishAfter && !isDoubted(known);
  const search = await searchAbsentAlarms(state, "absent alarms", dueSearches, isLastSearch, signal);
  const foundById = Map.groupBy(search.found, ({ id }) => id);
  const isExplained = (known: StoredAlarm) =>
    (foundById.get(known.alarm.id) ?? []).some((record) => !isResolved(record) || isNewEnd(known, record));
  // Read again while a mass drop awaits confirmation; an alarm absent for hours costs no request per poll.
  const pendingDrops = sortedReading.absent.filter(({ alarm }) => massGuard.isPending(alarm.site.id));
  const unexplained = [...dueSearches, ...pendingDrops].filter(({ alarm }) => !search.postponed.has(alarm.id));
  if (!sortedReading.reading.isConfirmed && !unexplained.every(isExplained))
    sortedReading = sortListedAlarms(await readListAgain(state, first, how));
  const { reading, sorted, absent } = sortedReading;
  const endLimits = { always: vanishAfter, nowMs: clock.now() };
  const check = () => checkEnds(alarms, sorted.outdated, state.ends, endLimits, source, signal);
  const endCheck = restrictEndCheck(await finishInTime(state, "ends", check), state.ends, sorted.outdated);
  const followedAlarms = [...alarms.values()].filter((known) => isOpenAlarm(known) && known.state !== "out-of-scope");
  const hiddenAlarms = followedAlarms.filter(({ alarm }) => !scope.sees(alarm.site.id));
  const listedIds = new Set(hiddenAlarms.length === 0 ? [] : sorted.listed.map(({ id }) => id));
  const needsScope =
    unexplained.some(({ alarm }) => !foundById.has(alarm.id)) ||
    // A listed alarm needs no new scope, even when the token's scope lacks the alarm's site.
    hiddenAlarms.some(({ alarm }) => !listedIds.has(alarm.id)) ||
    followedAlarms.some(({ alarm }) => isSiteRefusal(reading.failures.get(alarm.site.id)));
  const seenScope = needsScope ? await finishInTime(state, "scope", () => scope.tryRefresh(signal)) : null;
  const unclearRecords = search.found.filter((record) => record.status === "active" && contradictsItself(record));
  // An alarm absent from pages that were read only once may still be active.
  const unconfirmedAlarms = reading.isConfirmed ? [] : absent.filter((known) => !isExplained(known));
  const observation: AlarmReading = {
    listed: sorted.listed,
    insisted: sorted.insisted.difference(endCheck.stale).union(endCheck.revoked),
    corrected: sorted.corrected,
    doubted: new Set([
      ...sorted.doubted,
      ...unclearRecords.map(({ id }) => id),
      ...search.postponed,
      ...unconfirmedAlarms.map(({ alarm }) => alarm.id),
    ]),
    coverage: reading.coverage,
    found: search.found.filter((record) => !unclearRecords.includes(record)),
    searched: search.searched,
    scope: seenScope,
  };
  const failures: ReadonlyMap<number, Failure> = new Map([...endCheck.failures, ...search.failures]);
  return { reading, sorted, absent, ends: endCheck, observation, failures, postponed: search.postponed };
}

/**
 * Searches for absent alarms; sites whose turn comes after half of the poll interval wait for a later poll. The result
 * of an earlier poll's search comes first, then a search for the alarms that it does not answer.
 */
async function searchAbsentAlarms(
  state: PollState,
  name: "absent alarms" | "ended alarms",
  alarms: readonly StoredAlarm[],
  isLastSearch: (known: StoredAlarm) => boolean,
  signal: AbortSignal,
) {
  const { clock, config, scope, source } = state.parts;
  const untilMs = halfIntervalEndMs(state);
  const isLate = () => clock.monotonic() >= untilMs;
  const visible = alarms.filter(({ alarm }) => scope.sees(alarm.site.id));
  const settings = { source, maxPages: config.alarms.resolved_pages_max, isLastSearch, isLate, signal };
  const hasEarlier = state.unfinished.has(name);
  const first = await finishInTime(state, name, () => searchAlarms(visible, settings), untilMs);
  const unanswered = visible.filter(({ alarm }) => first?.answered.has(alarm.id) === false);
  if (!hasEarlier || unanswered.length === 0) return joinSearches([first], visible);
  const second = await finishInTime(state, name, () => searchAlarms(unanswered, settings), untilMs);
  return joinSearches([first, second], visible);
}

async function confirmMassEnds(state: PollState, ended: ReadonlySet<string>, signal: AbortSignal) {
  const endedAlarms = [...ended].flatMap((id) => state.store.alarms.get(id) ?? []);
  const { found } = await searchAbsentAlarms(state, "ended alarms", endedAlarms, () => false, signal);
  return new Set(found.filter(isResolved).map(({ id }) => id));
}

function isNewEnd(known: StoredAlarm, record: Alarm): boolean {
  return !isEmittedEnd(known, record) && !endsBeforeStart(known, record);
}

async function recheckGateways({ parts, store }: PollState, listed: readonly Alarm[], signal: AbortSignal) {
  const isNewAlarm = ({ id, site }: Alarm) => {
    const storedAlarm = store.alarms.get(id);
    return (storedAlarm === undefined || !isOpenAlarm(storedAlarm)) && isFollowedSite(store, site.id);
  };
  const siteIds = new Set(listed.filter(isNewAlarm).map(({ site }) => site.id));
  const gatewayChecks = parts.beforeNewAlarms([...siteIds], signal);
  if (gatewayChecks !== null) await gatewayChecks;
}

function isFollowedSite({ sites }: AlarmStore, siteId: number): boolean {
  return (sites.get(String(siteId))?.activeSince ?? null) !== null;
}

function diffOptions({ parts, store, startedAt, takenOverSites, takenOverAlarms }: PollState): DiffOptions {
  const { clock, config, source } = parts;
  return {
    source: sourceUri(source.name),
    at: isoUtc(clock.now()),
    late: false,
    behindGateway: store.gatewayFinder(),
    vanishAfterMisses: config.alarms.vanish_after_misses,
    isKnownSite: (siteId) => isFollowedSite(store, siteId),
    startup: config.alarms.startup,
    startedAt,
    isTakenOver: ({ id, site }) => takenOverSites.has(site.id) || takenOverAlarms.has(id),
  };
}

async function commitDiff(
  { parts, store }: PollState,
  diff: AlarmDiff,
  lastDocuments: readonly DocumentChange[],
  returning: boolean,
  signal: AbortSignal,
): Promise<void> {
  for (const { put, events, isLast } of cutDiff(diff, ALARMS_PER_COMMIT)) {
    const documents = [{ set: store.alarmSet, put }, ...(isLast ? lastDocuments : [])];
    await parts.commit("alarms", { documents, events }, returning);
    if (!isLast) await yieldUnlessAborted(parts.clock, signal);
  }
}

async function yieldForManyAlarms({ parts }: PollState, alarms: number, signal: AbortSignal): Promise<void> {
  if (alarms >= YIELD_FROM_ALARMS) await yieldUnlessAborted(parts.clock, signal);
}

function describeLateness({ parts: { source }, everyMs, pollStartsMs, pagesRead }: PollState): readonly string[] {
  const configuredMs = everyMs();
  const pollIntervalsMs = pollStartsMs.slice(1).map((atMs, index) => atMs - (pollStartsMs[index] ?? atMs));
  if (configuredMs === null || pollIntervalsMs.length < AVERAGED_POLL_INTERVALS) return [];
  const usualIntervalsMs = pollIntervalsMs.sort((one, other) => one - other).slice(0, -1);
  const meanMs = usualIntervalsMs.reduce((sum, gapMs) => sum + gapMs, 0) / usualIntervalsMs.length;
  if (meanMs < LATE_POLL_FACTOR * configuredMs) return [];
  const { perMinute, configured } = source.listRate();
  const rateReason =
    perMinute < configured
      ? `the service allows ${perMinute} lists a minute`
      : `${perMinute} lists a minute are configured`;
  const pagesText = pagesRead > 1 ? `a poll reads ${pagesRead} pages, and ` : "";
  const meanInterval = secondsText(Math.round(meanMs / 1_000));
  const targetInterval = secondsText(configuredMs / 1_000);
  return [`Alarms are polled every ${meanInterval} instead of every ${targetInterval}: ${pagesText}${rateReason}.`];
}
