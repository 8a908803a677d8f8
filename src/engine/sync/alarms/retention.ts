import type { StoredAlarm } from "../snapshot.ts";
import { isOpen } from "./diff-alarm.ts";
import { lastTimeOf } from "./times.ts";

/** How long an episode without a readable time, or one that vanished, is known, in milliseconds. */
const RETAINED_MS = 7 * 86_400_000;
/** An end is known for at least so long: a wrong time zone shows it up to 14 hours later than it was. */
const SHIFTED_MS = 86_400_000;
/** So many ends at most are known for longer than the sweep needs: some 4 MB. */
const MOST_ENDS = 2_000;

export interface RetentionOptions {
  readonly nowMs: number;
  readonly overlapMs: number;
  /** Up to when the resolved alarms of a site are known, milliseconds since 1970; null while none are. */
  readonly sweptMsOf: (siteId: number) => number | null;
}

/**
 * Episodes that ended so long ago that no sweep will find them again. The latest ends are known for a day, in case the
 * service shows them with other times, and those that are not acknowledged for a week, because the acknowledgement may
 * come the next morning.
 */
export function forgotten(
  held: ReadonlyMap<string, StoredAlarm>,
  put: ReadonlyMap<string, StoredAlarm>,
  { nowMs, overlapMs, sweptMsOf }: RetentionOptions,
): readonly string[] {
  const ids: string[] = [];
  const retained: [id: string, since: string][] = [];
  for (const [id, known] of held) {
    if (isOpen(known) || put.has(id)) continue;
    const end = latestEnd(known);
    const sweptMs = sweptMsOf(known.alarm.site.id);
    const swept = known.state === "resolved" && end !== null && sweptMs !== null;
    const beforeSweep = swept && end < sweptMs - 2 * overlapMs;
    const age = nowMs - Date.parse(known.since);
    const old = swept ? beforeSweep && age > 2 * overlapMs : age > RETAINED_MS;
    if (!old) continue;
    const awaitsAcknowledgement = known.untold !== true && !known.alarm.acknowledged;
    const retainedMs = awaitsAcknowledgement ? RETAINED_MS : SHIFTED_MS;
    if (known.state === "resolved" && age <= retainedMs) retained.push([id, known.since]);
    else ids.push(id);
  }
  const oldest = retained.sort(([, one], [, other]) => (one < other ? 1 : -1)).slice(MOST_ENDS);
  return [...ids, ...oldest.map(([id]) => id)];
}

/**
 * End of the last of an alarm's episodes by the service's clock, which may have been set back since. It is the time by
 * which the sweep decides whether it looks at a record: the sweep would emit again a record that is not known any more.
 */
function latestEnd({ alarm, former = [] }: StoredAlarm): number | null {
  const last = lastTimeOf(alarm);
  return last === null ? null : Math.max(last, ...former.map(({ endMs }) => endMs ?? 0));
}
