import { mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { absent, startMosquitto, startVictoriaMetrics } from "../../real-servers.ts";
import {
  type Ends,
  endAll,
  type Scenario,
  type Subject,
  startMinimal,
  startNodeRed,
  startWorker,
  type Window,
  watch,
} from "./subjects.ts";

/**
 * What a value costs, in processor time of the worker with all its threads, not in time by the clock (`npm run
 * bench:cost`, four minutes). Worker, service, broker and database are processes of their own; all scenarios are
 * measured at the same time, because the same work takes another time on a machine that is busy otherwise. So the
 * figure to trust is the ratio to the minimal program of the same run.
 *
 * Bytes a value are to be trusted where there are many values: SQLite takes its log over into the database after 1,000
 * pages, and 400 values in the window come with such a moment or not. Of one source with 50,000 tags it is 3,100 bytes
 * without it, and 5,100 to 5,800 with it, of the same program.
 *
 * Ends with exit code 1 when something costs more than the most that is allowed; see `MOST`.
 *
 *     npm run bench:cost -- --sources 200 --tags 20 --every 3s
 *
 * measures a building or a fleet of your own size, for docs/sizing.md; `PLENUM_NODE_FLAGS` may say other flags. With
 * `--stops` it says too how long the event loop was stopped at most, and processor time counts for nothing then.
 */
const { values: size } = parseArgs({
  options: {
    sources: { type: "string" },
    tags: { type: "string" },
    every: { type: "string" },
    stops: { type: "boolean", default: false },
  },
});

const LIVE: Scenario = { sources: 20, tags: 20, every: "3s" };
const ONE: Scenario = { sources: 1, tags: 20, every: "3s" };

const OWN: Scenario | null =
  size.sources === undefined
    ? null
    : {
        sources: Number(size.sources),
        tags: Number(size.tags ?? 20),
        every: size.every ?? "3s",
        stops: size.stops,
      };

type Named = readonly [name: string, scenario: Scenario];

const SCENARIOS: readonly Named[] = [
  ["20 sources, 20 tags each, at full quota", LIVE],
  ["the same, nothing changes (on_change)", { ...LIVE, steady: true }],
  ["20 sources, nothing read", { ...LIVE, every: null }],
  ["1 source, 20 tags", ONE],
  ["1 source, 3,000 tags", { ...ONE, tags: 3_000, every: "10m" }],
  ["1 source, 50,000 tags", { ...ONE, tags: 50_000, every: "3h" }],
  [
    "1 source, 400 alarms listed each second",
    { ...ONE, every: null, alarms: 400, alarmsEvery: "* * * * * *" },
  ],
];

/** The most that is allowed; a third more than what was measured, because machines differ. */
const MOST = {
  /** Of the minimal program's, for a live value; the goal is 0.8. */
  ratio: 2.4,
  /** Bytes written to the disk for a live value: the goal. */
  writtenBytes: 2_000,
  /** Share of a core with 50,000 tags against the same work with 20; the goal is 1.4. */
  growth: 2.9,
} as const;

/** Until then a fifth of the processor time goes to compiling, in the second minute, and a worker runs for years. */
const WARM_MS = 150_000;
/** The whole of a quota's minute, so that bursts count as they should. */
const WINDOW_MS = 60_000;

interface Row {
  readonly name: string;
  readonly window: Window;
}

async function run(folder: string, scenarios: readonly Named[], ends: Ends): Promise<readonly Row[]> {
  const nodeRed = await startNodeRed(join(folder, "node-red"), LIVE, ends);
  const subjects: (readonly [string, Subject])[] = await Promise.all([
    startMinimal(join(folder, "minimal"), LIVE, ends).then(
      (subject) => ["minimal program", subject] as const,
    ),
    ...(nodeRed === null ? [] : [["Node-RED", nodeRed] as const]),
    ...scenarios.map(async ([name, scenario], n) => {
      const subject = await startWorker(join(folder, `worker-${n}`), scenario, ends);
      return [name, subject] as const;
    }),
  ]);
  await new Promise((resolve) => setTimeout(resolve, WARM_MS));
  const rows = await Promise.all(
    subjects.map(async ([name, subject]) => ({ name, window: await watch(subject, WINDOW_MS) })),
  );
  await endAll();
  return rows;
}

const perValue = ({ used, values }: Window) => (1_000 * used.processorMs) / values;
const share = ({ used, seconds }: Window) => used.processorMs / seconds / 10;
const shown = (value: number, digits = 0) => (Number.isFinite(value) ? value.toFixed(digits) : "–");

function line({ name, window }: Row, minimal: Window): string {
  const { used, values } = window;
  return [
    name.padEnd(42),
    shown(perValue(window)).padStart(9),
    shown(perValue(window) / perValue(minimal), 1).padStart(8),
    shown(share(window), 2).padStart(8),
    shown(used.residentBytes / 2 ** 20).padStart(6),
    shown(used.peakBytes / 2 ** 20).padStart(6),
    shown(values === 0 ? Number.NaN : used.writtenBytes / values).padStart(9),
  ].join(" ");
}

if (absent("mosquitto") || absent("victoria-metrics")) process.exit(1);
const folder = mkdtempSync(join(tmpdir(), "plenum-cost-"));
const lines = (port: number) => [
  ...[`listener ${port} 127.0.0.1`, "allow_anonymous true", "persistence false", "max_queued_messages 0"],
];
const broker = await startMosquitto({ lines });
const database = await startVictoriaMetrics();
try {
  const ends = { mqtt: broker.url, influx: database.url };
  process.stdout.write(
    `Machine: ${availableParallelism()} cores, ${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.version}\n`,
  );
  const own = OWN === null ? null : ([`${OWN.sources} × ${OWN.tags} tags, every ${OWN.every}`, OWN] as const);
  const rows = await run(folder, own === null ? SCENARIOS : [own], ends);
  const [minimal] = rows;
  if (minimal === undefined) throw new Error("The minimal program was not measured.");
  process.stdout.write(
    `\n${"".padEnd(42)}  µs/value  minimal   % core    MiB   peak  B/value\n${rows.map((row) => line(row, minimal.window)).join("\n")}\n`,
  );
  for (const { window } of rows)
    if (window.stops !== null)
      process.stdout.write(
        `Longest stop of the event loop: ${shown(window.stops.processorMs)} ms of processor time, ${shown(window.stops.clockMs)} ms by the clock.\n`,
      );
  if (own === null) judge(rows);
} finally {
  await endAll();
  await Promise.all([broker.stop(), database.stop()]);
  rmSync(folder, { recursive: true, force: true });
}

function judge(rows: readonly Row[]): void {
  const windowOf = (name: string) => {
    const row = rows.find((each) => each.name === name);
    if (row === undefined) throw new Error(`${name} was not measured.`);
    return row.window;
  };
  const live = windowOf("20 sources, 20 tags each, at full quota");
  const judged: readonly (readonly [string, number, number])[] = [
    [
      "a live value, of the minimal program's",
      perValue(live) / perValue(windowOf("minimal program")),
      MOST.ratio,
    ],
    ["bytes written for a live value", live.used.writtenBytes / live.values, MOST.writtenBytes],
    [
      "50,000 tags against 20",
      share(windowOf("1 source, 50,000 tags")) / share(windowOf("1 source, 20 tags")),
      MOST.growth,
    ],
  ];
  process.stdout.write("\n");
  for (const [what, value, most] of judged) {
    process.stdout.write(
      `  ${value <= most ? "reached" : "MISSED "}  ${what}: ${shown(value, 1)}, at most ${most}\n`,
    );
    if (!(value <= most)) process.exitCode = 1;
  }
}
