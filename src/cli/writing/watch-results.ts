import { Retryable } from "../../core/errors/errors.ts";
import type { Event } from "../../core/model/event.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { loop } from "../../core/runtime/waiting.ts";
import { openState, type WhichState } from "../shell/look-at-state.ts";

const LOOK_EVERY_MS = 250;
/** Results of others that may come in between two looks. */
const LOOK_BACK = 200;
/** The longest life of a command (300 s) and the time to read it back. */
const GIVE_UP_AFTER_MS = 6 * 60_000;

export interface Results {
  /** The result of a command, as soon as the worker has committed it. Results of before the watch do not count. */
  of(commandId: string, signal: AbortSignal): Promise<Event<"command-result">>;
  close(): Promise<void>;
}

/** Watches the results of commands in a running worker's state. */
export async function watchResults(which: WhichState): Promise<Results> {
  const store = await openState(which, true);
  const before = (await store.outbox.latest(1))[0]?.position ?? 0;
  return {
    async of(commandId, signal) {
      const until = systemClock.monotonic() + GIVE_UP_AFTER_MS;
      let found: Event<"command-result"> | undefined;
      await loop({
        clock: systemClock,
        signal,
        async turn() {
          found = (await store.outbox.latest(LOOK_BACK, ["command-result"]))
            .filter(({ position }) => position > before)
            .map(({ event }) => event as Event<"command-result">)
            .find(({ data }) => data.commandId === commandId);
          return found === undefined && systemClock.monotonic() < until ? LOOK_EVERY_MS : null;
        },
        fault: tellAtOnce,
      });
      signal.throwIfAborted();
      if (found !== undefined) return found;
      throw new Retryable(`Command ${commandId} has no result yet.`, {
        hint: "Look for it on the status page.",
      });
    },
    close: () => store.close(),
  };
}

/** A person is waiting: what goes wrong is said, not tried again. */
function tellAtOnce(error: unknown): never {
  throw error;
}
