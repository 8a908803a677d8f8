import { checkGoal, decimal, percent, printTable } from "../harness.ts";
import {
  computeMean,
  GROUP_SIZE,
  halvingStrategy,
  leastRequests,
  MISSING_LOG_GOALS,
  oneByOneStrategy,
  SEEDS,
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
    const requests = computeMean(outcomes.map((outcome) => outcome.requests));
    const halved = computeMean(cases.map((bad) => halvingStrategy(bad).requests));
    const oneByOne = computeMean(cases.map((bad) => oneByOneStrategy(bad).requests));
    const caseName = `${share * 100} %${clustered ? " in runs" : ""}`;
    const requestCounts = [leastRequests(share, clustered), requests, atMost, halved, oneByOne, TAGS];
    rows.push([caseName, ...requestCounts.map((figure) => decimal(figure))]);
    checkGoal(`${caseName}: requests`, requests, "at most", Math.min(atMost, halved));
    checkGoal(`${caseName}: wrong results`, computeMean(outcomes.map(({ wrong }) => wrong)), "at most", 0);
  }
  const tableTitle = `Requests until ${TAGS} tags are fetched or known to have no log (mean of ${SEEDS.length} seeds)`;
  printTable(tableTitle, ["without a log", "bound", "worker", "goal", "halving", "20 + singles", "one by one"], rows);
}

function compareWindows(): void {
  const rows: string[][] = [];
  for (const limit of LIMITS) {
    const [requests, oracle] = [learnedRequests(limit), oracleRequests(limit)];
    const fixedSizes = [fixedRequests(5_760, limit), fixedRequests(40_320, limit)];
    const cells = [`${limit}`, `${oracle}`, `${requests}`, decimal(requests / oracle, 3)];
    rows.push([...cells, ...fixedSizes.map((n) => decimal(n))]);
    checkGoal(`limit ${limit}: requests / of an oracle`, requests / oracle, "at most", WINDOW_GOAL);
  }
  const tableTitle = "Requests for a year of 5-minute values of 3,000 tags, failed ones included";
  printTable(tableTitle, ["limit (values)", "oracle", "worker", "ratio", "day wide", "week wide"], rows);
}

const countOracleRequests = ({ tags, days, limit, withoutLog = [] }: BackfillCase) =>
  Math.ceil((tags - withoutLog.filter((bad) => bad).length) / GROUP_SIZE) *
  Math.ceil((days * 288) / Math.floor(limit / GROUP_SIZE));

async function measureWorker(): Promise<void> {
  const withoutLog = tagsWithoutLog(0.05, true, 1);
  const halfYearCase = { tags: 240, days: 365, limit: 50_000 };
  const changes = [
    { after: 150, limit: 12_000 },
    { after: 700, limit: 50_000 },
  ];
  const tagCounts = [60, 200, 480, 1_500, 3_000];
  const cases: readonly (readonly [name: string, wanted: BackfillCase, most: number])[] = [
    ...LIMITS.map((limit, n) => {
      return [`limit ${limit}`, { tags: tagCounts[n] ?? 0, days: 365, limit }, WINDOW_GOAL] as const;
    }),
    ["killed five times", { ...halfYearCase, killAfter: [20, 100, 101, 250, 400] }, WINDOW_GOAL],
    // The worker tries a larger request after 200 responses, so it notices a higher limit late.
    ["limit falls, rises", { ...halfYearCase, changes }, 1.15],
    ["with live reads", { tags: 200, days: 365, limit: 50_000, liveEverySeconds: 60 }, WINDOW_GOAL],
    ["5 % without, in runs", { tags: TAGS, days: 120, limit: 180_000, withoutLog }, WINDOW_GOAL],
  ];
  const rows: string[][] = [];
  for (const [name, wanted, most] of cases) {
    const { series, refused, probes, poisoned, missing, again, minutes, worst, ideal } = await driveBackfill(wanted);
    const oracle = wanted.changes === undefined ? countOracleRequests(wanted) : ideal;
    rows.push([
      ...[name, decimal(oracle), decimal(series), decimal(series / oracle, 3), `${refused}`, `${probes}`],
      ...[percent(again), decimal(minutes)],
    ]);
    checkGoal(`${name}: requests / of an oracle`, series / oracle, "at most", most);
    checkGoal(`${name}: missing buckets`, missing, "at most", 0);
    checkGoal(`${name}: large requests with a tag without a log`, poisoned, "at most", 0);
    checkGoal(`${name}: share fetched again`, again, "at most", FETCHED_AGAIN);
    // Tolerance for timers and the even spacing of slots: 300 ms of a minute.
    checkGoal(`${name}: worst age of a live value / its interval`, worst, "at most", 1.005);
  }
  const tableTitle =
    "The worker's history job, client and quota in virtual time; requests for series until nothing is left";
  printTable(tableTitle, ["", "oracle", "worker", "ratio", "failed", "probes", "again %", "minutes"], rows);
}

compareDiscovery();
compareWindows();
await measureWorker();
