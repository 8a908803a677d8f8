import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup, loop, type Wakeup } from "../../core/runtime/waiting.ts";
import { type Finish, tagKey } from "./command.ts";
import type { Endings } from "./endings.ts";
import type { Refusing } from "./gate.ts";
import type { Accepted } from "./journal.ts";

/**
 * Accepted commands that wait for a slot of the quota: one per tag, a later one supersedes. A command that waits too long, or
 * until writing is closed, ends at once.
 */
export interface Backlog {
  add(accepted: Accepted): void;
  all(): readonly Accepted[];
  /** False when it is not here any more. */
  take(accepted: Accepted): boolean;
  /** After a try that came to nothing; a newer command for the tag has superseded it meanwhile. */
  putBack(accepted: Accepted): void;
  /** Takes everybody out. */
  empty(): readonly Accepted[];
  /** Why a command must not leave any more; null while it may. */
  endOf(accepted: Accepted): Finish | null;
  /** Ends those whose time is up, until `stopping` aborts. */
  watch(stopping: AbortSignal, cutting: AbortSignal): Promise<void>;
  /** Wakes when a command arrives or may leave. */
  readonly bell: Wakeup;
  /** A wait for a slot that becomes needless when the backlog is empty, or the worker stops, before `over`. */
  slotWait(stopping: AbortSignal): SlotWait;
}

export interface SlotWait {
  readonly signal: AbortSignal;
  over(): void;
  isNeedless(error: unknown): boolean;
}

const EXPIRED: Finish = {
  outcome: "expired",
  reason: "expired",
  message: "The time to live passed before the quota let it through; nothing was written.",
};

const RULES_CHANGED: Finish = {
  outcome: "rejected",
  reason: "rules-changed",
  message: "What may be written to this tag was changed before the command left; nothing was written.",
};

const NOT_SECONDED: Finish = {
  outcome: "expired",
  reason: "not-seconded",
  message: "No second person agreed within the time to live; nothing was written.",
};

/** Interval of the check for closed writing while commands wait, in milliseconds. */
const LOOK_EVERY_MS = 500;

export function createBacklog(options: {
  readonly clock: Clock;
  readonly log: Log;
  readonly endings: Endings;
  /** Why nothing at all may be written. */
  readonly closed: () => Refusing | null;
  /** Whether a second person has not agreed yet. */
  readonly isUnseconded: (accepted: Accepted) => boolean;
  /** Whether what it was accepted by still counts. */
  readonly holds: (accepted: Accepted) => boolean;
}): Backlog {
  const { clock, endings, log } = options;
  const waiting = new Map<string, Accepted>();
  /** By measured time, so that a wall clock that is set back prolongs no life. */
  const deadlines = new WeakMap<Accepted, number>();
  const bell = createWakeup();
  /** Rings when the time of one more has to be watched. */
  const filled = createWakeup();
  const needless = new Error("nobody waits any more");
  const slots = new Set<AbortController>();
  const superseding = new AbortController();

  function left(accepted: Accepted): number {
    const byWall = Date.parse(accepted.command.expiresAt) - clock.now();
    return Math.min(byWall, (deadlines.get(accepted) ?? 0) - clock.monotonic());
  }

  function take(accepted: Accepted): boolean {
    const key = tagKey(accepted.command);
    return waiting.get(key) === accepted && waiting.delete(key);
  }

  function abandonSlots(): void {
    if (waiting.size === 0) for (const slot of slots) slot.abort(needless);
  }

  function supersede(older: Accepted, newer: Accepted): void {
    const message = `Command ${newer.command.id} for the same tag came before this one was sent.`;
    const finish: Finish = { outcome: "superseded", reason: "superseded", message };
    void endings.end(older.command, finish, superseding.signal).catch((error: unknown) => {
      log.error({ err: error }, "a superseded command could not be told");
    });
  }

  const backlog: Backlog = {
    add(accepted) {
      const byWall = Date.parse(accepted.command.expiresAt) - clock.now();
      deadlines.set(accepted, clock.monotonic() + byWall);
      const key = tagKey(accepted.command);
      const older = waiting.get(key);
      waiting.delete(key);
      waiting.set(key, accepted);
      if (older !== undefined) supersede(older, accepted);
      filled.wakeUp();
      bell.wakeUp();
    },
    all: () => [...waiting.values()],
    take,
    putBack(accepted) {
      const newer = waiting.get(tagKey(accepted.command));
      if (newer === undefined) waiting.set(tagKey(accepted.command), accepted);
      else supersede(accepted, newer);
      filled.wakeUp();
    },
    empty() {
      const all = [...waiting.values()];
      waiting.clear();
      return all;
    },
    endOf(accepted) {
      const closed = options.closed();
      if (closed !== null) return { outcome: "rejected", ...closed };
      if (!options.holds(accepted)) return RULES_CHANGED;
      if (left(accepted) > 0) return null;
      return options.isUnseconded(accepted) ? NOT_SECONDED : EXPIRED;
    },

    watch: (stopping, cutting) =>
      loop({
        clock,
        signal: stopping,
        bell: filled,
        async turn() {
          for (const accepted of backlog.all()) {
            const end = backlog.endOf(accepted);
            if (end === null || !take(accepted)) continue;
            abandonSlots();
            await endings.end(accepted.command, end, cutting);
          }
          const all = backlog.all();
          if (all.length === 0) return Number.POSITIVE_INFINITY;
          return Math.max(1, Math.min(LOOK_EVERY_MS, ...all.map(left)));
        },
        fault: (error) => log.error({ err: error }, "the time of waiting commands could not be watched"),
      }),
    bell,

    slotWait(stopping) {
      const slot = new AbortController();
      const stop = () => slot.abort(needless);
      slots.add(slot);
      stopping.addEventListener("abort", stop, { once: true });
      if (stopping.aborted) stop();
      return {
        signal: slot.signal,
        over() {
          slots.delete(slot);
          stopping.removeEventListener("abort", stop);
        },
        isNeedless: (error) => error === needless,
      };
    },
  };
  return backlog;
}
