import type { LimiterName } from "./limiters.ts";

/** Goals of `npm run bench:quota`: shares of 20 requests a minute, refusals (429) per hour. */
export const GOALS = {
  windows: { utilisation: 0.998, refusals: 0 },
  leaky: { utilisation: 0.89, refusalsPerHour: 0.1 },
  weighted: { utilisation: 0.94, refusalsPerHour: 0.1 },
  slowGateway: { utilisation: 0.975, refusals: 0 },
  stallsAndClockSteps: { refusalsPerHour: 0.1 },
  urgent: { p95Ms: 4_500, p95WithReserveMs: 100 },
  kills: { atLeast: 1_000, utilisation: 0.995, refusals: 0 },
  foreign: { reportedWithinMs: 600_000 },
} as const;

export const WINDOWS = [
  "first-hit window",
  "calendar minute",
  "sliding log",
  "sliding log, 429s count",
  "token bucket 20",
] as const satisfies readonly LimiterName[];
