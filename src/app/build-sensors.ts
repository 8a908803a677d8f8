import type { Clock } from "../core/runtime/clock.ts";
import type { ClockCheck } from "../core/runtime/clock-check.ts";
import { type Service, startedOnce } from "../core/runtime/lifecycle.ts";
import type { Log } from "../core/runtime/log.ts";
import type { Store } from "../engine/store/store.ts";
import { firstMatch } from "../engine/sync/select.ts";
import { createSensorWatch, type SensorWatch } from "../engine/sync/sensors/sensor-watch.ts";
import type { SourceEntry } from "./config/config.ts";

/** The watch of the sensors of one source, while one is wanted. */
export interface Sensors extends Service, Pick<SensorWatch, "read" | "logged"> {
  change(entry: SourceEntry): Promise<void>;
}

/** How long one that is switched off may take to write down what it saw, in milliseconds. */
const LAST_WORDS_MS = 5_000;

export function buildSensors(
  source: string,
  first: SourceEntry,
  parts: {
    readonly store: Store;
    readonly clock: Clock;
    readonly clockDoubt: Pick<ClockCheck, "stepped" | "anywhere">;
    readonly log: Log;
  },
): Sensors {
  let running: AbortSignal | null = null;
  let watch = watchFor(first);

  function watchFor(entry: SourceEntry): SensorWatch | null {
    const settings = settingsOf(entry);
    return settings === null ? null : createSensorWatch({ ...parts, source, ...settings });
  }

  const service = startedOnce({
    name: `sensors ${source}`,
    async start(signal) {
      running = signal;
      await watch?.start(signal);
    },
    async stop(deadlineMs) {
      running = null;
      await watch?.stop(deadlineMs);
    },
  });

  return {
    ...service,
    read: (...seen) => watch?.read(...seen),
    logged: (...seen) => watch?.logged(...seen),
    async change(entry) {
      const settings = settingsOf(entry);
      const before = watch;
      if (before !== null && settings !== null) return before.change(settings);
      watch = watchFor(entry);
      await before?.stop(LAST_WORDS_MS);
      if (running !== null) await watch?.start(running);
    },
  };
}

function settingsOf({ silent_sensors: config, read }: SourceEntry) {
  if (config === false) return null;
  const classOf = firstMatch(read);
  return { config, classOf: (placed: Parameters<typeof classOf>[0]) => classOf(placed)?.name };
}
