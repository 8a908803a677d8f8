export interface SeededRandom {
  (): number;
  readonly chance: (share: number) => boolean;
  readonly below: (count: number) => number;
  readonly pick: <T>(items: readonly T[]) => T;
}

export function seededRandom(seed: number): SeededRandom {
  let state = seed >>> 0;
  const random = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (count: number) => Math.floor(random() * count);
  return Object.assign(random, {
    below,
    chance: (share: number) => random() < share,
    pick: <T>(items: readonly T[]): T => items[below(items.length)] as T,
  });
}
