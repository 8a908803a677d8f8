import { asFailure, type Failure, LocalFailure } from "../../../core/errors/errors.ts";
import { OrderlyStop } from "../../../core/runtime/lifecycle.ts";
import { createWakeup } from "../../../core/runtime/waiting.ts";
import { type Lane, TAGS_PER_REQUEST } from "../../source/source.ts";
import type { Follower, FollowerRun } from "../job.ts";
import { type PlannedTags, planNextLiveRead } from "../plan/group.ts";
import type { StoredLeftOut } from "../snapshot.ts";
import type { TokenScope } from "../token-scope.ts";
import { keepRequestsWaiting } from "../waiting-requests.ts";
import { classifyRefusal, createBisection, createSlowTagSearch, findNamedTag, type TagIsolation } from "./bisection.ts";
import { createReadCommit, type ReadCommitOptions } from "./commit.ts";
import type { ReadConfig } from "./config.ts";
import { createControlReads, mayConcernOneGateway } from "./controls.ts";
import { createScheduleRefresh, EMPTY_WAIT_MS, type RefreshOptions } from "./schedule-refresh.ts";
import { createTagSchedule, type TagSchedule, type TagState } from "./tag-schedule.ts";

export interface KnownTag extends TagState {
  readonly isolation: string | null;
  readonly leftOut: StoredLeftOut | undefined;
}

export interface LiveReadOptions extends ReadCommitOptions, RefreshOptions {
  readonly scope: Pick<TokenScope, "sees" | "explain" | "respondedAtMs">;
}

const READ_ABILITY = "read:tags";
const REQUESTS_UNDER_WAY_MAX = { working: 6, trying: 1 };
const SUSPICIOUS_DURATION_MS = 15_000;
/** Bisection takes spare slots, and one of 20 so that it ends even under full load. */
const BISECTION_EVERY_SLOTS = 20;
const BISECTION_WAIT_MAX_MS = 120_000;
/** Starving tags take at most every other slot that others need; 1.5 tolerates slots that come a little early. */
const DISPLACE_EVERY_SLOTS = 1.5;

export type LiveReads = ReturnType<typeof createLiveReads>;

/**
 * Reads the live values of one source. When a slot of lane `live` is free, `selectTags` picks up to 20 tags, or none:
 * then history gets the slot. A second request in lane `spare` reads the oldest values when no other lane needs the
 * slot.
 *     waiting ── slot free ──► sent ── reply ────► committed ──────────────► waiting
 *        ▲  └─ no tag due: pass ┘└─── failure ──► settled ─ some tags ─────► waiting
 *        │                                           └───── all tags: throw ─► trying (one request at a time,
 *        └──────────────── a control tag is read ◄─────────────────────────────┘      otherwise up to six)
 */
export function createLiveReads(options: LiveReadOptions) {
  const { source, clock, log, scope } = options;
  const classesChanged = createWakeup();
  /** Times are monotonic; `owedToHistory` counts the slots that first readings took from history. */
  const slots = { searchedAtMs: Number.NEGATIVE_INFINITY, displacedAtMs: Number.NEGATIVE_INFINITY, owedToHistory: 0 };
  let stopRun: () => void = () => undefined;
  const slowTags = createSlowTagSearch();
  const bisection = createBisection((id) => schedule.watched(id)?.siteId);
  const schedule: TagSchedule = createTagSchedule({
    gatewayOffline: (siteId) => options.offlineGatewayOf?.(siteId) != null,
    sees: (siteId) => scope.sees(siteId),
    anyIsolated: () => slowTags.any() || isBisecting(),
    isolationOf: findIsolation,
  });
  const commit = createReadCommit(options, schedule);
  const { leftOut } = commit;
  const controls = createControlReads((tried) => schedule.control(tried));
  const isBisecting = () => bisection.any() || leftOut.anySingle();
  const refresh = createScheduleRefresh(options, schedule, () => slowTags.typicalMs());

  function findIsolation(id: string): TagIsolation | null {
    const suspected = bisection.isolationOf(id);
    if (suspected !== null) return suspected;
    const singleLabel = leftOut.labelOf(id);
    const label = slowTags.labelOf(id) ?? singleLabel;
    return label === null ? null : { label, timing: singleLabel === null ? null : "patient" };
  }

  function clearSuspicions(): void {
    bisection.forget();
    slowTags.forget();
  }

  /**
   * Picks up to 20 tags: while every read fails a control; in every 20th slot a bisection group; tags whose interval
   * would be missed, e.g. a 10 s tag last read 8.9 s ago with slots 3 s apart; in other slots a control, a bisection
   * group, the oldest values, or a quarantined tag. `[]` leaves the slot to history.
   */
  function selectTags(eager: boolean, spacingMs: number): readonly string[] {
    const nowMs = clock.monotonic();
    if (controls.isTrying()) {
      if (controls.isUnderWay()) return [];
      const control = controls.next();
      if (control.length > 0) return control;
    }
    const plannedTags = schedule.planned(nowMs);
    const isSearchTime =
      isBisecting() &&
      nowMs - slots.searchedAtMs >= Math.min(BISECTION_EVERY_SLOTS * spacingMs, BISECTION_WAIT_MAX_MS) &&
      !isPunctualDue(plannedTags, nowMs);
    const bisectionGroup = isSearchTime ? selectBisectionGroup(plannedTags, nowMs) : [];
    if (bisectionGroup.length > 0) {
      slots.searchedAtMs = nowMs;
      return bisectionGroup;
    }
    const mayDisplace = nowMs - slots.displacedAtMs >= DISPLACE_EVERY_SLOTS * spacingMs;
    const replyTimeMs = refresh.replyMs(spacingMs);
    const groupRules = { slotMs: spacingMs, size: TAGS_PER_REQUEST, leadMs: replyTimeMs, mayDisplace };
    const due = planNextLiveRead(plannedTags, nowMs, { ...groupRules, eager: false });
    if (due.displaces === true) slots.displacedAtMs = nowMs;
    if (due.group.length > 0 && due.isSearch !== true) return due.group;
    // If all tags are refused, bisection would never end: read a control tag first.
    const control = controls.mayUse(due.isSearch === true ? "search" : "idle") ? controls.next() : [];
    if (control.length > 0) return control;
    if (due.group.length > 0) return due.group;
    const { group } = eager ? planNextLiveRead(plannedTags, nowMs, { ...groupRules, eager }) : { group: [] };
    if (group.length > 0) return group;
    const probe = schedule.nextProbe(nowMs);
    return probe === undefined ? [] : [probe];
  }

  /** First readings of 6,000 tags take 15 minutes: history gets its planned share of the slots meanwhile. */
  function leavesSlotToHistory(group: readonly string[]): boolean {
    if (!group.every((id) => schedule.known(id)?.lastMs === null)) return false;
    const historyShare = 1 - refresh.quotaShare();
    slots.owedToHistory += historyShare / (1 - historyShare);
    if (slots.owedToHistory < 1) return false;
    slots.owedToHistory -= 1;
    return true;
  }

  async function readOnce(lane: Lane, begun: () => void, signal: AbortSignal, { draining, well }: FollowerRun) {
    let group: readonly string[] = [];
    let startedAtMs = 0;
    const returnSlot = () => {
      controls.returned(group);
      schedule.returned(group);
    };
    const chooseTags = () => {
      returnSlot();
      const spacingMs = refresh.slotMs();
      group = selectTags(lane === "spare", spacingMs);
      if (group.length > 0 && lane === "live" && leavesSlotToHistory(group)) group = [];
      if (group.length === 0) return { passMs: schedule.size() === 0 ? Math.min(spacingMs, EMPTY_WAIT_MS) : spacingMs };
      startedAtMs = clock.monotonic();
      schedule.sent(group, startedAtMs);
      begun();
      return { ask: group };
    };
    try {
      const reply = await source.read(chooseTags, lane, signal);
      slowTags.replied(group, reply.latencyMs);
      await commit.values(group, reply, draining);
      bisection.cleared(group);
      controls.succeeded();
      well();
    } catch (error) {
      signal.throwIfAborted();
      await settleFailure(group, startedAtMs, asFailure(error), signal);
    } finally {
      returnSlot();
    }
  }

  /** Throws the failure if it concerns all tags, not only those of the request. */
  async function settleFailure(group: readonly string[], startedAtMs: number, failure: Failure, signal: AbortSignal) {
    if (failure instanceof LocalFailure) throw failure;
    const atMs = clock.monotonic();
    const refusal = classifyRefusal(failure);
    if (refusal === null || group.length === 0) {
      if (mayConcernOneGateway(failure)) {
        if (controls.isTrial(group)) clearSuspicions();
        else {
          schedule.failed(group, atMs);
          bisection.failed(group);
          if (atMs - startedAtMs > SUSPICIOUS_DURATION_MS) slowTags.replied(group, Number.POSITIVE_INFINITY);
        }
      }
      if (controls.failed(failure)) throw failure;
      log.warn({ err: failure }, "a live read failed");
      return;
    }
    const siteIds = new Set(group.flatMap((id) => schedule.watched(id)?.siteId ?? []));
    const scopeBeforeMs = scope.respondedAtMs();
    const why = await scope.explain({ siteIds, ability: READ_ABILITY, atMs }, signal);
    if (why === "site") return;
    if (why === "ability") throw failure;
    if (refusal === "invalid") log.error({ tags: group.length, err: failure }, "the service calls a read invalid");
    if (controls.refused(group)) {
      bisection.forget();
      throw failure;
    }
    const namedTag = findNamedTag(group, failure);
    const provenTag = bisection.refused(group, { atMs, scopeBeforeMs, scopeAtMs: scope.respondedAtMs(), namedTag });
    // A quarantined tag that is refused again needs no further proof.
    const [only = null] = group.length === 1 && why === "unexplained" ? group : [];
    const refusedTag = provenTag ?? (only !== null && schedule.quarantined().includes(only) ? only : null);
    if (refusedTag === null) return;
    await commit.quarantine(refusedTag, failure);
    log.warn({ tag: refusedTag, err: failure }, "a tag that cannot be read is set aside");
  }

  async function follow(run: FollowerRun): Promise<void> {
    const { draining, forced } = run;
    if (run.afterOutage === true) clearSuspicions();
    const endSignal = AbortSignal.any([draining, forced]);
    await refresh.run();
    while (!refresh.hasClasses() && !endSignal.aborted) await classesChanged.nextWakeup(endSignal);
    if (endSignal.aborted) return;
    const noClasses = new AbortController();
    stopRun = () => noClasses.abort(new OrderlyStop());
    controls.restart();
    await refresh.run();
    const requestLanes = (["live", "spare"] as const).map(
      (lane) => (begun: () => void, signal: AbortSignal) => readOnce(lane, begun, signal, run),
    );
    await keepRequestsWaiting(requestLanes, {
      maxUnderWay: () => REQUESTS_UNDER_WAY_MAX[controls.isTrying() ? "trying" : "working"],
      draining: AbortSignal.any([draining, noClasses.signal]),
      forced,
      lookups: {
        ...{ clock, wakeup: classesChanged, turn: refresh.ifDue },
        fault: (error) => log.warn({ err: error }, "the tags to be read could not be looked up"),
      },
    });
  }

  return {
    ...({ name: "live", ability: READ_ABILITY, follow } satisfies Follower),
    status: () => ({
      quarantined: schedule.quarantined(),
      overload: refresh.overload(),
      freshness: schedule.freshness(clock.monotonic()),
    }),
    lastRead: commit.lastRead,
    leftOut: leftOut.all,
    suddenChanges: commit.suddenChanges,
    showFreshness: refresh.showFreshnessIfDue,
    change(classes: ReadConfig): void {
      refresh.changeClasses(classes);
      classesChanged.wakeUp();
      if (classes.length === 0) stopRun();
    },
    known(id: string): KnownTag | undefined {
      const tagState = schedule.known(id);
      return tagState && { ...tagState, isolation: findIsolation(id)?.label ?? null, leftOut: leftOut.of(id) };
    },
  };
}

/** True if a punctual tag is at half of its interval: the next request may clear the suspected site. */
function isPunctualDue({ isolated, underWay, lastMs, intervalMs }: PlannedTags, nowMs: number): boolean {
  for (const [row, { timing }] of isolated) {
    if (timing !== "punctual" || underWay[row] === 1) continue;
    if (nowMs - (lastMs[row] as number) >= (intervalMs[row] as number) / 2) return true;
  }
  return false;
}

function selectBisectionGroup({ ids, isolated, underWay, lastMs, intervalMs }: PlannedTags, nowMs: number) {
  const ageOf = (row: number) => (nowMs - (lastMs[row] as number)) / (intervalMs[row] as number);
  const freeRows = [...isolated].filter(([row]) => underWay[row] !== 1);
  // Prefer tags that are suspected only through their site: one success clears the complete site.
  const rank = (label: string) => (label.startsWith("site ") ? 0 : 1);
  const [first] = freeRows
    .filter(([row, { timing }]) => timing === "patient" && ageOf(row) >= 1)
    .toSorted(
      ([a, one], [b, other]) =>
        rank(one.label) - rank(other.label) || one.siteRequestedMs - other.siteRequestedMs || ageOf(b) - ageOf(a),
    );
  const group = freeRows.filter(([, { label }]) => label === first?.[1].label).slice(0, TAGS_PER_REQUEST);
  return group.map(([row]) => ids[row] as string);
}
