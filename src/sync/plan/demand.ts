/** What the rooms that share one quota ask of it together, so that each can plan with what the others need. */
export interface Demand {
  /** Requests a minute that history needs to follow what it promised. */
  followingPerMinute(): number;
  /** Requests a minute that learning which tags have a log takes, where no slot is left over for it. */
  learningPerMinute(): number;
  setHistory(perMinute: { readonly following: number; readonly learning: number }): void;
  /** Whether the live reads ask for more than there is: then nothing is left over, and learning takes slots of its own. */
  isFull(): boolean;
  setFull(full: boolean): void;
}

export function createDemand(): Demand {
  let history = { following: 0, learning: 0 };
  let full = false;
  return {
    followingPerMinute: () => history.following,
    learningPerMinute: () => history.learning,
    setHistory(perMinute) {
      history = perMinute;
    },
    isFull: () => full,
    setFull(isFull) {
      full = isFull;
    },
  };
}
