import { type Network, ordinary } from "./network.ts";
import { createRandom } from "./random.ts";

const SAMPLES = 200_000;
/** The client allows its clock to be wrong by so much. */
const DRIFT = 200e-6;

/**
 * The share of the quota that no client can exceed without being refused at times: a lane may be used again one
 * window after the latest moment at which its last request can have been counted, so each request costs
 * T(1+r) + E[min(round trip - shortest round trip, spread of the way up)] of its lane.
 */
export function optimalUtilisation(network: Network = ordinary): number {
  const random = createRandom(1);
  const ways = Array.from({ length: SAMPLES }, () => network(random));
  const shortestMs = ways.reduce((least, way) => Math.min(least, way.upMs + way.downMs), Number.POSITIVE_INFINITY);
  const ups = ways.map((way) => way.upMs);
  const spreadMs = ups.reduce((a, b) => Math.max(a, b)) - ups.reduce((a, b) => Math.min(a, b));
  const sum = ways.reduce((sum, way) => sum + Math.min(way.upMs + way.downMs - shortestMs, spreadMs), 0);
  return 60_000 / (60_000 * (1 + DRIFT) + sum / SAMPLES);
}
