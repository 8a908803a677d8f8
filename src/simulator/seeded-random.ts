// Seeded random numbers: the same seed gives the same simulation on every machine.

export type Random = ReturnType<typeof createSeededRandom>;

/** Creates a generator of random numbers (mulberry32). */
export function createSeededRandom(seed: number) {
  let randomState = seed >>> 0;
  function nextRandomNumber(): number {
    randomState = (randomState + 0x6d2b79f5) >>> 0;
    let mixedBits = randomState;
    mixedBits = Math.imul(mixedBits ^ (mixedBits >>> 15), mixedBits | 1);
    mixedBits ^= mixedBits + Math.imul(mixedBits ^ (mixedBits >>> 7), mixedBits | 61);
    return ((mixedBits ^ (mixedBits >>> 14)) >>> 0) / 4_294_967_296;
  }
  function shuffleItems<T>(items: readonly T[]): T[] {
    return items
      .map((item) => ({ item, rank: nextRandomNumber() }))
      .sort((a, b) => a.rank - b.rank)
      .map(({ item }) => item);
  }
  return { next: nextRandomNumber, shuffled: shuffleItems };
}

/** Returns a number in [0, 1) that depends only on the seed and the text (FNV-1a hash). */
export function seededFraction(seed: number, text: string): number {
  let hash = (2_166_136_261 ^ seed) >>> 0;
  for (let index = 0; index < text.length; index += 1)
    hash = Math.imul(hash ^ text.charCodeAt(index), 16_777_619) >>> 0;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b) >>> 0;
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35) >>> 0;
  return ((hash ^ (hash >>> 16)) >>> 0) / 4_294_967_296;
}
