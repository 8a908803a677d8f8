import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { persist } from "../../core/runtime/waiting.ts";
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

/** Somebody waits for the result: it comes within four seconds once the state works again. */
const BACKOFF = { firstMs: 1_000, maxMs: 4_000 };

export function createEndings(options: {
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Log;
  /** True when an end is none, because the command is tried again: see `Restores`. */
  readonly putsOff: (command: Command, finish: Finish) => boolean;
  readonly count: (outcome: string, reason: string | null) => void;
}): Endings {
  const { journal, clock, log } = options;
  const listeners: (() => void)[] = [];

  function record(command: Command, finish: Finish, signal: AbortSignal): Promise<boolean> {
    return persist({
      clock,
      signal,
      work: () => journal.finish(command, finish),
      backoff: BACKOFF,
      fault(error, inMs) {
        log.error({ err: error, command: command.id, inMs }, "a command result could not be recorded");
      },
    });
  }

  return {
    async end(command, finish, signal) {
      if (options.putsOff(command, finish)) return;
      if (!(await record(command, finish, signal))) return;
      options.count(finish.outcome, finish.reason);
      for (const listener of listeners) listener();
    },
    onEnd: (listener) => void listeners.push(listener),
  };
}
