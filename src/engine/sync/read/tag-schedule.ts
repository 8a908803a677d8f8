import { backedOff, type Overload, overloadFactor } from "../plan/overload.ts";
import { NEVER_MS, type PlannedTags } from "../plan/planned.ts";
import type { StoredQuarantine, StoredValue } from "../snapshot.ts";
import { quarantineMs } from "./bisection.ts";
import {
  createScheduleColumns,
  createSiteLook,
  factsOf,
  type ScheduleContext,
  type ScheduledTag,
  type SiteFacts,
} from "./schedule-columns.ts";
import type { WatchedTag } from "./value-event.ts";

/**
 * State of each tag while the worker runs: its last read, its failures and its waits. Times are monotonic
 * milliseconds; the store keeps what must survive a restart.
 */
export interface TagSchedule {
  /** Takes the tags that are to be read now; keeps what is known of those that stay. */
  watch(tags: readonly WatchedTag[], known: Known): void;
  watched(id: string): WatchedTag | undefined;
  size(): number;
  /**
   * The tags for the planner; those that are set aside, or that the token does not see, are left out. What it answers is
   * good until it is asked again.
   */
  planned(nowMs: number): PlannedTags;
  /** A tag that was set aside and whose time is up: it is asked alone. */
  nextProbe(nowMs: number): string | undefined;
  /**
   * A tag to see whether anything can be read: none of these and none that was refused alone; of another site where
   * there is one, rather not suspected, and answered as lately as possible.
   */
  control(tried: readonly string[]): string | undefined;
  sent(ids: readonly string[], nowMs: number): void;
  /** The service answered for it: with a value, with null, or not at all although it answered the others. */
  answered(id: string, answer: "value" | "null" | "absent", nowMs: number): void;
  /** The request failed for a reason that says nothing about the tag; it is tried again before it is due. */
  failed(ids: readonly string[], nowMs: number): void;
  returned(ids: readonly string[]): void;
  setAside(id: string, untilMs: number): void;
  release(id: string): void;
  /** Tags that are set aside. */
  aside(): readonly string[];
  /** Tags of sites that the token does not see. */
  outOfSight(): number;
  /** Fits the target intervals into that share of the slots and uses the resulting intervals from now on. */
  stretch(slotMs: number, size: number, share: number, replyMs: number): Overload;
  /** By class, how old values became lately, and how old the oldest is now. */
  freshness(nowMs: number): readonly ClassFreshness[];
  /** A new stretch of "lately" begins; what was before the last one is forgotten. */
  turnPage(): void;
  /** Returns the state of one tag. */
  known(id: string): TagState | undefined;
}

/** Milliseconds. */
export interface ClassFreshness {
  readonly name: string;
  readonly tags: number;
  /** How old a value may become by the present plan. */
  readonly promisedMs: number;
  /**
   * How old one has become at most, by the clock, or for how long one waits for its first value that is late; left out
   * are tags that keep answering nothing, that are set aside, or that the token does not see. Null while none was read.
   */
  readonly achievedMs: number | null;
}

export interface TagState {
  readonly watched: WatchedTag;
  /** Time of the last response; null if there was none or its time is unknown. */
  readonly lastMs: number | null;
  /** Time that counts as the last response if the real time is unknown; otherwise null. */
  readonly countedMs: number | null;
  /** Target interval; the same times the overload factor; the same with back-off. */
  readonly wishedMs: number;
  readonly stretchedMs: number;
  readonly intervalMs: number;
  /** Nulls or absences in a row. */
  readonly nulls: number;
  readonly gatewayOffline: boolean;
  readonly underWay: boolean;
  readonly asideUntilMs: number | null;
  /** Whether the token sees its site. */
  readonly inSight: boolean;
}

export interface Known {
  readonly values: ReadonlyMap<string, StoredValue>;
  readonly aside: ReadonlyMap<string, StoredQuarantine>;
  readonly nowMs: number;
  /** Monotonic time of a wall time in the past or the future; of a clock that was ahead it may be long from now. */
  toMonotonic(time: string): number;
}

/** Nulls in a row after which a tag counts as silent: no promise is kept for it. */
const SILENT = 3;
/** A tag whose request failed is tried again after 15 s, then ever more rarely, at most as rarely as it is due. */
const RETRY_MS = 15_000;

export function createTagSchedule(context: ScheduleContext): TagSchedule {
  let states = new Map<string, ScheduledTag>();
  let factors: ReadonlyMap<string, number> = new Map();
  /** By site, when one of its `patient` tags was last asked for. */
  const sitesAskedMs = new Map<number, number>();
  /** By class, the largest age at which a value was replaced; of this page and the one before. */
  let oldest = new Map<string, number>();
  let oldestBefore = new Map<string, number>();

  /** Ids of the tags that are set aside. */
  let aside = new Set<string>();

  const stretchedMsOf = ({ watched: { readClass } }: ScheduledTag) =>
    readClass.every * (factors.get(readClass.name) ?? 1);
  const intervalMsOf = (state: ScheduledTag, stretchedMs: number, { offline }: SiteFacts) =>
    backedOff(stretchedMs, state.nulls, offline && !state.answersAnyway);
  const isPromised = (state: ScheduledTag, { inSight }: SiteFacts) =>
    state.nulls < SILENT && state.asideUntilMs === null && inSight;

  const shown = createScheduleColumns({
    context,
    intervalMsOf: (state, facts) => intervalMsOf(state, stretchedMsOf(state), facts),
    siteAskedMs: (siteId) => sitesAskedMs.get(siteId) ?? NEVER_MS,
  });

  const change = (id: string, make: (state: ScheduledTag) => void) => {
    const state = states.get(id);
    if (state === undefined) return;
    make(state);
    shown.changed(state);
  };

  return {
    watch(tags, known) {
      const next = new Map<string, ScheduledTag>();
      const nextAside = new Set<string>();
      for (const watched of tags) {
        const { id } = watched.tag;
        const state = states.get(id);
        if (state !== undefined) {
          state.watched = watched;
          next.set(id, state);
          if (state.asideUntilMs !== null) nextAside.add(id);
          continue;
        }
        const value = known.values.get(id);
        const quarantine = known.aside.get(id);
        // Without a count it was set aside by a rule that could be wrong: it is asked again.
        const asideUntilMs =
          quarantine?.times === undefined
            ? null
            : Math.min(known.toMonotonic(quarantine.until), known.nowMs + quarantineMs(quarantine.times));
        if (asideUntilMs !== null) nextAside.add(id);
        // The clock was ahead, so the stored time is in the future. Count the value as read now: the tag is due after
        // its target interval, and its age is unknown until then.
        const readMs = value === undefined ? null : known.toMonotonic(value.time);
        const isAhead = readMs !== null && readMs > known.nowMs;
        next.set(id, {
          id,
          place: -1,
          watched,
          lastMs: isAhead ? null : readMs,
          countedMs: isAhead ? known.nowMs : null,
          sinceMs: known.nowMs,
          nulls: value?.nulls ?? 0,
          nullAtMs: Number.NEGATIVE_INFINITY,
          failures: 0,
          retryMs: Number.NEGATIVE_INFINITY,
          underWay: false,
          gatewayWasOffline: false,
          answersAnyway: false,
          asideUntilMs,
        });
      }
      states = next;
      aside = nextAside;
      shown.outdated();
    },
    watched: (id) => states.get(id)?.watched,
    size: () => states.size,
    planned: (nowMs) => shown.planned(states, nowMs),
    nextProbe(nowMs) {
      for (const id of aside) {
        const state = states.get(id);
        if (state === undefined) continue;
        const { asideUntilMs, underWay, retryMs, watched } = state;
        if (underWay || asideUntilMs === null || asideUntilMs > nowMs || retryMs > nowMs) continue;
        if (context.sees(watched.siteId)) return id;
      }
      return undefined;
    },
    control(tried) {
      const triedSites = new Set(tried.map((id) => states.get(id)?.watched.siteId));
      const sites = createSiteLook(context);
      const known = [...states].filter(
        ([id, state]) =>
          isPromised(state, sites.of(state.watched.siteId)) &&
          !state.underWay &&
          state.lastMs !== null &&
          !tried.includes(id) &&
          context.notBeforeMs(id) === Number.NEGATIVE_INFINITY,
      );
      const rank = ([id, { watched, lastMs }]: (typeof known)[number]) =>
        [triedSites.has(watched.siteId) ? 1 : 0, context.isSuspect(id) ? 1 : 0, -(lastMs ?? 0)] as const;
      const [best] = known
        .map((each) => ({ id: each[0], rank: rank(each) }))
        .sort((a, b) => a.rank[0] - b.rank[0] || a.rank[1] - b.rank[1] || a.rank[2] - b.rank[2]);
      return best?.id;
    },
    sent(ids, nowMs) {
      for (const id of ids) {
        change(id, (state) => {
          state.underWay = true;
          if (context.turnOf(id) === "patient") sitesAskedMs.set(state.watched.siteId, nowMs);
        });
      }
    },
    answered(id, answer, nowMs) {
      change(id, (state) => {
        const { name } = state.watched.readClass;
        const facts = factsOf(context, state.watched.siteId);
        if (state.lastMs !== null && isPromised(state, facts))
          oldest.set(name, Math.max(oldest.get(name) ?? 0, nowMs - state.lastMs));
        state.lastMs = nowMs;
        state.answersAnyway = answer === "value" && facts.offline;
        if (answer === "value") state.nulls = 0;
        else if (nowMs - state.nullAtMs >= stretchedMsOf(state) / 2) {
          state.nulls += 1;
          state.nullAtMs = nowMs;
        }
        state.failures = 0;
        state.retryMs = Number.NEGATIVE_INFINITY;
      });
    },
    failed(ids, nowMs) {
      for (const id of ids) {
        change(id, (state) => {
          // In a smaller group it is asked again when it is due; alone it waits ever longer.
          const waitMs = ids.length > 1 ? 0 : RETRY_MS * 2 ** Math.min(state.failures, 10);
          state.failures += 1;
          const intervalMs = intervalMsOf(state, stretchedMsOf(state), factsOf(context, state.watched.siteId));
          state.retryMs = nowMs + Math.min(waitMs, Math.max(RETRY_MS, intervalMs));
        });
      }
    },
    returned(ids) {
      for (const id of ids) change(id, (state) => (state.underWay = false));
    },
    setAside(id, untilMs) {
      change(id, (state) => {
        state.asideUntilMs = untilMs;
        aside.add(id);
        shown.outdated();
      });
    },
    release(id) {
      change(id, (state) => {
        state.asideUntilMs = null;
        aside.delete(id);
        shown.outdated();
      });
    },
    aside: () => [...aside],
    outOfSight() {
      const sites = createSiteLook(context);
      let count = 0;
      for (const { watched } of states.values()) if (!sites.of(watched.siteId).inSight) count += 1;
      return count;
    },
    stretch(slotMs, size, share, replyMs) {
      const counts = new Map<string, { tags: number; readClass: WatchedTag["readClass"] }>();
      const sites = createSiteLook(context);
      for (const state of states.values()) {
        const facts = sites.of(state.watched.siteId);
        if (state.asideUntilMs !== null || !facts.inSight) continue;
        const { readClass } = state.watched;
        const stretchedMs = stretchedMsOf(state);
        let count = counts.get(readClass.name);
        if (count === undefined) {
          count = { tags: 0, readClass };
          counts.set(readClass.name, count);
        }
        // A tag that is read less often leaves its slots to the others.
        count.tags += stretchedMs / intervalMsOf(state, stretchedMs, facts);
      }
      const wishes = [...counts.values()].map(({ tags, readClass }) => ({
        name: readClass.name,
        tags,
        everyMs: readClass.every,
        firm: readClass.firm,
        importance: readClass.importance,
      }));
      const result = overloadFactor(wishes, slotMs, size, share, replyMs);
      factors = result.factors;
      shown.outdated();
      return result;
    },
    freshness(nowMs) {
      const classes = new Map<string, { -readonly [key in keyof ClassFreshness]: ClassFreshness[key] }>();
      const sites = createSiteLook(context);
      for (const state of states.values()) {
        const { name } = state.watched.readClass;
        const promisedMs = stretchedMsOf(state);
        let known = classes.get(name);
        if (known === undefined) {
          known = { name, tags: 0, promisedMs, achievedMs: null };
          classes.set(name, known);
        }
        known.tags += 1;
        known.promisedMs = promisedMs;
        if (!isPromised(state, sites.of(state.watched.siteId))) continue;
        const lately = Math.max(oldest.get(name) ?? 0, oldestBefore.get(name) ?? 0);
        const waitedMs = nowMs - state.sinceMs;
        // One that never had a value, or one of an unknown time, has no age; that it is late is seen all the same.
        const unreadMs = waitedMs > promisedMs ? waitedMs : null;
        const ageMs = state.lastMs === null ? unreadMs : Math.max(nowMs - state.lastMs, lately);
        if (ageMs !== null) known.achievedMs = Math.max(ageMs, known.achievedMs ?? 0);
      }
      return [...classes.values()];
    },
    turnPage() {
      oldestBefore = oldest;
      oldest = new Map();
    },
    known(id) {
      const state = states.get(id);
      if (state === undefined) return undefined;
      const { watched, lastMs, nulls, underWay, asideUntilMs } = state;
      const countedMs = lastMs === null ? state.countedMs : null;
      const facts = factsOf(context, watched.siteId);
      const stretchedMs = stretchedMsOf(state);
      return {
        ...{ watched, lastMs, countedMs, nulls, underWay, asideUntilMs, stretchedMs },
        inSight: facts.inSight,
        gatewayOffline: facts.offline && !state.answersAnyway,
        wishedMs: watched.readClass.every,
        intervalMs: intervalMsOf(state, stretchedMs, facts),
      };
    },
  };
}
