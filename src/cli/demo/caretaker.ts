import type { Clock } from "../../core/runtime/clock.ts";
import { loop } from "../../core/runtime/waiting.ts";
import type { Simulator } from "../../simulator/simulator.ts";

/** An alarm is acknowledged so long after it was raised, milliseconds; those of the demo last about 33 s. */
const READS_AFTER_MS = 12_000;
const LOOK_EVERY_MS = 2_000;

const NAME = "Caretaker of the demo";
const MESSAGE = "I am on my way.";

/**
 * The person at the simulated buildings: acknowledges every alarm that is raised while the demo runs, in the service
 * itself, because only there it counts. Works until the signal aborts.
 */
export function work(
  simulator: Pick<Simulator, "control" | "now" | "truth">,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  const beganMs = simulator.now();
  return loop({
    clock,
    signal,
    async turn() {
      const nowMs = simulator.now();
      for (const alarm of simulator.truth.alarms.list(nowMs, { status: "active" })) {
        const isMine = alarm.triggeredAtMs >= beganMs && nowMs - alarm.triggeredAtMs >= READS_AFTER_MS;
        if (isMine && alarm.acknowledged === null)
          simulator.control.acknowledgeAlarm(alarm.id, NAME, MESSAGE);
      }
      return LOOK_EVERY_MS;
    },
    // The alarm is over meanwhile, say; then there is nothing to acknowledge.
    fault: () => undefined,
  });
}
