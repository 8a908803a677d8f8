import { seededRandom } from "../commands/seeded-random.ts";

/** What the worker leaves to chance, such as the jitter of its waits, is the same in every replay of a seed. */
export async function withSeededMathRandom<T>(seed: number, run: () => Promise<T>): Promise<T> {
  const chance = Math.random;
  Math.random = seededRandom(seed + 1_000_000);
  try {
    return await run();
  } finally {
    Math.random = chance;
  }
}
