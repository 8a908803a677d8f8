import type { Clock } from "../../../core/runtime/clock.ts";
import { TAGS_PER_REQUEST } from "../../source/source.ts";
import { planGroup } from "../plan/group.ts";
import type { Apart, PlannedTags } from "../plan/planned.ts";
import type { Bisection } from "../tag-group/bisection.ts";
import type { Controls } from "./controls.ts";
import type { TagSchedule } from "./tag-schedule.ts";

/**
 * Which tags the next request of live reads is for: those that a promise needs before anybody else, but for one slot of 20
 * that goes to the search for a tag which makes its group fail. What no promise needs goes to a control, to what is oldest
 * (`eager`, in a slot that nobody else wants), and to a tag that was set aside and may be tried again. Answers none where the
 * slot is better left to others.
 */
export type NextGroup = (eager: boolean, spacingMs: number) => readonly string[];

export interface NextGroupOptions {
  readonly clock: Pick<Clock, "monotonic">;
  readonly board: Pick<TagSchedule, "planned" | "nextProbe">;
  readonly controls: Pick<Controls, "isTrying" | "isOut" | "isWorth" | "next">;
  readonly suspects: Pick<Bisection, "any">;
  /** How long a reply takes as a rule, milliseconds, where requests are so far apart. */
  readonly replyMs: (spacingMs: number) => number;
}

/** Who is searched takes slots that nobody needs, and, so that it ends under full load, one of so many. */
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
    // A search among tags that are all refused would find nobody and never end.
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

/** Of the tags that are searched and due, the group of the one that waits longest; the sites take turns. */
function searchGroup(planned: PlannedTags, nowMs: number): readonly string[] {
  const ageOf = (place: number) =>
    (nowMs - (planned.lastMs[place] as number)) / (planned.intervalMs[place] as number);
  const free = [...planned.apart].filter(([place]) => planned.underWay[place] !== 1);
  const due = free.filter(([place, { turn }]) => turn === "patient" && ageOf(place) >= 1);
  // First whoever is not suspected by itself: one answer clears a whole site.
  const isSuspect = ({ label }: Apart) => (label.startsWith("site ") ? 0 : 1);
  const [first] = due.toSorted(
    ([a, one], [b, other]) =>
      isSuspect(one) - isSuspect(other) || one.siteAskedMs - other.siteAskedMs || ageOf(b) - ageOf(a),
  );
  if (first === undefined) return [];
  const group = free.filter(([, { label }]) => label === first[1].label).slice(0, TAGS_PER_REQUEST);
  return group.map(([place]) => planned.ids[place] as string);
}
