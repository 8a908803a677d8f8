import { asFailure, type Failure, LocalFailure, Malformed } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import type { AlarmFilter, Source } from "../../source/source.ts";
import { listItems, readPages, readTwice } from "../read-list-pages.ts";
import type { StoredAlarm } from "../stored-documents.ts";
import { alarmEndOrStartMs, parseUtcMs } from "./alarm-times.ts";
import { endsBeforeStart, episodeKey, isResolvedAlarm, relateToEpisode } from "./episode.ts";

const MAX_SEARCHED_ALARM_NAMES = 2;
const MAX_RESOLVED_PAGES = 10;
const MAX_SEARCH_TEXT_LENGTH = 255;
const REPLICA_DELAY_MS = 60_000;

export type AlarmSearchCounts = ReadonlyMap<string, number>;

const nextAbsenceCount = (counts: AlarmSearchCounts, { episode }: StoredAlarm) => (counts.get(episode) ?? 0) + 1;

/** Maximum polls between two searches for the same absent alarm: 16 polls every 30 s are 8 minutes. */
const MAX_POLLS_BETWEEN_SEARCHES = 16;

/** Returns the alarms to search now: absent for up to `everyPollUntil` polls, or for 4, 8, 16, 32, 48 … polls. */
export function findAlarmsToSearch(counts: AlarmSearchCounts, absent: readonly StoredAlarm[], everyPollUntil: number) {
  const isAlarmSearchDue = (count: number) =>
    count <= everyPollUntil || Number.isInteger(Math.log2(count)) || count % MAX_POLLS_BETWEEN_SEARCHES === 0;
  return absent
    .filter((storedAlarm) => isAlarmSearchDue(nextAbsenceCount(counts, storedAlarm)))
    .toSorted((a, b) => nextAbsenceCount(counts, a) - nextAbsenceCount(counts, b));
}

export function countAlarmSearches(
  counts: AlarmSearchCounts,
  absentAlarms: readonly StoredAlarm[],
  postponedIds: ReadonlySet<string> = new Set(),
): AlarmSearchCounts {
  return new Map(
    absentAlarms.map((storedAlarm) => [
      storedAlarm.episode,
      nextAbsenceCount(counts, storedAlarm) - (postponedIds.has(storedAlarm.alarm.id) ? 1 : 0),
    ]),
  );
}

interface AlarmSearchOptions {
  readonly source: Source;
  readonly maxPages: number;
  readonly isLastSearch: (storedAlarm: StoredAlarm) => boolean;
  readonly isTimeOver: () => boolean;
  readonly signal: AbortSignal;
}

export async function searchMissingAlarms(absentAlarms: readonly StoredAlarm[], options: AlarmSearchOptions) {
  const siteSearchResults: Awaited<ReturnType<typeof searchSiteAlarms>>[] = [];
  const finishedAlarmIds = new Set<string>();
  const failures = await forEachSite(absentAlarms, options.signal, async (siteId, alarms) => {
    if (options.isTimeOver()) return;
    for (const { alarm } of alarms) finishedAlarmIds.add(alarm.id);
    siteSearchResults.push(await searchSiteAlarms(siteId, alarms, options));
  });
  return {
    found: siteSearchResults.flatMap(({ found }) => found),
    searched: new Set(siteSearchResults.flatMap(({ searched }) => [...searched])),
    failures,
    finishedIds: finishedAlarmIds,
  };
}

/** Joins the results of several searches. `postponed`: alarms for which no search has finished. */
export function joinSearchResults(
  searches: readonly (Awaited<ReturnType<typeof searchMissingAlarms>> | null)[],
  alarms: readonly StoredAlarm[],
) {
  const finishedSearches = searches.filter((search) => search !== null);
  const ids = new Set(alarms.map(({ alarm }) => alarm.id));
  return {
    found: finishedSearches.flatMap(({ found }) => found),
    searched: ids.intersection(new Set(finishedSearches.flatMap(({ searched }) => [...searched]))),
    failures: new Map(finishedSearches.flatMap(({ failures }) => [...failures])),
    postponed: ids.difference(new Set(finishedSearches.flatMap(({ finishedIds }) => [...finishedIds]))),
  };
}

/** Searches a site's resolved alarms for absent alarms. The last search before `alarm-vanished` reads all alarms. */
async function searchSiteAlarms(siteId: number, absentAlarms: readonly StoredAlarm[], options: AlarmSearchOptions) {
  const { source, maxPages, signal } = options;
  const missingAlarms = new Map(absentAlarms.map((storedAlarm) => [storedAlarm.alarm.id, storedAlarm]));
  const foundAlarmRecords: Alarm[] = [];
  const addFoundAlarmRecord = (record: Alarm) => {
    const missingAlarm = missingAlarms.get(record.id);
    if (missingAlarm === undefined || relateToEpisode(missingAlarm, record) === "past") return;
    foundAlarmRecords.push(record);
    // An end before the stored start may belong to an older episode: continue the search for a later end.
    if (!endsBeforeStart(missingAlarm, record)) missingAlarms.delete(record.id);
  };
  const searchPages = async (filter: AlarmFilter, maxPages: number) => {
    let pageCount = 0;
    try {
      for await (const page of source.alarms(filter, signal)) {
        page.items.forEach(addFoundAlarmRecord);
        pageCount += 1;
        if (missingAlarms.size === 0 || pageCount >= maxPages) return;
      }
    } catch (error) {
      if (pageCount === 0 || !(error instanceof Malformed)) throw error;
    }
  };
  const names = new Set(absentAlarms.map(({ alarm }) => alarm.trigger.displayName.slice(0, MAX_SEARCH_TEXT_LENGTH)));
  if (names.size <= MAX_SEARCHED_ALARM_NAMES)
    for (const search of names) if (search.trim() !== "") await searchPages({ siteId, status: "resolved", search }, 1);
  if (missingAlarms.values().some((storedAlarm) => !options.isLastSearch(storedAlarm)))
    await searchPages({ siteId, status: "resolved" }, MAX_RESOLVED_PAGES);
  const lastSearchAlarmIds = [...missingAlarms.values()].filter(options.isLastSearch).map(({ alarm }) => alarm.id);
  if (lastSearchAlarmIds.length === 0) return { found: foundAlarmRecords, searched: new Set<string>() };
  const listReadSettings = { idOf: ({ id }: Alarm) => id, maxPages, keepsPartial: true };
  const allAlarms = await readPages(source.alarms({ siteId, status: "all" }, signal), listReadSettings);
  signal.throwIfAborted();
  listItems(allAlarms).forEach(addFoundAlarmRecord);
  return { found: foundAlarmRecords, searched: new Set(allAlarms.complete ? lastSearchAlarmIds : []) };
}

export interface AlarmEndCheck {
  /** Ids of alarms whose stored end the service does not list (restored from a backup): they are active again. */
  readonly revokedEndIds: ReadonlySet<string>;
  /** Ids of alarms whose stored end the service lists: their records in the list of active alarms are out of date. */
  readonly staleRecordIds: ReadonlySet<string>;
  readonly failures: ReadonlyMap<number, Failure>;
  readonly counts: AlarmSearchCounts;
}

/** Checks whether the service still lists the ends of alarms that it also lists as active. Ignores incomplete lists. */
export async function checkAlarmEnds(
  alarms: ReadonlyMap<string, StoredAlarm>,
  outdatedRecords: readonly Alarm[],
  lastCheck: Pick<AlarmEndCheck, "staleRecordIds" | "counts">,
  { always: everyPollUntil, nowMs }: { readonly always: number; readonly nowMs: number },
  source: Source,
  signal: AbortSignal,
): Promise<AlarmEndCheck> {
  const outdatedRecordsById = new Map(outdatedRecords.map((record) => [record.id, record]));
  const contestedEnds = [...outdatedRecordsById.keys()]
    .flatMap((id) => alarms.get(id) ?? [])
    .filter(({ state, since }) => state === "resolved" && Math.abs(nowMs - Date.parse(since)) >= REPLICA_DELAY_MS);
  const revokedAlarmIds = new Set<string>();
  const staleIds = new Set(contestedEnds.map(({ alarm }) => alarm.id).filter((id) => lastCheck.staleRecordIds.has(id)));
  const failures = await forEachSite(
    findAlarmsToSearch(lastCheck.counts, contestedEnds, everyPollUntil),
    signal,
    async (siteId, dueAlarms) => {
      const endKey = (alarm: Alarm) => `${episodeKey(alarm)} ${alarm.id} ${alarm.resolvedAt}`;
      const requestPages = () => source.alarms({ siteId, status: "resolved" }, signal);
      const readSettings = { idOf: endKey, compareKeyOf: endKey, maxPages: MAX_RESOLVED_PAGES };
      const resolvedList = await readTwice(requestPages, readSettings);
      signal.throwIfAborted();
      if (!resolvedList.complete) return;
      const resolvedById = Map.groupBy(resolvedList.items, ({ id }) => id);
      for (const contestedAlarm of dueAlarms) {
        const { id } = contestedAlarm.alarm;
        const resolvedRecords = (resolvedById.get(id) ?? []).filter(isResolvedAlarm);
        const isAlarmEndListed = resolvedRecords.some((row) => relateToEpisode(contestedAlarm, row) !== "past");
        staleIds.delete(id);
        if (!isAlarmEndListed) revokedAlarmIds.add(id);
        else if (!beganAfterStoredEnd(contestedAlarm, outdatedRecordsById.get(id))) staleIds.add(id);
      }
    },
  );
  return {
    revokedEndIds: revokedAlarmIds,
    staleRecordIds: staleIds,
    failures,
    counts: countAlarmSearches(lastCheck.counts, contestedEnds),
  };
}

export function restrictEndCheck(
  endCheck: AlarmEndCheck | null,
  lastCheck: Pick<AlarmEndCheck, "staleRecordIds" | "counts">,
  outdatedRecords: readonly Alarm[],
): AlarmEndCheck {
  const outdatedIds = new Set(outdatedRecords.map(({ id }) => id));
  const { counts, failures, revokedEndIds, staleRecordIds } = endCheck ?? {
    ...lastCheck,
    failures: new Map(),
    revokedEndIds: new Set(),
  };
  return {
    counts,
    failures,
    revokedEndIds: outdatedIds.intersection(revokedEndIds),
    staleRecordIds: outdatedIds.intersection(staleRecordIds),
  };
}

function beganAfterStoredEnd({ alarm }: StoredAlarm, record: Alarm | undefined): boolean {
  const [startMs, endMs] = [parseUtcMs(record?.triggeredAt ?? null), alarmEndOrStartMs(alarm)];
  return startMs !== null && endMs !== null && startMs > endMs;
}

async function forEachSite(
  alarms: readonly StoredAlarm[],
  signal: AbortSignal,
  searchSite: (siteId: number, alarms: readonly StoredAlarm[]) => Promise<void>,
): Promise<ReadonlyMap<number, Failure>> {
  const failures = new Map<number, Failure>();
  for (const [siteId, siteAlarms] of Map.groupBy(alarms, ({ alarm }) => alarm.site.id)) {
    try {
      await searchSite(siteId, siteAlarms);
    } catch (error) {
      signal.throwIfAborted();
      const failure = asFailure(error);
      if (failure instanceof LocalFailure) throw failure;
      failures.set(siteId, failure);
    }
  }
  return failures;
}
