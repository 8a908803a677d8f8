import type { Alarm } from "../../building.ts";
import type { HeldAlarm } from "../snapshot.ts";
import type { Coverage } from "./diff-alarms.ts";
import { asKnown } from "./diff-alarms.ts";
import { contradictsItself, episodeOf, saysNothing } from "./episode.ts";

/** The records of one reading of the active alarms, by what can be made of them. */
export interface Sifted {
  readonly listed: readonly Alarm[];
  /** Ids of alarms that are shown in a way that contradicts itself, for the first time, or that says nothing. */
  readonly doubted: ReadonlySet<string>;
}

export interface Doubts {
  sift(
    held: ReadonlyMap<string, HeldAlarm>,
    shown: readonly Alarm[],
    coverage: (siteId: number) => Coverage,
  ): Sifted;
  /** What the last reading was made of is committed: the next one is the second. */
  committed(): void;
}

interface Statement {
  readonly siteId: number;
  readonly text: string;
}

/**
 * A record that contradicts itself changes nothing until the next poll says the same of the same episode, or the
 * resolved list speaks. What was said is kept in memory only: after a restart one more poll is asked.
 */
export function createDoubts(): Doubts {
  let said: ReadonlyMap<string, Statement> = new Map();
  let saying = said;

  return {
    sift(held, shown, coverage) {
      const listed: Alarm[] = [];
      const doubted = new Set<string>();
      // What a poll did not observe neither repeats nor withdraws what was said.
      const next = new Map([...said].filter(([, { siteId }]) => coverage(siteId) === "none"));
      for (const record of shown) {
        const alarm = asKnown(held, record);
        const placed = alarm.site.id !== 0 && !saysNothing(alarm);
        if (placed && !contradictsItself(alarm)) {
          listed.push(alarm);
          continue;
        }
        const text = `${episodeOf(alarm)} ${alarm.status} ${alarm.resolvedAt !== null}`;
        next.set(alarm.id, { siteId: alarm.site.id, text });
        if (placed && said.get(alarm.id)?.text === text) listed.push(alarm);
        else doubted.add(alarm.id);
      }
      saying = next;
      return { listed, doubted };
    },
    committed() {
      said = saying;
    },
  };
}
