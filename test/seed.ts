/**
 * The seed of what is random in a test: another one each time, or that of `PLENUM_SEED`, which replays what failed. Each
 * test that uses it names it when it fails. One variable for all of them: test/README.md.
 */
export const seed: number = Number(process.env.PLENUM_SEED ?? Date.now() % 2 ** 31);

/** For the message of an expectation. */
export const replay = `replay with PLENUM_SEED=${seed}`;
