import { seededRandom } from "../../commands/seeded-random.ts";

export type Random = ReturnType<typeof createRandom>;

export function createRandom(seed: number) {
  const next: () => number = seededRandom(seed);
  return {
    next,
    between: (low: number, high: number) => low + (high - low) * next(),
    /** Exponentially distributed. */
    after: (mean: number) => -mean * Math.log(1 - next()),
    logNormal: (median: number, sigma: number) =>
      median * Math.exp(sigma * Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next())),
  };
}
