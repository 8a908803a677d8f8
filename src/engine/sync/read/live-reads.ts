import { asFailure, type Failure, LocalFailure } from "../../../core/errors/errors.ts";
import { OrderlyStop } from "../../../core/runtime/lifecycle.ts";
import { createWakeup } from "../../../core/runtime/waiting.ts";
import { type QueueLane, TAGS_PER_REQUEST } from "../../source/source.ts";
import type { LoopJob, LoopJobRun } from "../job.ts";
import { msUntilNextDue, type PlannedTags, planNextLiveRead } from "../plan/next-read-group.ts";
import type { TokenScope } from "../token-scope.ts";
import { keepLanesBusy } from "../waiting-requests.ts";
import { createLiveReadCommit, type LiveReadCommitOptions } from "./commit-readings.ts";
import type { ReadConfig } from "./config.ts";
import { createControlReads, createUnansweredReads, mayConcernOneGateway } from "./failed-read-diagnosis.ts";
import { createScheduleRefresh, RECHECK_MS, type RefreshOptions } from "./refresh-tag-schedule.ts";
import {
  classifyRefusal,
  createBisection,
  createSlowTagSearch,
  findNamedTag,
  type TagIsolation,
} from "./refused-tag-search.ts";
import { createStaleValues, type StaleValues } from "./stale-values.ts";
import { createTagSchedule, type TagSchedule } from "./tag-schedule.ts";

export interface LiveReadOptions extends LiveReadCommitOptions, RefreshOptions {
  readonly scope: Pick<TokenScope, "sees" | "hasAbility" | "changes" | "explain" | "respondedAtMs">;
  readonly isServiceDown?: () => boolean;
}

const READ_TAGS_ABILITY = "read:tags";
const LIVE_READ_REQUESTS_MAX = { working: 6, trying: 1 };
const SLOW_TAG_SUSPICION_MIN_MS = 15_000;
/** Under full load, one slot in 20 reads suspected tags, to find those that make requests fail. */
const BISECTION_SLOT_INTERVAL = 20;
const BISECTION_WAIT_MAX_MS = 120_000;
/** Long overdue tags take at most every second slot; 1.5 instead of 2 tolerates early slots. */
const DISPLACEMENT_SLOT_INTERVAL = 1.5;

export type LiveReads = ReturnType<typeof createLiveReads>;

/**
 * Reads the live values of one source, up to 20 tags in each request. If no tag is due, history gets the slot.
 *     waiting ── slot free ──► sent ── reply ────► committed ──────────────► waiting
 *        ▲  └─ no tag due: skip ┘└─── failure ──► handled ─ some tags ─────► waiting
 *        │                                           └───── all tags: throw ─► trying (one request at a time,
 *        └──────────────── a control tag is read ◄─────────────────────────────┘      otherwise up to six)
 */
export function createLiveReads(options: LiveReadOptions) {
  const { source, clock, log, scope } = options;
  const readClassesChanged = createWakeup();
  /** `slotsOwedToHistory`: number of slots planned for history in which tags were read for the first time. */
  const slotUse = {
    ...{ lastBisectionMs: Number.NEGATIVE_INFINITY, lastDisplacementMs: Number.NEGATIVE_INFINITY },
    slotsOwedToHistory: 0,
  };
  let stopReading: () => void = () => undefined;
  const slowTags = createSlowTagSearch();
  const tagBisection = createBisection((id) => schedule.watchedTag(id)?.siteId);
  const schedule: TagSchedule = createTagSchedule({
    isGatewayOffline: (siteId) => options.offlineGatewayOf?.(siteId) != null,
    canSeeSite: (siteId) => scope.sees(siteId),
    hasIsolatedTags: () => slowTags.hasSuspects() || isBisectingTags(),
    isolationOf: findTagIsolation,
    wallOffsetMs: () => clock.now() - clock.monotonic(),
  });
  const readCommit = createLiveReadCommit(options, schedule, (...reading) => staleValues.readingCommitted(...reading));
  const { leftOut: leftOutTags } = readCommit;
  const controlReads = createControlReads((triedTags) => schedule.pickControlTag(triedTags));
  const unansweredReads = createUnansweredReads(clock, () => scheduleRefresh.slotMs());
  const isBisectingTags = () => tagBisection.hasSuspects() || leftOutTags.hasSinglyReadTags();
  const staleValues: StaleValues = createStaleValues({
    ...{ source: source.name, schedule, scope, clock, log, metrics: options.metrics },
    slotMs: () => scheduleRefresh.slotMs(),
    isServiceDown: () => options.isServiceDown?.() === true,
    isUnanswered: (id) => unansweredReads.isTagUnanswered(id) || leftOutTags.get(id) !== undefined,
    forgetFailuresOf: unansweredReads.forgetFailures,
    refresh: () => scheduleRefresh.run(),
    commit: readCommit.commitStaleValues,
  });
  const scheduleRefresh = createScheduleRefresh(options, schedule, () => slowTags.typicalLatencyMs(), staleValues);

  function findTagIsolation(id: string): TagIsolation | null {
    const suspectIsolation = tagBisection.isolationOf(id);
    if (suspectIsolation !== null) return suspectIsolation;
    const singleLabel = leftOutTags.labelOf(id);
    const tagLabel = slowTags.labelOf(id) ?? singleLabel;
    return tagLabel === null ? null : { label: tagLabel, timing: singleLabel === null ? null : "patient" };
  }

  function clearTagSuspicions(): void {
    tagBisection.clearSuspicions();
    slowTags.clearAll();
  }

  /**
   * Picks up to 20 tags: a control tag if all reads fail, tags whose interval would be exceeded, then in other slots
   * suspected, old or quarantined tags. `[]` leaves the slot to history.
   */
  function selectTagsForSlot(isSpareSlot: boolean, slotMs: number): readonly string[] {
    const nowMs = clock.monotonic();
    if (controlReads.readsOnlyControlTags()) {
      if (controlReads.isControlReadUnderWay()) return [];
      const controlTags = controlReads.nextControlTags();
      if (controlTags.length > 0) return controlTags;
    }
    const plannedTags = schedule.planTags(nowMs);
    const isBisectionDue =
      isBisectingTags() &&
      nowMs - slotUse.lastBisectionMs >= Math.min(BISECTION_SLOT_INTERVAL * slotMs, BISECTION_WAIT_MAX_MS) &&
      !isPunctualTagDue(plannedTags, nowMs);
    const bisectionGroup = isBisectionDue ? selectBisectionGroup(plannedTags, nowMs) : [];
    if (bisectionGroup.length > 0) {
      slotUse.lastBisectionMs = nowMs;
      return bisectionGroup;
    }
    const mayDisplace = nowMs - slotUse.lastDisplacementMs >= DISPLACEMENT_SLOT_INTERVAL * slotMs;
    const groupPlanRules = { ...planRules(slotMs), mayDisplace };
    const duePlan = planNextLiveRead(plannedTags, nowMs, { ...groupPlanRules, isSpareSlot: false });
    if (duePlan.displacesDueTags === true) slotUse.lastDisplacementMs = nowMs;
    if (duePlan.group.length > 0 && duePlan.isBisection !== true) return duePlan.group;
    // Read a control tag before bisecting, because bisection would never end if all tags are refused.
    const mayReadControlTag = controlReads.mayReadInSlot(duePlan.isBisection === true ? "search" : "idle");
    const controlTags = mayReadControlTag ? controlReads.nextControlTags() : [];
    if (controlTags.length > 0) return controlTags;
    if (duePlan.group.length > 0) return duePlan.group;
    const spareRules = { ...groupPlanRules, isSpareSlot };
    const spareGroup = isSpareSlot ? planNextLiveRead(plannedTags, nowMs, spareRules).group : [];
    if (spareGroup.length > 0) return spareGroup;
    const quarantinedTag = schedule.nextQuarantineRetry(nowMs);
    return quarantinedTag === undefined ? [] : [quarantinedTag];
  }

  const planRules = (slotMs: number) => ({
    slotMs,
    tagsPerRequest: TAGS_PER_REQUEST,
    expectedReplyMs: scheduleRefresh.expectedReplyMs(slotMs),
  });

  /** Milliseconds until the next tag may become due, which is at the beginning of the last slot of its interval. */
  function msUntilNextRead(isSpareSlot: boolean, slotMs: number): number {
    if (schedule.size() === 0) return Math.min(slotMs, RECHECK_MS);
    const nowMs = clock.monotonic();
    return msUntilNextDue(schedule.planTags(nowMs), nowMs, { ...planRules(slotMs), isSpareSlot });
  }

  /** True if history gets this slot: it gets its planned share while tags are read for the first time (15 minutes). */
  function leavesSlotToHistory(group: readonly string[]): boolean {
    if (!group.every((id) => schedule.tagState(id)?.lastMs === null)) return false;
    const historyShare = 1 - scheduleRefresh.quotaShare();
    slotUse.slotsOwedToHistory += historyShare / (1 - historyShare);
    if (slotUse.slotsOwedToHistory < 1) return false;
    slotUse.slotsOwedToHistory -= 1;
    return true;
  }

  async function readTagsOnce(
    lane: QueueLane,
    onRequestStarted: () => void,
    signal: AbortSignal,
    { draining, reportSuccess }: LoopJobRun,
  ) {
    let requestedIds: readonly string[] = [];
    let requestStartedAtMs = 0;
    const releaseRequestedTags = () => {
      controlReads.noteReadEnd(requestedIds);
      unansweredReads.requestEnded(requestedIds);
      schedule.requestEnded(requestedIds);
    };
    const chooseTagsForRequest = () => {
      releaseRequestedTags();
      const slotMs = scheduleRefresh.slotMs();
      requestedIds = selectTagsForSlot(lane === "spare", slotMs);
      if (requestedIds.length > 0 && lane === "live" && leavesSlotToHistory(requestedIds)) requestedIds = [];
      if (requestedIds.length === 0) return { declineForMs: msUntilNextRead(lane === "spare", slotMs) };
      requestStartedAtMs = clock.monotonic();
      schedule.requestSent(requestedIds, requestStartedAtMs);
      unansweredReads.requestSent(requestedIds);
      onRequestStarted();
      return { content: requestedIds };
    };
    try {
      const reply = await source.read(chooseTagsForRequest, lane, signal);
      slowTags.recordLatency(requestedIds, reply.latencyMs);
      unansweredReads.requestReplied(requestedIds, reply.latencyMs);
      await readCommit.commitReply(requestedIds, reply, draining);
      if (requestedIds.some((id) => leftOutTags.get(id) !== undefined)) staleValues.readsFailed();
      tagBisection.requestSucceeded(requestedIds);
      controlReads.noteReadSuccess();
      reportSuccess();
    } catch (error) {
      signal.throwIfAborted();
      await settleFailure(requestedIds, requestStartedAtMs, asFailure(error), signal).finally(staleValues.readsFailed);
    } finally {
      releaseRequestedTags();
    }
  }

  /** Handles a failed read. Throws the failure if it concerns all tags, not only the requested tags. */
  async function settleFailure(group: readonly string[], startedAtMs: number, failure: Failure, signal: AbortSignal) {
    if (failure instanceof LocalFailure) throw failure;
    const atMs = clock.monotonic();
    const refusalKind = classifyRefusal(failure);
    if (refusalKind === null || group.length === 0) {
      unansweredReads.requestFailed(group, failure, false);
      if (mayConcernOneGateway(failure)) {
        if (controlReads.isControlRead(group)) clearTagSuspicions();
        else {
          schedule.requestFailed(group, atMs);
          tagBisection.requestFailed(group);
          if (atMs - startedAtMs > SLOW_TAG_SUSPICION_MIN_MS) slowTags.recordLatency(group, Number.POSITIVE_INFINITY);
        }
      }
      if (controlReads.noteReadFailure(failure)) throw failure;
      log.warn({ err: failure }, "a live read failed");
      return;
    }
    const siteIds = new Set(group.flatMap((id) => schedule.watchedTag(id)?.siteId ?? []));
    const lastGetMeMs = scope.respondedAtMs();
    const refusalCause = await scope.explain({ siteIds, ability: READ_TAGS_ABILITY, atMs }, signal);
    if (refusalCause === "site") return;
    if (refusalCause === "ability") {
      unansweredReads.forgetFailures();
      throw failure;
    }
    unansweredReads.requestFailed(group, failure, true);
    if (refusalKind === "invalid")
      log.error({ tags: group.length, err: failure }, "the service rejected a read request as invalid");
    if (controlReads.noteReadRefusal(group)) {
      tagBisection.clearSuspicions();
      throw failure;
    }
    const faultyTag = tagBisection.requestRefused(group, {
      refusedAtMs: atMs,
      getMeBeforeRefusalMs: lastGetMeMs,
      latestGetMeMs: scope.respondedAtMs(),
      namedTag: findNamedTag(group, failure),
    });
    const [singleTagId = null] = group.length === 1 && refusalCause === "unexplained" ? group : [];
    const refusedTag =
      faultyTag ?? (singleTagId !== null && schedule.quarantinedIds().includes(singleTagId) ? singleTagId : null);
    if (refusedTag === null) return;
    await readCommit.quarantineTag(refusedTag, failure);
    log.warn({ tag: refusedTag, err: failure }, "the service refuses to read a tag: it is quarantined");
  }

  async function followLiveReads(run: LoopJobRun): Promise<void> {
    const { draining, forced } = run;
    if (run.afterOutage === true) clearTagSuspicions();
    const endSignal = AbortSignal.any([draining, forced]);
    await scheduleRefresh.run();
    while (!scheduleRefresh.hasReadClasses() && !endSignal.aborted) await readClassesChanged.nextWakeup(endSignal);
    if (endSignal.aborted) return;
    const readStopController = new AbortController();
    stopReading = () => readStopController.abort(new OrderlyStop());
    controlReads.restartDiagnosis();
    await scheduleRefresh.run();
    const requestLoops = (["live", "spare"] as const).map(
      (lane) => (onStart: () => void, signal: AbortSignal) => readTagsOnce(lane, onStart, signal, run),
    );
    await keepLanesBusy(requestLoops, {
      maxInFlight: () => LIVE_READ_REQUESTS_MAX[controlReads.readsOnlyControlTags() ? "trying" : "working"],
      draining: AbortSignal.any([draining, readStopController.signal]),
      forced,
      lookups: {
        ...{ clock, wakeup: readClassesChanged, step: scheduleRefresh.refreshIfDue },
        onFault: (error) => log.warn({ err: error }, "the tag schedule could not be refreshed"),
      },
    });
    if (options.isServiceDown?.() !== true) return;
    unansweredReads.forgetFailures();
    staleValues.readsFailed();
  }

  return {
    ...({ name: "live", ability: READ_TAGS_ABILITY, follow: followLiveReads } satisfies LoopJob),
    status: () => ({
      quarantined: schedule.quarantinedIds(),
      overload: scheduleRefresh.overload(),
      freshness: schedule.freshness(clock.monotonic()),
    }),
    lastRead: readCommit.lastRead,
    /** Emits stale values until the signal aborts, also while no tag can be read. */
    watchStaleValues: staleValues.watchStaleValues,
    unreadableSites: staleValues.unreadableSites,
    unreadableSitesChanged: staleValues.unreadableSitesChanged,
    getLeftOutTags: leftOutTags.getAll,
    suddenChanges: readCommit.suddenChanges,
    updateFreshnessMetrics: scheduleRefresh.updateMetricsIfDue,
    changeClasses(readClasses: ReadConfig): void {
      scheduleRefresh.changeClasses(readClasses);
      staleValues.classesChanged();
      readClassesChanged.wakeUp();
      if (readClasses.length === 0) stopReading();
    },
    known(id: string) {
      const tagState = schedule.tagState(id);
      return tagState && { ...tagState, isolation: findTagIsolation(id)?.label ?? null, leftOut: leftOutTags.get(id) };
    },
  };
}

/** True if half the interval of a `punctual` tag has passed. If its read succeeds, its site is no longer suspected. */
function isPunctualTagDue({ isolated, isUnderWay, ageStartMs, intervalMs }: PlannedTags, nowMs: number): boolean {
  for (const [row, { timing }] of isolated) {
    if (timing !== "punctual" || isUnderWay[row] === 1) continue;
    if (nowMs - (ageStartMs[row] as number) >= (intervalMs[row] as number) / 2) return true;
  }
  return false;
}

function selectBisectionGroup({ ids, isolated, isUnderWay, ageStartMs, intervalMs }: PlannedTags, nowMs: number) {
  const ageOf = (row: number) => (nowMs - (ageStartMs[row] as number)) / (intervalMs[row] as number);
  const idleRows = [...isolated].filter(([row]) => isUnderWay[row] !== 1);
  // Prefer tags that are suspected only because of their site: if one read succeeds, the site is no longer suspected.
  const labelRank = (label: string) => (label.startsWith("site ") ? 0 : 1);
  const [firstIsolatedTag] = idleRows
    .filter(([row, { timing }]) => timing === "patient" && ageOf(row) >= 1)
    .toSorted(
      ([a, tagA], [b, tagB]) =>
        labelRank(tagA.label) - labelRank(tagB.label) ||
        tagA.siteRequestedMs - tagB.siteRequestedMs ||
        ageOf(b) - ageOf(a),
    );
  const group = idleRows.filter(([, { label }]) => label === firstIsolatedTag?.[1].label).slice(0, TAGS_PER_REQUEST);
  return group.map(([row]) => ids[row] as string);
}
