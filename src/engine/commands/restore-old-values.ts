import { backoffMs } from "../../core/runtime/backoff.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup, runLoop } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { TagAllowList } from "./allow-list.ts";
import { type Command, type CommandEnd, tagKey } from "./command.ts";
import type { CommandEndings } from "./command-outcomes.ts";
import { isSameValue, isWithinLimits } from "./gate.ts";
import type { AcceptedCommand, Journal } from "./journal.ts";
import {
  buildRestoreCommand,
  formatUnrestoredValue,
  listRestoreChain,
  MAX_RESTORE_DELAY_MS,
  mayRetryRestore,
  type Restore,
  restoreCommandId,
  type UnrestoredValue,
} from "./pending-value-restores.ts";
import type { StoredBuildingReader } from "./stored-building-reader.ts";

const VALUE_RESTORE_BACKOFF = { firstMs: 30_000, maxMs: 300_000 };
const RESTORE_CHECK_INTERVAL_MS = 30_000;

interface ValueRestoreAttempt {
  /** Monotonic time at which the old value is due; a change of the wall clock does not postpone it. */
  dueMs?: number;
  attemptCount: number;
  retryAtMs: number | null;
  failureText: string | null;
  isEnding: boolean;
}

/** Puts the old values of timed writes back with ordinary commands, if the tags still hold the written values. */
export function createValueRestores(options: {
  readonly journal: Journal;
  readonly allowList: TagAllowList;
  readonly view: StoredBuildingReader;
  readonly clock: Clock;
  readonly isClockTrusted: (source: string) => boolean;
  readonly log: Log;
  readonly dispatch: (acceptedCommand: AcceptedCommand) => void;
}) {
  const { allowList, clock, dispatch, isClockTrusted, journal, log, view } = options;
  const attemptsById = new Map<string, ValueRestoreAttempt>();
  const findAttempt = (id: string) =>
    attemptsById.get(id) ?? { attemptCount: 0, retryAtMs: 0, failureText: null, isEnding: false };
  const restoreRetryWakeup = createWakeup();

  /** Returns the milliseconds until the restore is checked again; null if a wake-up starts the next check. */
  async function restoreIfDue(restore: Restore, endings: CommandEndings, signal: AbortSignal): Promise<number | null> {
    const id = restoreCommandId(restore.command.id);
    const attempt = findAttempt(id);
    attemptsById.set(id, attempt);
    const { source } = restore.command;
    const restoreDueInMs = msUntilRestoreDue(attempt, restore);
    if (restoreDueInMs > 0) return restoreDueInMs;
    const openEntry = journal.findOpenCommand(id);
    if (openEntry?.state === "sending" || isTagUsedByOtherCommand(restore) || attempt.retryAtMs === null) return null;
    const isRestoreLate = clock.now() >= Date.parse(restore.dueAt) + MAX_RESTORE_DELAY_MS;
    // Do not cancel a late restore while the wall clock is untrusted: it may be ten days ahead.
    if (isRestoreLate && !isClockTrusted(source)) return RESTORE_CHECK_INTERVAL_MS;
    if (!isRestoreLate && attempt.retryAtMs > clock.monotonic()) return attempt.retryAtMs - clock.monotonic();
    const command = openEntry?.command ?? buildRestoreCommand(restore, clock.now());
    const allowedTag = allowList.findEntry(command.source, command.tagId);
    const ending = isRestoreLate ? buildTooLateEnding(restore, attempt.failureText) : findRestoreRefusal(restore);
    if (ending !== null || allowedTag === undefined) {
      attempt.isEnding = true;
      try {
        await endings.end(command, ending ?? buildNotAllowedEnding(restore), signal);
        attemptsById.delete(id);
      } finally {
        attempt.isEnding = false;
      }
      return null;
    }
    const { retryAtMs } = attempt;
    attempt.retryAtMs = null;
    try {
      const acceptedCommand = { command, allowedTag };
      for (const newCommand of openEntry === undefined ? await journal.accept([acceptedCommand]) : [acceptedCommand])
        dispatch(newCommand);
    } catch (error) {
      attempt.retryAtMs = retryAtMs;
      throw error;
    }
    return null;
  }

  /** Returns the ms until the restore is due by the first of two clocks; ignores a wall clock that may be wrong. */
  function msUntilRestoreDue(attempt: ValueRestoreAttempt, { command, dueAt }: Restore): number {
    const wallClockWaitMs = Date.parse(dueAt) - clock.now();
    const isWallClockTrusted = isClockTrusted(command.source);
    const dueMs = attempt.dueMs ?? clock.monotonic() + wallClockWaitMs;
    if (isWallClockTrusted) attempt.dueMs = dueMs;
    const monotonicWaitMs = dueMs - clock.monotonic();
    return isWallClockTrusted ? Math.min(wallClockWaitMs, monotonicWaitMs) : monotonicWaitMs;
  }

  function isTagUsedByOtherCommand(restore: Restore): boolean {
    const restoreCommandIds = new Set(listRestoreChain(restore).map(({ command }) => restoreCommandId(command.id)));
    const key = tagKey(restore.command);
    return journal
      .listOpenCommands()
      .some(({ command }) => tagKey(command) === key && !restoreCommandIds.has(command.id));
  }

  function findRestoreRefusal(restore: Restore): CommandEnd | null {
    const { command, before } = restore;
    const id = restoreCommandId(command.id);
    if (journal.isKnownId(id) && journal.findOpenCommand(id) === undefined) {
      const message = `The id ${id} was used before, so ${before} is not put back by it.`;
      return { outcome: "rejected", reason: "duplicate", message };
    }
    const allowedTag = allowList.findEntry(command.source, command.tagId);
    return allowedTag?.restore === true && isWithinLimits(before, allowedTag) ? null : buildNotAllowedEnding(restore);
  }

  async function hasTagNewerValue({ source, tagId, inForce, toldAt }: UnrestoredValue): Promise<boolean> {
    const liveValue = await view.value(source, tagId);
    if (liveValue === undefined || liveValue.quality !== "good" || liveValue.time <= toldAt) return false;
    return inForce !== null && !isSameValue(liveValue.value, inForce);
  }

  async function checkRestores(endings: CommandEndings, signal: AbortSignal): Promise<number> {
    let nextCheckInMs = RESTORE_CHECK_INTERVAL_MS;
    for (const restore of journal.listRestores())
      nextCheckInMs = Math.min(nextCheckInMs, (await restoreIfDue(restore, endings, signal)) ?? nextCheckInMs);
    for (const unrestoredValue of journal.listUnrestoredValues())
      if (await hasTagNewerValue(unrestoredValue)) await journal.forgetUnrestored(unrestoredValue);
    const openRestores = journal.listRestores().flatMap(listRestoreChain);
    const ids = new Set(openRestores.map(({ command }) => restoreCommandId(command.id)));
    for (const id of attemptsById.keys()) if (!ids.has(id)) attemptsById.delete(id);
    return Math.max(1, nextCheckInMs);
  }

  return {
    /** True if the failure is temporary, so that the command stays accepted and is tried again. */
    postponeIfTemporary(command: Command, ending: CommandEnd): boolean {
      const { id, tagId, value } = command;
      if (journal.findRestoreOfCommand(id) === undefined || journal.findOpenCommand(id)?.state !== "accepted")
        return false;
      const attempt = findAttempt(id);
      if (attempt.isEnding || !mayRetryRestore(ending)) return false;
      attemptsById.set(id, attempt);
      attempt.attemptCount += 1;
      attempt.retryAtMs = clock.monotonic() + backoffMs(VALUE_RESTORE_BACKOFF, attempt.attemptCount);
      const isEndingReasonVague = ending.reason === "expired" || ending.reason === "clock-skew";
      attempt.failureText = (isEndingReasonVague ? attempt.failureText : null) ?? ending.message;
      if (attempt.attemptCount === 1)
        log.warn({ command: id, tagId, value, why: ending.reason }, "an old value cannot be put back yet");
      restoreRetryWakeup.wakeUp();
      return true;
    },
    notices(): readonly string[] {
      const waitingRestoreNotices = journal.listRestores().flatMap(({ command, before, dueAt }) => {
        const failureText = attemptsById.get(restoreCommandId(command.id))?.failureText ?? null;
        if (failureText === null) return [];
        return [
          `Tag ${command.tagId} still holds ${command.value}, written by ${command.id}: ${before} should hold again ` +
            `since ${dueAt}. ${failureText} It is tried until ${isoUtc(Date.parse(dueAt) + MAX_RESTORE_DELAY_MS)}.`,
        ];
      });
      return [...journal.listUnrestoredValues().map(formatUnrestoredValue), ...waitingRestoreNotices];
    },
    runRestores(endings: CommandEndings, signal: AbortSignal): Promise<void> {
      endings.onEnd(restoreRetryWakeup.wakeUp);
      return runLoop({
        clock,
        signal,
        wakeup: restoreRetryWakeup,
        step: () => checkRestores(endings, signal),
        onFault: (error) => log.error({ err: error }, "an old value could not be put back yet"),
      });
    },
  };
}

function buildTooLateEnding({ before }: Restore, failureText: string | null): CommandEnd {
  const message = `It was too late to put ${before} back; nothing was written.`;
  return {
    outcome: "expired",
    reason: "expired",
    message: failureText === null ? message : `${message} ${failureText}`,
  };
}

function buildNotAllowedEnding({ before, command }: Restore): CommandEnd {
  const message = `${before} is not put back: tag ${command.tagId} is not open for it any more.`;
  return { outcome: "rejected", reason: "not-restorable", message };
}
