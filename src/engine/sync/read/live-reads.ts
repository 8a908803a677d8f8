import { asFailure, type Failure, LocalFailure } from "../../../core/errors/errors.ts";
import { OrderlyStop } from "../../../core/runtime/lifecycle.ts";
import { createWakeup } from "../../../core/runtime/waiting.ts";
import { type QueueLane, TAGS_PER_REQUEST } from "../../source/source.ts";
import type { Follower, FollowerRun } from "../job.ts";
import { msUntilNextDue, type PlannedTags, planNextLiveRead } from "../plan/next-read-group.ts";
import type { StoredLeftOut } from "../stored-documents.ts";
import type { TokenScope } from "../token-scope.ts";
import { keepRequestsWaiting } from "../waiting-requests.ts";
import { classifyRefusal, createBisection, createSlowTagSearch, findNamedTag, type TagIsolation } from "./bisection.ts";
import { createLiveReadCommit, type LiveReadCommitOptions } from "./commit.ts";
import type { ReadConfig } from "./config.ts";
import { createControlReads, createUnansweredReads, mayConcernOneGateway } from "./failed-read-diagnosis.ts";
import { createScheduleRefresh, EMPTY_WAIT_MS, type RefreshOptions } from "./refresh-tag-schedule.ts";
import { createStaleValues, type StaleValues } from "./stale-values.ts";
import { createTagSchedule, type ScheduledTagState, type TagSchedule } from "./tag-schedule.ts";

export interface LiveReadTagState extends ScheduledTagState {
  readonly isolation: string | null;
  readonly leftOut: StoredLeftOut | undefined;
}

export interface LiveReadOptions extends LiveReadCommitOptions, RefreshOptions {
  readonly scope: Pick<TokenScope, "sees" | "hasAbility" | "changes" | "explain" | "respondedAtMs">;
  readonly isServiceDown?: () => boolean;
}

const READ_TAGS_ABILITY = "read:tags";
const LIVE_READ_REQUESTS_MAX = { working: 6, trying: 1 };
const SLOW_TAG_SUSPICION_MIN_MS = 15_000;
/** Under full load, one slot in this number of slots reads a group of the bisection. */
const BISECTION_SLOT_INTERVAL = 20;
const BISECTION_WAIT_MAX_MS = 120_000;
/** Long overdue tags take at most every second slot; 1.5 instead of 2 tolerates early slots. */
const DISPLACEMENT_SLOT_INTERVAL = 1.5;

export type LiveReads = ReturnType<typeof createLiveReads>;

/**
 * Reads the live values of one source, up to 20 tags in each request. If no tag is due, history gets the slot.
 *     waiting ── slot free ──► sent ── reply ────► committed ──────────────► waiting
 *        ▲  └─ no tag due: pass ┘└─── failure ──► settled ─ some tags ─────► waiting
 *        │                                           └───── all tags: throw ─► trying (one request at a time,
 *        └──────────────── a control tag is read ◄─────────────────────────────┘      otherwise up to six)
 */
export function createLiveReads(options: LiveReadOptions) {
  const { source, clock, log, scope } = options;
  const readClassesChanged = createWakeup();
  /** `owedToHistory`: number of slots planned for history in which tags were read for the first time. */
  const slotUse = { searchedAtMs: Number.NEGATIVE_INFINITY, displacedAtMs: Number.NEGATIVE_INFINITY, owedToHistory: 0 };
  let stopReading: () => void = () => undefined;
  const slowTags = createSlowTagSearch();
  const tagBisection = createBisection((id) => schedule.watched(id)?.siteId);
  const schedule: TagSchedule = createTagSchedule({
    gatewayOffline: (siteId) => options.offlineGatewayOf?.(siteId) != null,
    sees: (siteId) => scope.sees(siteId),
    anyIsolated: () => slowTags.any() || isBisectingTags(),
    isolationOf: findTagIsolation,
    wallOffsetMs: () => clock.now() - clock.monotonic(),
  });
  const readCommit = createLiveReadCommit(options, schedule, (...reading) => staleValues.readingCommitted(...reading));
  const { leftOut } = readCommit;
  const controlReads = createControlReads((tried) => schedule.control(tried));
  const unansweredReads = createUnansweredReads({ clock, slotMs: () => scheduleRefresh.slotMs() });
  const isBisectingTags = () => tagBisection.any() || leftOut.anySingle();
  const staleValues: StaleValues = createStaleValues({
    ...{ source: source.name, schedule, scope, clock, log, metrics: options.metrics },
    slotMs: () => scheduleRefresh.slotMs(),
    isUnanswered: (id) =>
      options.isServiceDown?.() === true || unansweredReads.includes(id) || leftOut.of(id) !== undefined,
    refresh: () => scheduleRefresh.run(),
    commit: readCommit.stale,
  });
  const scheduleRefresh = createScheduleRefresh(options, schedule, () => slowTags.typicalMs(), staleValues);

  function findTagIsolation(id: string): TagIsolation | null {
    const suspectIsolation = tagBisection.isolationOf(id);
    if (suspectIsolation !== null) return suspectIsolation;
    const singleLabel = leftOut.labelOf(id);
    const tagLabel = slowTags.labelOf(id) ?? singleLabel;
    return tagLabel === null ? null : { label: tagLabel, timing: singleLabel === null ? null : "patient" };
  }

  function clearTagSuspicions(): void {
    tagBisection.forget();
    slowTags.forget();
  }

  /**
   * Picks up to 20 tags: a control tag if all reads fail, tags whose interval would be exceeded, then in other slots
   * suspected, old or quarantined tags. `[]` leaves the slot to history.
   */
  function selectTagsForSlot(eager: boolean, spacingMs: number): readonly string[] {
    const nowMs = clock.monotonic();
    if (controlReads.isTrying()) {
      if (controlReads.isUnderWay()) return [];
      const controlTags = controlReads.next();
      if (controlTags.length > 0) return controlTags;
    }
    const plannedTags = schedule.planned(nowMs);
    const isBisectionDue =
      isBisectingTags() &&
      nowMs - slotUse.searchedAtMs >= Math.min(BISECTION_SLOT_INTERVAL * spacingMs, BISECTION_WAIT_MAX_MS) &&
      !isPunctualTagDue(plannedTags, nowMs);
    const bisectionGroup = isBisectionDue ? selectBisectionGroup(plannedTags, nowMs) : [];
    if (bisectionGroup.length > 0) {
      slotUse.searchedAtMs = nowMs;
      return bisectionGroup;
    }
    const mayDisplace = nowMs - slotUse.displacedAtMs >= DISPLACEMENT_SLOT_INTERVAL * spacingMs;
    const groupPlanRules = { ...planRules(spacingMs), mayDisplace };
    const due = planNextLiveRead(plannedTags, nowMs, { ...groupPlanRules, eager: false });
    if (due.displaces === true) slotUse.displacedAtMs = nowMs;
    if (due.group.length > 0 && due.isSearch !== true) return due.group;
    // Read a control tag before bisecting, because bisection would never end if all tags are refused.
    const controlTags = controlReads.mayUse(due.isSearch === true ? "search" : "idle") ? controlReads.next() : [];
    if (controlTags.length > 0) return controlTags;
    if (due.group.length > 0) return due.group;
    const { group } = eager ? planNextLiveRead(plannedTags, nowMs, { ...groupPlanRules, eager }) : { group: [] };
    if (group.length > 0) return group;
    const quarantinedTag = schedule.nextProbe(nowMs);
    return quarantinedTag === undefined ? [] : [quarantinedTag];
  }

  const planRules = (slotMs: number) => ({ slotMs, size: TAGS_PER_REQUEST, leadMs: scheduleRefresh.replyMs(slotMs) });

  /** Time until a tag may become due; at the beginning of its last slot, so that values are one interval apart. */
  function msUntilNextChoice(eager: boolean, spacingMs: number): number {
    if (schedule.size() === 0) return Math.min(spacingMs, EMPTY_WAIT_MS);
    const nowMs = clock.monotonic();
    return msUntilNextDue(schedule.planned(nowMs), nowMs, { ...planRules(spacingMs), eager });
  }

  /** History gets its planned share of the slots while tags are read for the first time, which may take 15 minutes. */
  function leavesSlotToHistory(group: readonly string[]): boolean {
    if (!group.every((id) => schedule.known(id)?.lastMs === null)) return false;
    const historyShare = 1 - scheduleRefresh.quotaShare();
    slotUse.owedToHistory += historyShare / (1 - historyShare);
    if (slotUse.owedToHistory < 1) return false;
    slotUse.owedToHistory -= 1;
    return true;
  }

  async function readTagsOnce(
    lane: QueueLane,
    begun: () => void,
    signal: AbortSignal,
    { draining, well }: FollowerRun,
  ) {
    let group: readonly string[] = [];
    let requestStartedAtMs = 0;
    const releaseRequestedTags = () => {
      controlReads.returned(group);
      unansweredReads.returned(group);
      schedule.returned(group);
    };
    const chooseTagsForRequest = () => {
      releaseRequestedTags();
      const spacingMs = scheduleRefresh.slotMs();
      group = selectTagsForSlot(lane === "spare", spacingMs);
      if (group.length > 0 && lane === "live" && leavesSlotToHistory(group)) group = [];
      if (group.length === 0) return { passMs: msUntilNextChoice(lane === "spare", spacingMs) };
      requestStartedAtMs = clock.monotonic();
      schedule.sent(group, requestStartedAtMs);
      unansweredReads.sent(group);
      begun();
      return { ask: group };
    };
    try {
      const reply = await source.read(chooseTagsForRequest, lane, signal);
      slowTags.replied(group, reply.latencyMs);
      unansweredReads.replied(group, reply.latencyMs);
      await readCommit.values(group, reply, draining);
      tagBisection.cleared(group);
      controlReads.succeeded();
      well();
    } catch (error) {
      signal.throwIfAborted();
      await settleFailure(group, requestStartedAtMs, asFailure(error), signal);
    } finally {
      releaseRequestedTags();
    }
  }

  /** Throws the failure if it concerns all tags, not only the requested tags. */
  async function settleFailure(group: readonly string[], startedAtMs: number, failure: Failure, signal: AbortSignal) {
    if (failure instanceof LocalFailure) throw failure;
    unansweredReads.failed(group, failure);
    const atMs = clock.monotonic();
    const refusalKind = classifyRefusal(failure);
    if (refusalKind === null || group.length === 0) {
      if (mayConcernOneGateway(failure)) {
        if (controlReads.isTrial(group)) clearTagSuspicions();
        else {
          schedule.failed(group, atMs);
          tagBisection.failed(group);
          if (atMs - startedAtMs > SLOW_TAG_SUSPICION_MIN_MS) slowTags.replied(group, Number.POSITIVE_INFINITY);
        }
      }
      if (controlReads.failed(failure)) throw failure;
      log.warn({ err: failure }, "a live read failed");
      return;
    }
    const siteIds = new Set(group.flatMap((id) => schedule.watched(id)?.siteId ?? []));
    const scopeBeforeMs = scope.respondedAtMs();
    const why = await scope.explain({ siteIds, ability: READ_TAGS_ABILITY, atMs }, signal);
    if (why === "site") return;
    if (why === "ability") throw failure;
    if (refusalKind === "invalid") log.error({ tags: group.length, err: failure }, "the service calls a read invalid");
    if (controlReads.refused(group)) {
      tagBisection.forget();
      throw failure;
    }
    const namedTag = findNamedTag(group, failure);
    const provenTag = tagBisection.refused(group, { atMs, scopeBeforeMs, scopeAtMs: scope.respondedAtMs(), namedTag });
    const [only = null] = group.length === 1 && why === "unexplained" ? group : [];
    const refusedTag = provenTag ?? (only !== null && schedule.quarantined().includes(only) ? only : null);
    if (refusedTag === null) return;
    await readCommit.quarantine(refusedTag, failure);
    log.warn({ tag: refusedTag, err: failure }, "a tag that cannot be read is set aside");
  }

  async function followLiveReads(run: FollowerRun): Promise<void> {
    const { draining, forced } = run;
    if (run.afterOutage === true) clearTagSuspicions();
    const endSignal = AbortSignal.any([draining, forced]);
    await scheduleRefresh.run();
    while (!scheduleRefresh.hasClasses() && !endSignal.aborted) await readClassesChanged.nextWakeup(endSignal);
    if (endSignal.aborted) return;
    const noReadClassesLeft = new AbortController();
    stopReading = () => noReadClassesLeft.abort(new OrderlyStop());
    controlReads.restart();
    await scheduleRefresh.run();
    const requestLoops = (["live", "spare"] as const).map(
      (lane) => (begun: () => void, signal: AbortSignal) => readTagsOnce(lane, begun, signal, run),
    );
    await keepRequestsWaiting(requestLoops, {
      maxUnderWay: () => LIVE_READ_REQUESTS_MAX[controlReads.isTrying() ? "trying" : "working"],
      draining: AbortSignal.any([draining, noReadClassesLeft.signal]),
      forced,
      lookups: {
        ...{ clock, wakeup: readClassesChanged, turn: scheduleRefresh.ifDue },
        fault: (error) => log.warn({ err: error }, "the tags to be read could not be looked up"),
      },
    });
  }

  return {
    ...({ name: "live", ability: READ_TAGS_ABILITY, follow: followLiveReads } satisfies Follower),
    status: () => ({
      quarantined: schedule.quarantined(),
      overload: scheduleRefresh.overload(),
      freshness: schedule.freshness(clock.monotonic()),
    }),
    lastRead: readCommit.lastRead,
    /** Emits stale values until the signal aborts, also while no tag can be read. */
    watchStaleValues: staleValues.run,
    leftOut: leftOut.all,
    suddenChanges: readCommit.suddenChanges,
    showFreshness: scheduleRefresh.showFreshnessIfDue,
    change(classes: ReadConfig): void {
      scheduleRefresh.changeClasses(classes);
      staleValues.classesChanged();
      readClassesChanged.wakeUp();
      if (classes.length === 0) stopReading();
    },
    known(id: string): LiveReadTagState | undefined {
      const tagState = schedule.known(id);
      return tagState && { ...tagState, isolation: findTagIsolation(id)?.label ?? null, leftOut: leftOut.of(id) };
    },
  };
}

/** True if a punctual tag has reached half of its interval: its request may clear the suspected site. */
function isPunctualTagDue({ isolated, underWay, lastMs, intervalMs }: PlannedTags, nowMs: number): boolean {
  for (const [row, { timing }] of isolated) {
    if (timing !== "punctual" || underWay[row] === 1) continue;
    if (nowMs - (lastMs[row] as number) >= (intervalMs[row] as number) / 2) return true;
  }
  return false;
}

function selectBisectionGroup({ ids, isolated, underWay, lastMs, intervalMs }: PlannedTags, nowMs: number) {
  const ageOf = (row: number) => (nowMs - (lastMs[row] as number)) / (intervalMs[row] as number);
  const idleRows = [...isolated].filter(([row]) => underWay[row] !== 1);
  // Prefer tags that are suspected only because of their site: one success clears the complete site.
  const labelRank = (label: string) => (label.startsWith("site ") ? 0 : 1);
  const [first] = idleRows
    .filter(([row, { timing }]) => timing === "patient" && ageOf(row) >= 1)
    .toSorted(
      ([a, one], [b, other]) =>
        labelRank(one.label) - labelRank(other.label) ||
        one.siteRequestedMs - other.siteRequestedMs ||
        ageOf(b) - ageOf(a),
    );
  const group = idleRows.filter(([, { label }]) => label === first?.[1].label).slice(0, TAGS_PER_REQUEST);
  return group.map(([row]) => ids[row] as string);
}
