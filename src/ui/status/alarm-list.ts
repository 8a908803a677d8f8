import type { AlarmRow } from "./rows.ts";

/** The active alarms as a view shows them: a storm has thousands, and few read more than the first hundred. */

/** GET /api/alarms?source&site&priority&limit. */
export interface AlarmList {
  /** Number of alarms per priority that match source and site. */
  readonly priorities: Readonly<Record<string, number>>;
  /** The first that fit the priority too: highest priority first, then the newest. */
  readonly rows: readonly AlarmRow[];
}

export interface AskedAlarms {
  readonly source?: string | undefined;
  readonly site?: number | undefined;
  readonly priority?: string | undefined;
  /** So many rows at most. */
  readonly limit: number;
}

export function alarmList(all: readonly AlarmRow[], { limit, priority, site, source }: AskedAlarms): AlarmList {
  const there = all.filter(
    (row) => (source === undefined || row.source === source) && (site === undefined || row.alarm.site.id === site),
  );
  const priorities: Record<string, number> = {};
  for (const { alarm } of there) priorities[alarm.trigger.priority] = (priorities[alarm.trigger.priority] ?? 0) + 1;
  const fit = there.filter(({ alarm }) => priority === undefined || alarm.trigger.priority === priority);
  return { priorities, rows: fit.slice(0, limit) };
}
