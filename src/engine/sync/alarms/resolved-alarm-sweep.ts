import { Malformed } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import { sourceUri } from "../../../core/model/event.ts";
import type { SerialRunner } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { ListPage } from "../../source/source.ts";
import type { DocumentChange } from "../../store/store.ts";
import { incompleteJobOutcome, JOB_OUTCOME_OK, type JobOutcome } from "../job.ts";
import type { PollContext } from "../poll-context.ts";
import type { AlarmSweep, StoredAlarmSite } from "../stored-documents.ts";
import { alarmEndOrStartMs, latestAlarmTimeMs, parseUtcMs } from "./alarm-times.ts";
import { describeUnreadableRecords } from "./classify-alarm-records.ts";
import { isOpenAlarm } from "./diff-alarm.ts";
import { diffResolvedAlarms } from "./diff-resolved-alarms.ts";
import { createMassAlarmChangeGuard } from "./mass-alarm-changes.ts";
import { openAlarmStore, recordFirstSiteLists } from "./stored-alarms.ts";

/** Time for which Plenum relies on the observed order of the resolved alarms before it reads all pages again. */
const LIST_ORDER_TRUST_MS = 86_400_000;

/** Sites that the token sees; null before they are known. */
type VisibleSiteIds = ReadonlySet<number> | null;

/** Reads the list of resolved alarms for changes between two polls. Stops early if it is sorted newest first. */
export function createResolvedAlarmSweep(pollContext: PollContext, runSerially: SerialRunner) {
  const { source, config, clock, log, scope } = pollContext;
  const { alarms: settings } = config;
  const store = openAlarmStore(pollContext);
  const { alarms, sites } = store;
  const massGuard = createMassAlarmChangeGuard(log);
  let isFirstSweep = true;

  async function sweepResolvedAlarms(signal: AbortSignal): Promise<JobOutcome> {
    const lastSweep = store.sweeps.get("resolved");
    const visibleSites = scope.known();
    const isOrderTrusted = lastSweep !== undefined && clock.now() - Date.parse(lastSweep.wholeAt) < LIST_ORDER_TRUST_MS;
    const readingLimits = {
      fromMs: lastSweep === undefined ? null : sweptUntilMs(lastSweep, visibleSites) - settings.resolved_overlap,
      trustedOrder: isOrderTrusted ? lastSweep.newestFirstBy : null,
      maxPages: settings.resolved_pages_max,
      isAwaited: awaitsEndRecord,
    };
    const siteReadings: SweptList[] = [];
    for (const siteId of settings.sites ?? [null]) {
      const resolvedAlarmPages = source.alarms({ status: "resolved", ...(siteId !== null && { siteId }) }, signal);
      siteReadings.push(await readResolvedAlarms(resolvedAlarmPages, readingLimits));
    }
    return runSerially(() => compareAndCommitAlarms(lastSweep, readingLimits.fromMs, visibleSites, siteReadings));
  }

  function awaitsEndRecord(alarmId: string): boolean {
    const oldAlarm = alarms.get(alarmId);
    if (oldAlarm === undefined) return false;
    return isOpenAlarm(oldAlarm) || (oldAlarm.state === "resolved" && !oldAlarm.untold && !oldAlarm.alarm.acknowledged);
  }

  async function compareAndCommitAlarms(
    lastSweep: AlarmSweep | undefined,
    sweepFromMs: number | null,
    visibleSiteIds: VisibleSiteIds,
    readings: readonly SweptList[],
  ): Promise<JobOutcome> {
    const nowIso = isoUtc(clock.now());
    const isCompared = (record: Alarm) =>
      lastSweep === undefined || awaitsEndRecord(record.id) || endedInSweptRange(record, lastSweep, visibleSiteIds);
    const records = readings.flatMap((reading) => reading.records).filter(isCompared);
    const newSweep = makeNextSweep(lastSweep, readings, nowIso);
    const resolvedAlarmDiff = diffResolvedAlarms(alarms, records, {
      source: sourceUri(source.name),
      at: nowIso,
      late: true,
      behindGateway: store.gatewayFinder(),
      fromMs: sweepFromMs ?? firstAlarmListMs(newSweep) - settings.resolved_overlap,
      isBeforeFollowing: (alarm) => beganBeforeFirstList(alarm, lastSweep !== undefined),
      suppressEvents: isFirstSweep && settings.startup === "silent",
    });
    const { diff, remarks } = massGuard.withholdMassChanges(alarms, resolvedAlarmDiff, () => "complete");
    // If mass changes await confirmation or the list changed, the next sweep reads from the same watermark again.
    const wasAlarmListSteady = remarks.length === 0 && readings.every((reading) => reading.isUnchanged);
    const documents: DocumentChange[] = [{ set: store.alarmSet, put: diff.put }];
    if (wasAlarmListSteady) {
      const siteIds = new Set([...(scope.known() ?? []), ...records.map((alarm) => alarm.site.id)]);
      const newlyListedSites = recordFirstSiteLists(sites, siteIds, "resolvedSince", nowIso);
      const visibilityChanges = buildVisibilityChanges(lastSweep, visibleSiteIds);
      documents.push({ set: store.siteSet, put: [...newlyListedSites, ...visibilityChanges] });
      if (!isSameResolvedSweep(lastSweep, newSweep))
        documents.push({ set: store.sweepSet, put: [["resolved", newSweep]] });
    }
    await pollContext.commit("resolved_sweep", { documents, events: diff.events });
    isFirstSweep &&= !wasAlarmListSteady;
    if (readings.some((reading) => reading.tooLong)) {
      return incompleteJobOutcome(
        `More than ${settings.resolved_pages_max} pages of resolved alarms: short alarms may be missed. Raise resolved_pages_max, or follow fewer sites.`,
      );
    }
    const brokenList = readings.find((reading) => reading.brokenBy !== null);
    if (brokenList !== undefined)
      return incompleteJobOutcome(
        `${brokenList.brokenBy} Plenum reports the alarms that the list showed before the failure.`,
      );
    const unreadableRecords = readings.flatMap((reading) => reading.unreadable);
    const sweepRemarks = [...remarks, ...describeUnreadableRecords(unreadableRecords, "resolved")];
    if (sweepRemarks.length > 0) return { kind: "ok", remark: sweepRemarks.join(" ") };
    // After a list that changed while it was read, Plenum retries soon only if no earlier sweep succeeded.
    return wasAlarmListSteady || lastSweep !== undefined
      ? JOB_OUTCOME_OK
      : incompleteJobOutcome("The list of resolved alarms changed while it was read.");
  }

  /** Returns the time up to which resolved alarms were read: the watermark, or earlier if a site is visible again. */
  function sweptUntilMs(lastSweep: AlarmSweep, visibleSiteIds: VisibleSiteIds): number {
    const siteSweepTimesMs = [...sites.keys()].map((id) => siteSweptUntilMs(Number(id), lastSweep, visibleSiteIds));
    return Math.min(parseUtcMs(lastSweep.watermark) ?? 0, ...siteSweepTimesMs);
  }

  function siteSweptUntilMs(siteId: number, { watermark }: AlarmSweep, visibleSiteIds: VisibleSiteIds): number {
    const sweptUntil = sites.get(String(siteId))?.sweptUntil;
    const isSiteVisibleAgain = sweptUntil !== undefined && visibleSiteIds?.has(siteId) === true;
    return parseUtcMs(isSiteVisibleAgain ? sweptUntil : watermark) ?? 0;
  }

  /** False for older episodes: Plenum may have deleted them from its store, and would emit them again. */
  function endedInSweptRange(record: Alarm, lastSweep: AlarmSweep, visibleSiteIds: VisibleSiteIds): boolean {
    const sweepStartMs = siteSweptUntilMs(record.site.id, lastSweep, visibleSiteIds) - settings.resolved_overlap;
    return (latestAlarmTimeMs(record) ?? sweepStartMs) >= sweepStartMs;
  }

  function buildVisibilityChanges(
    lastSweep: AlarmSweep | undefined,
    visibleSiteIds: VisibleSiteIds,
  ): readonly (readonly [string, StoredAlarmSite])[] {
    if (lastSweep === undefined || visibleSiteIds === null) return [];
    return [...sites].flatMap(([id, { sweptUntil, ...site }]) => {
      if (site.resolvedSince === null || visibleSiteIds.has(Number(id)) === (sweptUntil === undefined)) return [];
      return [[id, sweptUntil === undefined ? { ...site, sweptUntil: lastSweep.watermark } : site] as const];
    });
  }

  /** Time of the first list of active alarms: the first sweep emits only episodes that ended later. */
  function firstAlarmListMs({ watermark }: AlarmSweep): number {
    const firstListingTimes = [...sites.values()].map(({ activeSince }) => activeSince ?? watermark);
    return Math.min(...[watermark, ...firstListingTimes].map((time) => Date.parse(time)));
  }

  function beganBeforeFirstList(alarm: Alarm, hasSweptBefore: boolean): boolean {
    const site = sites.get(String(alarm.site.id));
    if (site === undefined) return true;
    if (hasSweptBefore && site.resolvedSince !== null) return false;
    const startMs = parseUtcMs(alarm.triggeredAt);
    if (site.activeSince === null || startMs === null) return true;
    // The service states whole seconds: an alarm of 10:00:00.7 is listed with 10:00:00.
    return startMs < Math.floor(Date.parse(site.activeSince) / 1_000) * 1_000;
  }

  /** Returns the state of the next sweep, which starts at the latest end seen. Wrong clocks may state a future end. */
  function makeNextSweep(lastSweep: AlarmSweep | undefined, readings: readonly SweptList[], at: string): AlarmSweep {
    const nowMs = clock.now();
    const endMs = Math.max(...readings.map(({ latestMs }) => latestMs ?? Number.NEGATIVE_INFINITY));
    const lastWatermarkMs = parseUtcMs(lastSweep?.watermark ?? null) ?? 0;
    const watermarkMs = Math.max(Math.min(endMs, nowMs), Math.min(lastWatermarkMs, nowMs + settings.resolved_overlap));
    const wasCompleteListRead = readings.every((reading) => reading.isOrderKnown);
    const listOrders = new Set(readings.filter(({ pages }) => pages > 1).map(({ newestFirstBy }) => newestFirstBy));
    const [order = null] = listOrders;
    return {
      watermark: watermarkMs > 0 ? isoUtc(watermarkMs) : at,
      newestFirstBy: wasCompleteListRead ? (listOrders.size === 1 ? order : null) : (lastSweep?.newestFirstBy ?? null),
      wholeAt: wasCompleteListRead || lastSweep === undefined ? at : lastSweep.wholeAt,
    };
  }

  return { run: sweepResolvedAlarms };
}

function isSameResolvedSweep(lastSweep: AlarmSweep | undefined, nextSweep: AlarmSweep): boolean {
  return (
    lastSweep?.watermark === nextSweep.watermark &&
    lastSweep.newestFirstBy === nextSweep.newestFirstBy &&
    (nextSweep.newestFirstBy === null || lastSweep.wholeAt === nextSweep.wholeAt)
  );
}

type SweptList = Awaited<ReturnType<typeof readResolvedAlarms>>;

interface SweepLimits {
  readonly fromMs: number | null;
  readonly trustedOrder: AlarmSweep["newestFirstBy"];
  readonly maxPages: number;
  readonly isAwaited: (alarmId: string) => boolean;
}

type SweepFault = { readonly tooLong?: boolean; readonly brokenBy?: string };

const LIST_ORDERS = ["resolved", "triggered"] as const;
const TIME_BY_LIST_ORDER = { resolved: alarmEndOrStartMs, triggered: (alarm: Alarm) => parseUtcMs(alarm.triggeredAt) };

async function readResolvedAlarms(pages: AsyncIterable<ListPage<Alarm>>, limits: SweepLimits) {
  const { fromMs, trustedOrder, maxPages, isAwaited } = limits;
  const records: Alarm[] = [];
  const unreadableRecords: string[] = [];
  const lastAlarmTimesMs = { resolved: Number.POSITIVE_INFINITY, triggered: Number.POSITIVE_INFINITY };
  const isDescending = { resolved: true, triggered: true };
  let latestMs: number | null = null;
  let statedTotal: number | null = null;
  let hasTotalChanged = false;
  let pageCount = 0;
  const addListedAlarm = (alarm: Alarm) => {
    const endMs = alarmEndOrStartMs(alarm);
    const alarmMs = latestAlarmTimeMs(alarm);
    if (fromMs === null || alarmMs === null || alarmMs >= fromMs || isAwaited(alarm.id)) records.push(alarm);
    if (endMs !== null && (latestMs === null || endMs > latestMs)) latestMs = endMs;
    for (const listOrder of LIST_ORDERS) {
      const timeMs = TIME_BY_LIST_ORDER[listOrder](alarm);
      isDescending[listOrder] &&= timeMs !== null && timeMs <= lastAlarmTimesMs[listOrder];
      lastAlarmTimesMs[listOrder] = timeMs ?? lastAlarmTimesMs[listOrder];
    }
  };
  /**
   * `isOrderKnown`: enough pages were read to know the order of the list. `isUnchanged`: no alarm can have moved to a
   * page that was already read.
   */
  const buildResult = (isOrderKnown: boolean, isUnchanged: boolean, fault: SweepFault = {}) => ({
    ...{ records, pages: pageCount, latestMs, unreadable: unreadableRecords },
    newestFirstBy: LIST_ORDERS.find((order) => isDescending[order]) ?? null,
    ...{ isOrderKnown, isUnchanged, tooLong: false, brokenBy: null, ...fault },
  });
  try {
    for await (const page of pages) {
      pageCount += 1;
      hasTotalChanged ||= statedTotal !== null && page.total !== statedTotal;
      statedTotal = page.total;
      page.items.forEach(addListedAlarm);
      unreadableRecords.push(...(page.unreadable ?? []));
      if (!page.hasMore) return buildResult(true, !hasTotalChanged);
      const isOlder = (order: (typeof LIST_ORDERS)[number]) => fromMs === null || lastAlarmTimesMs[order] < fromMs;
      if (trustedOrder !== null && fromMs !== null && isDescending[trustedOrder] && isOlder(trustedOrder))
        return buildResult(false, true);
      if (pageCount >= maxPages) {
        const hasReadEnough = LIST_ORDERS.some((order) => isDescending[order] && isOlder(order));
        return buildResult(hasReadEnough, hasReadEnough, { tooLong: !hasReadEnough });
      }
    }
  } catch (error) {
    if (pageCount === 0 || !(error instanceof Malformed)) throw error;
    return buildResult(false, false, { brokenBy: error.message });
  }
  return buildResult(false, false);
}
