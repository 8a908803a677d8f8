import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup, loop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { AllowList } from "./allow-list.ts";
import type { BuildingView } from "./building-view.ts";
import { type Command, type Finish, tagKey } from "./command.ts";
import type { Endings } from "./endings.ts";
import { isLawful, sameValue } from "./gate.ts";
import type { Accepted, Journal } from "./journal.ts";
import {
  maybeLater,
  PATIENCE_MS,
  type Restore,
  restoreId,
  restoringCommand,
  type Unrestored,
  unrestoredLine,
  withOlder,
} from "./timed.ts";

/**
 * "22 °C for two hours": puts the old value back once, with an ordinary command that expects the tag to still hold ours. The
 * promise is in the journal until that command has ended, so it survives restarts. A later verified write of the tag through
 * Plenum ends it.
 *
 * Before the command is sent, failures are retried for a day. After it was sent, it is never sent again. When the old value
 * does not hold in the end, `command-not-restored` is emitted.
 */
export interface Restores {
  run(endings: Endings, signal: AbortSignal): Promise<void>;
  /**
   * True when this end of a restore is none, because it may pass by itself: the command stays accepted, and is tried
   * again. Asked before any end is recorded.
   */
  putsOff(command: Command, finish: Finish): boolean;
  /** Sentences about values that are still in force after their time. */
  notices(): readonly string[];
}

/**
 * Between two tries. Each may cost a request to read the present value, so they become rarer; five minutes after a
 * gateway is back at the latest the old value is too.
 */
const BACKOFF = { firstMs: 30_000, maxMs: 300_000 };
/** A wall clock that is set forward, and a value that is over by itself, are noticed within this. */
const LATEST_LOOK_MS = 30_000;

interface Attempt {
  readonly tries: number;
  /** Null while the command is on its way through the writer. */
  readonly againAtMs: number | null;
  /** Why it did not leave the last time; null before the first try has come back. */
  readonly why: string | null;
}

export function createRestores(options: {
  readonly journal: Journal;
  readonly allowList: AllowList;
  readonly view: BuildingView;
  readonly clock: Clock;
  /** Whether our clock was compared with the source's, and neither differs from it nor was stepped since. */
  readonly isClockTrusted: (source: string) => boolean;
  readonly log: Log;
  readonly dispatch: (accepted: Accepted) => void;
}): Restores {
  const { allowList, clock, journal, log, view } = options;
  const attempts = new Map<string, Attempt>();
  /** By command, when its time is over by measured time: a clock that is set back prolongs none. */
  const deadlines = new Map<string, number>();
  /** Restores that are too late or rejected: their end is not postponed again. */
  const ending = new Set<string>();
  const bell = createWakeup();

  /** Null once it is with the writer, otherwise in how many milliseconds it has to be looked at. */
  async function look(restore: Restore, endings: Endings, signal: AbortSignal): Promise<number | null> {
    const id = restoreId(restore.command.id);
    const dueInMs = dueIn(id, restore);
    if (dueInMs > 0) return dueInMs;
    if (journal.entry(id)?.state === "sending") return null;
    // The first write of the tag goes first: when it is sent, the promise is over.
    if (isTaken(restore)) return null;
    const attempt = attempts.get(id) ?? { tries: 0, againAtMs: 0, why: null };
    if (attempt.againAtMs === null) return null;
    const isLate = clock.now() >= Date.parse(restore.dueAt) + PATIENCE_MS;
    // A clock that is ten days ahead must not end a promise for ever.
    if (isLate && !options.isClockTrusted(restore.command.source)) return LATEST_LOOK_MS;
    if (!isLate && attempt.againAtMs > clock.monotonic()) return attempt.againAtMs - clock.monotonic();
    const restoring = journal.entry(id)?.command ?? restoringCommand(restore, clock.now());
    const entry = allowList.entry(restoring.source, restoring.tagId);
    const end = isLate ? tooLate(restore, attempt.why) : refusal(restore);
    if (end !== null || entry === undefined) {
      ending.add(id);
      try {
        await endings.end(restoring, end ?? closed(restore), signal);
      } finally {
        ending.delete(id);
      }
      attempts.delete(id);
      return null;
    }
    attempts.set(id, { ...attempt, againAtMs: null });
    if (journal.entry(id) === undefined) await accept(restoring, attempt, entry);
    else options.dispatch({ command: restoring, entry });
    return null;
  }

  /**
   * In so many milliseconds its time is over: by the wall clock or by measured time, whichever is sooner, and by measured
   * time alone while the wall clock is in doubt.
   */
  function dueIn(id: string, { command, dueAt }: Restore): number {
    const byWall = Date.parse(dueAt) - clock.now();
    const isTrusted = options.isClockTrusted(command.source);
    const deadline = deadlines.get(id) ?? clock.monotonic() + byWall;
    if (isTrusted) deadlines.set(id, deadline);
    const measured = deadline - clock.monotonic();
    return isTrusted ? Math.min(byWall, measured) : measured;
  }

  async function accept(command: Command, attempt: Attempt, entry: Accepted["entry"]): Promise<void> {
    try {
      for (const accepted of await journal.accept([{ command, entry }])) options.dispatch(accepted);
    } catch (error) {
      attempts.set(command.id, attempt);
      throw error;
    }
  }

  function isTaken(restore: Restore): boolean {
    const own = new Set(withOlder(restore).map(({ command }) => restoreId(command.id)));
    const key = tagKey(restore.command);
    return journal.open().some(({ command }) => tagKey(command) === key && !own.has(command.id));
  }

  function refusal(restore: Restore): Finish | null {
    const { command, before } = restore;
    const id = restoreId(command.id);
    if (journal.knows(id) && journal.entry(id) === undefined) {
      const message = `The id ${id} was used before, so ${before} is not put back by it.`;
      return { outcome: "rejected", reason: "duplicate", message };
    }
    const entry = allowList.entry(command.source, command.tagId);
    return entry?.restore === true && isLawful(before, entry) ? null : closed(restore);
  }

  /** A value that a person has set right meanwhile is no trouble any more. */
  async function isOver({ source, tagId, inForce, toldAt }: Unrestored): Promise<boolean> {
    const held = await view.value(source, tagId);
    return (
      held !== undefined &&
      held.quality === "good" &&
      held.time > toldAt &&
      inForce !== null &&
      !sameValue(held.value, inForce)
    );
  }

  async function turn(endings: Endings, signal: AbortSignal): Promise<number> {
    let nextMs = LATEST_LOOK_MS;
    for (const restore of journal.restores()) {
      nextMs = Math.min(nextMs, (await look(restore, endings, signal)) ?? nextMs);
    }
    for (const lost of journal.unrestored()) if (await isOver(lost)) await journal.forgetUnrestored(lost);
    const kept = new Set(
      journal
        .restores()
        .flatMap(withOlder)
        .map(({ command }) => restoreId(command.id)),
    );
    for (const id of attempts.keys()) if (!kept.has(id)) attempts.delete(id);
    for (const id of deadlines.keys()) if (!kept.has(id)) deadlines.delete(id);
    return Math.max(1, nextMs);
  }

  return {
    putsOff(command, finish) {
      const restore = journal.restoreBy(command.id);
      if (restore === undefined || journal.entry(command.id)?.state !== "accepted") return false;
      if (ending.has(command.id) || !maybeLater(finish)) return false;
      const last = attempts.get(command.id);
      const tries = (last?.tries ?? 0) + 1;
      const inMs = backoffMs(BACKOFF, tries);
      const why = saysLittle(finish) ? (last?.why ?? finish.message) : finish.message;
      attempts.set(command.id, { tries, againAtMs: clock.monotonic() + inMs, why });
      if (tries === 1) {
        const { tagId, value } = command;
        log.warn({ command: command.id, tagId, value, why: finish.reason }, "an old value cannot be put back yet");
      }
      bell.wakeUp();
      return true;
    },
    notices() {
      const waiting = journal.restores().flatMap(({ command, before, dueAt }) => {
        const why = attempts.get(restoreId(command.id))?.why ?? null;
        if (why === null) return [];
        const until = isoUtc(Date.parse(dueAt) + PATIENCE_MS);
        return [
          `Tag ${command.tagId} still holds ${command.value}, written by ${command.id}: ${before} should hold again ` +
            `since ${dueAt}. ${why} It is tried until ${until}.`,
        ];
      });
      return [...journal.unrestored().map(unrestoredLine), ...waiting];
    },
    run(endings, signal) {
      endings.onEnd(() => bell.wakeUp());
      return loop({
        clock,
        signal,
        bell,
        turn: () => turn(endings, signal),
        fault: (error) => log.error({ err: error }, "an old value could not be put back yet"),
      });
    },
  };
}

/** True for an end that must not hide the earlier reason of a delay: the day passed, or the clock was set. */
function saysLittle({ reason }: Finish): boolean {
  return reason === "expired" || reason === "clock-skew";
}

function tooLate({ before }: Restore, why: string | null): Finish {
  const message = `It was too late to put ${before} back; nothing was written.`;
  return { outcome: "expired", reason: "expired", message: why === null ? message : `${message} ${why}` };
}

function closed({ before, command }: Restore): Finish {
  const message = `${before} is not put back: tag ${command.tagId} is not open for it any more.`;
  return { outcome: "rejected", reason: "not-restorable", message };
}
