import type { Alarm } from "../../../core/model/building.ts";
import type { Event } from "../../../core/model/event.ts";
import type { StoredAlarm } from "../stored-documents.ts";
import { alarmEndOrStartMs, latestAlarmTimeMs } from "./alarm-times.ts";
import { acknowledgeEndedAlarm, type EventContext, isOpenAlarm } from "./diff-alarm.ts";
import { type AlarmDiff, beginAndEnd, endEpisode, fillRecord, sortAlarmEvents } from "./diff-alarms.ts";
import {
  addFormerEpisode,
  endsBeforeStart,
  episodeKey,
  isEmittedAlarmEnd,
  isFormerEpisode,
  isResolvedAlarm,
  isSameEpisode,
  mayBeDroppedEpisode,
  relateToEpisode,
} from "./episode.ts";

export interface ResolvedAlarmDiffOptions extends EventContext {
  /** Unknown episodes that ended before this time are skipped; milliseconds since 1970 by the service's clock. */
  readonly fromMs: number;
  readonly isBeforeFollowing: (alarm: Alarm) => boolean;
  readonly suppressEvents: boolean;
}

/** Finds changes of resolved alarms that polls missed: ends, complete episodes and acknowledgements after the end. */
export function diffResolvedAlarms(
  alarms: ReadonlyMap<string, StoredAlarm>,
  records: readonly Alarm[],
  options: ResolvedAlarmDiffOptions,
): AlarmDiff {
  const put = new Map<string, StoredAlarm>();
  const events: Event[] = [];
  const resolvedRecords = records
    .map((record) => fillRecord(alarms, record))
    .filter(isResolvedAlarm)
    .sort((a, b) => (alarmEndOrStartMs(a) ?? 0) - (alarmEndOrStartMs(b) ?? 0));
  const resolvedById = Map.groupBy(resolvedRecords, ({ id }) => id);
  for (const record of resolvedRecords) {
    const alarm = put.get(record.id) ?? alarms.get(record.id);
    const isSilent = options.isBeforeFollowing(record) || options.suppressEvents;
    const episodeRelation = alarm === undefined ? "newer" : relateToEpisode(alarm, record);
    if (alarm !== undefined && episodeRelation === "same") {
      if (alarm.state === "resolved") {
        // If an episode has several resolved records, the last record states the acknowledgement.
        const isLastRecord =
          record ===
          resolvedById.get(record.id)?.findLast((resolvedRecord) => relateToEpisode(alarm, resolvedRecord) === "same");
        const acknowledgement =
          alarm.untold === true || !isLastRecord ? null : acknowledgeEndedAlarm(alarm, record, options);
        if (acknowledgement !== null) put.set(record.id, acknowledgement.stored);
        if (acknowledgement !== null && !options.suppressEvents) events.push(...acknowledgement.events);
        continue;
      }
      // The alarm came back after this end; the list of active alarms decides whether the alarm is over.
      if (isOpenAlarm(alarm) && isEmittedAlarmEnd(alarm, record)) continue;
      // The alarm is active and this end lies before its start, so the end belongs to an older episode.
      if (alarm.state === "active" && endsBeforeStart(alarm, record)) continue;
    } else if ((latestAlarmTimeMs(record) ?? 0) < options.fromMs) continue;
    if (alarm !== undefined && episodeRelation === "past" && !isLateAlarmEnd(alarm, record)) {
      if (isSameEpisode(alarm, record) || isFormerEpisode(alarm, record) || mayBeDroppedEpisode(alarm, record))
        continue;
      const formerEpisodes = addFormerEpisode(alarm, { episode: episodeKey(record), endMs: alarmEndOrStartMs(record) });
      put.set(record.id, { ...alarm, former: formerEpisodes });
      const pastChanges = isSilent ? [] : [...beginAndEnd(record, { ...options, superseded: true })];
      events.push(...sortAlarmEvents(pastChanges.flatMap((change) => change.events)));
      continue;
    }
    const changes = [
      ...(alarm === undefined ? beginAndEnd(record, options) : endEpisode(alarm, record, resolvedById, options)),
    ];
    const isEpisodeEmitted = !isSilent || (alarm !== undefined && isOpenAlarm(alarm) && !options.suppressEvents);
    for (const { stored } of changes) put.set(record.id, isEpisodeEmitted ? stored : { ...stored, untold: true });
    if (isEpisodeEmitted) events.push(...sortAlarmEvents(changes.flatMap((change) => change.events)));
  }
  return { put, events };
}

/** True if an older record states the end of a vanished alarm and this end was not emitted yet. */
function isLateAlarmEnd(storedAlarm: StoredAlarm, record: Alarm): boolean {
  return (
    storedAlarm.state === "vanished" && isSameEpisode(storedAlarm, record) && !isEmittedAlarmEnd(storedAlarm, record)
  );
}
