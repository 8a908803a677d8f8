/** Seed of random tests: `PLENUM_SEED` replays a failure. */
export const seed: number = Number(process.env.PLENUM_SEED ?? Date.now() % 2 ** 31);
export const replay = `replay with PLENUM_SEED=${seed}`;
