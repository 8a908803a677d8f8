import { playRandomCrashes } from "./random-crashes.ts";
import { RECEIVERS } from "./receivers.ts";

/**
 * Kills the process between a request and its commit, for every receiver (`npm run receivers:long`):
 *
 *     node test/receivers/long-run.ts [kills of each, default 1000] [first seed] [name of a receiver]
 *
 * Counts only kills after a request left and before its result was stored.
 */
const killsPerReceiver = Number(process.argv[2] ?? 1_000);
const firstSeed = Number(process.argv[3] ?? 1);
let failedSeeds = 0;
for (const receiverCase of RECEIVERS.filter(({ name }) => (process.argv[4] ?? name) === name)) {
  let killsInDoubt = 0;
  let seed = firstSeed;
  for (; killsInDoubt < killsPerReceiver; seed += 1) {
    const run = await playRandomCrashes(receiverCase, seed).catch((error: unknown) => ({
      ...{ settings: "?", inDoubt: 1, problems: [String(error)] },
    }));
    killsInDoubt += run.inDoubt;
    if (run.problems.length === 0) continue;
    failedSeeds += 1;
    console.log(`${receiverCase.name}, seed ${seed} (${run.settings}):\n  ${run.problems.join("\n  ")}`);
  }
  console.log(
    `${receiverCase.name}: seeds ${firstSeed} to ${seed - 1}, ${killsInDoubt} kills between request and commit`,
  );
}
console.log(`${failedSeeds} seeds failed`);
process.exitCode = failedSeeds === 0 ? 0 : 1;
