import { seededRandom } from "../commands/seeded-random.ts";

/** Replaces Math.random, so that random parts of the worker, such as the jitter of its waits, replay with a seed. */
export async function withSeededMathRandom<T>(seed: number, run: () => Promise<T>): Promise<T> {
  const chance = Math.random;
  Math.random = seededRandom(seed + 1_000_000);
  try {
    return await run();
  } finally {
    Math.random = chance;
  }
}
