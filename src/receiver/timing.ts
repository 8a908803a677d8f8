import { DateTime } from "luxon";
import type { Priority } from "../building.ts";
import type { QuietHours, ReceiverConfig } from "./config.ts";

/** When something is told: after `hold`, and not in quiet hours. */
export interface Timing {
  /**
   * From when on an incident that began at a moment is told if it is active then, milliseconds since 1970; the moment
   * itself where nothing makes it wait.
   */
  tellFromMs(priority: Priority, beganMs: number, zone: string): number;
}

const DAYS = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"] as const;

export function createTiming({ hold, quiet }: Pick<ReceiverConfig, "hold" | "quiet">): Timing {
  return {
    tellFromMs(priority, beganMs, zone) {
      const hours = quiet.filter(({ priorities }) => priorities.includes(priority));
      let fromMs = beganMs + hold;
      // The end of one may lie within another: 22:00 to 06:00, and on Sundays until 10:00.
      for (let rounds = 0; rounds <= hours.length; rounds += 1) {
        const ends = hours.map((each) => endOfQuiet(each, fromMs, zone)).filter((end) => end !== null);
        if (ends.length === 0) return fromMs;
        fromMs = Math.max(...ends);
      }
      return fromMs;
    },
  };
}

/** When the quiet hours end in which a moment lies; null where it lies in none. */
function endOfQuiet({ days, from, to }: QuietHours, atMs: number, zone: string): number | null {
  const at = DateTime.fromMillis(atMs, { zone });
  if (!at.isValid) return null;
  // Those that began today, or yesterday and reach into today.
  for (const day of [at, at.minus({ days: 1 })]) {
    const start = atTime(day, from);
    const end = atTime(to < from ? day.plus({ days: 1 }) : day, to);
    const isDay = days === undefined || days.includes(DAYS[day.weekday - 1] ?? "mon");
    if (isDay && start.toMillis() <= atMs && atMs < end.toMillis()) return end.toMillis();
  }
  return null;
}

/** A time that a change of the clocks leaves out becomes the first one after it. */
function atTime(day: DateTime, time: string): DateTime {
  const [hour = 0, minute = 0] = time.split(":").map(Number);
  return day.set({ hour, minute, second: 0, millisecond: 0 });
}
