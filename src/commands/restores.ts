import { type Clock, isoUtc } from "../clock.ts";
import type { Log } from "../log.ts";
import type { AllowList } from "./allow-list.ts";
import type { Command } from "./command.ts";
import type { Endings } from "./endings.ts";
import { isLawful } from "./gate.ts";
import { type Accepted, type Journal, type Restore, restoreId } from "./journal.ts";
import type { Notice } from "./result-event.ts";

/**
 * "22 °C for two hours": puts the old value back once, by an ordinary command that expects the tag to still hold
 * ours. When a person has changed it meanwhile, the gate refuses that command, and so it is told. The promise is
 * in the journal, so it outlives restarts; a later write of the tag through Plenum ends it.
 */
export interface Restores {
  run(signal: AbortSignal): Promise<void>;
}

/** Later than this after its time (a long stop, a service in maintenance) a value is not put back any more. */
const PATIENCE_MS = 3_600_000;
/** A wall clock that is set forward is noticed within this. */
const LATEST_LOOK_MS = 30_000;
const AGAIN_AFTER_MS = 1_000;

export function createRestores(options: {
  readonly journal: Journal;
  readonly allowList: AllowList;
  readonly endings: Endings;
  readonly clock: Clock;
  readonly log: Log;
  readonly dispatch: (accepted: Accepted) => void;
  readonly tell: (notice: Notice) => Promise<void>;
}): Restores {
  const { allowList, clock, journal, log } = options;

  async function putBack(restore: Restore): Promise<void> {
    const { command, before } = restore;
    const restoring = restoringCommand(restore, clock.now());
    const entry = allowList.entry(command.source, command.tagId);
    const isLate = Date.parse(restoring.expiresAt) <= clock.now();
    const isAllowed = entry?.restore === true && isLawful(before, entry);
    if (journal.knows(restoring.id)) {
      // The worker stopped between taking the command and forgetting the promise; it has ended, and was told.
    } else if (isLate || !isAllowed) {
      const message = isLate
        ? `It was too late to put ${before} back; nothing was written.`
        : `${before} is not put back: tag ${command.tagId} is not open for it any more.`;
      const outcome = isLate ? "expired" : "rejected";
      await options.tell({
        ...told(restoring),
        outcome,
        reason: isLate ? "expired" : "not-restorable",
        message,
      });
    } else {
      for (const accepted of await journal.accept([{ command: restoring, entry }]))
        options.dispatch(accepted);
    }
    await journal.dropRestore(restore);
  }

  let wake = (): void => {};

  /** Until the next is due, or a command has ended, which may have made a new one. */
  async function soonest(signal: AbortSignal): Promise<void> {
    const news = new AbortController();
    wake = () => news.abort();
    const dueMs = Math.min(
      LATEST_LOOK_MS,
      ...journal.restores().map(({ dueAt }) => Date.parse(dueAt) - clock.now()),
    );
    const both = AbortSignal.any([signal, news.signal]);
    await clock.sleep(Math.max(AGAIN_AFTER_MS, dueMs), both).catch(() => undefined);
  }

  return {
    async run(signal) {
      options.endings.onEnd(() => wake());
      while (!signal.aborted) {
        try {
          for (const restore of journal.restores()) {
            const isProved = !journal.isUnderWay(restore.command);
            if (isProved && Date.parse(restore.dueAt) <= clock.now()) await putBack(restore);
          }
        } catch (error) {
          if (signal.aborted) return;
          log.error({ err: error }, "an old value could not be put back yet");
        }
        await soonest(signal);
      }
    },
  };
}

function restoringCommand({ command, before, dueAt }: Restore, nowMs: number): Command {
  return {
    ...command,
    id: restoreId(command.id),
    value: before,
    expect: command.value,
    forMs: null,
    // Whoever agreed to the write agreed to its end.
    needsSecond: false,
    by: `the end of ${command.id}`,
    receivedAt: isoUtc(nowMs),
    expiresAt: isoUtc(Date.parse(dueAt) + PATIENCE_MS),
  };
}

function told(command: Command) {
  const { id, source, siteId, tagId, value, by, replyTo, correlation, receivedAt } = command;
  return {
    commandId: id,
    source,
    siteId,
    tagId,
    requested: value,
    by,
    replyTo,
    correlation,
    receivedAtMs: Date.parse(receivedAt),
  };
}
