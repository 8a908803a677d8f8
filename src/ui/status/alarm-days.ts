import { isoUtc } from "../../core/values/iso-utc.ts";
import type { RaisedAlarm } from "../plots/raised.ts";
import type { DayBars } from "./responses.ts";

const DAYS = 30;
const DAY_MS = 86_400_000;

/** The last 30 UTC days, today included; every priority that occurs has a number for each day. */
export function dayBars(
  raised: Iterable<RaisedAlarm>,
  nowMs: number,
  asked: { readonly source?: string | undefined; readonly site?: number | undefined },
): DayBars {
  const days = Array.from({ length: DAYS }, (_, n) => isoUtc(nowMs - (DAYS - 1 - n) * DAY_MS).slice(0, 10));
  const places = new Map(days.map((day, n) => [day, n]));
  const byPriority = new Map<string, number[]>();
  for (const { source, site, day, priority, count } of raised) {
    const place = places.get(day);
    if (place === undefined) continue;
    if (asked.source !== undefined && asked.source !== source) continue;
    if (asked.site !== undefined && asked.site !== site) continue;
    const bars = byPriority.get(priority) ?? days.map(() => 0);
    byPriority.set(priority, bars);
    bars[place] = (bars[place] ?? 0) + count;
  }
  return { days, byPriority: Object.fromEntries([...byPriority].sort(([a], [b]) => (a < b ? -1 : 1))) };
}
