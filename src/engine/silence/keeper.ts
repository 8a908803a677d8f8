import type { Clock } from "../../core/runtime/clock.ts";
import { type Service, Stopping, startedOnce } from "../../core/runtime/lifecycle.ts";
import type { Log } from "../../core/runtime/log.ts";
import { loop, within } from "../../core/runtime/waiting.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Store } from "../store/store.ts";
import { beginSilence, endSilence, silencesIn } from "./silence.ts";

/** Interval in milliseconds of the check for silences that the command line made. */
const LOOK_EVERY_MS = 5_000;

export function createSilenceKeeper(options: {
  readonly store: Pick<Store, "commit" | "document" | "documents">;
  readonly clock: Clock;
  readonly log: Log;
}): Service {
  const { store, clock, log } = options;
  const stopping = new AbortController();
  let running: Promise<void> = Promise.resolve();

  async function look(): Promise<number> {
    const at = isoUtc(clock.now());
    for (const silence of await silencesIn(store)) {
      if (silence.to <= at) {
        await endSilence(store, silence.id, silence.to, silence.endedBy ?? null);
        log.info({ silence: silence.id, reason: silence.reason }, "a silence is over");
      } else if (silence.from <= at && !silence.isTold) {
        await beginSilence(store, silence, silence.from);
        log.info({ silence: silence.id, reason: silence.reason, to: silence.to }, "a silence has begun");
      }
    }
    return LOOK_EVERY_MS;
  }

  return startedOnce({
    name: "silences",
    async start(signal) {
      running = loop({
        clock,
        signal: AbortSignal.any([signal, stopping.signal]),
        looks: true,
        turn: look,
        fault: (error) => log.warn({ err: error }, "the silences could not be looked through"),
      });
    },
    async stop(deadlineMs) {
      stopping.abort(new Stopping());
      await within(clock, deadlineMs, running);
    },
  });
}
