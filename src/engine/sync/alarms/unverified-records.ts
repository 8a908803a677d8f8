import type { Alarm } from "../../../core/model/building.ts";
import type { PollContext } from "../poll-dependencies.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { isOpenAlarm } from "./diff-alarm.ts";
import { type Coverage, fillRecord } from "./diff-alarms.ts";
import {
  contradictsItself,
  episodeKey,
  fillFromStored,
  hasOnlyId,
  hasOtherStart,
  isEmittedEnd,
  isOutdated,
  isResolved,
  relateRecord,
} from "./episode.ts";
import type { EndCheck } from "./missing-alarm-search.ts";

/** Records of the list of active alarms that count only after confirmation. In memory only: a restart counts again. */

/**
 * `doubted`: ids of alarms whose records change nothing in this poll. `contradictory`: doubted records that state an end.
 * `outdated`: records older than the stored alarm; records of `insisted` ids, and starts of `corrected` ids, count.
 */
export type SortedRecords = ReturnType<typeof sortRecords>;

export type Repetitions = ReadonlyMap<
  string,
  { readonly siteId: number; readonly text: string; readonly times: number }
>;

const CONFIRMING_POLLS = 2;
/** Number of polls after which an outdated record counts: 10 polls (5 minutes) outlast a usual cache. */
const OUTDATED_RECORD_POLLS = 10;

export function sortRecords(
  statements: Repetitions,
  alarms: ReadonlyMap<string, StoredAlarm>,
  records: readonly Alarm[],
  coverage: (siteId: number) => Coverage,
) {
  const listed: Alarm[] = [];
  const doubted = new Set<string>();
  const contradictory: Alarm[] = [];
  const unreadable: string[] = [];
  const outdated: Alarm[] = [];
  const insisted = new Set<string>();
  const corrected = new Set<string>();
  const newStatements = new Map([...statements].filter(([, { siteId }]) => coverage(siteId) === "none"));
  const countRepeatedStatement = (alarm: Alarm) => {
    const statementText = `${episodeKey(alarm)} ${alarm.lastActiveEvent?.id} ${alarm.status} ${alarm.resolvedAt !== null}`;
    const earlierStatement = statements.get(alarm.id);
    const timesStated = earlierStatement?.text === statementText ? earlierStatement.times + 1 : 1;
    newStatements.set(alarm.id, { siteId: alarm.site.id, text: statementText, times: timesStated });
    return timesStated;
  };
  for (const record of records) {
    const oldAlarm = alarms.get(record.id);
    // A record that contains only its id is completed from the stored alarm: it proves that the alarm is listed.
    const alarm = fillRecord(alarms, record);
    const isReadable = alarm.site.id !== 0 && !hasOnlyId(alarm);
    if (!isReadable || hasOnlyId(record)) unreadable.push(record.id);
    if (!isReadable || contradictsItself(alarm)) {
      if (isReadable) contradictory.push(alarm);
      const isConfirmed = countRepeatedStatement(alarm) >= CONFIRMING_POLLS;
      // The list of resolved alarms decides about a record that states the end of its alarm.
      if (isReadable && isConfirmed && !isResolved(alarm)) listed.push(alarm);
      else doubted.add(alarm.id);
    } else if (oldAlarm !== undefined && isOutdated(oldAlarm, alarm)) {
      listed.push(alarm);
      outdated.push(alarm);
      // An alarm that already came back and ended again by the same end reopens only with a later event.
      const hasReturnedBefore = oldAlarm.state === "resolved" && isEmittedEnd(oldAlarm, oldAlarm.alarm);
      if (!hasReturnedBefore && countRepeatedStatement(alarm) >= OUTDATED_RECORD_POLLS) insisted.add(alarm.id);
    } else if (oldAlarm && hasOtherStart(oldAlarm, record) && countRepeatedStatement(record) >= CONFIRMING_POLLS) {
      corrected.add(alarm.id);
      listed.push(fillRecord(alarms, record, true));
    } else listed.push(alarm);
  }
  return { listed, doubted, contradictory, unreadable, outdated, insisted, corrected, statements: newStatements };
}

/** True for a record to emit before the rest of the list: no contradiction, other start or other episode. */
export function isUndisputed(known: StoredAlarm | undefined, record: Alarm): boolean {
  const alarm = known === undefined ? record : fillFromStored(known, record);
  if (alarm.site.id === 0 || hasOnlyId(record) || isResolved(alarm) || contradictsItself(alarm)) return false;
  if (known === undefined) return true;
  if (isOutdated(known, alarm) || hasOtherStart(known, record)) return false;
  if (!isOpenAlarm(known)) return true;
  return relateRecord(known, alarm) === "same" && alarm.triggeredAt === known.alarm.triggeredAt;
}

export function createUnverifiedReport({ source: { name: source }, metrics, log }: PollContext) {
  let wereContradictory = false;
  return (
    { contradictory, unreadable }: SortedRecords,
    { revoked, stale }: EndCheck,
    withoutId: readonly string[],
  ): readonly string[] => {
    const count = (reason: string, records: number) => metrics.alarmRecordsDoubtful.set({ source, reason }, records);
    count("contradictory", contradictory.length);
    count("stale", stale.size);
    count("unreadable", unreadable.length + withoutId.length);
    const [first] = contradictory;
    if (first !== undefined && !wereContradictory) {
      const alarms = contradictory.length;
      log.warn({ alarms }, "the list of active alarms has records that contradict themselves");
    }
    wereContradictory = first !== undefined;
    if (revoked.size > 0)
      log.warn(
        { alarms: revoked.size },
        "the service lists alarms as active and does not know their end any more: believed",
      );
    const messages = [
      first !== undefined &&
        `Records of the list of active alarms that contradict themselves: ${contradictory.length}, such as alarm ${first.id} with the status "${first.status}" and the end ${first.resolvedAtRaw ?? "null"}. These alarms stay as they were.`,
      revoked.size > 0 &&
        `Alarms that are active again, because the service does not know their end any more: ${revoked.size} (${formatSomeIds([...revoked])}).`,
      stale.size > 0 &&
        `Alarms that are in the list of active alarms and in the list of resolved ones: ${stale.size} (${formatSomeIds([...stale])}). They stay resolved.`,
      unreadable.length > 0 &&
        `Records of active alarms of which only the id can be read: ${unreadable.length} (${formatSomeIds(unreadable)}).`,
    ];
    return [...messages.filter((message) => message !== false), ...describeUnreadable(withoutId, "active")];
  };
}

export function describeUnreadable(records: readonly string[], list: "active" | "resolved"): readonly string[] {
  if (records.length === 0) return [];
  return [`Records of the list of ${list} alarms without a usable id: ${records.length}, such as ${records[0]}.`];
}

function formatSomeIds(ids: readonly string[]): string {
  return ids.length > 3 ? `${ids.slice(0, 3).join(", ")} …` : ids.join(", ");
}
