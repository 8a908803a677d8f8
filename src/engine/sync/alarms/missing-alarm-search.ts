import { asFailure, type Failure, LocalFailure, Malformed } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import type { AlarmFilter, Source } from "../../source/source.ts";
import { listItems, readPages, readTwice } from "../listing.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { endOrStartMs, parseUtcMs } from "./alarm-times.ts";
import { endsBeforeStart, episodeKey, isResolved, relateRecord } from "./episode.ts";

/** Most alarm names searched one by one; for more, reading the list of resolved alarms costs fewer requests. */
const MAX_SEARCHED_NAMES = 2;
/** Most pages of a site's resolved alarms that one poll reads; the sweep reads all of them. */
const MAX_RESOLVED_PAGES = 10;
const MAX_SEARCH_TEXT_LENGTH = 255;
const REPLICA_DELAY_MS = 60_000;

/** Number of consecutive polls that searched for an unexplained alarm, by episode. */
export type RequestCounts = ReadonlyMap<string, number>;

const nextCount = (counts: RequestCounts, { episode }: StoredAlarm) => (counts.get(episode) ?? 0) + 1;

/** Returns the alarms to search in this poll: in their polls 1 to `always`, then 4, 8, 16 …; least searched first. */
export function selectDue(counts: RequestCounts, unexplained: readonly StoredAlarm[], always: number) {
  const isSearchDue = (count: number) => count <= always || Number.isInteger(Math.log2(count));
  return unexplained
    .filter((known) => isSearchDue(nextCount(counts, known)))
    .toSorted((one, other) => nextCount(counts, one) - nextCount(counts, other));
}

export function countRequests(
  counts: RequestCounts,
  unexplained: readonly StoredAlarm[],
  postponed: ReadonlySet<string> = new Set(),
): RequestCounts {
  return new Map(
    unexplained.map((known) => [known.episode, nextCount(counts, known) - (postponed.has(known.alarm.id) ? 1 : 0)]),
  );
}

interface SearchOptions {
  readonly source: Source;
  readonly maxPages: number;
  readonly isLastSearch: (known: StoredAlarm) => boolean;
  readonly isLate: () => boolean;
  readonly signal: AbortSignal;
}

export async function searchAlarms(absent: readonly StoredAlarm[], options: SearchOptions) {
  const siteResults: Awaited<ReturnType<typeof searchSite>>[] = [];
  const answeredAlarmIds = new Set<string>();
  const failures = await visitEachSite(absent, options.signal, async (siteId, alarms) => {
    if (options.isLate()) return;
    for (const { alarm } of alarms) answeredAlarmIds.add(alarm.id);
    siteResults.push(await searchSite(siteId, alarms, options));
  });
  return {
    found: siteResults.flatMap(({ found }) => found),
    searched: new Set(siteResults.flatMap(({ searched }) => [...searched])),
    failures,
    answered: answeredAlarmIds,
  };
}

/**
 * Joins searches, and restricts all but the found records to some alarms: an end that an earlier search found is valid
 * even if this poll did not list the alarm's site. Alarms without a finished search are postponed.
 */
export function joinSearches(
  searches: readonly (Awaited<ReturnType<typeof searchAlarms>> | null)[],
  alarms: readonly StoredAlarm[],
) {
  const finished = searches.filter((search) => search !== null);
  const ids = new Set(alarms.map(({ alarm }) => alarm.id));
  return {
    found: finished.flatMap(({ found }) => found),
    searched: ids.intersection(new Set(finished.flatMap(({ searched }) => [...searched]))),
    failures: new Map(finished.flatMap(({ failures }) => [...failures])),
    postponed: ids.difference(new Set(finished.flatMap(({ answered }) => [...answered]))),
  };
}

/** Searches a site's absent alarms by name, then in the resolved alarms, and at the last search in all alarms. */
async function searchSite(siteId: number, absent: readonly StoredAlarm[], options: SearchOptions) {
  const { source, maxPages, signal } = options;
  const missingAlarms = new Map(absent.map((known) => [known.alarm.id, known]));
  const foundRecords: Alarm[] = [];
  const addFoundRecord = (record: Alarm) => {
    const missingAlarm = missingAlarms.get(record.id);
    if (missingAlarm === undefined || relateRecord(missingAlarm, record) === "past") return;
    foundRecords.push(record);
    // An end before the stored start may belong to an older episode: continue the search for a later end.
    if (!endsBeforeStart(missingAlarm, record)) missingAlarms.delete(record.id);
  };
  const scanPages = async (filter: AlarmFilter, pages: number) => {
    let pageCount = 0;
    try {
      for await (const page of source.alarms(filter, signal)) {
        page.items.forEach(addFoundRecord);
        pageCount += 1;
        if (missingAlarms.size === 0 || pageCount >= pages) return;
      }
    } catch (error) {
      if (pageCount === 0 || !(error instanceof Malformed)) throw error;
    }
  };
  const names = new Set(absent.map(({ alarm }) => alarm.trigger.displayName.slice(0, MAX_SEARCH_TEXT_LENGTH)));
  if (names.size <= MAX_SEARCHED_NAMES)
    for (const search of names) if (search.trim() !== "") await scanPages({ siteId, status: "resolved", search }, 1);
  if (missingAlarms.values().some((known) => !options.isLastSearch(known)))
    await scanPages({ siteId, status: "resolved" }, MAX_RESOLVED_PAGES);
  const lastSearchIds = [...missingAlarms.values()].filter(options.isLastSearch).map(({ alarm }) => alarm.id);
  if (lastSearchIds.length === 0) return { found: foundRecords, searched: new Set<string>() };
  const settings = { idOf: ({ id }: Alarm) => id, maxPages, keepsShown: true };
  const allAlarms = await readPages(source.alarms({ siteId, status: "all" }, signal), settings);
  signal.throwIfAborted();
  listItems(allAlarms).forEach(addFoundRecord);
  return { found: foundRecords, searched: new Set(allAlarms.complete ? lastSearchIds : []) };
}

export interface EndCheck {
  /** Ids of alarms whose stored end the service does not list (restored from a backup): they are active again. */
  readonly revoked: ReadonlySet<string>;
  /** Ids of alarms whose stored end the service lists: their records in the list of active alarms are out of date. */
  readonly stale: ReadonlySet<string>;
  readonly failures: ReadonlyMap<number, Failure>;
  readonly counts: RequestCounts;
}

/** Checks stored ends of alarms that are listed as active without a later event. An incomplete list decides nothing. */
export async function checkEnds(
  alarms: ReadonlyMap<string, StoredAlarm>,
  outdated: readonly Alarm[],
  last: Pick<EndCheck, "stale" | "counts">,
  { always, nowMs }: { readonly always: number; readonly nowMs: number },
  source: Source,
  signal: AbortSignal,
): Promise<EndCheck> {
  const outdatedById = new Map(outdated.map((record) => [record.id, record]));
  const contestedAlarms = [...outdatedById.keys()]
    .flatMap((id) => alarms.get(id) ?? [])
    .filter(({ state, since }) => state === "resolved" && Math.abs(nowMs - Date.parse(since)) >= REPLICA_DELAY_MS);
  const revoked = new Set<string>();
  const stillStale = new Set(contestedAlarms.map(({ alarm }) => alarm.id).filter((id) => last.stale.has(id)));
  const failures = await visitEachSite(selectDue(last.counts, contestedAlarms, always), signal, async (siteId, due) => {
    const rowKey = (alarm: Alarm) => `${episodeKey(alarm)} ${alarm.id} ${alarm.resolvedAt}`;
    const readResolved = () => source.alarms({ siteId, status: "resolved" }, signal);
    const resolvedList = await readTwice(readResolved, { idOf: rowKey, sameAs: rowKey, maxPages: MAX_RESOLVED_PAGES });
    signal.throwIfAborted();
    if (!resolvedList.complete) return;
    const recordsById = Map.groupBy(resolvedList.items, ({ id }) => id);
    for (const alarmWithDoubtedEnd of due) {
      const { id } = alarmWithDoubtedEnd.alarm;
      const endRecords = (recordsById.get(id) ?? []).filter(isResolved);
      const showsAlarmEnd = endRecords.some((row) => relateRecord(alarmWithDoubtedEnd, row) !== "past");
      stillStale.delete(id);
      if (!showsAlarmEnd) revoked.add(id);
      else if (!beganAfterEnd(alarmWithDoubtedEnd, outdatedById.get(id))) stillStale.add(id);
    }
  });
  return { revoked, stale: stillStale, failures, counts: countRequests(last.counts, contestedAlarms) };
}

/** Restricts a check to records that are still listed. Without a finished check, the last one stays valid. */
export function restrictEndCheck(
  check: EndCheck | null,
  last: Pick<EndCheck, "stale" | "counts">,
  outdated: readonly Alarm[],
): EndCheck {
  const ids = new Set(outdated.map(({ id }) => id));
  const { counts, failures, revoked, stale } = check ?? { ...last, failures: new Map(), revoked: new Set() };
  return { counts, failures, revoked: ids.intersection(revoked), stale: ids.intersection(stale) };
}

function beganAfterEnd({ alarm }: StoredAlarm, record: Alarm | undefined): boolean {
  const [startMs, endMs] = [parseUtcMs(record?.triggeredAt ?? null), endOrStartMs(alarm)];
  return startMs !== null && endMs !== null && startMs > endMs;
}

async function visitEachSite(
  alarms: readonly StoredAlarm[],
  signal: AbortSignal,
  visit: (siteId: number, alarms: readonly StoredAlarm[]) => Promise<void>,
): Promise<ReadonlyMap<number, Failure>> {
  const failures = new Map<number, Failure>();
  for (const [siteId, ofSite] of Map.groupBy(alarms, ({ alarm }) => alarm.site.id)) {
    try {
      await visit(siteId, ofSite);
    } catch (error) {
      signal.throwIfAborted();
      const failure = asFailure(error);
      if (failure instanceof LocalFailure) throw failure;
      failures.set(siteId, failure);
    }
  }
  return failures;
}
