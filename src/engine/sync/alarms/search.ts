import { asFailure, type Failure, LocalFailure, Malformed } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import type { AlarmFilter, Source } from "../../source/source.ts";
import { readPages, readTwice, recordsIn } from "../listing.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { endsBeforeStart, episodeKey, isResolved, relateRecord } from "./episode.ts";
import { endOrStartMs, parseUtcMs } from "./times.ts";

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
  const isDue = (count: number) => count <= always || Number.isInteger(Math.log2(count));
  return unexplained
    .filter((known) => isDue(nextCount(counts, known)))
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
  const results: Awaited<ReturnType<typeof searchSite>>[] = [];
  const postponed: string[] = [];
  const failures = await visitEachSite(absent, options.signal, async (siteId, alarms) => {
    if (options.isLate()) postponed.push(...alarms.map(({ alarm }) => alarm.id));
    else results.push(await searchSite(siteId, alarms, options));
  });
  return {
    found: results.flatMap(({ found }) => found),
    searched: new Set(results.flatMap(({ searched }) => [...searched])),
    failures,
    postponed: new Set(postponed),
  };
}

/** Searches a site's absent alarms by name, then in the resolved alarms, and at the last search in all alarms. */
async function searchSite(siteId: number, absent: readonly StoredAlarm[], options: SearchOptions) {
  const { source, maxPages, signal } = options;
  const missing = new Map(absent.map((known) => [known.alarm.id, known]));
  const found: Alarm[] = [];
  const take = (record: Alarm) => {
    const known = missing.get(record.id);
    if (known === undefined || relateRecord(known, record) === "past") return;
    found.push(record);
    // An end before the stored start may belong to an older episode: continue the search for a later end.
    if (!endsBeforeStart(known, record)) missing.delete(record.id);
  };
  const scan = async (filter: AlarmFilter, pages: number) => {
    let count = 0;
    try {
      for await (const page of source.alarms(filter, signal)) {
        page.items.forEach(take);
        count += 1;
        if (missing.size === 0 || count >= pages) return;
      }
    } catch (error) {
      if (count === 0 || !(error instanceof Malformed)) throw error;
    }
  };

  const names = new Set(absent.map(({ alarm }) => alarm.trigger.displayName.slice(0, MAX_SEARCH_TEXT_LENGTH)));
  if (names.size <= MAX_SEARCHED_NAMES)
    for (const search of names) if (search.trim() !== "") await scan({ siteId, status: "resolved", search }, 1);
  if (missing.values().some((known) => !options.isLastSearch(known)))
    await scan({ siteId, status: "resolved" }, MAX_RESOLVED_PAGES);
  const last = [...missing.values()].filter(options.isLastSearch).map(({ alarm }) => alarm.id);
  if (last.length === 0) return { found, searched: new Set<string>() };
  const settings = { idOf: ({ id }: Alarm) => id, maxPages, keepsShown: true };
  const all = await readPages(source.alarms({ siteId, status: "all" }, signal), settings);
  signal.throwIfAborted();
  recordsIn(all).forEach(take);
  return { found, searched: new Set(all.complete ? last : []) };
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
  const listed = new Map(outdated.map((record) => [record.id, record]));
  const contested = [...listed.keys()]
    .flatMap((id) => alarms.get(id) ?? [])
    .filter(({ state, since }) => state === "resolved" && Math.abs(nowMs - Date.parse(since)) >= REPLICA_DELAY_MS);
  const revoked = new Set<string>();
  const stillStale = new Set(contested.map(({ alarm }) => alarm.id).filter((id) => last.stale.has(id)));
  const failures = await visitEachSite(selectDue(last.counts, contested, always), signal, async (siteId, due) => {
    const rowOf = (alarm: Alarm) => `${episodeKey(alarm)} ${alarm.id} ${alarm.resolvedAt}`;
    const read = () => source.alarms({ siteId, status: "resolved" }, signal);
    const ends = await readTwice(read, { idOf: rowOf, sameAs: rowOf, maxPages: MAX_RESOLVED_PAGES });
    signal.throwIfAborted();
    if (!ends.complete) return;
    const rows = Map.groupBy(ends.items, ({ id }) => id);
    for (const known of due) {
      const { id } = known.alarm;
      const showsEnd = (rows.get(id) ?? []).some((row) => isResolved(row) && relateRecord(known, row) !== "past");
      stillStale.delete(id);
      if (!showsEnd) revoked.add(id);
      else if (!beganAfterEnd(known, listed.get(id))) stillStale.add(id);
    }
  });
  return { revoked, stale: stillStale, failures, counts: countRequests(last.counts, contested) };
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
