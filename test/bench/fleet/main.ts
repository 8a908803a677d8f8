import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { absent, startMosquitto, startPostgres, startVictoriaMetrics } from "../../real-servers.ts";
import { type Window, watch } from "./measure.ts";
import { endAll, type Scenario, type Subject, startSubject, TAGS, VALUES_PER_S } from "./subjects.ts";

/**
 * What a fleet does with 300 sources of 300 tags at full quota, in 1, 2 and 3 members on this machine, beside one worker
 * with the folder's SQLite (`npm run bench:fleet`, eight minutes). The service is cheap, broker, lake and database are
 * real, and all share the machine. So the processor time of a value is what to trust, and the ratios of one run; how
 * many values a second there are says where this machine stops.
 *
 *     npm run bench:fleet -- --sources 100
 *
 * Ends with exit code 1 when a value of many sources costs more than one of few, beyond `MOST`.
 */
const { values: options } = parseArgs({ options: { sources: { type: "string", default: "300" } } });
const MANY = Number(options.sources);
const FEW = Math.max(1, Math.round(MANY / 10));

/** One run after the other; what stands in one is measured at the same time, where there is room for that. */
const RUNS: readonly (readonly Scenario[])[] = [
  [
    { name: `SQLite, ${FEW} sources`, sources: FEW, members: 0 },
    { name: `PostgreSQL, ${FEW}, 1 member`, sources: FEW, members: 1 },
  ],
  [{ name: `SQLite, ${MANY} sources`, sources: MANY, members: 0 }],
  [{ name: `PostgreSQL, ${MANY}, 1 member`, sources: MANY, members: 1 }],
  [{ name: `PostgreSQL, ${MANY}, 2 members`, sources: MANY, members: 2 }],
  [{ name: `PostgreSQL, ${MANY}, 3 members`, sources: MANY, members: 3 }],
];

/** The most that a value of many sources may cost of one of few. */
const MOST = 1.1;
const WARM_MOST_MS = 60_000;
/** Half a minute: what is read each 45 s is spread over that time. */
const WINDOW_MS = 30_000;
/** So much of the quota is all of it: live reads leave some for others, and half a minute has a request more or less. */
const WHOLE = 0.88;
/** From here on something is as busy as it can be. */
const BUSY = 0.93;

/** Every tag has been read once, so that each is listed and what is held of it is at hand, or the time is up. */
async function warm({ scenario, service }: Subject): Promise<void> {
  const untilMs = performance.now() + WARM_MOST_MS;
  while (performance.now() < untilMs) {
    if ((await service.values()) >= scenario.sources * TAGS) break;
    await new Promise((resolve) => setTimeout(resolve, 1_000));
  }
}

interface Row {
  readonly scenario: Scenario;
  readonly window: Window;
}

const perValue = (ms: number, { values }: Window) => (1_000 * ms) / values;
const valueCost = (window: Window) => perValue(window.workersMs, window);
const shown = (value: number | null, digits = 0) =>
  value === null || !Number.isFinite(value) ? "–" : value.toFixed(digits);

const COLUMNS = [
  "values/s",
  "wanted",
  "settled/s",
  "µs/value",
  "database",
  "commits/s",
  "B/event",
  "WAL/event",
  "% core",
  "busiest",
  "machine",
] as const;

function line({ scenario, window }: Row): string {
  const { seconds, values, delivered, workersMs, databaseMs, busiestMs, events } = window;
  const cells = [
    shown(values / seconds),
    shown(scenario.sources * VALUES_PER_S),
    // Two sinks have each value.
    shown(delivered / 2 / seconds),
    shown(valueCost(window)),
    scenario.members === 0 ? "–" : shown(perValue(databaseMs, window)),
    shown(window.commits === null ? null : window.commits / seconds),
    shown(window.stateBytes / events),
    shown(window.walBytes === null ? null : window.walBytes / events),
    shown(workersMs / seconds / 10),
    shown(busiestMs / seconds / 10),
    `${shown(100 * window.machineShare)} %`,
  ];
  return `${scenario.name.padEnd(30)} ${cells.map((cell, n) => cell.padStart((COLUMNS[n] ?? "").length + 1)).join(" ")}`;
}

/** Why there were no more values. */
function stop({ scenario, window }: Row): string {
  const { seconds, values, delivered, busiestMs, machineShare } = window;
  const reached = values / seconds / (scenario.sources * VALUES_PER_S);
  const behind = delivered / 2 / values;
  const share = `${shown(100 * reached)} % of the quota`;
  const limits = [
    ...(busiestMs / seconds / 1_000 > BUSY ? ["the one thread of a worker"] : []),
    ...(machineShare > BUSY ? ["the machine's processors, which all share"] : []),
  ];
  const cause = limits.length === 0 ? "nothing of the processor" : limits.join(", and ");
  if (reached > WHOLE && behind > 0.95) return `${scenario.name}: the whole quota is used`;
  if (reached > WHOLE) return `${scenario.name}: ${share}, but delivery falls behind; it is ${cause} that stops it`;
  return `${scenario.name}: ${share}; it is ${cause} that stops it`;
}

if (["postgres", "mosquitto", "victoria-metrics"].some((program) => absent(program as "postgres"))) process.exit(1);
const folder = mkdtempSync(join(tmpdir(), "plenum-fleet-"));
const broker = await startMosquitto({
  lines: (port) => [
    ...[`listener ${port} 127.0.0.1`, "allow_anonymous true", "persistence false"],
    ...["max_queued_messages 0", "set_tcp_nodelay true"],
  ],
});
const lake = await startVictoriaMetrics();
const postgres = await startPostgres({ lines: ["max_connections = 200", "max_wal_size = 4GB"] });
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => void end().then(() => process.exit(1)));
try {
  process.stdout.write(
    `Machine: ${availableParallelism()} cores, ${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.version}\n\n` +
      `${"".padEnd(30)}  ${COLUMNS.join("  ")}\n`,
  );
  const ends = { mqtt: broker.url, influx: lake.url, postgres: postgres.url };
  const rows: Row[] = [];
  const [pid = ""] = readFileSync(join(postgres.folder, "data", "postmaster.pid"), "utf8").split("\n");
  const database = { pid: Number(pid), url: postgres.url };
  for (const scenarios of RUNS) {
    const subjects = await Promise.all(
      scenarios.map((scenario) =>
        startSubject(join(folder, `${scenario.sources}-${scenario.members}`), scenario, ends),
      ),
    );
    await Promise.all(subjects.map(warm));
    const found = await Promise.all(
      subjects.map(async (subject) => ({
        scenario: subject.scenario,
        window: await watch(subject, database, WINDOW_MS),
      })),
    );
    await endAll();
    rows.push(...found);
    process.stdout.write(`${found.map(line).join("\n")}\n`);
  }
  process.stdout.write(`\n${rows.map(stop).join("\n")}\n\n`);
  judge(rows);
} finally {
  await end();
}

async function end(): Promise<void> {
  await endAll();
  await Promise.all([broker.stop(), lake.stop(), postgres.stop()]);
  rmSync(folder, { recursive: true, force: true });
}

function judge(rows: readonly Row[]): void {
  const costOf = (sources: number, members: number) => {
    const row = rows.find(({ scenario }) => scenario.sources === sources && scenario.members === members);
    return row === undefined ? Number.NaN : valueCost(row.window);
  };
  const ratios: readonly (readonly [string, number, number | null])[] = [
    [`a value of ${MANY} sources of one of ${FEW}, PostgreSQL`, costOf(MANY, 1) / costOf(FEW, 1), MOST],
    [`the same, SQLite`, costOf(MANY, 0) / costOf(FEW, 0), null],
    [`a value in PostgreSQL of one in SQLite, ${FEW} sources`, costOf(FEW, 1) / costOf(FEW, 0), null],
    [`the same, ${MANY} sources`, costOf(MANY, 1) / costOf(MANY, 0), null],
    [`a value in 3 members of one in 1`, costOf(MANY, 3) / costOf(MANY, 1), null],
  ];
  for (const [what, ratio, most] of ratios) {
    const verdict = most === null ? "       " : ratio <= most ? "reached" : "MISSED ";
    process.stdout.write(`  ${verdict}  ${what}: ${shown(ratio, 2)}${most === null ? "" : `, at most ${most}`}\n`);
    if (most !== null && !(ratio <= most)) process.exitCode = 1;
  }
}
