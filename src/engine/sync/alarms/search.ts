import { Malformed } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import type { AlarmFilter, Source } from "../../source/source.ts";
import { collect, listedCoverage } from "../listing.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { isOverBefore, relationOf } from "./episode.ts";

/** Result of searching absent alarms. */
export interface SearchResult {
  readonly found: readonly Alarm[];
  /** Ids that were searched for in every page of every status. */
  readonly searched: readonly string[];
}

export interface AlarmSearchOptions {
  readonly source: Source;
  /** Most pages of one list that are read in the last search, before an alarm counts as vanished. */
  readonly maxPages: number;
}

/** Names that are asked for one by one; with more absent alarms the list of resolved ones is cheaper. */
const NAMES = 2;
/** Most pages of the resolved alarms of a site that one poll reads; the sweep reads them all. */
export const PAGES = 10;
/** Length of a search text at most (interface, Limits). */
const SEARCH_LENGTH = 255;

/**
 * Asks the service what became of alarms that left the active list of a site. First by the name of their trigger,
 * which is one small answer where the search works as the interface says; then in the list of resolved alarms; and
 * before the last miss, `last`, in the list of all alarms, whatever their status, to its end.
 */
export async function searchAlarms(
  siteId: number,
  wanted: readonly StoredAlarm[],
  last: readonly StoredAlarm[],
  options: AlarmSearchOptions,
  signal: AbortSignal,
): Promise<SearchResult> {
  const open = new Map([...wanted, ...last].map((held) => [held.alarm.id, held]));
  const found: Alarm[] = [];
  const note = (alarm: Alarm) => {
    const held = open.get(alarm.id);
    if (held === undefined) return;
    if (relationOf(held, alarm) === "past") return;
    found.push(alarm);
    // This may be the end of an older episode: the search goes on, and of several ends the last one counts.
    if (isOverBefore(held, alarm)) return;
    open.delete(alarm.id);
  };
  const scan = async (filter: AlarmFilter, maxPages: number) => {
    let count = 0;
    try {
      for await (const page of options.source.alarms(filter, signal)) {
        for (const alarm of page.items) note(alarm);
        count += 1;
        if (open.size === 0 || count >= maxPages) return;
      }
    } catch (error) {
      // Pages that lead nowhere take nothing from what came before them.
      if (count === 0 || !(error instanceof Malformed)) throw error;
    }
  };

  const names = new Set([...open.values()].map((held) => held.alarm.trigger.displayName.slice(0, SEARCH_LENGTH)));
  if (names.size <= NAMES) {
    for (const search of names) if (search.trim() !== "") await scan({ siteId, status: "resolved", search }, 1);
  }
  if (wanted.some((held) => open.has(held.alarm.id))) await scan({ siteId, status: "resolved" }, PAGES);
  const due = last.filter((held) => open.has(held.alarm.id));
  if (due.length === 0) return { found, searched: [] };

  const idOf = (alarm: Alarm) => alarm.id;
  const all = await collect(options.source.alarms({ siteId, status: "all" }, signal), {
    idOf,
    maxPages: options.maxPages,
    keepsShown: true,
  });
  signal.throwIfAborted();
  for (const alarm of listedCoverage(all)) note(alarm);
  return { found, searched: all.complete ? due.map((held) => held.alarm.id) : [] };
}
