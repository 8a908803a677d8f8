import type { Clock } from "../clock.ts";
import type { Log } from "../log.ts";
import type { Command, Finish } from "./command.ts";
import type { Journal } from "./journal.ts";

/**
 * The ends of commands. What has left must get its result, so an end that cannot be recorded (a full disk) is
 * tried again until it can, or until the worker stops; then the next start finds the command and reads it back.
 */
export interface Endings {
  end(command: Command, finish: Finish, signal: AbortSignal): Promise<void>;
  /** Called after each end. */
  onEnd(listener: () => void): void;
}

const AGAIN_AFTER_MS = 1_000;

export function createEndings(options: {
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Log;
  readonly count: (outcome: string, reason: string | null) => void;
}): Endings {
  const { journal, clock, log } = options;
  const listeners: (() => void)[] = [];

  async function record(command: Command, finish: Finish, signal: AbortSignal): Promise<boolean> {
    for (;;) {
      try {
        return await journal.finish(command, finish);
      } catch (error) {
        log.error({ err: error, command: command.id }, "a command result could not be recorded");
        await clock.sleep(AGAIN_AFTER_MS, signal);
      }
    }
  }

  return {
    async end(command, finish, signal) {
      if (!(await record(command, finish, signal))) return;
      options.count(finish.outcome, finish.reason);
      for (const listener of listeners) listener();
    },
    onEnd: (listener) => void listeners.push(listener),
  };
}
