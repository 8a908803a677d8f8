import { bound, defects, halving, mean, ours, POISON_GOALS, SEEDS, SIZE, singles, TAGS } from "./poison.ts";
import { fixedRequests, LIMITS, learnedRequests, oracleRequests, WINDOW_GOAL } from "./windows.ts";
import { type BackfillCase, driveBackfill } from "./worker.ts";

/**
 * What history costs in requests, beside the naive strategies and the bound; exact, seeded, the same on every
 * machine. Ends with exit code 1 when a figure falls short of its goal.
 */
/** Groups that came to lie apart are asked for the whole of their ranges, so a little comes twice over the wire. */
const FETCHED_AGAIN = 0.02;

const shortfalls: string[] = [];
const line = (...cells: readonly (string | number)[]) =>
  console.log(cells.map((cell, i) => String(cell).padStart(i === 0 ? 24 : 11)).join(""));
const whole = (value: number) => (Number.isFinite(value) ? Math.round(value) : "never");

console.log(`Requests until ${TAGS} tags are fetched or known to have no log (mean of ${SEEDS.length} seeds)\n`);
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

console.log(
  "\nThe worker itself: its history job, client and quota in virtual time; requests for series until nothing is left\n",
);
line("", "oracle", "ours", "ratio", "goal", "failed", "probes", "poisoned", "missing", "again %", "minutes");

/** An oracle knows the limit, and asks for whole buckets of up to 20 tags, each group for itself. */
const oracle = ({ tags, days, limit, withoutLog = [] }: BackfillCase) =>
  Math.ceil((tags - withoutLog.filter((bad) => bad).length) / SIZE) *
  Math.ceil((days * 288) / Math.floor(limit / SIZE));
const percent = (share: number) => (share * 100).toFixed(1);

/** `most`: times the oracle's requests. `least`: what the oracle needs, where it is not plain. */
async function drive(name: string, wanted: BackfillCase, most: number, fromFigures = false): Promise<void> {
  const figures = await driveBackfill(wanted);
  const least = fromFigures ? figures.ideal : oracle(wanted);
  const ratio = figures.series / least;
  const { series, refused, probes, poisoned, missing, again, minutes, worst } = figures;
  line(
    name,
    whole(least),
    series,
    ratio.toFixed(3),
    most,
    refused,
    probes,
    poisoned,
    missing,
    percent(again),
    whole(minutes),
  );
  if (ratio > most) shortfalls.push(`${name}: ${ratio.toFixed(3)} times the oracle's requests`);
  if (missing > 0) shortfalls.push(`${name}: ${missing} buckets are missing`);
  if (poisoned > 0) shortfalls.push(`${name}: ${poisoned} large requests were spoilt`);
  if (again > FETCHED_AGAIN) shortfalls.push(`${name}: ${percent(again)} % were fetched again`);
  // A look at the clock, a slot's place in the pace: 300 ms of a minute.
  if (worst > 1.005) shortfalls.push(`${name}: a live value became ${worst.toFixed(3)} times too old`);
}

// As many tags as make about a thousand requests of a year.
for (const [limit, tags] of [
  [6_000, 60],
  [20_000, 200],
  [50_000, 480],
  [150_000, 1_500],
  [500_000, 3_000],
] as const)
  await drive(`limit ${limit}`, { tags, days: 365, limit }, WINDOW_GOAL);
const half = { tags: 240, days: 365, limit: 50_000 };
await drive("killed five times", { ...half, killAfter: [20, 100, 101, 250, 400] }, WINDOW_GOAL);
const falls = [
  { after: 150, limit: 12_000 },
  { after: 700, limit: 50_000 },
];
// It takes 200 answers until more is tried, so a limit that rises again is noticed late.
await drive("limit falls, rises", { ...half, changes: falls }, 1.15, true);
await drive("beside live reads", { tags: 200, days: 365, limit: 50_000, liveEverySeconds: 60 }, WINDOW_GOAL);
await drive(
  "5 % without, in runs",
  { tags: TAGS, days: 120, limit: 180_000, withoutLog: defects(0.05, true, 1) },
  WINDOW_GOAL,
);

for (const shortfall of shortfalls) console.log(`\nFALLS SHORT: ${shortfall}`);
process.exitCode = shortfalls.length > 0 ? 1 : 0;
