import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { availableParallelism, tmpdir, totalmem } from "node:os";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { startBroker } from "#src/cli/demo/services.ts";
import { type Running, runProgram } from "../../plenum-process.ts";
import { freePort } from "../../real-servers.ts";
import { type Used, usedBy } from "../process-use.ts";

/**
 * What lists cost that say the same each time, and how long a long one stops everything else (`npm run bench:lists`, two
 * minutes): in processor time of a real worker, less that of a worker beside it that lists nothing; and what is resident
 * with 3,000 and 50,000 tags that are read at the full quota. Ends with exit code 1 when something is above the most that
 * is allowed.
 *
 *     npm run bench:lists -- --beside ../before
 *
 * measures another folder with Plenum in the same run, because the same work takes another time on a busy machine.
 */
const { values: options } = parseArgs({
  options: { beside: { type: "string", multiple: true, default: [] } },
});

const HERE = import.meta.dirname;
const ROOTS = [join(HERE, "../../.."), ...options.beside.map((folder) => resolve(folder))];
const MEBIBYTE = 2 ** 20;

interface Scenario {
  readonly tags?: number;
  readonly alarms?: number;
  /** The list that is read as often as its pace lets it. */
  readonly lists?: "alarms" | "tags";
  /** How old a value may become; more than the quota is good for. */
  readonly every?: string;
}

const SCENARIOS = {
  "nothing listed": {},
  "500 alarms, one page": { alarms: 500, lists: "alarms" },
  "5,000 alarms, ten pages": { alarms: 5_000, lists: "alarms" },
  "50,000 tags, 100 pages": { tags: 50_000, lists: "tags" },
  "3,000 tags, read": { tags: 3_000, every: "5m" },
  "50,000 tags, read": { tags: 50_000, every: "1h" },
} as const satisfies Readonly<Record<string, Scenario>>;
type Name = keyof typeof SCENARIOS;

/**
 * The most that is allowed: what was measured while others used the same two cores, and a half more; of the stops the
 * goal, which is twice what they take on a quiet day. A list that is read anew costs ten times as much, and 50,000 tags
 * that are met at once stop everything for three seconds.
 */
const MOST: readonly (readonly [name: Name, what: "µs" | "first" | "longest" | "MiB", most: number])[] = [
  ["500 alarms, one page", "µs", 22],
  ["5,000 alarms, ten pages", "µs", 18],
  ["5,000 alarms, ten pages", "first", 50],
  ["50,000 tags, 100 pages", "µs", 18],
  ["50,000 tags, 100 pages", "first", 50],
  ["50,000 tags, 100 pages", "longest", 50],
  ["3,000 tags, read", "MiB", 180],
  ["50,000 tags, read", "longest", 50],
  ["50,000 tags, read", "MiB", 230],
];

/** Until what is new is told, which shows in lists that were read twice since, and a while; at most so long. */
const WARM_MOST_MS = 90_000;
const SETTLE_MS = 8_000;
/** The minute in which requests for lists are counted: whenever it begins, it holds as many. */
const WINDOW_MS = 61_000;

const running: Running[] = [];

function started(one: Running): Running {
  running.push(one);
  return one;
}

interface Stops {
  readonly processorMs: number;
  readonly clockMs: number;
}

interface Subject {
  readonly root: string;
  readonly name: Name;
  readonly pid: number;
  /** Records that its service sent so far. */
  served(): Promise<number>;
  /** The longest stops since `begin` was called. */
  stops(): Stops;
  begin(): void;
}

interface Ends {
  readonly mqtt: string;
  readonly influx: string;
}

async function start(folder: string, root: string, name: Name, ends: Ends): Promise<Subject> {
  const { tags = 0, alarms = 0, lists, every }: Scenario = SCENARIOS[name];
  const size = ["--tags", String(tags), "--alarms", String(alarms)];
  const service = started(runProgram(process.execPath, [join(HERE, "service.ts"), ...size]));
  await service.says(/port \d+/);
  const url = `http://127.0.0.1:${/port (\d+)/.exec(service.output())?.[1]}`;
  mkdirSync(folder, { recursive: true });
  const config = {
    state: { folder: join(folder, "state") },
    status: { port: await freePort() },
    sources: {
      main: {
        base_url: url,
        token: { env: "BENCH_TOKEN" },
        time_zone: "Europe/Stockholm",
        quota: { list_requests_per_minute: 600 },
        page_size: { others: 500 },
        schedules: {
          ...{ hosts: false, systems: false, resolved_sweep: false },
          alarms: lists === "alarms" ? "* * * * * *" : false,
          // Once at the start, and then not for months.
          tags: lists === "tags" ? "* * * * * *" : "0 0 1 1 *",
        },
        read: every === undefined ? [] : [{ name: "all", every }],
      },
    },
    sinks: {
      broker: {
        filter: { kinds: ["tag-value", "alarm-*"] },
        mqtt: { url: ends.mqtt, prefix: folder.replaceAll(/\W/g, "_") },
      },
      lake: {
        filter: { kinds: ["tag-value"] },
        influxdb: { url: ends.influx, api: "v2", bucket: "bench" },
      },
    },
  };
  writeFileSync(join(folder, "plenum.yaml"), JSON.stringify(config));
  const stopsFile = join(folder, "stops.json");
  const worker = started(
    runProgram(join(root, "plenum"), ["run", "--config", "plenum.yaml"], {
      cwd: folder,
      environment: {
        BENCH_TOKEN: "bench-token-0123456789",
        BENCH_STOPS: stopsFile,
        NODE_OPTIONS: `--import ${new URL("../loop-stops.ts", import.meta.url).href}`,
      },
    }),
  );
  await worker.says("Plenum is running", 120_000);
  const subject: Subject = {
    root,
    name,
    pid: worker.pid,
    async served() {
      const response = await fetch(`${url}/api/v1/served`);
      const counts = (await response.json()) as Readonly<Record<string, number>>;
      return Object.values(counts).reduce((sum, count) => sum + count, 0);
    },
    stops: () => JSON.parse(readFileSync(stopsFile, "utf8")) as Stops,
    begin: () => void process.kill(worker.pid, "SIGUSR2"),
  };
  subject.begin();
  return subject;
}

interface Row extends Pick<Subject, "root" | "name"> {
  readonly processorMs: number;
  readonly seconds: number;
  readonly records: number;
  readonly used: Used;
  readonly first: Stops;
  readonly longest: Stops;
}

async function watch(subject: Subject): Promise<Row> {
  const first = subject.stops();
  subject.begin();
  const [before, servedBefore, begin] = [usedBy(subject.pid), await subject.served(), performance.now()];
  await pause(WINDOW_MS);
  const [used, served] = [usedBy(subject.pid), await subject.served()];
  return {
    ...{ root: subject.root, name: subject.name, first, used, longest: subject.stops() },
    processorMs: used.processorMs - before.processorMs,
    seconds: (performance.now() - begin) / 1_000,
    records: served - servedBefore,
  };
}

async function settled({ name, served }: Subject): Promise<void> {
  const { tags = 0, alarms = 0, lists }: Scenario = SCENARIOS[name];
  const enough = (lists === undefined ? 1 : 3) * (tags + alarms);
  for (const end = performance.now() + WARM_MOST_MS; performance.now() < end; await pause(500))
    if ((await served()) >= enough) return;
}

const pause = (ms: number) => new Promise((done) => setTimeout(done, ms));

/** What a record costs above a worker of the same folder that lists nothing, microseconds. */
function perRecord(row: Row, rows: readonly Row[]): number {
  const idle = rows.find(({ root, name }) => root === row.root && name === "nothing listed");
  if (idle === undefined || row.records === 0) return Number.NaN;
  return (1_000 * (row.processorMs - (idle.processorMs * row.seconds) / idle.seconds)) / row.records;
}

const shown = (value: number, digits = 0) => (Number.isFinite(value) ? value.toFixed(digits) : "–");

function line(row: Row, rows: readonly Row[]): string {
  const stops = ({ processorMs, clockMs }: Stops) => `${shown(processorMs)} (${shown(clockMs)})`;
  return [
    row.name.padEnd(26),
    shown(row.processorMs / row.seconds / 10, 2).padStart(7),
    shown(row.records).padStart(9),
    shown(perRecord(row, rows), 1).padStart(10),
    stops(row.first).padStart(14),
    stops(row.longest).padStart(14),
    shown(row.used.residentBytes / MEBIBYTE).padStart(6),
    shown(row.used.peakBytes / MEBIBYTE).padStart(6),
  ].join(" ");
}

function judge(rows: readonly Row[]): void {
  for (const [name, what, most] of MOST) {
    const row = rows.find((each) => each.name === name && each.root === ROOTS[0]);
    if (row === undefined) throw new Error(`${name} was not measured.`);
    const value = {
      µs: perRecord(row, rows),
      first: row.first.processorMs,
      longest: row.longest.processorMs,
      MiB: row.used.residentBytes / MEBIBYTE,
    }[what];
    const unit = {
      µs: "µs for each of them, listed and unchanged",
      first: "ms of processor time in the longest stop while they are new",
      longest: "ms of processor time in the longest stop afterwards",
      MiB: "MiB resident",
    }[what];
    console.log(`  ${value <= most ? "reached" : "MISSED "}  ${name}: ${shown(value, 1)} ${unit}, at most ${most}`);
    if (!(value <= most)) process.exitCode = 1;
  }
}

const broker = await startBroker();
const lake = createServer((request, response) => {
  request.resume().on("end", () => response.writeHead(204).end());
});
await new Promise<void>((done) => lake.listen(0, "127.0.0.1", done));
const ends = {
  mqtt: broker.url,
  influx: `http://127.0.0.1:${(lake.address() as AddressInfo).port}`,
};
const folder = mkdtempSync(join(tmpdir(), "plenum-lists-"));
try {
  console.log(
    `Machine: ${availableParallelism()} cores, ${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.version}`,
  );
  const names = Object.keys(SCENARIOS) as Name[];
  const subjects = await Promise.all(
    ROOTS.flatMap((root, r) => names.map((name, n) => start(join(folder, `${r}-${n}`), root, name, ends))),
  );
  await Promise.all(subjects.map(settled));
  await pause(SETTLE_MS);
  const rows = await Promise.all(subjects.map(watch));
  for (const root of ROOTS) {
    console.log(`\n${root}\n${"".padEnd(26)}  % core   records  µs/record     first stop        longest    MiB   peak`);
    for (const row of rows) if (row.root === root) console.log(line(row, rows));
  }
  console.log("\nStops: milliseconds of processor time, and by the clock in parentheses.\n");
  judge(rows);
} finally {
  await Promise.all(running.splice(0).map((each) => each.end("SIGTERM")));
  await broker.close();
  lake.close();
  rmSync(folder, { recursive: true, force: true });
}
