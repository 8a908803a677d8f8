import { bound, defects, halving, mean, ours, POISON_GOALS, SEEDS, singles, TAGS } from "./poison.ts";
import { fixedRequests, LIMITS, learnedRequests, oracleRequests, WINDOW_GOAL } from "./windows.ts";

/**
 * What history costs in requests, beside the naive strategies and the bound; exact, seeded, the same on every
 * machine. Ends with exit code 1 when a figure falls short of its goal.
 */
const shortfalls: string[] = [];
const line = (...cells: readonly (string | number)[]) =>
  console.log(cells.map((cell, i) => String(cell).padStart(i === 0 ? 24 : 11)).join(""));
const whole = (value: number) => (Number.isFinite(value) ? Math.round(value) : "never");

console.log(
  `Requests until ${TAGS} tags are fetched or known to have no log (mean of ${SEEDS.length} seeds)\n`,
);
line("without a log", "bound", "ours", "goal", "halving", "20+singles", "one by one");
for (const { share, clustered, atMost } of POISON_GOALS) {
  const cases = SEEDS.map((seed) => defects(share, clustered, seed));
  const outcomes = cases.map(ours);
  const requests = mean(outcomes.map((outcome) => outcome.requests));
  const halved = mean(cases.map((bad) => halving(bad).requests));
  const name = `${share * 100} %${clustered ? " in runs" : ""}`;
  const least = whole(bound(share, clustered));
  line(
    name,
    least,
    whole(requests),
    atMost,
    whole(halved),
    whole(mean(cases.map((bad) => singles(bad).requests))),
    TAGS,
  );
  if (requests > atMost) shortfalls.push(`${name}: ${requests} requests, at most ${atMost}`);
  if (requests > halved) shortfalls.push(`${name}: worse than halving`);
  if (outcomes.some((outcome) => outcome.wrong > 0)) shortfalls.push(`${name}: a wrong verdict`);
}

console.log("\nRequests for a year of 5-minute values of 3,000 tags, failed ones included\n");
line("limit (values)", "oracle", "ours", "ratio", "goal", "day wide", "week wide");
for (const limit of LIMITS) {
  const requests = learnedRequests(limit);
  const ratio = requests / oracleRequests(limit);
  line(
    limit,
    oracleRequests(limit),
    requests,
    ratio.toFixed(3),
    WINDOW_GOAL,
    whole(fixedRequests(5_760, limit)),
    whole(fixedRequests(40_320, limit)),
  );
  if (ratio > WINDOW_GOAL) shortfalls.push(`limit ${limit}: ${ratio.toFixed(3)} times the oracle's requests`);
}

for (const shortfall of shortfalls) console.log(`\nFALLS SHORT: ${shortfall}`);
process.exitCode = shortfalls.length > 0 ? 1 : 0;
