import { asFailure } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { AlarmFilter } from "../../source/source.ts";
import { isFailureOfAllSites } from "../poll-each-site.ts";
import { fingerprint, joinItemsById, type Listing, listItems } from "../read-list-pages.ts";
import { episodeKey } from "./episode.ts";

type ListPart = Pick<AlarmFilter, "priority" | "acknowledged">;

export interface ListOptions {
  readonly readsTwice: boolean;
  readonly onPage: (alarms: readonly Alarm[]) => Promise<void>;
  readonly signal: AbortSignal;
}

export interface ListLimits {
  readonly maxPages: number;
  readonly twice: boolean;
}

const MAX_SITE_ALARM_PAGES = 20;
const SPLIT_LIST_AFTER_FAILURES = 3;
const SPLIT_LIST_AFTER_FAILING_MS = 120_000;
const RETRY_WHOLE_LIST_AFTER_MS = 3_600_000;

interface AlarmListFailures {
  readonly firstMs: number;
  readonly count: number;
  readonly splitAtMs: number | null;
}

/** Reads a site's alarm list. If its last page cannot be reached, reads the list by priority for an hour. */
export function createSiteListReader(
  readList: (
    filter: ListPart & { siteId: number },
    options: ListOptions,
    limits: ListLimits,
  ) => Promise<Listing<Alarm>>,
  isListUnreliable: () => boolean,
  clock: Clock,
  log: Pick<Log, "info" | "warn">,
) {
  const failuresByList = new Map<string, AlarmListFailures>();
  const lastAlarmIdsBySite = new Map<number, ReadonlySet<string>>();
  const isAlarmListSplit = (listName: string) => {
    const listSplitAtMs = failuresByList.get(listName)?.splitAtMs ?? null;
    return listSplitAtMs !== null && clock.monotonic() - listSplitAtMs < RETRY_WHOLE_LIST_AFTER_MS;
  };

  function noteListFailure(list: string, isPart: boolean, { brokenBy, reason }: { brokenBy?: string; reason: string }) {
    const nowMs = clock.monotonic();
    const earlier = failuresByList.get(list) ?? { firstMs: nowMs, count: 0, splitAtMs: null };
    const count = earlier.count + 1;
    const failsOften = count >= SPLIT_LIST_AFTER_FAILURES && nowMs - earlier.firstMs >= SPLIT_LIST_AFTER_FAILING_MS;
    const mustSplit = brokenBy === "pages" || isPart || failsOften || isListUnreliable();
    failuresByList.set(list, { ...earlier, count, splitAtMs: mustSplit ? nowMs : null });
    if (mustSplit && earlier.splitAtMs === null)
      log.warn({ list, reason }, "a list of alarms cannot be read to its end: it is read in parts");
    return mustSplit;
  }

  async function readListPart(
    siteId: number,
    part: ListPart,
    twice: boolean,
    listOptions: ListOptions,
  ): Promise<Listing<Alarm>> {
    const listName = describeAlarmList(siteId, part);
    if (!isAlarmListSplit(listName)) {
      const completeListing = await readList({ siteId, ...part }, listOptions, {
        maxPages: MAX_SITE_ALARM_PAGES,
        twice,
      });
      if (completeListing.complete || completeListing.brokenBy === undefined) {
        if ((failuresByList.get(listName)?.splitAtMs ?? null) !== null)
          log.info({ list: listName }, "a list of alarms can be read completely again");
        failuresByList.delete(listName);
        return completeListing;
      }
      if (!noteListFailure(listName, part.priority !== undefined, completeListing)) {
        if (completeListing.failure !== undefined) throw completeListing.failure;
        return completeListing;
      }
    }
    const firstPage = await readList({ siteId, ...part }, listOptions, { maxPages: 1, twice: false });
    if (firstPage.complete) return firstPage;
    const listParts = splitAlarmListPart(part);
    if (listParts.length === 0)
      return { ...firstPage, reason: `The active alarms of ${listName} cannot be read beyond their first page.` };
    const readPart = (listPart: ListPart) => readListPart(siteId, listPart, false, listOptions);
    return joinAlarmListParts(firstPage, listParts, readPart, listOptions.signal);
  }

  return async (
    siteId: number,
    listOptions: ListOptions,
  ): Promise<{ listing: Listing<Alarm>; remark: string | null }> => {
    const firstList = await readListPart(siteId, {}, true, listOptions);
    if (!isAlarmListSplit(describeAlarmList(siteId, {}))) return { listing: firstList, remark: null };
    const remark = `The pages of the active alarms of site ${siteId} cannot be walked: they are read by priority and acknowledgement.`;
    // An alarm may move between two priorities while their lists are read: read again before it counts as absent.
    const firstAlarmIds = new Set(listItems(firstList).map(getAlarmId));
    const lacksEarlierAlarms = lastAlarmIdsBySite.get(siteId)?.isSubsetOf(firstAlarmIds) !== true;
    lastAlarmIdsBySite.set(siteId, firstAlarmIds);
    if (!firstList.complete || !(listOptions.readsTwice || lacksEarlierAlarms)) return { listing: firstList, remark };
    const secondList = await readListPart(siteId, {}, true, listOptions);
    const alarms = joinItemsById(firstList.items, listItems(secondList), getAlarmId);
    lastAlarmIdsBySite.set(siteId, new Set(alarms.map(getAlarmId)));
    if (secondList.complete && fingerprint(firstList.items, stateKey) === fingerprint(secondList.items, stateKey))
      return { listing: secondList, remark };
    return { listing: incompleteList("Two readings of the parts of a list differ.", alarms, alarms.length), remark };
  };
}

/** Joins the parts of a site's list. The result is complete if it has as many records as the undivided list states. */
async function joinAlarmListParts(
  firstPage: Listing<Alarm> & { readonly complete: false },
  parts: readonly ListPart[],
  readListPart: (part: ListPart) => Promise<Listing<Alarm>>,
  signal: AbortSignal,
): Promise<Listing<Alarm>> {
  let items = listItems(firstPage);
  const ids = new Set<string>();
  const faults: string[] = [];
  for (const listPart of parts) {
    try {
      const listing = await readListPart(listPart);
      for (const { id } of listItems(listing)) ids.add(id);
      items = joinItemsById(items, listItems(listing), getAlarmId);
      if (!listing.complete) faults.push(listing.reason);
    } catch (error) {
      signal.throwIfAborted();
      const failure = asFailure(error);
      if (isFailureOfAllSites(failure)) throw failure;
      faults.push(failure.message);
    }
  }
  const { total } = firstPage;
  if (faults.length === 0 && total === ids.size && total === items.length) return { complete: true, items, pages: 1 };
  return incompleteList(faults[0] ?? `The list says ${total} records and its parts show ${ids.size}.`, items, total);
}

function incompleteList(reason: string, shownAlarms: readonly Alarm[], total: number | null): Listing<Alarm> {
  return { complete: false, reason, readItems: shownAlarms, count: shownAlarms.length, total };
}

function splitAlarmListPart(part: ListPart): readonly ListPart[] {
  if (part.priority === undefined) return (["A", "B", "C"] as const).map((priority) => ({ priority }));
  return part.acknowledged === undefined ? [true, false].map((acknowledged) => ({ ...part, acknowledged })) : [];
}

function describeAlarmList(siteId: number, { priority, acknowledged }: ListPart): string {
  const acknowledgement = acknowledged === undefined ? null : acknowledged ? "acknowledged" : "not acknowledged";
  return [`site ${siteId}`, priority, acknowledgement].filter((word) => word != null).join(", ");
}

export const getAlarmId = (alarm: Alarm): string => alarm.id;

export function stateKey(alarm: Alarm): string {
  return `${alarm.id} ${episodeKey(alarm)} ${alarm.status}`;
}
