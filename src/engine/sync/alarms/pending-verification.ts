import type { Alarm } from "../../../core/model/building.ts";
import type { StoredAlarm } from "../snapshot.ts";
import { isOpen } from "./diff-alarm.ts";
import type { Coverage } from "./diff-alarms.ts";
import { asKnown } from "./diff-alarms.ts";
import {
  completed,
  contradictsItself,
  episodeOf,
  hasNoStatus,
  hasOtherStart,
  isEmittedEnd,
  isOvertaken,
  isResolved,
  relationOf,
} from "./episode.ts";

/** The records of one reading of the active alarms, by what can be made of them. */
export interface Sifted {
  readonly listed: readonly Alarm[];
  /** Ids of alarms whose records change nothing in this poll, because they contradict themselves or say nothing. */
  readonly doubted: ReadonlySet<string>;
  /** The doubted records that say that the alarm is over, although they are in the list of active alarms. */
  readonly contradictory: readonly Alarm[];
  /** Ids of the records of which nothing but the id can be read, or not of which site they are. */
  readonly unreadable: readonly string[];
  /** Listed records that are overtaken by what is known of their alarm. */
  readonly overtaken: readonly Alarm[];
  /** Ids of listed alarms whose record is overtaken and was shown so often that it counts. */
  readonly insisted: ReadonlySet<string>;
  /** Ids of listed alarms whose start is not the known one and was shown so often that it counts. */
  readonly corrected: ReadonlySet<string>;
}

export interface PendingVerification {
  sift(held: ReadonlyMap<string, StoredAlarm>, shown: readonly Alarm[], coverage: (siteId: number) => Coverage): Sifted;
  /** The last reading was committed; the next one counts as another. */
  committed(): void;
}

interface Statement {
  readonly siteId: number;
  readonly text: string;
  /** Polls in a row that said so. */
  readonly times: number;
}

/** A record that contradicts itself or shows another start counts with so many polls that say the same. */
const AGAIN = 2;
/** An overtaken one does after five minutes at one poll per 30 s: by then the answer of a usual cache is another. */
const INSISTING = 10;

/**
 * Records that need confirmation before they count. A record that contradicts itself waits until the next poll states the same of the
 * same episode. One that states the end of its alarm never counts: the list of resolved alarms decides. One that is overtaken waits for
 * ten consecutive polls, or for the list of resolved alarms (overtaken.ts). In memory only: a restart counts again.
 */
export function createPendingVerification(): PendingVerification {
  let said: ReadonlyMap<string, Statement> = new Map();
  let saying = said;

  return {
    sift(held, shown, coverage) {
      const listed: Alarm[] = [];
      const doubted = new Set<string>();
      const contradictory: Alarm[] = [];
      const unreadable: string[] = [];
      const overtaken: Alarm[] = [];
      const insisted = new Set<string>();
      const corrected = new Set<string>();
      // A poll that did not observe a site neither repeats nor withdraws a statement about it.
      const next = new Map([...said].filter(([, { siteId }]) => coverage(siteId) === "none"));
      const timesOf = (alarm: Alarm) => {
        const text = `${episodeOf(alarm)} ${alarm.lastActiveEvent?.id} ${alarm.status} ${alarm.resolvedAt !== null}`;
        const before = said.get(alarm.id);
        const times = before?.text === text ? before.times + 1 : 1;
        next.set(alarm.id, { siteId: alarm.site.id, text, times });
        return times;
      };
      for (const record of shown) {
        const known = held.get(record.id);
        const alarm = asKnown(held, record);
        // A record that says nothing but its id is completed with what is known: it says that the alarm is listed.
        const placed = alarm.site.id !== 0 && !hasNoStatus(alarm);
        if (!placed || hasNoStatus(record)) unreadable.push(record.id);
        if (placed && !contradictsItself(alarm)) {
          listed.push(alarm);
          if (known === undefined) continue;
          if (isOvertaken(known, alarm)) {
            overtaken.push(alarm);
            // An alarm that came back without a later event and ended again by the same end needs such an event.
            const isSettled = known.state === "resolved" && isEmittedEnd(known, known.alarm);
            if (!isSettled && timesOf(alarm) >= INSISTING) insisted.add(alarm.id);
          } else if (hasOtherStart(known, record) && timesOf(record) >= AGAIN) {
            corrected.add(alarm.id);
            listed[listed.length - 1] = asKnown(held, record, true);
          }
          continue;
        }
        if (placed) contradictory.push(alarm);
        const isSaidAgain = timesOf(alarm) >= AGAIN;
        if (placed && isSaidAgain && !isResolved(alarm)) listed.push(alarm);
        else doubted.add(alarm.id);
      }
      saying = next;
      return { listed, doubted, contradictory, unreadable, overtaken, insisted, corrected };
    },
    committed() {
      said = saying;
    },
  };
}

/**
 * Whether a record of the list of active alarms can be emitted before the rest of the list is known: a new alarm, an alarm
 * that is active again, or a change of an active one. Not what may turn out to be a mistake of the service: a record that
 * contradicts itself or what is known, another start, or another episode of an open alarm.
 */
export function isUndisputed(known: StoredAlarm | undefined, record: Alarm): boolean {
  const alarm = known === undefined ? record : completed(known, record);
  if (alarm.site.id === 0 || hasNoStatus(record) || isResolved(alarm) || contradictsItself(alarm)) return false;
  if (known === undefined) return true;
  if (isOvertaken(known, alarm) || hasOtherStart(known, record)) return false;
  if (!isOpen(known)) return true;
  return relationOf(known, alarm) === "same" && alarm.triggeredAt === known.alarm.triggeredAt;
}
