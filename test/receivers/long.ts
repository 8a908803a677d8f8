import { playReceiver } from "./battery.ts";
import { CONTESTANTS } from "./contestants.ts";

/**
 * Kills between what is said and what is remembered, for every receiver (`npm run receivers:long`):
 *
 *     node test/receivers/long.ts [kills of each, default 1000] [first seed] [name of a receiver]
 */
const wanted = Number(process.argv[2] ?? 1_000);
const first = Number(process.argv[3] ?? 1);
let failed = 0;
for (const contestant of CONTESTANTS.filter(({ name }) => (process.argv[4] ?? name) === name)) {
  let [kills, lost, seeds] = [0, 0, 0];
  for (let seed = first; kills < wanted; seed += 1) {
    const played = await playReceiver(contestant, seed).catch((error: unknown) => ({
      kills: 1,
      lost: 0,
      problems: [String(error)],
    }));
    kills += played.kills;
    lost += played.lost;
    seeds += 1;
    if (played.problems.length === 0) continue;
    failed += 1;
    console.log(`${contestant.name}, seed ${seed}:\n  ${played.problems.join("\n  ")}`);
  }
  console.log(`${contestant.name}: ${kills} kills and ${lost} lost answers in ${seeds} seeds`);
}
console.log(`${failed} seeds failed`);
process.exitCode = failed === 0 ? 0 : 1;
