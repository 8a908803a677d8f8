import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { parseArgs, promisify } from "node:util";
import { runProgram } from "../../plenum-process.ts";
import { absent, startPostgres } from "../../real-servers.ts";
import type { CompactedLake } from "./compact.ts";
import { CONTESTANTS, type Contestant } from "./contestants.ts";
import type { Landed } from "./land.ts";

/**
 * What a value costs in each end that keeps them, on real readings (`npm run bench:lake`, four minutes; six on a busy machine): bytes, processor
 * time of the worker's process with all threads, and memory beyond a sink that does nothing. Each end is filled by a
 * process of its own, one after the other.
 *
 *     npm run bench:lake -- --rows 20000000
 *
 * lands so many values of 3,000 tags every five minutes as Parquet instead, compares the second half with the first, and says
 * what a year would be.
 *
 * Ends with exit code 1 when something is above the most that is allowed; see `MOST`.
 */
const { values: size } = parseArgs({ options: { rows: { type: "string" } } });

const PLANT_VALUES = 300_000;
const LIVE_VALUES = 100_000;
const YEAR_VALUES = 365 * 288 * 3_000;

const MOST = {
  history: { bytes: 3, microseconds: 10 },
  live: { bytes: 5, microseconds: 20 },
  /** As recorded: small buildings by the hour, of which each day and building is a file of 500 values. */
  recorded: { bytes: 9.5, microseconds: 17 },
  /** Landing in steps of 15 minutes, hourly compaction and the merge of the days, together: a quarter above the 22 to 24 µs measured. */
  compacted: 30,
  /** The longest stop of the event loop, in milliseconds of its processor time: the requirement. */
  stopMs: 50,
  files: 30,
  mebibytes: 64,
  /** Of the second half against the first; time by a machine that does other work as well. */
  growth: { bytes: 1.05, microseconds: 1.3 },
} as const;

/** As the worker is started. */
const FLAGS = [
  "--min-semi-space-size=4",
  "--max-semi-space-size=4",
  "--heap-growing-percent=20",
  "--no-parallel-scavenge",
  "--no-allocation-site-pretenuring",
];
const MEBIBYTE = 2 ** 20;
const run = promisify(execFile);
const root = mkdtempSync(join(tmpdir(), "plenum-bench-lake-"));
let places = 0;

async function child<T>(program: string, ...args: readonly (string | number)[]): Promise<T> {
  const path = join(import.meta.dirname, program);
  const { stdout } = await run(process.execPath, [...FLAGS, path, ...args.map(String)]);
  return JSON.parse(stdout) as T;
}

async function land(name: Contestant, workload: string, values: number, port = 0): Promise<Landed> {
  const folder = join(root, `place-${places++}`);
  const landed = await child<Landed>("land.ts", name, workload, values, folder, port);
  rmSync(folder, { recursive: true, force: true });
  return landed;
}

const bytesEach = ({ bytes, values }: Pick<Landed, "bytes" | "values">) => bytes / values;
const microsecondsEach = ({ processorMs, values }: Pick<Landed, "processorMs" | "values">) =>
  (1_000 * processorMs) / values;

type Judged = readonly [what: string, value: number, most: number];

function judge(all: readonly Judged[]): void {
  process.stdout.write("\n");
  for (const [what, value, most] of all) {
    const word = value <= most ? "reached" : "MISSED ";
    process.stdout.write(`  ${word}  ${what}: ${value.toFixed(1)}, at most ${most}\n`);
    if (!(value <= most)) process.exitCode = 1;
  }
}

const cells = (first: string, ...rest: readonly string[]) =>
  `${first.padEnd(40)}${rest.map((cell) => cell.padStart(12)).join("")}\n`;

async function all(): Promise<void> {
  const stub = runProgram(process.execPath, [join(import.meta.dirname, "line-sink.ts")]);
  await stub.says(/port \d+/);
  const stubPort = Number(/port (\d+)/.exec(stub.output())?.[1]);
  const server = absent("postgres") ? null : await startPostgres();
  try {
    process.stdout.write(cells("", "values", "bytes each", "µs each", "peak MiB"));
    const found = new Map<string, Landed>();
    for (const [workload, values, title] of [
      ["plant", PLANT_VALUES, "history"],
      ["live", LIVE_VALUES, "live"],
    ] as const) {
      const log = await child<Landed>("outbox.ts", workload, values, join(root, `log-${workload}`));
      const cost = microsecondsEach(log).toFixed(1);
      process.stdout.write(cells(`${title}: log and engine, idle sink`, String(log.values), "–", cost, "–"));
      for (const name of CONTESTANTS) {
        if (name === "postgres" && server === null) continue;
        const port = name === "postgres" ? (server?.port ?? 0) : stubPort;
        const landed = await land(name, workload, values, port);
        found.set(`${title} ${name}`, landed);
        process.stdout.write(line(`${title}: ${name === "idle" ? "idle sink alone" : name}`, landed));
      }
    }
    const recorded = await land("parquet", "recorded", 0);
    process.stdout.write(line("history as recorded, small files: parquet", recorded));
    const of = (what: string): Landed => {
      const landed = found.get(what);
      if (landed === undefined) throw new Error(`${what} was not measured.`);
      return landed;
    };
    judge([...goals(of, recorded), ...(await compaction())]);
  } finally {
    await stub.end("SIGTERM");
    await server?.stop();
  }
}

/** Measures live values with compaction: processor time a value, and the longest stop while a day of a site is finalized. */
async function compaction(): Promise<readonly Judged[]> {
  const judged: Judged[] = [];
  for (const format of ["plain", "delta"]) {
    const measure = (what: string, values: number) =>
      child<CompactedLake>("compact.ts", what, values, join(root, `${what}-${format}`), format);
    const cost = await measure("cost", 3 * LIVE_VALUES);
    const each = (ms: number) => (1_000 * ms) / cost.values;
    const [landing, merge] = [each(cost.landingMs), each(cost.mergeMs)];
    const words = `${landing.toFixed(1)} + ${merge.toFixed(1)}`;
    process.stdout.write(cells(`live, ${format}: by the quarter + merge`, String(cost.values), "–", words, "–"));
    const stop = await measure("stop", 3 * LIVE_VALUES);
    judged.push(
      [`${format}: µs of a live value with compaction`, landing + merge, MOST.compacted],
      [
        `${format}: longest stop of the event loop, day finalized, ms of processor time`,
        Math.max(stop.landingStopMs, stop.mergeStopMs),
        MOST.stopMs,
      ],
    );
    if (format === "plain") judged.push(["plain: files of a day before its merge", cost.filesBefore, MOST.files]);
  }
  return judged;
}

function line(title: string, landed: Landed): string {
  return cells(
    title,
    String(landed.values),
    bytesEach(landed).toFixed(1),
    microsecondsEach(landed).toFixed(1),
    String(Math.round(landed.peakBytes / MEBIBYTE)),
  );
}

function goals(of: (what: string) => Landed, recorded: Landed): readonly Judged[] {
  const live = of("live parquet");
  const beyond = (what: string) => (of(`${what} parquet`).peakBytes - of(`${what} idle`).peakBytes) / MEBIBYTE;
  return [
    ["parquet: bytes of a value of history", bytesEach(of("history parquet")), MOST.history.bytes],
    ["parquet: the same in files of 500 values", bytesEach(recorded), MOST.recorded.bytes],
    ["parquet: bytes of a live value", bytesEach(live), MOST.live.bytes],
    ["parquet: µs of a value of history", microsecondsEach(of("history parquet")), MOST.history.microseconds],
    ["parquet: the same in files of 500 values", microsecondsEach(recorded), MOST.recorded.microseconds],
    ["parquet: µs of a live value", microsecondsEach(live), MOST.live.microseconds],
    ["parquet: MiB beyond an idle sink", Math.max(beyond("history"), beyond("live")), MOST.mebibytes],
  ];
}

async function year(values: number): Promise<void> {
  const idle = await land("idle", "plant", values);
  const landed = await land("parquet", "plant", values);
  const { half } = landed;
  const rest = {
    values: landed.values - half.values,
    bytes: landed.bytes - half.bytes,
    processorMs: landed.processorMs - half.processorMs,
  };
  process.stdout.write(cells("", "values", "bytes each", "µs each"));
  for (const [title, part] of [["first half", half] as const, ["second half", rest] as const])
    process.stdout.write(
      cells(title, String(part.values), bytesEach(part).toFixed(2), microsecondsEach(part).toFixed(2)),
    );
  const gigabytes = (bytesEach(landed) * YEAR_VALUES) / 1e9;
  const hours = (microsecondsEach(landed) * YEAR_VALUES) / 3.6e9;
  process.stdout.write(
    `\nA year of 3,000 tags every five minutes: ${YEAR_VALUES} values, ${gigabytes.toFixed(2)} GB, ${hours.toFixed(2)} hours of processor time\n`,
  );
  judge([
    ["bytes of a value", bytesEach(landed), MOST.history.bytes],
    ["µs of a value", microsecondsEach(landed), MOST.history.microseconds],
    ["bytes of the second half, of the first", bytesEach(rest) / bytesEach(half), MOST.growth.bytes],
    ["µs of the second half, of the first", microsecondsEach(rest) / microsecondsEach(half), MOST.growth.microseconds],
    ["MiB beyond an idle sink", (landed.peakBytes - idle.peakBytes) / MEBIBYTE, MOST.mebibytes],
  ]);
}

try {
  process.stdout.write(
    `Machine: ${availableParallelism()} cores, ${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.version}\n\n`,
  );
  await (size.rows === undefined ? all() : year(Number(size.rows)));
} finally {
  rmSync(root, { recursive: true, force: true });
}
