import type { Alarm } from "#src/core/model/building.ts";
import type { Event } from "#src/core/model/event.ts";
import { type AlarmDiffOptions, diffAlarms, type SeenAlarms } from "#src/engine/sync/alarms/diff-alarms.ts";
import type { ResolvedAlarmDiffOptions } from "#src/engine/sync/alarms/diff-resolved-alarms.ts";
import { ALARM } from "../sample-events.ts";

export const AT = "2026-11-02T08:00:00.000Z";
export const CONTEXT = { source: "/sources/main", at: AT, late: false, behindGateway: () => null };
export const OPTIONS: AlarmDiffOptions = {
  ...CONTEXT,
  vanishAfterMisses: 2,
  isKnownSite: () => true,
  startup: "reconcile",
  startedAt: "2026-11-02T07:00:00.000Z",
  isStartupOver: () => true,
};
export const SWEEP_OPTIONS: ResolvedAlarmDiffOptions = {
  ...CONTEXT,
  ...{ late: true, fromMs: 0, isBeforeFollowing: () => false, suppressEvents: false },
};
const SITE = new Set([ALARM.site.id]);

/** A complete observation of the site of `ALARM`, which lists nothing. */
export function observation(changes: Partial<SeenAlarms> = {}): SeenAlarms {
  return {
    ...{ listed: [], coverage: () => "complete", foundRecords: [], searchedIds: new Set([ALARM.id]) },
    scope: { before: SITE, after: SITE },
    ...changes,
  };
}

export const activity = (id: number, more: object = {}) =>
  ({ ...ALARM.lastActiveEvent, id, ...more }) as Alarm["lastActiveEvent"];

export const kindsOf = (events: readonly Event[] = []) => events.map(({ type }) => type.replace("alarm-", ""));

export function diffOf(...args: Parameters<typeof diffAlarms>) {
  const steps = diffAlarms(...args);
  for (;;) {
    const { done, value } = steps.next();
    if (done === true) return value;
  }
}
