import { systemClock } from "../clock.ts";
import { Retryable } from "../errors.ts";
import type { Event } from "../event.ts";
import { openStore } from "../store/open.ts";

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
export async function watchResults(folder: string): Promise<Results> {
  const store = await openStore({ folder, clock: systemClock, readOnly: true });
  const before = (await store.outbox.latest(1))[0]?.position ?? 0;
  return {
    async of(commandId, signal) {
      const until = systemClock.monotonic() + GIVE_UP_AFTER_MS;
      while (systemClock.monotonic() < until) {
        for (const { position, event } of await store.outbox.latest(LOOK_BACK, ["command-result"])) {
          const result = event as Event<"command-result">;
          if (position > before && result.data.commandId === commandId) return result;
        }
        await systemClock.sleep(LOOK_EVERY_MS, signal);
      }
      throw new Retryable(`Command ${commandId} has no result yet.`, {
        hint: "Look for it on the status page.",
      });
    },
    close: () => store.close(),
  };
}
