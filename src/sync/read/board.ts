import type { PlannedTag } from "../plan/group.ts";
import { backedOff, type Stretch, stretch } from "../plan/stretch.ts";
import type { HeldQuarantine, HeldValue } from "../snapshot.ts";
import type { WatchedTag } from "./tell.ts";

/**
 * What the live reads know of each tag while the worker runs: when it was last asked, how it fares, and whether it
 * has to wait. Times are monotonic milliseconds; what must survive a restart is in the store.
 */
export interface Board {
  /** Takes the tags that are to be read now; keeps what is known of those that stay. */
  watch(tags: readonly WatchedTag[], known: Known): void;
  watched(id: string): WatchedTag | undefined;
  size(): number;
  /**
   * The tags for the planner; those that are set aside, or that the token does not see, are left out. What it answers is
   * good until it is asked again.
   */
  planned(nowMs: number): readonly PlannedTag[];
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
  /** How the wishes fit into that share of the slots; the intervals follow it from now on. */
  stretch(slotMs: number, size: number, share: number, replyMs: number): Stretch;
  /** By class, how old values became lately, and how old the oldest is now. */
  freshness(nowMs: number): readonly ClassFreshness[];
  /** A new stretch of "lately" begins; what was before the last one is forgotten. */
  turnPage(): void;
  /** What is known of one tag. */
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
  /** When it was last answered; null when never. */
  readonly lastMs: number | null;
  /** The interval as wished, stretched by the plan, and as it is kept, with the back-off. */
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
  readonly values: ReadonlyMap<string, HeldValue>;
  readonly aside: ReadonlyMap<string, HeldQuarantine>;
  readonly nowMs: number;
  /** Monotonic time of a wall time in the past or the future. */
  toMonotonic(time: string): number;
}

/** What decides about a tag beside its own past. */
export interface BoardSurroundings {
  gatewayOffline(tag: WatchedTag): boolean;
  /** Whether the token sees the site. */
  sees(siteId: number): boolean;
  /** Tags with the same text travel together, apart from the others. */
  labelOf(id: string): string | null;
  /** How one that travels apart has its turn; null where it is slow. */
  turnOf(id: string): PlannedTag["turn"];
  /** Whether it is suspected, by itself, of being refused. */
  isSuspect(id: string): boolean;
  /** Before this the tag is not asked. */
  notBeforeMs(id: string): number;
}

/** Nulls in a row after which a tag counts as silent: no promise is kept for it. */
const SILENT = 3;
/** A tag whose request failed is tried again after 15 s, then ever more rarely, at most as rarely as it is due. */
const RETRY_MS = 15_000;

interface State {
  /** What the planner sees; one object for ever, because it is shown in every slot. */
  readonly plan: { -readonly [key in keyof PlannedTag]: PlannedTag[key] };
  watched: WatchedTag;
  lastMs: number | null;
  /** Since when it is to be read. */
  sinceMs: number;
  nulls: number;
  /** When the last null was counted; a slot that is left over may bring several within one interval. */
  nullAtMs: number;
  failures: number;
  retryMs: number;
  underWay: boolean;
  asideUntilMs: number | null;
  gatewayWasOffline: boolean;
  /** The service answers values although its list of gateways, which may be old, says offline: the value counts. */
  answersAnyway: boolean;
}

export function createBoard(around: BoardSurroundings): Board {
  let states = new Map<string, State>();
  /** One table for every slot: written from its beginning and cut where it ends, never emptied. */
  const planned: PlannedTag[] = [];
  let factors: ReadonlyMap<string, number> = new Map();
  /** By site, when one of its `patient` tags was last asked for. */
  const sitesAskedMs = new Map<number, number>();
  /** By class, the largest age at which a value was replaced; of this page and the one before. */
  let oldest = new Map<string, number>();
  let oldestBefore = new Map<string, number>();

  const isOffline = ({ watched, answersAnyway }: State) => around.gatewayOffline(watched) && !answersAnyway;
  const stretchedMsOf = ({ watched: { readClass } }: State) =>
    readClass.every * (factors.get(readClass.name) ?? 1);
  const intervals = (state: State) => {
    const stretchedMs = stretchedMsOf(state);
    const offline = isOffline(state);
    const intervalMs = backedOff(stretchedMs, state.nulls, offline);
    return { wishedMs: state.watched.readClass.every, stretchedMs, offline, intervalMs };
  };
  const isInSight = ({ watched }: State) => around.sees(watched.siteId);
  const isPromised = (state: State) =>
    state.nulls < SILENT && state.asideUntilMs === null && isInSight(state);

  const change = (id: string, make: (state: State) => void) => {
    const state = states.get(id);
    if (state !== undefined) make(state);
  };

  return {
    watch(tags, known) {
      const next = new Map<string, State>();
      for (const watched of tags) {
        const { id } = watched.tag;
        const state = states.get(id);
        if (state !== undefined) {
          state.watched = watched;
          next.set(id, state);
          continue;
        }
        const value = known.values.get(id);
        const aside = known.aside.get(id);
        next.set(id, {
          // All that it will ever have, because what is added later takes 50,000 objects of another shape.
          plan: {
            id,
            intervalMs: 0,
            lastMs: null,
            sinceMs: known.nowMs,
            apart: null,
            turn: null,
            siteAskedMs: undefined,
            underWay: false,
          },
          watched,
          lastMs: value === undefined ? null : known.toMonotonic(value.time),
          sinceMs: known.nowMs,
          nulls: value?.nulls ?? 0,
          nullAtMs: Number.NEGATIVE_INFINITY,
          failures: 0,
          retryMs: Number.NEGATIVE_INFINITY,
          underWay: false,
          gatewayWasOffline: false,
          answersAnyway: false,
          // Without a count it was set aside by a rule that could be wrong: it is asked again.
          asideUntilMs: aside?.times === undefined ? null : known.toMonotonic(aside.until),
        });
      }
      states = next;
    },
    watched: (id) => states.get(id)?.watched,
    size: () => states.size,
    planned(nowMs) {
      let count = 0;
      // By values: a pair for each of 50,000 tags and slot would be most of the worker's garbage.
      for (const state of states.values()) {
        if (state.asideUntilMs !== null || !isInSight(state)) continue;
        const { id } = state.plan;
        const offline = isOffline(state);
        const intervalMs = backedOff(stretchedMsOf(state), state.nulls, offline);
        // Its nulls were those of a gateway that is back: it is due as wished.
        if (state.gatewayWasOffline && !offline) state.nulls = 0;
        state.gatewayWasOffline = offline;
        const { plan } = state;
        plan.intervalMs = intervalMs;
        plan.lastMs = state.lastMs;
        plan.siteAskedMs = sitesAskedMs.get(state.watched.siteId);
        plan.apart = around.labelOf(id);
        plan.turn = around.turnOf(id) ?? null;
        plan.underWay = state.underWay || state.retryMs > nowMs || around.notBeforeMs(id) > nowMs;
        planned[count++] = plan;
      }
      planned.length = count;
      return planned;
    },
    nextProbe(nowMs) {
      for (const state of states.values()) {
        const { asideUntilMs, underWay, retryMs } = state;
        if (underWay || asideUntilMs === null || asideUntilMs > nowMs || retryMs > nowMs) continue;
        if (isInSight(state)) return state.plan.id;
      }
      return undefined;
    },
    control(tried) {
      const sites = new Set(tried.map((id) => states.get(id)?.watched.siteId));
      const known = [...states].filter(
        ([id, state]) =>
          isPromised(state) &&
          !state.underWay &&
          state.lastMs !== null &&
          !tried.includes(id) &&
          around.notBeforeMs(id) === Number.NEGATIVE_INFINITY,
      );
      const rank = ([id, { watched, lastMs }]: (typeof known)[number]) =>
        [sites.has(watched.siteId) ? 1 : 0, around.isSuspect(id) ? 1 : 0, -(lastMs ?? 0)] as const;
      const [best] = known
        .map((each) => ({ id: each[0], rank: rank(each) }))
        .sort((a, b) => a.rank[0] - b.rank[0] || a.rank[1] - b.rank[1] || a.rank[2] - b.rank[2]);
      return best?.id;
    },
    sent(ids, nowMs) {
      for (const id of ids) {
        change(id, (state) => {
          state.underWay = true;
          if (around.turnOf(id) === "patient") sitesAskedMs.set(state.watched.siteId, nowMs);
        });
      }
    },
    answered(id, answer, nowMs) {
      change(id, (state) => {
        const { name } = state.watched.readClass;
        if (state.lastMs !== null && isPromised(state))
          oldest.set(name, Math.max(oldest.get(name) ?? 0, nowMs - state.lastMs));
        state.lastMs = nowMs;
        state.answersAnyway = answer === "value" && around.gatewayOffline(state.watched);
        if (answer === "value") state.nulls = 0;
        else if (nowMs - state.nullAtMs >= intervals(state).stretchedMs / 2) {
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
          state.retryMs = nowMs + Math.min(waitMs, Math.max(RETRY_MS, intervals(state).intervalMs));
        });
      }
    },
    returned(ids) {
      for (const id of ids) change(id, (state) => (state.underWay = false));
    },
    setAside(id, untilMs) {
      change(id, (state) => (state.asideUntilMs = untilMs));
    },
    release(id) {
      change(id, (state) => (state.asideUntilMs = null));
    },
    aside() {
      const ids: string[] = [];
      for (const { plan, asideUntilMs } of states.values()) if (asideUntilMs !== null) ids.push(plan.id);
      return ids;
    },
    outOfSight: () => [...states.values()].filter((state) => !isInSight(state)).length,
    stretch(slotMs, size, share, replyMs) {
      const counts = new Map<string, { tags: number; readClass: WatchedTag["readClass"] }>();
      for (const state of states.values()) {
        if (state.asideUntilMs !== null || !isInSight(state)) continue;
        const { readClass } = state.watched;
        const { stretchedMs, intervalMs } = intervals(state);
        const count = counts.get(readClass.name) ?? { tags: 0, readClass };
        counts.set(readClass.name, count);
        // What is read less often leaves its places to the others.
        count.tags += stretchedMs / intervalMs;
      }
      const wishes = [...counts.values()].map(({ tags, readClass }) => ({
        name: readClass.name,
        tags,
        everyMs: readClass.every,
        firm: readClass.firm,
        importance: readClass.importance,
      }));
      const result = stretch(wishes, slotMs, size, share, replyMs);
      factors = result.factors;
      return result;
    },
    freshness(nowMs) {
      const classes = new Map<string, { tags: number; promisedMs: number; achievedMs: number | null }>();
      for (const state of states.values()) {
        const { name } = state.watched.readClass;
        const known = classes.get(name);
        const lately = Math.max(oldest.get(name) ?? 0, oldestBefore.get(name) ?? 0);
        const promisedMs = intervals(state).stretchedMs;
        const waitedMs = nowMs - state.sinceMs;
        // One that never had a value has no age; that it is late is seen all the same.
        const unreadMs = waitedMs > promisedMs ? waitedMs : null;
        const readMs = state.lastMs === null ? unreadMs : Math.max(nowMs - state.lastMs, lately);
        const ageMs = isPromised(state) ? readMs : null;
        classes.set(name, {
          tags: (known?.tags ?? 0) + 1,
          promisedMs,
          achievedMs: ageMs === null ? (known?.achievedMs ?? null) : Math.max(ageMs, known?.achievedMs ?? 0),
        });
      }
      return [...classes].map(([name, each]) => ({ name, ...each }));
    },
    turnPage() {
      oldestBefore = oldest;
      oldest = new Map();
    },
    known(id) {
      const state = states.get(id);
      if (state === undefined) return undefined;
      const { offline, ...times } = intervals(state);
      const { watched, lastMs, nulls, underWay, asideUntilMs } = state;
      const inSight = isInSight(state);
      return { watched, lastMs, nulls, underWay, asideUntilMs, inSight, gatewayOffline: offline, ...times };
    },
  };
}
