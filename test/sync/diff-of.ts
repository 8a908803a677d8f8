import { type AlarmDiff, diffAlarms } from "#src/engine/sync/alarms/diff-alarms.ts";

/** The whole difference at once. */
export function diffOf(...args: Parameters<typeof diffAlarms>): AlarmDiff {
  const steps = diffAlarms(...args);
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}
