import type { Alarm } from "../../building.ts";
import type { HeldAlarm } from "../snapshot.ts";
import type { Coverage } from "./diff-alarms.ts";
import { asKnown } from "./diff-alarms.ts";
import { contradictsItself, episodeOf, isOvertaken, isToldEnd, saysNothing } from "./episode.ts";

/** The records of one reading of the active alarms, by what can be made of them. */
export interface Sifted {
  readonly listed: readonly Alarm[];
  /** Ids of alarms that are shown in a way that contradicts itself, for the first time, or that says nothing. */
  readonly doubted: ReadonlySet<string>;
  /** Ids of listed alarms whose record is overtaken and was shown so often that it counts. */
  readonly insisted: ReadonlySet<string>;
}

export interface Doubts {
  sift(
    held: ReadonlyMap<string, HeldAlarm>,
    shown: readonly Alarm[],
    coverage: (siteId: number) => Coverage,
  ): Sifted;
  /** What the last reading was made of is committed: the next one is another. */
  committed(): void;
}

interface Statement {
  readonly siteId: number;
  readonly text: string;
  /** Polls in a row that said so. */
  readonly times: number;
}

/** A record that contradicts itself counts with so many polls that say the same. */
const AGAIN = 2;
/** An overtaken one does after five minutes at one poll per 30 s: by then the answer of a usual cache is another. */
const INSISTING = 10;

/**
 * A record that contradicts itself changes nothing until the next poll says the same of the same episode, or the
 * resolved list speaks. One that is overtaken by what is known changes nothing until ten polls in a row have shown it: a
 * service that goes on saying so means the present. What was said is kept in memory only: after a restart it is
 * counted anew.
 */
export function createDoubts(): Doubts {
  let said: ReadonlyMap<string, Statement> = new Map();
  let saying = said;

  return {
    sift(held, shown, coverage) {
      const listed: Alarm[] = [];
      const doubted = new Set<string>();
      const insisted = new Set<string>();
      // What a poll did not observe neither repeats nor withdraws what was said.
      const next = new Map([...said].filter(([, { siteId }]) => coverage(siteId) === "none"));
      const timesOf = (alarm: Alarm) => {
        const text = `${episodeOf(alarm)} ${alarm.lastActiveEvent?.id} ${alarm.status} ${alarm.resolvedAt !== null}`;
        const before = said.get(alarm.id);
        const times = before?.text === text ? before.times + 1 : 1;
        next.set(alarm.id, { siteId: alarm.site.id, text, times });
        return times;
      };
      for (const record of shown) {
        const alarm = asKnown(held, record);
        const placed = alarm.site.id !== 0 && !saysNothing(alarm);
        if (placed && !contradictsItself(alarm)) {
          listed.push(alarm);
          const known = held.get(alarm.id);
          // What came back without a later event and ended again by the same end comes back by such an event only.
          const isSettled = known?.state === "resolved" && isToldEnd(known, known.alarm);
          const counts = known !== undefined && !isSettled && isOvertaken(known, alarm);
          if (counts && timesOf(alarm) >= INSISTING) insisted.add(alarm.id);
          continue;
        }
        const isSaidAgain = timesOf(alarm) >= AGAIN;
        if (placed && isSaidAgain) listed.push(alarm);
        else doubted.add(alarm.id);
      }
      saying = next;
      return { listed, doubted, insisted };
    },
    committed() {
      said = saying;
    },
  };
}
