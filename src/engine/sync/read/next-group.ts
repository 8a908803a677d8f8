import { type Failure, Malformed, Retryable } from "../../../core/errors/errors.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import { TAGS_PER_REQUEST } from "../../source/source.ts";
import { planGroup } from "../plan/group.ts";
import type { Apart, PlannedTags } from "../plan/planned.ts";
import type { Bisection } from "./bisection.ts";
import type { TagSchedule } from "./tag-schedule.ts";

/**
 * Picks up to 20 tags for the next read request, or none. In order:
 *
 * 1. while every read fails: one control tag, to find out when the service recovers;
 * 2. in every 20th slot: a bisection group;
 * 3. tags whose target interval would be missed, e.g. a 10 s tag last read 8.9 s ago with slots 3 s apart;
 * 4. slots that no interval needs: a control tag, a bisection group, with `eager` the stalest tags, or a quarantined
 *    tag whose wait is over.
 *
 * `[]` leaves the slot to history.
 */
type NextGroup = (eager: boolean, spacingMs: number) => readonly string[];

interface NextGroupOptions {
  readonly clock: Pick<Clock, "monotonic">;
  readonly schedule: Pick<TagSchedule, "planned" | "nextProbe">;
  readonly controls: Pick<Controls, "isTrying" | "isOut" | "isWorth" | "next">;
  readonly suspects: Pick<Bisection, "any">;
  /** Usual time to a response, in milliseconds, at that spacing of requests. */
  readonly replyMs: (spacingMs: number) => number;
}

/** Bisection takes spare slots, and one of 20 so that it ends even under full load. */
const SEARCH_EVERY_SLOTS = 20;
/** And where slots are far apart, one in two minutes: with 3 requests a minute 20 slots are seven (milliseconds). */
const SEARCH_EVERY_MS = 120_000;
/** Starving tags take at most every other slot that others need; half a slot for what is not exact. */
const EVERY_OTHER = 1.5;

export function createNextGroup({ clock, schedule, controls, suspects, replyMs }: NextGroupOptions): NextGroup {
  /** On the monotonic clock, as all times here. */
  let searchedAtMs = Number.NEGATIVE_INFINITY;
  /** When starving tags last took a slot that others needed. */
  let displacedAtMs = Number.NEGATIVE_INFINITY;

  return (eager, spacingMs) => {
    const nowMs = clock.monotonic();
    if (controls.isTrying()) {
      if (controls.isOut()) return [];
      const control = controls.next();
      if (control.length > 0) return control;
    }
    const planned = schedule.planned(nowMs);
    const isSearchTime =
      suspects.any() &&
      nowMs - searchedAtMs >= Math.min(SEARCH_EVERY_SLOTS * spacingMs, SEARCH_EVERY_MS) &&
      !isDoubtDue(planned, nowMs);
    const searched = isSearchTime ? searchGroup(planned, nowMs) : [];
    if (searched.length > 0) {
      searchedAtMs = nowMs;
      return searched;
    }
    const mayDisplace = nowMs - displacedAtMs >= EVERY_OTHER * spacingMs;
    const rules = { slotMs: spacingMs, size: TAGS_PER_REQUEST, leadMs: replyMs(spacingMs), mayDisplace };
    const due = planGroup(planned, nowMs, { ...rules, eager: false });
    if (due.displaces === true) displacedAtMs = nowMs;
    if (due.group.length > 0 && due.isSearch !== true) return due.group;
    // If all tags are refused, a bisection would never end: read a control tag first.
    const control = controls.isWorth(due.isSearch === true ? "search" : "idle") ? controls.next() : [];
    if (control.length > 0) return control;
    if (due.group.length > 0) return due.group;
    const { group } = eager ? planGroup(planned, nowMs, { ...rules, eager }) : { group: [] };
    if (group.length > 0) return group;
    const probe = schedule.nextProbe(nowMs);
    return probe === undefined ? [] : [probe];
  };
}

/** Whether a tag of a site in doubt waits for the request that clears it. */
function isDoubtDue({ apart, underWay, lastMs, intervalMs }: PlannedTags, nowMs: number): boolean {
  for (const [place, { turn }] of apart) {
    if (turn !== "punctual" || underWay[place] === 1) continue;
    if (nowMs - (lastMs[place] as number) >= (intervalMs[place] as number) / 2) return true;
  }
  return false;
}

/** Returns the group of the longest-waiting tag among the suspects that are due; sites alternate. */
function searchGroup(planned: PlannedTags, nowMs: number): readonly string[] {
  const ageOf = (place: number) => (nowMs - (planned.lastMs[place] as number)) / (planned.intervalMs[place] as number);
  const free = [...planned.apart].filter(([place]) => planned.underWay[place] !== 1);
  const due = free.filter(([place, { turn }]) => turn === "patient" && ageOf(place) >= 1);
  // Prefer tags that are suspected only through their site: one success clears the complete site.
  const isSuspect = ({ label }: Apart) => (label.startsWith("site ") ? 0 : 1);
  const [first] = due.toSorted(
    ([a, one], [b, other]) =>
      isSuspect(one) - isSuspect(other) || one.siteAskedMs - other.siteAskedMs || ageOf(b) - ageOf(a),
  );
  if (first === undefined) return [];
  const group = free.filter(([, { label }]) => label === first[1].label).slice(0, TAGS_PER_REQUEST);
  return group.map(([place]) => planned.ids[place] as string);
}

/**
 * Detects that reads fail for a reason that concerns all tags: the service is down, the token was revoked, or every
 * request is refused.
 *
 *   working ── 3 refusals in a row ──► checking: reads control tags in spare slots ── any read ──► working
 *   checking ── 3 controls refused ──► trying: one control tag at a time ──────────── any read ──► working
 *   working ── failure of token, quota or service, or 3 failures in a row ──► trying
 *
 * A control is a single tag that was read recently, each of another site if possible. A refused group of 20 proves
 * nothing: if a third of the tags is refused, nearly every group is.
 */
interface Controls {
  /** Only one control at a time is read, because a failure concerned all tags and nothing was read since. */
  isTrying(): boolean;
  /**
   * True while trying, or after several refusals in a row: 3 for an idle slot, 6 for the slot of a bisection group, which
   * often succeeds in between.
   */
  isWorth(slot: "idle" | "search"): boolean;
  /** True while the request of a control is under way. */
  isOut(): boolean;
  /** Returns the next control; empty while one is under way or if no tag was read recently. */
  next(): readonly string[];
  /** A request succeeded. */
  answered(): void;
  /** True if the tags of the request can be the cause; failures of quota, token or service have other causes. */
  mayBlame(failure: Failure): boolean;
  /** True for the control read while trying: it was read recently, so its failure is not its own. */
  isTrial(group: readonly string[]): boolean;
  /** A request failed. Returns true if the failure concerns all tags. */
  failed(failure: Failure): boolean;
  /** A request was refused without an explanation by the token's scope. Returns true if all tags are concerned. */
  refused(group: readonly string[]): boolean;
  /** The request for these tags has ended. */
  returned(group: readonly string[]): void;
  /** A new run starts: counts start from 0. */
  begin(): void;
}

/** Failures in a row after which the service, not a gateway, must be the cause. */
const FAILURES_MAX = 3;
/** Refusals in a row after which control tags are read in spare slots. */
const REFUSALS_IN_DOUBT = 3;
/** Refused controls in a row that prove that no single tag is the cause. */
const CONTROLS = 3;
/** Refusals in a row after which a control replaces a bisection group: at most ten requests to a service that refuses all. */
const REFUSALS_FOR_SEARCH = 6;
/** Refusals in a row that prove the same while no tag was ever read, so that there is no control. */
const REFUSALS_UNREAD = 8;

interface ControlState {
  readonly mode: "working" | "trying";
  /** Each counts in a row, since the last read. */
  readonly failures: number;
  readonly refusals: number;
  readonly controlsRefused: number;
}

type ControlEvent = "started" | "read" | "failed" | "failed for all" | "refused" | "control refused";

const WORKING: ControlState = { mode: "working", failures: 0, refusals: 0, controlsRefused: 0 };

/** Returns the state after an event. A refusal that proves that all tags are concerned resets the refusals to 0. */
function stateAfter(state: ControlState, event: ControlEvent, hasControl: () => boolean): ControlState {
  switch (event) {
    case "started":
      return { ...WORKING, mode: state.mode };
    case "read":
      return WORKING;
    case "failed":
    case "failed for all": {
      const failures = state.failures + 1;
      const isForAll = event === "failed for all" || failures >= FAILURES_MAX;
      return { ...state, failures, controlsRefused: 0, mode: isForAll ? "trying" : state.mode };
    }
    case "refused":
    case "control refused": {
      const refusals = state.refusals + 1;
      const controlsRefused = state.controlsRefused + (event === "control refused" ? 1 : 0);
      const isForAll = controlsRefused >= CONTROLS || (refusals >= REFUSALS_UNREAD && !hasControl());
      return isForAll
        ? { ...WORKING, failures: state.failures, mode: "trying" }
        : { ...state, refusals, controlsRefused };
    }
  }
}

/** `pick` returns a recently read tag that is not in `tried`, or undefined; see `TagSchedule.control`. */
export function createControls(pick: (tried: readonly string[]) => string | undefined): Controls {
  let state = WORKING;
  /** Controls requested since the last read. */
  let tried: readonly string[] = [];
  /** The control whose request is under way. */
  let out: readonly string[] | null = null;
  const apply = (event: ControlEvent) => {
    state = stateAfter(state, event, () => pick([]) !== undefined);
  };

  return {
    isTrying: () => state.mode === "trying",
    isWorth: (slot) =>
      state.mode === "trying" || state.refusals >= (slot === "idle" ? REFUSALS_IN_DOUBT : REFUSALS_FOR_SEARCH),
    isOut: () => out !== null,
    next() {
      if (out !== null) return [];
      const untried = pick(tried);
      const control = untried ?? pick([]);
      if (control === undefined) return [];
      tried = [...(untried === undefined ? [] : tried), control];
      out = [control];
      return out;
    },
    answered() {
      apply("read");
      tried = [];
    },
    mayBlame: mayBeOneGateway,
    isTrial: (group) => state.mode === "trying" && group === out,
    failed(failure) {
      apply(mayBeOneGateway(failure) ? "failed" : "failed for all");
      return state.mode === "trying";
    },
    refused(group) {
      apply(group === out ? "control refused" : "refused");
      return state.refusals === 0;
    },
    returned(group) {
      if (group === out) out = null;
    },
    begin() {
      apply("started");
      out = null;
    },
  };
}

/** Returns true for a failure that one gateway or one reply can cause; others concern the token, the quota or the service. */
function mayBeOneGateway(failure: Failure): boolean {
  return failure instanceof Retryable || failure instanceof Malformed;
}
