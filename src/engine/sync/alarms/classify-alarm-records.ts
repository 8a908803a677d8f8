import type { Alarm } from "../../../core/model/building.ts";
import type { PollContext } from "../poll-context.ts";
import type { StoredAlarm } from "../stored-documents.ts";
import { isOpenAlarm } from "./diff-alarm.ts";
import { fillRecord, type ListCoverage } from "./diff-alarms.ts";
import {
  contradictsItself,
  episodeKey,
  fillFromStoredAlarm,
  hasOnlyId,
  hasOtherStartTime,
  isEmittedAlarmEnd,
  isOldRecord,
  isResolvedAlarm,
  relateToEpisode,
} from "./episode.ts";
import type { AlarmEndCheck } from "./missing-alarm-search.ts";

/** `unverifiedIds`: Plenum ignores these records for now. `acceptedOutdatedIds`: old records that 10 polls repeated. */
export type ClassifiedRecords = ReturnType<typeof classifyRecords>;

export type RecordCounts = ReadonlyMap<
  string,
  { readonly siteId: number; readonly recordText: string; readonly repetitions: number }
>;

const POLLS_TO_CONFIRM = 2;
/** Number of polls after which Plenum accepts an outdated record: caches are rarely 10 polls (5 minutes) old. */
const OUTDATED_RECORD_POLLS = 10;

export function classifyRecords(
  recordCounts: RecordCounts,
  alarms: ReadonlyMap<string, StoredAlarm>,
  records: readonly Alarm[],
  coverage: (siteId: number) => ListCoverage,
) {
  const listedRecords: Alarm[] = [];
  const unverifiedIds = new Set<string>();
  const contradictoryRecords: Alarm[] = [];
  const unreadableIds: string[] = [];
  const outdatedRecords: Alarm[] = [];
  const acceptedOutdatedIds = new Set<string>();
  const correctedStartIds = new Set<string>();
  const newCounts = new Map([...recordCounts].filter(([, { siteId }]) => coverage(siteId) === "none"));
  const countRepeatedRecord = (alarm: Alarm) => {
    const recordText = `${episodeKey(alarm)} ${alarm.lastActiveEvent?.id} ${alarm.status} ${alarm.resolvedAt !== null}`;
    const earlierRecord = recordCounts.get(alarm.id);
    const repetitions = earlierRecord?.recordText === recordText ? earlierRecord.repetitions + 1 : 1;
    newCounts.set(alarm.id, { siteId: alarm.site.id, recordText, repetitions });
    return repetitions;
  };
  for (const record of records) {
    const oldAlarm = alarms.get(record.id);
    // A record that contains only its id is completed from the stored alarm: it proves that the alarm is listed.
    const alarm = fillRecord(alarms, record);
    const isRecordReadable = alarm.site.id !== 0 && !hasOnlyId(alarm);
    if (!isRecordReadable || hasOnlyId(record)) unreadableIds.push(record.id);
    if (!isRecordReadable || contradictsItself(alarm)) {
      if (isRecordReadable) contradictoryRecords.push(alarm);
      const isRecordConfirmed = countRepeatedRecord(alarm) >= POLLS_TO_CONFIRM;
      // If a record states an end, the list of resolved alarms decides whether the alarm has ended.
      if (isRecordReadable && isRecordConfirmed && !isResolvedAlarm(alarm)) listedRecords.push(alarm);
      else unverifiedIds.add(alarm.id);
    } else if (oldAlarm !== undefined && isOldRecord(oldAlarm, alarm)) {
      listedRecords.push(alarm);
      outdatedRecords.push(alarm);
      // If an alarm reopened once and then ended again at the same time, only a later event reopens the alarm.
      const hasAlarmReturnedBefore = oldAlarm.state === "resolved" && isEmittedAlarmEnd(oldAlarm, oldAlarm.alarm);
      if (!hasAlarmReturnedBefore && countRepeatedRecord(alarm) >= OUTDATED_RECORD_POLLS)
        acceptedOutdatedIds.add(alarm.id);
    } else if (oldAlarm && hasOtherStartTime(oldAlarm, record) && countRepeatedRecord(record) >= POLLS_TO_CONFIRM) {
      correctedStartIds.add(alarm.id);
      listedRecords.push(fillRecord(alarms, record, true));
    } else listedRecords.push(alarm);
  }
  return {
    listed: listedRecords,
    unverifiedIds,
    contradictoryRecords,
    unreadableIds,
    outdatedRecords,
    acceptedOutdatedIds,
    correctedStartIds,
    newCounts,
  };
}

/** True if the record is valid and contradicts no stored data: it can be emitted before the complete list is read. */
export function isUndisputed(storedAlarm: StoredAlarm | undefined, record: Alarm): boolean {
  const alarm = storedAlarm === undefined ? record : fillFromStoredAlarm(storedAlarm, record);
  if (alarm.site.id === 0 || hasOnlyId(record) || isResolvedAlarm(alarm) || contradictsItself(alarm)) return false;
  if (storedAlarm === undefined) return true;
  if (isOldRecord(storedAlarm, alarm) || hasOtherStartTime(storedAlarm, record)) return false;
  if (!isOpenAlarm(storedAlarm)) return true;
  return relateToEpisode(storedAlarm, alarm) === "same" && alarm.triggeredAt === storedAlarm.alarm.triggeredAt;
}

export function createRecordReport({ source: { name: source }, metrics, log }: PollContext) {
  let hadContradictoryRecord = false;
  return (
    { contradictoryRecords: contradictory, unreadableIds: unreadable }: ClassifiedRecords,
    { revokedEndIds, staleRecordIds }: AlarmEndCheck,
    recordsWithoutId: readonly string[],
  ): readonly string[] => {
    const setCount = (reason: string, count: number) => metrics.alarmRecordsUnverified.set({ source, reason }, count);
    setCount("contradictory", contradictory.length);
    setCount("stale", staleRecordIds.size);
    setCount("unreadable", unreadable.length + recordsWithoutId.length);
    const [firstRecord] = contradictory;
    if (firstRecord !== undefined && !hadContradictoryRecord) {
      const alarms = contradictory.length;
      log.warn({ alarms }, "the list of active alarms has records that contradict themselves");
    }
    hadContradictoryRecord = firstRecord !== undefined;
    if (revokedEndIds.size > 0)
      log.warn(
        { alarms: revokedEndIds.size },
        "the service lists ended alarms as active and no longer lists their end: they are active again",
      );
    const remarks = [
      firstRecord !== undefined &&
        `Records of the list of active alarms that contradict themselves: ${contradictory.length}, such as alarm ${firstRecord.id} with the status "${firstRecord.status}" and the end ${firstRecord.resolvedAtRaw ?? "null"}. These alarms stay as they were.`,
      revokedEndIds.size > 0 &&
        `Alarms that are active again, because the service does not know their end any more: ${revokedEndIds.size} (${formatFirstAlarmIds([...revokedEndIds])}).`,
      staleRecordIds.size > 0 &&
        `Alarms that are in the list of active alarms and in the list of resolved ones: ${staleRecordIds.size} (${formatFirstAlarmIds([...staleRecordIds])}). They stay resolved.`,
      unreadable.length > 0 &&
        `Records of active alarms of which only the id can be read: ${unreadable.length} (${formatFirstAlarmIds(unreadable)}).`,
    ];
    const unreadableRemarks = describeUnreadableRecords(recordsWithoutId, "active");
    return [...remarks.filter((message) => message !== false), ...unreadableRemarks];
  };
}

export function describeUnreadableRecords(records: readonly string[], list: "active" | "resolved"): readonly string[] {
  if (records.length === 0) return [];
  return [`Records of the list of ${list} alarms that cannot be read: ${records.length}, such as ${records[0]}.`];
}

function formatFirstAlarmIds(ids: readonly string[]): string {
  return ids.length > 3 ? `${ids.slice(0, 3).join(", ")} …` : ids.join(", ");
}
