import type { Clock } from "../../../core/runtime/clock.ts";
import { durationText } from "../../../core/values/duration.ts";
import type { ListRate } from "../../source/source.ts";

/** Measures how often the active alarms are polled. */
export interface PollInterval {
  began(): void;
  /** A sentence where polls of so many pages begin less often than configured; null where they do not. */
  remark(pages: number): string | null;
}

/** Gaps that are averaged; the longest of them is left out, because it may be an outage. */
const GAPS = 10;
/** Gaps that are longer than this many times the configured one are noticeable. */
const NOTICEABLE = 1.15;

export function createPollInterval(clock: Clock, everyMs: () => number | null, listRate: () => ListRate): PollInterval {
  let begins: number[] = [];
  return {
    began() {
      begins = [...begins, clock.monotonic()].slice(-(GAPS + 1));
    },
    remark(pages) {
      const configuredMs = everyMs();
      const gaps = begins.slice(1).map((atMs, index) => atMs - (begins[index] ?? atMs));
      if (configuredMs === null || gaps.length < GAPS) return null;
      const usual = gaps.sort((one, other) => one - other).slice(0, -1);
      const meanMs = usual.reduce((sum, gapMs) => sum + gapMs, 0) / usual.length;
      if (meanMs < NOTICEABLE * configuredMs) return null;
      const { perMinute, configured } = listRate();
      const allowed =
        perMinute < configured
          ? `the service allows ${perMinute} lists a minute`
          : `${perMinute} lists a minute are configured`;
      const read = pages > 1 ? `a poll reads ${pages} pages, and ` : "";
      return `Alarms are polled every ${durationText(Math.round(meanMs / 1_000))} instead of every ${durationText(configuredMs / 1_000)}: ${read}${allowed}.`;
    },
  };
}
