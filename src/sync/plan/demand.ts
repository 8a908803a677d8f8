/** What the rooms that share one quota ask of it together, so that each can plan with what the others need. */
export interface Demand {
  /** Requests a minute that history needs to keep its promises: following, and learning which tags have a log. */
  historyPerMinute(): number;
  setHistory(perMinute: number): void;
}

export function createDemand(): Demand {
  let history = 0;
  return {
    historyPerMinute: () => history,
    setHistory(perMinute) {
      history = perMinute;
    },
  };
}
