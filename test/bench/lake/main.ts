import { execFile } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { parseArgs, promisify } from "node:util";
import { absent, startPostgres } from "../../real-servers.ts";
import { checkGoal, decimal, MEBIBYTE, printMachine, printTable, startService, withFolder } from "../harness.ts";
import type { CommitResult, Compaction } from "./child.ts";
import { DESTINATIONS } from "./destinations.ts";

/** Cost of a value in each destination (`npm run bench:lake`, 6 minutes; `--rows 20000000` projects a year). */
const { values: options } = parseArgs({
  options: { rows: { type: "string" }, values: { type: "string", default: "100000" } },
});

const LIVE_VALUES = Number(options.values);
const YEAR_VALUES = 365 * 288 * 3_000;

/** Maximum cost of a value. Recorded: small buildings by the hour, where a file of a day and building has 500 values. */
const COST_GOALS = {
  history: { bytes: 3, microseconds: 10 },
  live: { bytes: 5, microseconds: 20 },
  recorded: { bytes: 9.5, microseconds: 17 },
  mebibytes: 64,
} as const;

const FLAGS = [
  ...["--min-semi-space-size=4", "--max-semi-space-size=4", "--heap-growing-percent=20"],
  ...["--no-parallel-scavenge", "--no-allocation-site-pretenuring"],
];

const execute = promisify(execFile);

async function runChild<T>(...args: readonly (string | number)[]): Promise<T> {
  const program = join(import.meta.dirname, "child.ts");
  const { stdout } = await execute(process.execPath, [...FLAGS, program, ...args.map(String)]);
  return JSON.parse(stdout) as T;
}

async function land(
  root: string,
  destination: string,
  workload: string,
  values: number,
  port = 0,
): Promise<CommitResult> {
  const folder = join(root, "landing");
  const commitResult = await runChild<CommitResult>("land", destination, workload, values, folder, port);
  rmSync(folder, { recursive: true, force: true });
  return commitResult;
}

const bytesEach = ({ bytes, values }: Pick<CommitResult, "bytes" | "values">) => bytes / values;
const microsecondsEach = ({ processorMs, values }: Pick<CommitResult, "processorMs" | "values">) =>
  (1_000 * processorMs) / values;

const HEAD = ["", "values", "bytes each", "µs each", "peak MiB"];
const cells = (title: string, landed: CommitResult) => [
  ...[title, String(landed.values), decimal(bytesEach(landed), 1), decimal(microsecondsEach(landed), 1)],
  decimal(landed.peakBytes / MEBIBYTE),
];

function checkCost(
  what: string,
  landed: CommitResult,
  most: { readonly bytes: number; readonly microseconds: number },
): void {
  checkGoal(`parquet: bytes of a ${what}`, bytesEach(landed), "at most", most.bytes);
  checkGoal(`parquet: µs of a ${what}`, microsecondsEach(landed), "at most", most.microseconds);
}

async function compareDestinations(root: string): Promise<void> {
  const { url } = await startService();
  const server = absent("postgres") ? null : await startPostgres();
  try {
    const rows: (readonly string[])[] = [];
    const results = new Map<string, CommitResult>();
    for (const [workload, values] of [
      ["history", 3 * LIVE_VALUES],
      ["live", LIVE_VALUES],
    ] as const) {
      const log = await runChild<CommitResult>("log", workload, values, join(root, `log-${workload}`));
      const cost = decimal(microsecondsEach(log), 1);
      rows.push([`${workload}: log and engine, idle sink`, `${log.values}`, "–", cost, "–"]);
      for (const destination of DESTINATIONS) {
        if (destination === "postgres" && server === null) continue;
        const port = destination === "postgres" ? server?.port : Number(new URL(url).port);
        const commitResult = await land(root, destination, workload, values, port);
        results.set(`${workload} ${destination}`, commitResult);
        rows.push(cells(`${workload}: ${destination}`, commitResult));
      }
    }
    const recorded = await land(root, "parquet", "recorded", 0);
    rows.push(cells("history as recorded, small files: parquet", recorded));
    printTable("", HEAD, rows);
    for (const workload of ["history", "live"] as const) {
      const [landed, idle] = [results.get(`${workload} parquet`), results.get(`${workload} idle`)];
      if (landed === undefined || idle === undefined) throw new Error(`${workload} was not measured.`);
      checkCost(`${workload} value`, landed, COST_GOALS[workload]);
      const mebibytes = (landed.peakBytes - idle.peakBytes) / MEBIBYTE;
      checkGoal(`parquet: MiB more than an idle sink, ${workload}`, mebibytes, "at most", COST_GOALS.mebibytes);
    }
    checkCost("recorded value", recorded, COST_GOALS.recorded);
    for (const format of ["plain", "delta"]) await checkCompaction(root, format);
  } finally {
    await server?.stop();
  }
}

async function checkCompaction(root: string, format: string): Promise<void> {
  const measureCompaction = (what: string) =>
    runChild<Compaction>("compaction", what, 3 * LIVE_VALUES, join(root, `${what}-${format}`), format);
  const { values, commitMs, mergeMs, filesBefore } = await measureCompaction("cost");
  checkGoal(`${format}: µs of a live value, with compaction`, (1_000 * (commitMs + mergeMs)) / values, "at most", 30);
  const { stopMs } = await measureCompaction("stop");
  checkGoal(`${format}: longest stop of the event loop while a day is finalized`, stopMs, "at most", 50, " ms");
  if (format === "plain") checkGoal("plain: files of a day before its merge", filesBefore, "at most", 30);
}

async function projectYear(root: string, values: number): Promise<void> {
  const idleCost = await land(root, "idle", "history", values);
  const commitResult = await land(root, "parquet", "history", values);
  const { half } = commitResult;
  const second = {
    values: commitResult.values - half.values,
    bytes: commitResult.bytes - half.bytes,
    processorMs: commitResult.processorMs - half.processorMs,
  };
  const halves = [
    ["first half", half],
    ["second half", second],
  ] as const;
  printTable(
    "",
    ["", "values", "bytes each", "µs each"],
    halves.map(([title, part]) => [
      ...[title, String(part.values), decimal(bytesEach(part), 2), decimal(microsecondsEach(part), 2)],
    ]),
  );
  const gigabytes = decimal((bytesEach(commitResult) * YEAR_VALUES) / 1e9, 2);
  const hours = decimal((microsecondsEach(commitResult) * YEAR_VALUES) / 3.6e9, 2);
  console.log(`\nA year of 3,000 tags every five minutes: ${gigabytes} GB, ${hours} hours of processor time\n`);
  checkCost("history value", commitResult, COST_GOALS.history);
  checkGoal("bytes of a value, second half / first", bytesEach(second) / bytesEach(half), "at most", 1.05);
  checkGoal("µs of a value, second half / first", microsecondsEach(second) / microsecondsEach(half), "at most", 1.3);
  const mebibytes = (commitResult.peakBytes - idleCost.peakBytes) / MEBIBYTE;
  checkGoal("MiB more than an idle sink", mebibytes, "at most", COST_GOALS.mebibytes);
}

await withFolder(async (root) => {
  printMachine();
  await (options.rows === undefined ? compareDestinations(root) : projectYear(root, Number(options.rows)));
});
