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
  readonly board: Pick<TagSchedule, "planned" | "nextProbe">;
  readonly controls: Pick<Controls, "isTrying" | "isOut" | "isWorth" | "next">;
  readonly suspects: Pick<Bisection, "any">;
  /** How long a reply takes as a rule, milliseconds, where requests are so far apart. */
  readonly replyMs: (spacingMs: number) => number;
}

/** Bisection takes spare slots, and one of 20 so that it ends even under full load. */
const SEARCH_EVERY_SLOTS = 20;
/** And where slots are far apart, one in two minutes: with 3 requests a minute 20 slots are seven (milliseconds). */
const SEARCH_EVERY_MS = 120_000;
/** Starving tags take at most every other slot that others need; half a slot for what is not exact. */
const EVERY_OTHER = 1.5;

export function createNextGroup({ clock, board, controls, suspects, replyMs }: NextGroupOptions): NextGroup {
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
    const planned = board.planned(nowMs);
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
    const probe = board.nextProbe(nowMs);
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
  const ageOf = (place: number) =>
    (nowMs - (planned.lastMs[place] as number)) / (planned.intervalMs[place] as number);
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
  /** A failure concerned all, and nothing has been read since: only one request at a time tries, for one tag. */
  isTrying(): boolean;
  /**
   * Whether a control is worth a slot: while it is trying, or after some refusals in a row; more of them where the slot
   * would be a search's, which mostly has an answer in between.
   */
  isWorth(slot: "idle" | "search"): boolean;
  /** Whether one is on its way. */
  isOut(): boolean;
  /** The control to be asked now; empty while one is on its way, and where there is no tag that could tell. */
  next(): readonly string[];
  /** These were read: nothing concerns all. */
  answered(): void;
  /** Whether a failure can be due to the tags of its request; one of the quota, of the token or of the service cannot. */
  mayBlame(failure: Failure): boolean;
  /** Whether this is the control that tries: what it meets is about no tag, for it was answered lately. */
  isTrial(group: readonly string[]): boolean;
  /** A request failed for a reason that need not be its tags'. Answers whether it concerns all. */
  failed(failure: Failure): boolean;
  /** A request was refused, and what the token may see does not say why. Answers whether it concerns all. */
  refused(group: readonly string[]): boolean;
  /** The request for these is over, however it ended. */
  returned(group: readonly string[]): void;
  /** The work begins again: failures in a row are counted from here on. */
  begin(): void;
}

/** Failures in a row after which it is the service, not a gateway. */
const FAILURES_MAX = 3;
/** Refusals in a row after which control tags are read in spare slots. */
const REFUSALS_IN_DOUBT = 3;
/** So many controls refused: it is about no single tag. */
const CONTROLS = 3;
/** The same instead of a search: with the controls and one on its way, ten requests to what is refused altogether. */
const REFUSALS_FOR_SEARCH = 6;
/** Where no tag was ever read, so many say that it is about no single tag. */
const REFUSALS_UNREAD = 8;

/** `pick` answers a tag that was read lately and is none of those given, or undefined; see `Board.control`. */
export function createControls(pick: (tried: readonly string[]) => string | undefined): Controls {
  let trying = false;
  let failures = 0;
  let refusals = 0;
  /** Controls that were refused in a row: one may be of a site that is refused, three are of three. */
  let controlsRefused = 0;
  /** Controls that were asked since anything was read. */
  let tried: readonly string[] = [];
  let out: readonly string[] | null = null;

  return {
    isTrying: () => trying,
    isWorth: (slot) => trying || refusals >= (slot === "idle" ? REFUSALS_IN_DOUBT : REFUSALS_FOR_SEARCH),
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
      trying = false;
      failures = 0;
      refusals = 0;
      controlsRefused = 0;
      tried = [];
    },
    mayBlame: mayBeOneGateway,
    isTrial: (group) => trying && group === out,
    failed(failure) {
      failures++;
      controlsRefused = 0;
      trying ||= !mayBeOneGateway(failure) || failures >= FAILURES_MAX;
      return trying;
    },
    refused(group) {
      refusals++;
      if (group === out) controlsRefused++;
      const isControlled = controlsRefused >= CONTROLS;
      const neverRead = refusals >= REFUSALS_UNREAD && pick([]) === undefined;
      if (!isControlled && !neverRead) return false;
      refusals = 0;
      controlsRefused = 0;
      trying = true;
      return true;
    },
    returned(group) {
      if (group === out) out = null;
    },
    begin() {
      failures = 0;
      refusals = 0;
      controlsRefused = 0;
      out = null;
    },
  };
}

/** Trouble that a single gateway or a single reply can cause; the rest concerns the token, the quota, the service. */
function mayBeOneGateway(failure: Failure): boolean {
  return failure instanceof Retryable || failure instanceof Malformed;
}
