import { isDeepStrictEqual } from "node:util";
import type { Alarm } from "../../../core/model/building.ts";
import type { Event } from "../../../core/model/event.ts";
import type { StoredAlarm } from "../snapshot.ts";
import {
  type AlarmContext,
  announce,
  begin,
  goOn,
  isOpen,
  leaveScope,
  miss,
  resolve,
  type Step,
  vanish,
} from "./diff-alarm.ts";
import {
  completed,
  contradictsItself,
  isEmittedEnd,
  isFormer,
  isOverBefore,
  isOvertaken,
  isResolved,
  isSameEpisode,
  orderOfActivity,
  type Relation,
  relationOf,
} from "./episode.ts";
import { inEpisodeOrder } from "./episode-order.ts";
import { endOf } from "./times.ts";

/** Result of one poll of the active alarms and of the searches that followed. */
export interface AlarmObservation {
  /** Records of the active list, each as some answer of the service showed it. */
  readonly listed: readonly Alarm[];
  /**
   * Meaning of a site's absent alarms. `complete`: they are not active. `moving`: unknown, because the list changed, is incomplete,
   * or its drop awaits confirmation. `none`: the site was not read.
   */
  readonly coverage: (siteId: number) => Coverage;
  /** Alarm ids that some answer showed, in a way that nothing can be concluded from yet (doubts.ts). */
  readonly doubted?: ReadonlySet<string>;
  /**
   * Alarm ids that so many polls in a row have shown with the same record that it counts, although it seems to come
   * from the past (doubts.ts).
   */
  readonly insisted?: ReadonlySet<string>;
  /** Alarm ids whose listed start counts although it is not the known one (doubts.ts). */
  readonly corrected?: ReadonlySet<string>;
  /** Records that the look-up of absent alarms brought, of whatever status. */
  readonly found: readonly Alarm[];
  /** Alarm ids that the look-up searched for in every page there is, of every status. */
  readonly searched: ReadonlySet<string>;
  /** Sites that the token sees, before and after; null when that was not asked or not answered. */
  readonly scope: Scope | null;
}

export type Coverage = "complete" | "moving" | "none";

export interface Scope {
  readonly before: ReadonlySet<number>;
  readonly after: ReadonlySet<number>;
}

export interface AlarmDiffOptions extends AlarmContext {
  readonly vanishAfterMisses: number;
  /** Whether this site's alarms were listed before; the alarms of a new one are met, not seen to begin. */
  readonly isKnownSite: (siteId: number) => boolean;
  /** Handling of a site's first list after the start of the worker, and the time of that start, UTC. */
  readonly startup: "reconcile" | "announce" | "silent";
  readonly startedAt: string;
  /** Whether the site of an alarm, or a page with the alarm, was listed after the start. */
  readonly isTakenOver: (alarm: Alarm) => boolean;
}

export interface AlarmDiff {
  readonly put: ReadonlyMap<string, StoredAlarm>;
  readonly events: readonly Event[];
}

/** Held alarms that the list should show and does not, or shows with another episode: their fate is to be asked. */
export function absentees(
  held: ReadonlyMap<string, StoredAlarm>,
  seen: Pick<AlarmObservation, "listed" | "coverage">,
  isVisible: (siteId: number) => boolean,
): readonly StoredAlarm[] {
  const episodes = new Map<string, Alarm>();
  for (const alarm of seen.listed) episodes.set(alarm.id, alarm);
  const absent: StoredAlarm[] = [];
  for (const known of held.values()) {
    if (!isOpen(known) || seen.coverage(known.alarm.site.id) === "none") continue;
    const listed = episodes.get(known.alarm.id);
    const isAbsent =
      listed === undefined
        ? known.state !== "out-of-scope" || isVisible(known.alarm.site.id)
        : relationOf(known, listed) === "newer";
    if (isAbsent) absent.push(known);
  }
  return absent;
}

/**
 * Compares stored alarms with one poll. Pure. Yields after each alarm that may have changed, because 5,000 of them take 100 ms
 * and other work must run in between.
 */
export function* diffAlarms(
  held: ReadonlyMap<string, StoredAlarm>,
  seen: AlarmObservation,
  options: AlarmDiffOptions,
): Generator<undefined, AlarmDiff, undefined> {
  const put = new Map<string, StoredAlarm>();
  const events: Event[] = [];
  const take = (steps: Iterable<Step>) => {
    const told: Event[] = [];
    for (const { held: next, events: news } of steps) {
      const before = put.get(next.alarm.id) ?? held.get(next.alarm.id);
      if (!isDeepStrictEqual(before, next)) put.set(next.alarm.id, next);
      const silent = options.startup === "silent" && !options.isTakenOver(next.alarm);
      if (!silent) told.push(...news);
    }
    events.push(...inEpisodeOrder(told));
  };

  const shown = new Set<string>();
  const all = [
    ...seen.listed.map((alarm) => asKnown(held, alarm, seen.corrected?.has(alarm.id))),
    ...seen.found.map((alarm) => asKnown(held, alarm)),
  ];
  const evidence = byId(all.filter(isResolved));
  const listed = all.filter((alarm) => !isResolved(alarm));
  for (const alarm of listed) {
    if (shown.has(alarm.id)) continue;
    shown.add(alarm.id);
    const known = held.get(alarm.id);
    if (known !== undefined && isAsHeld(known, alarm) && !isAnnouncing(alarm, options)) continue;
    take(observe(known, alarm, seen, evidence, options));
    yield;
  }
  for (const known of held.values()) {
    if (shown.has(known.alarm.id)) continue;
    take(missed(known, seen, evidence, options));
    yield;
  }
  return { put, events };
}

/** Whether the alarm is emitted again, because it is the first look at it after a start. */
function isAnnouncing(alarm: Alarm, { startup, isTakenOver }: AlarmDiffOptions): boolean {
  return startup === "announce" && !isTakenOver(alarm);
}

/** Listed as active by the very record that is held, and held as active: nothing is new. So it is with nearly all. */
function isAsHeld(known: StoredAlarm, alarm: Alarm): boolean {
  return alarm === known.alarm && known.state === "active" && known.untold === undefined;
}

/** An alarm that is listed as active. */
function* observe(
  known: StoredAlarm | undefined,
  alarm: Alarm,
  seen: AlarmObservation,
  evidence: Evidence,
  options: AlarmDiffOptions,
): Generator<Step> {
  const siteId = alarm.site.id;
  const announcing = isAnnouncing(alarm, options);
  const initial = !options.isKnownSite(siteId) || announcing;
  if (known === undefined) {
    yield begin(alarm, initial, options);
    return;
  }
  const relation = relationOf(known, alarm);
  // An answer from the past changes nothing, until it turns out to be the present.
  if (isOvertaken(known, alarm) && !(seen.insisted?.has(alarm.id) === true && isNews(known, alarm))) return;
  // Only a record without an end revokes an emitted end.
  if (relation === "same" && known.state === "resolved" && contradictsItself(alarm)) return;
  if (
    relation === "same" ||
    (relation === "past" && (isOpen(known) || isSameEpisode(known, alarm) || isFormer(known, alarm)))
  ) {
    const step = goOn(known, alarm, options);
    yield announcing
      ? { held: step.held, events: [announce(step.held, options.startedAt, options), ...step.events] }
      : step;
    return;
  }
  const closed = isOpen(known) ? close(known, evidence, options) : null;
  if (closed !== null) yield closed;
  yield begin(alarm, initial, options, closed?.held ?? known);
}

/**
 * True when an overtaken record contains more than a known open alarm. A service restored from a backup numbers its events from
 * an earlier point, and later acknowledgements there are new.
 */
function isNews(known: StoredAlarm, alarm: Alarm): boolean {
  if (!isOpen(known) || orderOfActivity(alarm, known.alarm) !== "before") return true;
  const { triggeredAt, triggeredAtRaw, lastActiveEvent } = known.alarm;
  return !isDeepStrictEqual({ ...alarm, triggeredAt, triggeredAtRaw, lastActiveEvent }, known.alarm);
}

/** A held alarm that is not listed as active. */
function* missed(
  known: StoredAlarm,
  seen: AlarmObservation,
  evidence: Evidence,
  options: AlarmDiffOptions,
): Generator<Step> {
  const word = wordAbout(known, evidence);
  if (word !== undefined && isOpen(known) && isEmittedEnd(known, word)) {
    // It came back after this end, and now both lists say that it is over: not by one look, as they disagreed before.
    if (seen.coverage(known.alarm.site.id) !== "complete") return;
    const step = miss(known, options);
    yield step.held.misses >= options.vanishAfterMisses ? resolve(step.held, word, options) : step;
    return;
  }
  // An end before the known start is that of an older episode for as long as the alarm may still be listed.
  const mayBeListed = seen.coverage(known.alarm.site.id) !== "complete" || seen.doubted?.has(known.alarm.id) === true;
  if (word !== undefined && mayBeListed && isOverBefore(known, word)) return;
  if (word !== undefined && (isOpen(known) || known.state === "vanished")) {
    yield* believe(known, word, evidence, options);
    return;
  }
  if (!isOpen(known) || seen.scope === null || seen.doubted?.has(known.alarm.id)) return;
  const siteId = known.alarm.site.id;
  if (!seen.scope.after.has(siteId)) {
    if (known.state !== "out-of-scope") yield leaveScope(known, options);
    return;
  }
  if (!seen.scope.before.has(siteId) || seen.coverage(siteId) !== "complete") return;
  const step = miss(known, options);
  const enough = step.held.misses >= options.vanishAfterMisses && seen.searched.has(known.alarm.id);
  yield enough ? vanish(step.held, options) : step;
}

/** The service's word about an alarm that is over: of this episode, or of a later one of the same id. */
export function* believe(known: StoredAlarm, word: Alarm, evidence: Evidence, context: AlarmContext): Generator<Step> {
  if (relationOf(known, word) !== "newer") {
    yield resolve(known, word, context);
    return;
  }
  const closed = isOpen(known) ? close(known, evidence, context) : null;
  if (closed !== null) yield closed;
  const late = { ...context, late: true };
  const begun = begin(word, false, late, closed?.held ?? known);
  yield begun;
  yield resolve(begun.held, word, late);
}

/** The end of an episode whose id stands for a newer one: resolved where the service still says so. */
function close(known: StoredAlarm, evidence: Evidence, context: AlarmContext): Step {
  const word = lastWord(known, "same", evidence);
  return word === undefined ? vanish(known, context) : resolve(known, word, context);
}

function wordAbout(known: StoredAlarm, evidence: Evidence): Alarm | undefined {
  return lastWord(known, "same", evidence) ?? lastWord(known, "newer", evidence);
}

/** Returns the resolved record with this relation to the held episode that ended last. */
function lastWord(known: StoredAlarm, relation: Relation, evidence: Evidence): Alarm | undefined {
  const words = (evidence.get(known.alarm.id) ?? []).filter((alarm) => relationOf(known, alarm) === relation);
  // An unreadable end is null, which counts as 0 and so as the earliest.
  return words.sort((one, other) => Number(endOf(other)) - Number(endOf(one)))[0];
}

/** A record, completed with what is known of its alarm where it says nothing; `counts`: its start does as it is. */
export function asKnown(held: ReadonlyMap<string, StoredAlarm>, alarm: Alarm, counts = false): Alarm {
  const known = held.get(alarm.id);
  return known === undefined ? alarm : completed(known, alarm, counts);
}

/** Resolved records by alarm id. */
export type Evidence = ReadonlyMap<string, readonly Alarm[]>;

export function byId(alarms: readonly Alarm[]): Evidence {
  return Map.groupBy(alarms, (alarm) => alarm.id);
}
