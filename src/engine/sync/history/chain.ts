/**
 * What is likely of members in a row when tags without a log come in runs (a host that logs nothing): a chain with
 * two states, of which some members are known. Pure.
 */
export type Verdict = "good" | "bad";

export interface Shares {
  /** Share of culprits right after a good member, and right after a culprit. */
  readonly afterGood: number;
  readonly afterBad: number;
}

export interface Chain {
  /** How likely it is that these places, ascending, are all good. */
  allGood(places: readonly number[]): number;
}

/** Likelihoods of one place, as far as one side of it tells. */
interface Belief {
  readonly good: number;
  readonly bad: number;
}

const NOTHING: Belief = { good: 1, bad: 1 };
const scaled = ({ good, bad }: Belief, by: number): Belief => ({ good: good / by, bad: bad / by });

/** `known`: the verdict of each place in a row, null where there is none; what stands before the first is good. */
export function createChain(known: readonly (Verdict | null)[], { afterGood, afterBad }: Shares): Chain {
  const possible = (place: number, { good, bad }: Belief): Belief => {
    const verdict = known[place] ?? null;
    return { good: verdict === "bad" ? 0 : good, bad: verdict === "good" ? 0 : bad };
  };
  const onward = ({ good, bad }: Belief): Belief => ({
    good: good * (1 - afterGood) + bad * (1 - afterBad),
    bad: good * afterGood + bad * afterBad,
  });
  const back = ({ good, bad }: Belief): Belief => ({
    good: (1 - afterGood) * good + afterGood * bad,
    bad: (1 - afterBad) * good + afterBad * bad,
  });

  /** By place: what it and all before it tell; then what all after it tell, in the same scale. */
  const before: Belief[] = [];
  const scale: number[] = [];
  let belief: Belief = { good: 1, bad: 0 };
  for (let place = 0; place < known.length; place++) {
    const unscaled = possible(place, onward(belief));
    const sum = unscaled.good + unscaled.bad;
    belief = scaled(unscaled, sum);
    before.push(belief);
    scale.push(sum);
  }
  const after: Belief[] = known.map(() => NOTHING);
  for (let place = known.length - 2; place >= 0; place--) {
    const next = possible(place + 1, after[place + 1] ?? NOTHING);
    after[place] = scaled(back(next), scale[place + 1] ?? 1);
  }

  return {
    allGood(places) {
      const [first] = places;
      if (first === undefined) return 1;
      let at = first;
      let good: Belief = { good: before[first]?.good ?? 0, bad: 0 };
      for (const place of places.slice(1)) {
        while (at < place) {
          at++;
          good = scaled(possible(at, onward(good)), scale[at] ?? 1);
        }
        good = { good: good.good, bad: 0 };
      }
      return good.good * (after[at]?.good ?? 1);
    },
  };
}
