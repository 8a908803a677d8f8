import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup, runLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { AllowList } from "./allow-list.ts";
import type { BuildingReader } from "./building-view.ts";
import { type Command, type CommandEnd, tagKey } from "./command.ts";
import type { CommandEndings } from "./endings.ts";
import { isWithinLimits, sameValue } from "./gate.ts";
import type { AcceptedCommand, Journal } from "./journal.ts";
import {
  MAX_RESTORE_DELAY_MS,
  mayRetry,
  type Restore,
  restoreId,
  restoringCommand,
  type UnrestoredValue,
  unrestoredLine,
  withOlder,
} from "./timed.ts";

/** Minimum and maximum wait between two attempts. Each may cost a request to read the present value. */
const RESTORE_BACKOFF = { firstMs: 30_000, maxMs: 300_000 };
/** A wall clock that is set forward, and a value that is over by itself, are noticed within this time. */
const CHECK_EVERY_MS = 30_000;

interface RestoreAttempt {
  /** When the time of the value is over, on the monotonic clock: a wall clock that is set back prolongs nothing. */
  dueMs?: number;
  tries: number;
  /** Null while the writer has the command. */
  againAtMs: number | null;
  why: string | null;
  /** True while a final end is recorded, which must not be postponed. */
  isEnding: boolean;
}

/** Puts the old value of a timed write back with an ordinary command, which expects that the tag still holds ours. */
export function createRestores(options: {
  readonly journal: Journal;
  readonly allowList: AllowList;
  readonly view: BuildingReader;
  readonly clock: Clock;
  /** True when our clock agrees with the source's and was not stepped since. */
  readonly isClockTrusted: (source: string) => boolean;
  readonly log: Log;
  readonly dispatch: (accepted: AcceptedCommand) => void;
}) {
  const { allowList, clock, dispatch, isClockTrusted, journal, log, view } = options;
  const attempts = new Map<string, RestoreAttempt>();
  const attemptOf = (id: string) => attempts.get(id) ?? { tries: 0, againAtMs: 0, why: null, isEnding: false };
  const retry = createWakeup();

  /** Starts a due restore. Returns the milliseconds until its next check; null when a wake-up follows. */
  async function check(restore: Restore, endings: CommandEndings, signal: AbortSignal): Promise<number | null> {
    const id = restoreId(restore.command.id);
    const attempt = attemptOf(id);
    attempts.set(id, attempt);
    const { source } = restore.command;
    const dueInMs = msUntilDue(attempt, restore);
    if (dueInMs > 0) return dueInMs;
    const entry = journal.entry(id);
    if (entry?.state === "sending" || isTagTaken(restore) || attempt.againAtMs === null) return null;
    const isLate = clock.now() >= Date.parse(restore.dueAt) + MAX_RESTORE_DELAY_MS;
    // A clock that is ten days ahead must not end a promise for good.
    if (isLate && !isClockTrusted(source)) return CHECK_EVERY_MS;
    if (!isLate && attempt.againAtMs > clock.monotonic()) return attempt.againAtMs - clock.monotonic();
    const command = entry?.command ?? restoringCommand(restore, clock.now());
    const allowed = allowList.entry(command.source, command.tagId);
    const end = isLate ? tooLate(restore, attempt.why) : refusal(restore);
    if (end !== null || allowed === undefined) {
      attempt.isEnding = true;
      try {
        await endings.end(command, end ?? notAllowed(restore), signal);
        attempts.delete(id);
      } finally {
        attempt.isEnding = false;
      }
      return null;
    }
    const { againAtMs } = attempt;
    attempt.againAtMs = null;
    try {
      const accepted = { command, entry: allowed };
      for (const each of entry === undefined ? await journal.accept([accepted]) : [accepted]) dispatch(each);
    } catch (error) {
      attempt.againAtMs = againAtMs;
      throw error;
    }
    return null;
  }

  /** Uses the earlier of wall clock and monotonic clock, and only the monotonic clock while the wall clock is in doubt. */
  function msUntilDue(attempt: RestoreAttempt, { command, dueAt }: Restore): number {
    const byWall = Date.parse(dueAt) - clock.now();
    const isTrusted = isClockTrusted(command.source);
    const dueMs = attempt.dueMs ?? clock.monotonic() + byWall;
    if (isTrusted) attempt.dueMs = dueMs;
    const measured = dueMs - clock.monotonic();
    return isTrusted ? Math.min(byWall, measured) : measured;
  }

  function isTagTaken(restore: Restore): boolean {
    const own = new Set(withOlder(restore).map(({ command }) => restoreId(command.id)));
    const key = tagKey(restore.command);
    return journal.open().some(({ command }) => tagKey(command) === key && !own.has(command.id));
  }

  function refusal(restore: Restore): CommandEnd | null {
    const { command, before } = restore;
    const id = restoreId(command.id);
    if (journal.knows(id) && journal.entry(id) === undefined) {
      const message = `The id ${id} was used before, so ${before} is not put back by it.`;
      return { outcome: "rejected", reason: "duplicate", message };
    }
    const allowed = allowList.entry(command.source, command.tagId);
    return allowed?.restore === true && isWithinLimits(before, allowed) ? null : notAllowed(restore);
  }

  async function isOver({ source, tagId, inForce, toldAt }: UnrestoredValue): Promise<boolean> {
    const live = await view.value(source, tagId);
    if (live === undefined || live.quality !== "good" || live.time <= toldAt) return false;
    return inForce !== null && !sameValue(live.value, inForce);
  }

  async function turn(endings: CommandEndings, signal: AbortSignal): Promise<number> {
    let nextMs = CHECK_EVERY_MS;
    for (const restore of journal.restores())
      nextMs = Math.min(nextMs, (await check(restore, endings, signal)) ?? nextMs);
    for (const lost of journal.unrestored()) if (await isOver(lost)) await journal.forgetUnrestored(lost);
    const promises = journal.restores().flatMap(withOlder);
    const ids = new Set(promises.map(({ command }) => restoreId(command.id)));
    for (const id of attempts.keys()) if (!ids.has(id)) attempts.delete(id);
    return Math.max(1, nextMs);
  }

  return {
    /** True when this end of a restore may pass by itself: the command stays accepted and is tried again. */
    putsOff(command: Command, finish: CommandEnd): boolean {
      const { id, tagId, value } = command;
      if (journal.restoreBy(id) === undefined || journal.entry(id)?.state !== "accepted") return false;
      const attempt = attemptOf(id);
      if (attempt.isEnding || !mayRetry(finish)) return false;
      attempts.set(id, attempt);
      attempt.tries += 1;
      attempt.againAtMs = clock.monotonic() + backoffMs(RESTORE_BACKOFF, attempt.tries);
      // These two reasons must not hide an earlier, more useful one.
      const isVague = finish.reason === "expired" || finish.reason === "clock-skew";
      attempt.why = (isVague ? attempt.why : null) ?? finish.message;
      if (attempt.tries === 1)
        log.warn({ command: id, tagId, value, why: finish.reason }, "an old value cannot be put back yet");
      retry.wakeUp();
      return true;
    },
    notices(): readonly string[] {
      const waiting = journal.restores().flatMap(({ command, before, dueAt }) => {
        const why = attempts.get(restoreId(command.id))?.why ?? null;
        if (why === null) return [];
        const until = isoUtc(Date.parse(dueAt) + MAX_RESTORE_DELAY_MS);
        return [
          `Tag ${command.tagId} still holds ${command.value}, written by ${command.id}: ${before} should hold again ` +
            `since ${dueAt}. ${why} It is tried until ${until}.`,
        ];
      });
      return [...journal.unrestored().map(unrestoredLine), ...waiting];
    },
    run(endings: CommandEndings, signal: AbortSignal): Promise<void> {
      endings.onEnd(retry.wakeUp);
      return runLoop({
        clock,
        signal,
        wakeup: retry,
        turn: () => turn(endings, signal),
        fault: (error) => log.error({ err: error }, "an old value could not be put back yet"),
      });
    },
  };
}

function tooLate({ before }: Restore, why: string | null): CommandEnd {
  const message = `It was too late to put ${before} back; nothing was written.`;
  return { outcome: "expired", reason: "expired", message: why === null ? message : `${message} ${why}` };
}

function notAllowed({ before, command }: Restore): CommandEnd {
  const message = `${before} is not put back: tag ${command.tagId} is not open for it any more.`;
  return { outcome: "rejected", reason: "not-restorable", message };
}
