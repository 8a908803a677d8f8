/** What the rooms that share one quota ask of it together, so that each can plan with what the others need. */
export interface Demand {
  /** Requests a minute that history needs to follow what it promised, or will when it is known who has a log. */
  followingPerMinute(): number;
  setFollowing(perMinute: number): void;
}

export function createDemand(): Demand {
  let following = 0;
  return {
    followingPerMinute: () => following,
    setFollowing(perMinute) {
      following = perMinute;
    },
  };
}
