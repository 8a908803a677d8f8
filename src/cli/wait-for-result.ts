import { systemClock } from "../clock.ts";
import { Retryable } from "../errors.ts";
import type { Event } from "../event.ts";
import { openStore } from "../store/open.ts";

const LOOK_EVERY_MS = 250;
/** The longest life of a command (300 s) and the time to read it back. */
const GIVE_UP_AFTER_MS = 6 * 60_000;

/** The terminal result of a command, as soon as the worker has committed it. */
export async function waitForResult(
  folder: string,
  id: string,
  signal: AbortSignal,
): Promise<Event<"command-result">> {
  const store = await openStore({ folder, clock: systemClock, readOnly: true });
  try {
    const until = systemClock.monotonic() + GIVE_UP_AFTER_MS;
    while (systemClock.monotonic() < until) {
      for (const { event } of await store.outbox.latest(200, ["command-result"])) {
        const result = event as Event<"command-result">;
        if (result.data.commandId === id) return result;
      }
      await systemClock.sleep(LOOK_EVERY_MS, signal);
    }
  } finally {
    await store.close();
  }
  throw new Retryable(`Command ${id} has no result yet.`, { hint: "Look for it on the status page." });
}
