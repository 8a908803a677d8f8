import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup, runLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { AllowList } from "./allow-list.ts";
import type { BuildingReader } from "./building-reader.ts";
import { type Command, type CommandEnd, tagKey } from "./command.ts";
import type { CommandEndings } from "./command-endings.ts";
import { isWithinLimits, sameValue } from "./gate.ts";
import type { AcceptedCommand, Journal } from "./journal.ts";
import {
  MAX_RESTORE_DELAY_MS,
  mayRetry,
  type Restore,
  restoreChain,
  restoreId,
  restoringCommand,
  type UnrestoredValue,
  unrestoredLine,
} from "./timed-writes.ts";

/** Minimum and maximum wait between two attempts. Each may cost a request to read the present value. */
const RESTORE_BACKOFF = { firstMs: 30_000, maxMs: 300_000 };
/** A wall clock that is set forward, and a value that is over by itself, are noticed within this time. */
const RESTORE_CHECK_INTERVAL_MS = 30_000;

interface RestoreAttempt {
  /** When the time of the value is over, on the monotonic clock: a wall clock that is set back prolongs nothing. */
  dueMs?: number;
  tries: number;
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
  /** True when the local clock agrees with the clock of the source and was not changed since. */
  readonly isClockTrusted: (source: string) => boolean;
  readonly log: Log;
  readonly dispatch: (accepted: AcceptedCommand) => void;
}) {
  const { allowList, clock, dispatch, isClockTrusted, journal, log, view } = options;
  const attemptsById = new Map<string, RestoreAttempt>();
  const findAttempt = (id: string) => attemptsById.get(id) ?? { tries: 0, againAtMs: 0, why: null, isEnding: false };
  const retry = createWakeup();

  /** Starts a due restore. Returns the milliseconds until its next check; null when a wake-up follows. */
  async function startIfDue(restore: Restore, endings: CommandEndings, signal: AbortSignal): Promise<number | null> {
    const id = restoreId(restore.command.id);
    const attempt = findAttempt(id);
    attemptsById.set(id, attempt);
    const { source } = restore.command;
    const dueInMs = msUntilDue(attempt, restore);
    if (dueInMs > 0) return dueInMs;
    const entry = journal.entry(id);
    if (entry?.state === "sending" || isTagTaken(restore) || attempt.againAtMs === null) return null;
    const isRestoreLate = clock.now() >= Date.parse(restore.dueAt) + MAX_RESTORE_DELAY_MS;
    // A clock that is ten days ahead must not end a promise for good.
    if (isRestoreLate && !isClockTrusted(source)) return RESTORE_CHECK_INTERVAL_MS;
    if (!isRestoreLate && attempt.againAtMs > clock.monotonic()) return attempt.againAtMs - clock.monotonic();
    const command = entry?.command ?? restoringCommand(restore, clock.now());
    const allowed = allowList.entry(command.source, command.tagId);
    const end = isRestoreLate ? buildTooLateEnd(restore, attempt.why) : findRefusal(restore);
    if (end !== null || allowed === undefined) {
      attempt.isEnding = true;
      try {
        await endings.end(command, end ?? buildNotAllowedEnd(restore), signal);
        attemptsById.delete(id);
      } finally {
        attempt.isEnding = false;
      }
      return null;
    }
    const { againAtMs } = attempt;
    attempt.againAtMs = null;
    try {
      const accepted = { command, entry: allowed };
      for (const newCommand of entry === undefined ? await journal.accept([accepted]) : [accepted])
        dispatch(newCommand);
    } catch (error) {
      attempt.againAtMs = againAtMs;
      throw error;
    }
    return null;
  }

  /** Uses the earlier of wall clock and monotonic clock, and only the monotonic clock while the wall clock is in doubt. */
  function msUntilDue(attempt: RestoreAttempt, { command, dueAt }: Restore): number {
    const wallWaitMs = Date.parse(dueAt) - clock.now();
    const isTrusted = isClockTrusted(command.source);
    const dueMs = attempt.dueMs ?? clock.monotonic() + wallWaitMs;
    if (isTrusted) attempt.dueMs = dueMs;
    const monotonicWaitMs = dueMs - clock.monotonic();
    return isTrusted ? Math.min(wallWaitMs, monotonicWaitMs) : monotonicWaitMs;
  }

  function isTagTaken(restore: Restore): boolean {
    const ownCommandIds = new Set(restoreChain(restore).map(({ command }) => restoreId(command.id)));
    const key = tagKey(restore.command);
    return journal.open().some(({ command }) => tagKey(command) === key && !ownCommandIds.has(command.id));
  }

  function findRefusal(restore: Restore): CommandEnd | null {
    const { command, before } = restore;
    const id = restoreId(command.id);
    if (journal.knows(id) && journal.entry(id) === undefined) {
      const message = `The id ${id} was used before, so ${before} is not put back by it.`;
      return { outcome: "rejected", reason: "duplicate", message };
    }
    const allowed = allowList.entry(command.source, command.tagId);
    return allowed?.restore === true && isWithinLimits(before, allowed) ? null : buildNotAllowedEnd(restore);
  }

  async function isNoLongerInForce({ source, tagId, inForce, toldAt }: UnrestoredValue): Promise<boolean> {
    const liveValue = await view.value(source, tagId);
    if (liveValue === undefined || liveValue.quality !== "good" || liveValue.time <= toldAt) return false;
    return inForce !== null && !sameValue(liveValue.value, inForce);
  }

  async function checkRestores(endings: CommandEndings, signal: AbortSignal): Promise<number> {
    let nextMs = RESTORE_CHECK_INTERVAL_MS;
    for (const restore of journal.restores())
      nextMs = Math.min(nextMs, (await startIfDue(restore, endings, signal)) ?? nextMs);
    for (const missed of journal.unrestored())
      if (await isNoLongerInForce(missed)) await journal.forgetUnrestored(missed);
    const openRestores = journal.restores().flatMap(restoreChain);
    const ids = new Set(openRestores.map(({ command }) => restoreId(command.id)));
    for (const id of attemptsById.keys()) if (!ids.has(id)) attemptsById.delete(id);
    return Math.max(1, nextMs);
  }

  return {
    /** True when this end of a restore may pass by itself: the command stays accepted and is tried again. */
    putsOff(command: Command, finish: CommandEnd): boolean {
      const { id, tagId, value } = command;
      if (journal.restoreBy(id) === undefined || journal.entry(id)?.state !== "accepted") return false;
      const attempt = findAttempt(id);
      if (attempt.isEnding || !mayRetry(finish)) return false;
      attemptsById.set(id, attempt);
      attempt.tries += 1;
      attempt.againAtMs = clock.monotonic() + backoffMs(RESTORE_BACKOFF, attempt.tries);
      const isReasonVague = finish.reason === "expired" || finish.reason === "clock-skew";
      attempt.why = (isReasonVague ? attempt.why : null) ?? finish.message;
      if (attempt.tries === 1)
        log.warn({ command: id, tagId, value, why: finish.reason }, "an old value cannot be put back yet");
      retry.wakeUp();
      return true;
    },
    notices(): readonly string[] {
      const waitingNotices = journal.restores().flatMap(({ command, before, dueAt }) => {
        const why = attemptsById.get(restoreId(command.id))?.why ?? null;
        if (why === null) return [];
        const lastAttemptTime = isoUtc(Date.parse(dueAt) + MAX_RESTORE_DELAY_MS);
        return [
          `Tag ${command.tagId} still holds ${command.value}, written by ${command.id}: ${before} should hold again ` +
            `since ${dueAt}. ${why} It is tried until ${lastAttemptTime}.`,
        ];
      });
      return [...journal.unrestored().map(unrestoredLine), ...waitingNotices];
    },
    run(endings: CommandEndings, signal: AbortSignal): Promise<void> {
      endings.onEnd(retry.wakeUp);
      return runLoop({
        clock,
        signal,
        wakeup: retry,
        turn: () => checkRestores(endings, signal),
        fault: (error) => log.error({ err: error }, "an old value could not be put back yet"),
      });
    },
  };
}

function buildTooLateEnd({ before }: Restore, why: string | null): CommandEnd {
  const message = `It was too late to put ${before} back; nothing was written.`;
  return { outcome: "expired", reason: "expired", message: why === null ? message : `${message} ${why}` };
}

function buildNotAllowedEnd({ before, command }: Restore): CommandEnd {
  const message = `${before} is not put back: tag ${command.tagId} is not open for it any more.`;
  return { outcome: "rejected", reason: "not-restorable", message };
}
