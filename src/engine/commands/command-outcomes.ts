import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { retryUntilDone } from "../../core/runtime/waiting.ts";
import type { Command, CommandEnd } from "./command.ts";
import type { Journal } from "./journal.ts";

/** Records how commands ended, and retries when the store fails, e.g. because the disk is full. */
export type CommandEndings = ReturnType<typeof createCommandEndingRecorder>;

const ENDING_RECORD_BACKOFF = { firstMs: 1_000, maxMs: 4_000 };

export function createCommandEndingRecorder(options: {
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Log;
  /** True if the command puts an old value back and is retried later instead of ending now. */
  readonly postponeIfTemporary: (command: Command, ending: CommandEnd) => boolean;
  readonly countOutcome: (outcome: string, reason: string | null) => void;
}) {
  const { journal, clock, log } = options;
  const commandEndingListeners: (() => void)[] = [];
  return {
    async end(command: Command, ending: CommandEnd, signal: AbortSignal): Promise<void> {
      if (options.postponeIfTemporary(command, ending)) return;
      const isRecorded = await retryUntilDone({
        clock,
        signal,
        work: () => journal.recordEnding(command, ending),
        backoff: ENDING_RECORD_BACKOFF,
        onFault(error, inMs) {
          log.error({ err: error, command: command.id, inMs }, "a command result could not be recorded");
        },
      });
      if (!isRecorded) return;
      options.countOutcome(ending.outcome, ending.reason);
      for (const commandEndingListener of commandEndingListeners) commandEndingListener();
    },
    onEnd: (listener: () => void): void => void commandEndingListeners.push(listener),
  };
}
