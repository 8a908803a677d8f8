import type { PlannedTag } from "./plan.ts";
import { backedOff, type Stretch, stretch } from "./plan-stretch.ts";
import type { WatchedTag } from "./read-tell.ts";
import type { HeldQuarantine, HeldValue } from "./snapshot.ts";

/**
 * What the live reads know of each tag while the worker runs: when it was last asked, how it fares, and whether it
 * has to wait. Times are monotonic; what must survive a restart is in the store.
 */
export interface Board {
  /** Takes the tags that are to be read now; keeps what is known of those that stay. */
  watch(tags: readonly WatchedTag[], known: Known): void;
  watched(id: string): WatchedTag | undefined;
  size(): number;
  /** The tags for the planner; those that are on their way and those in quarantine are left out. */
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
  stretch(slotMs: number, size: number): Stretch;
}

export interface Known {
  readonly values: ReadonlyMap<string, HeldValue>;
  readonly quarantine: ReadonlyMap<string, HeldQuarantine>;
  /** Monotonic time of a wall time in the past or the future. */
  toMonotonic(time: string): number;
}

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
        if (state.underWay || state.quarantinedUntilMs !== null) continue;
        const { readClass } = state.watched;
        const wishedMs = readClass.every * (factors.get(readClass.name) ?? 1);
        const intervalMs = backedOff(wishedMs, state.troubles, gatewayOffline(state.watched));
        tags.push({ id, intervalMs, lastMs: state.lastMs, apart: labelOf(id) });
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
    stretch(slotMs, size) {
      const counts = new Map<string, { tags: number; readClass: WatchedTag["readClass"] }>();
      for (const { watched, quarantinedUntilMs } of states.values()) {
        if (quarantinedUntilMs !== null) continue;
        const { readClass } = watched;
        const count = counts.get(readClass.name) ?? { tags: 0, readClass };
        counts.set(readClass.name, { ...count, tags: count.tags + 1 });
      }
      const wishes = [...counts.values()].map(({ tags, readClass }) => ({
        name: readClass.name,
        tags,
        everyMs: readClass.every,
        firm: readClass.firm,
        importance: readClass.importance,
      }));
      const result = stretch(wishes, slotMs, size);
      factors = result.factors;
      return result;
    },
  };
}
