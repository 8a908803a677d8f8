import type { Alarm } from "../../../core/model/building.ts";
import type { Event } from "../../../core/model/event.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { endOrStartMs, latestTimeMs } from "./alarm-times.ts";
import { acknowledgeEnded, type DiffContext, isOpenAlarm } from "./diff-alarm.ts";
import { type AlarmDiff, beginAndEnd, endEpisode, fillRecord, groupById, sortEpisodeEvents } from "./diff-alarms.ts";
import {
  addFormerEpisode,
  endsBeforeStart,
  episodeKey,
  isEmittedEnd,
  isOfFormerEpisode,
  isResolved,
  isSameEpisode,
  mayBeDropped,
  relateRecord,
} from "./episode.ts";

export interface ResolvedDiffOptions extends DiffContext {
  /** Unknown episodes that ended before this time are skipped; milliseconds since 1970 by the service's clock. */
  readonly fromMs: number;
  readonly isHistory: (alarm: Alarm) => boolean;
  readonly silent: boolean;
}

/** Adds alarm changes that polls missed: ends, complete episodes, acknowledgements after the end. Ignores absences. */
export function diffResolved(
  alarms: ReadonlyMap<string, StoredAlarm>,
  records: readonly Alarm[],
  options: ResolvedDiffOptions,
): AlarmDiff {
  const put = new Map<string, StoredAlarm>();
  const events: Event[] = [];
  const resolvedRecords = records
    .map((record) => fillRecord(alarms, record))
    .filter(isResolved)
    .sort((one, other) => (endOrStartMs(one) ?? 0) - (endOrStartMs(other) ?? 0));
  const resolvedById = groupById(resolvedRecords);
  for (const record of resolvedRecords) {
    const alarm = put.get(record.id) ?? alarms.get(record.id);
    const isUnannounced = options.isHistory(record) || options.silent;
    const episodeRelation = alarm === undefined ? "newer" : relateRecord(alarm, record);
    if (alarm !== undefined && episodeRelation === "same") {
      if (alarm.state === "resolved") {
        // If an episode has several resolved records, the last record states the acknowledgement.
        const isLast = record === resolvedById.get(record.id)?.findLast((one) => relateRecord(alarm, one) === "same");
        const acknowledgeStep = alarm.untold === true || !isLast ? null : acknowledgeEnded(alarm, record, options);
        if (acknowledgeStep !== null) put.set(record.id, acknowledgeStep.stored);
        if (acknowledgeStep !== null && !options.silent) events.push(...acknowledgeStep.events);
        continue;
      }
      // The alarm came back after this end; the list of active alarms decides whether it is over again.
      if (isOpenAlarm(alarm) && isEmittedEnd(alarm, record)) continue;
      // The alarm is active and this end lies before its start, so the end belongs to an older episode.
      if (alarm.state === "active" && endsBeforeStart(alarm, record)) continue;
    } else if ((latestTimeMs(record) ?? 0) < options.fromMs) continue;
    if (alarm !== undefined && episodeRelation === "past" && !isLateEnd(alarm, record)) {
      if (isSameEpisode(alarm, record) || isOfFormerEpisode(alarm, record) || mayBeDropped(alarm, record)) continue;
      const pastEpisodes = addFormerEpisode(alarm, { episode: episodeKey(record), endMs: endOrStartMs(record) });
      put.set(record.id, { ...alarm, former: pastEpisodes });
      const pastSteps = isUnannounced ? [] : [...beginAndEnd(record, { ...options, superseded: true })];
      events.push(...sortEpisodeEvents(pastSteps.flatMap((step) => step.events)));
      continue;
    }
    const episodeSteps = [
      ...(alarm === undefined ? beginAndEnd(record, options) : endEpisode(alarm, record, resolvedById, options)),
    ];
    const isEmitted = !isUnannounced || (alarm !== undefined && isOpenAlarm(alarm) && !options.silent);
    for (const { stored } of episodeSteps) put.set(record.id, isEmitted ? stored : { ...stored, untold: true });
    if (isEmitted) events.push(...sortEpisodeEvents(episodeSteps.flatMap((step) => step.events)));
  }
  return { put, events };
}

/** True if a record of an earlier event states an end of a vanished alarm that was not emitted yet. */
function isLateEnd(known: StoredAlarm, record: Alarm): boolean {
  return known.state === "vanished" && isSameEpisode(known, record) && !isEmittedEnd(known, record);
}
