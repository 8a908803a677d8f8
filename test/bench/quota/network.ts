import type { Random } from "./random.ts";

export interface Way {
  readonly upMs: number;
  readonly downMs: number;
}
export type Network = (random: Random) => Way;

export const FLOOR_MS = 15;
export const CEILING_MS = 500;

/** Round trips of 15 to 500 ms, half of them below 70 ms, split unevenly between the two directions. */
export const ordinary: Network = (random) => {
  const roundTripMs = Math.min(CEILING_MS, Math.max(FLOOR_MS, random.logNormal(70, 0.7)));
  const upMs = roundTripMs * random.between(0.3, 0.7);
  return { upMs, downMs: roundTripMs - upMs };
};

/** The service waits for a field gateway: 0.9 s in the median, up to 15 s, after it has counted the request. */
export const slowGateway: Network = (random) => {
  const { upMs, downMs } = ordinary(random);
  return { upMs, downMs: downMs + Math.min(15_000, random.logNormal(900, 0.9)) };
};

/** One request in 200 is held up by 0.2 to 3 s before the service sees it, as by a lost packet. */
export const stalling: Network = (random) => {
  const { upMs, downMs } = ordinary(random);
  return { upMs: random.next() < 0.005 ? upMs + random.between(200, 3_000) : upMs, downMs };
};
