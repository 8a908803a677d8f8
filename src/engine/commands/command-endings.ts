import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { retryUntilDone } from "../../core/runtime/waiting.ts";
import type { Command, CommandEnd } from "./command.ts";
import type { Journal } from "./journal.ts";

/** Records the ends of commands. Failures (a full disk) are retried; the next start reads open commands back. */
export type CommandEndings = ReturnType<typeof createEndings>;

const RECORD_BACKOFF = { firstMs: 1_000, maxMs: 4_000 };

export function createEndings(options: {
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Log;
  /** True when the command is retried instead of ending; see `createRestores`. */
  readonly putsOff: (command: Command, finish: CommandEnd) => boolean;
  readonly count: (outcome: string, reason: string | null) => void;
}) {
  const { journal, clock, log } = options;
  const listeners: (() => void)[] = [];
  return {
    async end(command: Command, finish: CommandEnd, signal: AbortSignal): Promise<void> {
      if (options.putsOff(command, finish)) return;
      const isRecorded = await retryUntilDone({
        clock,
        signal,
        work: () => journal.finish(command, finish),
        backoff: RECORD_BACKOFF,
        fault(error, inMs) {
          log.error({ err: error, command: command.id, inMs }, "a command result could not be recorded");
        },
      });
      if (!isRecorded) return;
      options.count(finish.outcome, finish.reason);
      for (const listener of listeners) listener();
    },
    onEnd: (listener: () => void): void => void listeners.push(listener),
  };
}
