/**
 * The limit that the service states with its replies (`X-RateLimit-Limit`), for as long as it does. A lower one than ours
 * counts at once. It is given up when ten replies and ten minutes have not repeated it: a 2 that a proxy, or one server of
 * several, stated once would else cost nine tenths of the quota until the next start.
 */
export interface StatedLimit {
  /** A reply states this limit, requests per minute, at `now` (monotonic milliseconds). */
  says(perMinute: number, now: number): void;
  /** A reply has come, whatever it states. */
  answered(): void;
  /** The limit that counts at `now`; infinite while none does. */
  most(now: number): number;
}

const REPEATED_WITHIN_MS = 600_000;
const REPEATED_WITHIN_REPLIES = 10;

export function createStatedLimit(): StatedLimit {
  let stated = Number.POSITIVE_INFINITY;
  let atMs = Number.NEGATIVE_INFINITY;
  let repliesSince = 0;

  const most = (now: number) => {
    if (now - atMs >= REPEATED_WITHIN_MS && repliesSince >= REPEATED_WITHIN_REPLIES)
      stated = Number.POSITIVE_INFINITY;
    return stated;
  };

  return {
    says(perMinute, now) {
      if (perMinute > most(now)) return;
      stated = perMinute;
      atMs = now;
      repliesSince = 0;
    },
    answered() {
      repliesSince += 1;
    },
    most,
  };
}
