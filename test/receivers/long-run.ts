import { complaintsAbout, playCampaign } from "./campaign.ts";
import { playReceiver } from "./random-crashes.ts";
import { RECEIVERS } from "./receivers.ts";

/**
 * Kills between what is said and what is remembered, for every receiver (`npm run receivers:long`):
 *
 *     node test/receivers/long-run.ts [kills of each, default 1000] [first seed] [name of a receiver]
 *
 * Counted are the kills after a request left and before anything was written down of it; there are others besides. After
 * that come storms of alarms with failures and lost answers; 0 kills runs only those.
 */
const wanted = Number(process.argv[2] ?? 1_000);
const first = Number(process.argv[3] ?? 1);
let failed = 0;
for (const row of RECEIVERS.filter(({ name }) => (process.argv[4] ?? name) === name)) {
  const sum = { kills: 0, inDoubt: 0, lost: 0, again: 0, shared: 0 };
  let seed = first;
  for (; sum.inDoubt < wanted; seed += 1) {
    const played = await playReceiver(row, seed).catch((error: unknown) => {
      return {
        ...sum,
        circumstances: "?",
        kills: 1,
        inDoubt: 1,
        lost: 0,
        again: 0,
        shared: 0,
        problems: [String(error)],
      };
    });
    for (const name of ["kills", "inDoubt", "lost", "again", "shared"] as const) sum[name] += played[name];
    if (played.problems.length === 0) continue;
    failed += 1;
    console.log(`${row.name}, seed ${seed} (${played.circumstances}):\n  ${played.problems.join("\n  ")}`);
  }
  console.log(
    `${row.name}: seeds ${first} to ${seed - 1}; ${sum.inDoubt} kills between request and record, ${sum.kills} in all; ` +
      `${sum.lost} lost answers; ${sum.again} events again; ${sum.shared} shared things`,
  );
}
for (const row of RECEIVERS.filter(({ name }) => (process.argv[4] ?? name) === name)) {
  for (const [index, wrong] of [0.02, 0.1, 0.2, 0.4].entries()) {
    const seed = first + index;
    const result = await playCampaign(row, { seed, alarms: 400, wrong });
    const complaints = complaintsAbout(result, row);
    if (complaints.length > 0) failed += 1;
    const { inversions, refused, requests, seconds, used } = result;
    console.log(
      `${row.name}, ${wrong * 100} % go wrong, seed ${seed}: ${(used * 100).toFixed(1)} % of the rate, ` +
        `${(refused * 100).toFixed(1)} % refused, ${(inversions * 100).toFixed(1)} % in the wrong order, ` +
        `${requests} requests, all true after ${seconds.toFixed(0)} s ${complaints.join("; ")}`,
    );
  }
}
console.log(`${failed} seeds failed`);
process.exitCode = failed === 0 ? 0 : 1;
