import { findProblems, playStorm } from "./campaign.ts";
import { playRandomCrashes } from "./random-crashes.ts";
import { RECEIVERS } from "./receivers.ts";

/**
 * Kills the process between a request and its commit, for every receiver (`npm run receivers:long`):
 *
 *     node test/receivers/long-run.ts [kills of each, default 1000] [first seed] [name of a receiver]
 *
 * Counts only kills after a request left and before its result was stored. Then plays storms of alarms with failing
 * requests and lost responses; 0 kills plays only those.
 */
const killsPerReceiver = Number(process.argv[2] ?? 1_000);
const firstSeed = Number(process.argv[3] ?? 1);
let failedSeeds = 0;
for (const receiverCase of RECEIVERS.filter(({ name }) => (process.argv[4] ?? name) === name)) {
  let openKills = 0;
  let seed = firstSeed;
  for (; openKills < killsPerReceiver; seed += 1) {
    const run = await playRandomCrashes(receiverCase, seed).catch((error: unknown) => ({
      ...{ settings: "?", unverified: 1, problems: [String(error)] },
    }));
    openKills += run.unverified;
    if (run.problems.length === 0) continue;
    failedSeeds += 1;
    console.log(`${receiverCase.name}, seed ${seed} (${run.settings}):\n  ${run.problems.join("\n  ")}`);
  }
  console.log(`${receiverCase.name}: seeds ${firstSeed} to ${seed - 1}, ${openKills} kills between request and commit`);
}
for (const receiverCase of RECEIVERS.filter(({ name }) => (process.argv[4] ?? name) === name)) {
  for (const [index, wrong] of [0.02, 0.1, 0.2, 0.4].entries()) {
    const seed = firstSeed + index;
    const result = await playStorm(receiverCase, { seed, alarms: 400, wrong });
    const problems = findProblems(result, receiverCase);
    if (problems.length > 0) failedSeeds += 1;
    const { inversions, refused, requests, seconds, usedRate } = result;
    console.log(
      `${receiverCase.name}, ${wrong * 100} % fail, seed ${seed}: ${(usedRate * 100).toFixed(1)} % of the rate, ` +
        `${(refused * 100).toFixed(1)} % refused, ${(inversions * 100).toFixed(1)} % in the wrong order, ` +
        `${requests} requests, complete after ${seconds.toFixed(0)} s ${problems.join("; ")}`,
    );
  }
}
console.log(`${failedSeeds} seeds failed`);
process.exitCode = failedSeeds === 0 ? 0 : 1;
