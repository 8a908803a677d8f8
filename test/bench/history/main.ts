import { checkGoal, fixed, percent, printTable } from "../harness.ts";
import {
  halvingStrategy,
  leastRequests,
  MISSING_LOG_GOALS,
  mean,
  oneByOneStrategy,
  SEEDS,
  SIZE,
  TAGS,
  tagsWithoutLog,
  workerStrategy,
} from "./missing-logs.ts";
import { fixedRequests, LIMITS, learnedRequests, oracleRequests, WINDOW_GOAL } from "./windows.ts";
import { type BackfillCase, driveBackfill } from "./worker.ts";

/** Requests that history takes, compared with naive strategies and the theoretical bound (`npm run bench:history`). */

/** Share of points that may be fetched twice, because groups that drifted apart are requested for their joint range. */
const FETCHED_AGAIN = 0.02;

function compareDiscovery(): void {
  const rows: string[][] = [];
  for (const { share, clustered, atMost } of MISSING_LOG_GOALS) {
    const cases = SEEDS.map((seed) => tagsWithoutLog(share, clustered, seed));
    const outcomes = cases.map(workerStrategy);
    const requests = mean(outcomes.map((outcome) => outcome.requests));
    const halved = mean(cases.map((bad) => halvingStrategy(bad).requests));
    const oneByOne = mean(cases.map((bad) => oneByOneStrategy(bad).requests));
    const name = `${share * 100} %${clustered ? " in runs" : ""}`;
    const figures = [leastRequests(share, clustered), requests, atMost, halved, oneByOne, TAGS];
    rows.push([name, ...figures.map((figure) => fixed(figure))]);
    checkGoal(`${name}: requests`, requests, "at most", Math.min(atMost, halved));
    checkGoal(`${name}: wrong results`, mean(outcomes.map(({ wrong }) => wrong)), "at most", 0);
  }
  const title = `Requests until ${TAGS} tags are fetched or known to have no log (mean of ${SEEDS.length} seeds)`;
  printTable(title, ["without a log", "bound", "worker", "goal", "halving", "20 + singles", "one by one"], rows);
}

function compareWindows(): void {
  const rows: string[][] = [];
  for (const limit of LIMITS) {
    const [requests, oracle] = [learnedRequests(limit), oracleRequests(limit)];
    const fixedSizes = [fixedRequests(5_760, limit), fixedRequests(40_320, limit)];
    const cells = [`${limit}`, `${oracle}`, `${requests}`, fixed(requests / oracle, 3)];
    rows.push([...cells, ...fixedSizes.map((n) => fixed(n))]);
    checkGoal(`limit ${limit}: requests / of an oracle`, requests / oracle, "at most", WINDOW_GOAL);
  }
  const title = "Requests for a year of 5-minute values of 3,000 tags, failed ones included";
  printTable(title, ["limit (values)", "oracle", "worker", "ratio", "day wide", "week wide"], rows);
}

const oracleOf = ({ tags, days, limit, withoutLog = [] }: BackfillCase) =>
  Math.ceil((tags - withoutLog.filter((bad) => bad).length) / SIZE) *
  Math.ceil((days * 288) / Math.floor(limit / SIZE));

async function measureWorker(): Promise<void> {
  const withoutLog = tagsWithoutLog(0.05, true, 1);
  const half = { tags: 240, days: 365, limit: 50_000 };
  const changes = [
    { after: 150, limit: 12_000 },
    { after: 700, limit: 50_000 },
  ];
  const tagCounts = [60, 200, 480, 1_500, 3_000];
  const cases: readonly (readonly [name: string, wanted: BackfillCase, most: number])[] = [
    ...LIMITS.map((limit, n) => {
      return [`limit ${limit}`, { tags: tagCounts[n] ?? 0, days: 365, limit }, WINDOW_GOAL] as const;
    }),
    ["killed five times", { ...half, killAfter: [20, 100, 101, 250, 400] }, WINDOW_GOAL],
    // The worker tries a larger request after 200 responses, so it notices a higher limit late.
    ["limit falls, rises", { ...half, changes }, 1.15],
    ["with live reads", { tags: 200, days: 365, limit: 50_000, liveEverySeconds: 60 }, WINDOW_GOAL],
    ["5 % without, in runs", { tags: TAGS, days: 120, limit: 180_000, withoutLog }, WINDOW_GOAL],
  ];
  const rows: string[][] = [];
  for (const [name, wanted, most] of cases) {
    const { series, refused, probes, poisoned, missing, again, minutes, worst, ideal } = await driveBackfill(wanted);
    const oracle = wanted.changes === undefined ? oracleOf(wanted) : ideal;
    rows.push([
      ...[name, fixed(oracle), fixed(series), fixed(series / oracle, 3), `${refused}`, `${probes}`],
      ...[percent(again), fixed(minutes)],
    ]);
    checkGoal(`${name}: requests / of an oracle`, series / oracle, "at most", most);
    checkGoal(`${name}: missing buckets`, missing, "at most", 0);
    checkGoal(`${name}: large requests with a tag without a log`, poisoned, "at most", 0);
    checkGoal(`${name}: share fetched again`, again, "at most", FETCHED_AGAIN);
    // Tolerance for timers and the even spacing of slots: 300 ms of a minute.
    checkGoal(`${name}: worst age of a live value / its interval`, worst, "at most", 1.005);
  }
  const title = "The worker's history job, client and quota in virtual time; requests for series until nothing is left";
  printTable(title, ["", "oracle", "worker", "ratio", "failed", "probes", "again %", "minutes"], rows);
}

compareDiscovery();
compareWindows();
await measureWorker();
