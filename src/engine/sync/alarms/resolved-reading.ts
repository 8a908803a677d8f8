import { Malformed } from "../../../core/errors/errors.ts";
import type { Alarm } from "../../../core/model/building.ts";
import type { Page } from "../../source/source.ts";
import type { StoredSweep } from "../snapshot.ts";
import { endOf, instant, lastTimeOf } from "./times.ts";

/** One reading of the list of resolved alarms. */
export interface ResolvedReading {
  /** Records that ended in the time that matters, whose end is not stated, or of which something is still awaited. */
  readonly records: readonly Alarm[];
  readonly pages: number;
  /** The latest end that was seen, milliseconds since 1970; null when there was none. */
  readonly latestMs: number | null;
  /** True when the order of the list is known as well as reading every page would show it. */
  readonly whole: boolean;
  /** True when nothing can have slipped through: the total stayed the same, or the reading stopped where it may. */
  readonly steady: boolean;
  readonly tooLong: boolean;
  /** Why its pages could not be walked to where they matter, as a sentence; null where they could. */
  readonly brokenBy: string | null;
  readonly newestFirstBy: StoredSweep["newestFirstBy"];
  /** Records that cannot be read, each as the service sent it, cut. */
  readonly unreadable: readonly string[];
}

export interface ResolvedReadingOptions {
  /** Start of the relevant time, milliseconds since 1970; null for a first reading. */
  readonly fromMs: number | null;
  /** The order that earlier readings learned; null to read every page. */
  readonly stopBy: StoredSweep["newestFirstBy"];
  readonly maxPages: number;
  /** True when an alarm is open, or its end was emitted and its acknowledgement was not. */
  readonly isAwaited: (alarmId: string) => boolean;
}

const ORDERS = ["resolved", "triggered"] as const;
const TIMES = { resolved: endOf, triggered: (alarm: Alarm) => instant(alarm.triggeredAt) };

export async function readResolved(
  pages: AsyncIterable<Page<Alarm>>,
  options: ResolvedReadingOptions,
): Promise<ResolvedReading> {
  const { fromMs, stopBy, maxPages } = options;
  const records: Alarm[] = [];
  const last = { resolved: Number.POSITIVE_INFINITY, triggered: Number.POSITIVE_INFINITY };
  const falling = { resolved: true, triggered: true };
  let latestMs: number | null = null;
  let total: number | null = null;
  let moved = false;
  let count = 0;
  const unreadable: string[] = [];

  const take = (alarm: Alarm) => {
    const end = endOf(alarm);
    const lastMs = lastTimeOf(alarm);
    if (fromMs === null || lastMs === null || lastMs >= fromMs || options.isAwaited(alarm.id)) records.push(alarm);
    if (end !== null && (latestMs === null || end > latestMs)) latestMs = end;
    for (const by of ORDERS) {
      const time = TIMES[by](alarm);
      falling[by] &&= time !== null && time <= last[by];
      last[by] = time ?? last[by];
    }
  };
  const result = (whole: boolean, steady: boolean, trouble: Partial<ResolvedReading> = {}): ResolvedReading => {
    const newestFirstBy = ORDERS.find((by) => falling[by]) ?? null;
    const fine = { tooLong: false, brokenBy: null };
    return { records, pages: count, latestMs, whole, steady, newestFirstBy, unreadable, ...fine, ...trouble };
  };

  try {
    for await (const page of pages) {
      count += 1;
      moved ||= total !== null && page.total !== total;
      total = page.total;
      page.items.forEach(take);
      unreadable.push(...(page.unreadable ?? []));
      if (!page.more) return result(true, !moved);
      if (stopBy !== null && fromMs !== null && falling[stopBy] && last[stopBy] < fromMs) return result(false, true);
      if (count >= maxPages) {
        const enough = ORDERS.some((by) => falling[by] && (fromMs === null || last[by] < fromMs));
        return result(enough, enough, { tooLong: !enough });
      }
    }
  } catch (error) {
    // Each record is evidence about one alarm, so pages before the failure count.
    if (count === 0 || !(error instanceof Malformed)) throw error;
    return result(false, false, { brokenBy: error.message });
  }
  return result(false, false);
}
