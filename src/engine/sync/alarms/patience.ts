import type { StoredAlarm } from "../snapshot.ts";

/** Decides at which polls the service is asked about alarms that stay unexplained. */
export interface Patience {
  /** Returns the unexplained alarms that are worth a request in this poll, those first that were asked about least. */
  worthAsking(unexplained: readonly StoredAlarm[]): readonly StoredAlarm[];
  /** The answers of this poll are committed; a poll whose answers could not be committed asks again. */
  committed(unexplained: readonly StoredAlarm[], wasAsked?: (known: StoredAlarm) => boolean): void;
}

/** An episode that stays unexplained is asked about ever more rarely: at its polls 1 to `always`, then 4, 8, 16 … */
export function createPatience(always: number): Patience {
  let polls = new Map<string, number>();
  const countOf = ({ episode }: StoredAlarm) => (polls.get(episode) ?? 0) + 1;
  return {
    worthAsking: (unexplained) =>
      unexplained
        .filter((known) => {
          const count = countOf(known);
          return count <= always || Number.isInteger(Math.log2(count));
        })
        .toSorted((a, b) => countOf(a) - countOf(b)),
    committed(unexplained, wasAsked = () => true) {
      polls = new Map(unexplained.map((known) => [known.episode, countOf(known) - (wasAsked(known) ? 0 : 1)]));
    },
  };
}
