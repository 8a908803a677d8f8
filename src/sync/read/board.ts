import type { PlannedTag } from "../plan/group.ts";
import { backedOff, type Stretch, stretch } from "../plan/stretch.ts";
import type { HeldQuarantine, HeldValue } from "../snapshot.ts";
import type { WatchedTag } from "./tell.ts";

/**
 * What the live reads know of each tag while the worker runs: when it was last asked, how it fares, and whether it
 * has to wait. Times are monotonic; what must survive a restart is in the store.
 */
export interface Board {
  /** Takes the tags that are to be read now; keeps what is known of those that stay. */
  watch(tags: readonly WatchedTag[], known: Known): void;
  watched(id: string): WatchedTag | undefined;
  size(): number;
  /** The tags for the planner; those in quarantine are left out. */
  planned(labelOf: (id: string) => string | null): readonly PlannedTag[];
  /** A tag in quarantine whose time is up: it is asked alone. */
  nextProbe(nowMs: number): string | undefined;
  sent(ids: readonly string[]): void;
  /** `troubles`: nulls, failures or absences in a row, for the back-off. */
  answered(id: string, troubles: "none" | "one more", nowMs: number): void;
  returned(ids: readonly string[]): void;
  quarantine(id: string, untilMs: number): void;
  release(id: string): void;
  quarantined(): readonly string[];
  /** How the wishes fit into that share of the slots; the intervals follow it from now on. */
  stretch(slotMs: number, size: number, share: number, replyMs: number): Stretch;
  /** By class, how old values became since it was asked last, and how old the oldest is now. */
  freshness(nowMs: number): readonly ClassFreshness[];
  /** What is known of one tag. */
  known(id: string): TagState | undefined;
}

/** Milliseconds. */
export interface ClassFreshness {
  readonly name: string;
  readonly tags: number;
  /** How old a value may become by the present plan. */
  readonly promisedMs: number;
  /** How old one has become at most; tags that keep answering nothing are left out. Null while none was read. */
  readonly achievedMs: number | null;
}

export interface TagState {
  readonly watched: WatchedTag;
  /** Monotonic time of its last answer, null when there was none. */
  readonly lastMs: number | null;
  /** The interval as wished, stretched by the plan, and as it is kept, with the back-off. */
  readonly wishedMs: number;
  readonly stretchedMs: number;
  readonly intervalMs: number;
  readonly troubles: number;
  readonly gatewayOffline: boolean;
  readonly underWay: boolean;
  readonly quarantinedUntilMs: number | null;
}

export interface Known {
  readonly values: ReadonlyMap<string, HeldValue>;
  readonly quarantine: ReadonlyMap<string, HeldQuarantine>;
  /** Monotonic time of a wall time in the past or the future. */
  toMonotonic(time: string): number;
}

/** Failures in a row after which a tag counts as silent: no promise is kept for it. */
const SILENT = 3;

interface State {
  watched: WatchedTag;
  lastMs: number | null;
  troubles: number;
  underWay: boolean;
  quarantinedUntilMs: number | null;
}

export function createBoard(gatewayOffline: (tag: WatchedTag) => boolean): Board {
  let states = new Map<string, State>();
  let factors: ReadonlyMap<string, number> = new Map();

  /** By class, the largest age at which a value was replaced since it was asked last. */
  let oldest = new Map<string, number>();

  const intervals = ({ watched, troubles }: State) => {
    const wishedMs = watched.readClass.every;
    const stretchedMs = wishedMs * (factors.get(watched.readClass.name) ?? 1);
    const offline = gatewayOffline(watched);
    return { wishedMs, stretchedMs, offline, intervalMs: backedOff(stretchedMs, troubles, offline) };
  };

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
        const quarantine = known.quarantine.get(id);
        next.set(id, {
          watched,
          lastMs: value === undefined ? null : known.toMonotonic(value.time),
          troubles: value?.nulls ?? 0,
          underWay: false,
          quarantinedUntilMs: quarantine === undefined ? null : known.toMonotonic(quarantine.until),
        });
      }
      states = next;
    },
    watched: (id) => states.get(id)?.watched,
    size: () => states.size,
    planned(labelOf) {
      const tags: PlannedTag[] = [];
      for (const [id, state] of states) {
        if (state.quarantinedUntilMs !== null) continue;
        const { intervalMs } = intervals(state);
        const { lastMs, underWay } = state;
        tags.push({ id, intervalMs, lastMs, apart: labelOf(id), underWay });
      }
      return tags;
    },
    nextProbe(nowMs) {
      for (const [id, state] of states) {
        if (!state.underWay && state.quarantinedUntilMs !== null && state.quarantinedUntilMs <= nowMs)
          return id;
      }
      return undefined;
    },
    sent(ids) {
      for (const id of ids) change(id, (state) => (state.underWay = true));
    },
    answered(id, troubles, nowMs) {
      change(id, (state) => {
        const { name } = state.watched.readClass;
        if (state.lastMs !== null && state.troubles < SILENT)
          oldest.set(name, Math.max(oldest.get(name) ?? 0, nowMs - state.lastMs));
        state.lastMs = nowMs;
        state.troubles = troubles === "none" ? 0 : state.troubles + 1;
      });
    },
    returned(ids) {
      for (const id of ids) change(id, (state) => (state.underWay = false));
    },
    quarantine(id, untilMs) {
      change(id, (state) => (state.quarantinedUntilMs = untilMs));
    },
    release(id) {
      change(id, (state) => (state.quarantinedUntilMs = null));
    },
    quarantined: () => [...states].filter(([, state]) => state.quarantinedUntilMs !== null).map(([id]) => id),
    stretch(slotMs, size, share, replyMs) {
      const counts = new Map<string, { tags: number; readClass: WatchedTag["readClass"] }>();
      for (const state of states.values()) {
        if (state.quarantinedUntilMs !== null) continue;
        const { readClass } = state.watched;
        const { stretchedMs, intervalMs } = intervals(state);
        const count = counts.get(readClass.name) ?? { tags: 0, readClass };
        // What is read less often leaves its places to the others.
        counts.set(readClass.name, { ...count, tags: count.tags + stretchedMs / intervalMs });
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
        const ageMs =
          state.lastMs === null || state.troubles >= SILENT || state.quarantinedUntilMs !== null
            ? null
            : Math.max(nowMs - state.lastMs, oldest.get(name) ?? 0);
        classes.set(name, {
          tags: (known?.tags ?? 0) + 1,
          promisedMs: intervals(state).stretchedMs,
          achievedMs: ageMs === null ? (known?.achievedMs ?? null) : Math.max(ageMs, known?.achievedMs ?? 0),
        });
      }
      oldest = new Map();
      return [...classes].map(([name, each]) => ({ name, ...each }));
    },
    known(id) {
      const state = states.get(id);
      if (state === undefined) return undefined;
      const { offline, ...times } = intervals(state);
      const { watched, lastMs, troubles, underWay, quarantinedUntilMs } = state;
      return { watched, lastMs, troubles, underWay, quarantinedUntilMs, gatewayOffline: offline, ...times };
    },
  };
}
