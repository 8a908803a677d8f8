import { mkdtempSync, rmSync } from "node:fs";
import { availableParallelism, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { absent, startMosquitto, startVictoriaMetrics } from "../../real-servers.ts";
import {
  type Ends,
  endAll,
  lookedAt,
  type Scenario,
  type Stops,
  type Subject,
  startMinimal,
  startNodeRed,
  startWorker,
  type Window,
  watch,
  watchStops,
} from "./subjects.ts";

/**
 * What a worker costs, in processor time with all its threads, not in time by the clock (`npm run bench:cost`, six to eight minutes).
 * Worker, service, broker and database are processes of their own; all scenarios are measured at the same time, because the
 * same work takes another time on a machine that is busy otherwise. So the figure to trust is the ratio to the minimal
 * program of the same run. Every worker is watched meanwhile: one `/metrics` every 15 s, one `/readyz` and one health check
 * of the image every 30 s. After that the longest stop of each event loop is measured, which takes processor time itself.
 *
 * Bytes a value are to be trusted where there are many values: SQLite takes its log over into the database after 1,000
 * pages, and 400 values in the window come with such a moment or not. Of one source with 50,000 tags it is 3,100 bytes
 * without it, and 5,100 to 5,800 with it, of the same program.
 *
 * Ends with exit code 1 when something costs more than the most that is allowed; see `MOST`.
 *
 *     npm run bench:cost -- live many
 *     npm run bench:cost -- --sources 200 --tags 20 --every 3s
 *
 * measure some of the scenarios by name, or a building or a fleet of your own size, for docs/sizing.md; `PLENUM_NODE_FLAGS`
 * may say other flags.
 */
const { positionals, values: size } = parseArgs({
  allowPositionals: true,
  options: { sources: { type: "string" }, tags: { type: "string" }, every: { type: "string" } },
});

const LIVE: Scenario = { sources: 20, tags: 20, every: "3s" };
const MANY: Scenario = { ...LIVE, sources: 200 };
const ONE: Scenario = { sources: 1, tags: 20, every: "3s" };
const STANDING: Scenario = { ...ONE, every: null, alarms: 5_000 };

const SCENARIOS: Readonly<Record<string, readonly [description: string, scenario: Scenario]>> = {
  live: ["20 sources, 20 tags each, at full quota", LIVE],
  steady: ["the same, nothing changes (on_change)", { ...LIVE, steady: true }],
  idle: ["20 sources, nothing read", { ...LIVE, every: null }],
  many: ["200 sources, 20 tags each, at full quota", MANY],
  one: ["1 source, 20 tags", ONE],
  tags: ["1 source, 3,000 tags", { ...ONE, tags: 3_000, every: "10m" }],
  large: ["1 source, 50,000 tags", { ...ONE, tags: 50_000, every: "3h" }],
  lists: ["1 source, 3,000 tags, default lists", { ...ONE, tags: 3_000, every: "10m", defaultLists: true }],
  listed: ["1 source, 400 alarms listed each second", { ...ONE, every: null, alarms: 400, alarmsEvery: "* * * * * *" }],
  standing: ["1 source, 5,000 standing alarms", STANDING],
  receivers: ["the same, with two receivers", { ...STANDING, receivers: 2 }],
};

/** The most that is allowed. */
const MOST = {
  /** Of the minimal program's, for a live value; the goal is 1.2. */
  ratio: 1.3,
  /** Bytes written to the disk for a live value: the goal. */
  writtenBytes: 2_000,
  /** Share of a core with 50,000 tags against the same work with 20; the goal is 1.4. */
  growth: 2.9,
  /** Percent of a core for each 1,000 standing alarms and receiver, of which nothing is new. */
  standing: 0.02,
  /** Percent of a core for the health check every 60 s, as the image runs it. */
  health: 0.1,
  /** Seconds until the first value is requested, with the default pace of lists. */
  firstValue: 5,
  /** Milliseconds of processor time. */
  stop: 50,
  /** The same with 50,000 tags, where hardly more happens than that the worker is watched. */
  watchedStop: 20,
} as const;

/** Until then a fifth of the processor time goes to compiling, in the second minute, and a worker runs for years. */
const WARM_MS = 150_000;
/** The whole of a quota's minute, so that bursts count as they should. */
const WINDOW_MS = 60_000;
/** As long as two looks of each kind. */
const STOPS_MS = 60_000;
const HEALTH_EVERY_MS = 60_000;

interface Row {
  readonly key: string;
  readonly name: string;
  readonly window: Window;
  readonly stops: Stops | null;
  readonly firstValue: number | null;
  readonly checksMs: readonly number[];
}

type Started = readonly [key: string, name: string, subject: Subject];

async function run(folder: string, keys: readonly string[], ends: Ends): Promise<readonly Row[]> {
  const isMany = keys.includes("many");
  const minimal = async (key: string, name: string, scenario: Scenario): Promise<Started> => [
    ...([key, name] as const),
    await startMinimal(join(folder, key.replace(" ", "-")), scenario, ends),
  ];
  const started: readonly Started[] = await Promise.all([
    minimal("minimal", "minimal program", own ?? LIVE),
    ...(isMany ? [minimal("minimal many", "minimal program, 200 sources", MANY)] : []),
    ...(keys.includes("live") ? await nodeRed(join(folder, "node-red"), ends) : []),
    ...keys.map(async (key): Promise<Started> => {
      const [name, scenario] = key === "own" && own !== null ? ownRow(own) : (SCENARIOS[key] ?? unknown(key));
      return [key, name, await startWorker(join(folder, `worker-${key}`), scenario, ends)];
    }),
  ]);
  const looks = started.map(([, , subject]) => lookedAt(subject));
  await Promise.all([sleep(WARM_MS), ...started.map(([, , subject]) => subject.settled?.())]);
  const windows = await Promise.all(
    started.map(([key, , subject]) =>
      watch(subject, WINDOW_MS).catch((error: unknown) => {
        throw new Error(`The process of the scenario ${key} has ended.`, { cause: error });
      }),
    ),
  );
  const stops = await Promise.all(started.map(([, , subject]) => watchStops(subject, STOPS_MS)));
  for (const { stop } of looks) stop();
  await endAll();
  return started.map(([key, name, subject], n) => ({
    ...{ key, name, window: windows[n] as Window, stops: stops[n] ?? null },
    firstValue: subject.firstValue?.() ?? null,
    checksMs: looks[n]?.checksMs ?? [],
  }));
}

async function nodeRed(folder: string, ends: Ends): Promise<readonly Started[]> {
  const subject = await startNodeRed(folder, LIVE, ends);
  return subject === null ? [] : [["node-red", "Node-RED", subject]];
}

const ownRow = (scenario: Scenario) =>
  [`${scenario.sources} × ${scenario.tags} tags, every ${scenario.every}`, scenario] as const;

function unknown(key: string): never {
  throw new Error(`There is no scenario ${key}; known are: ${Object.keys(SCENARIOS).join(", ")}.`);
}

const perValue = ({ used, values }: Window) => (1_000 * used.processorMs) / values;
const share = ({ used, seconds }: Window) => used.processorMs / seconds / 10;
const shown = (value: number, digits = 0) => (Number.isFinite(value) ? value.toFixed(digits) : "–");

function line({ name, stops, window }: Row, minimal: Window): string {
  const { used, values } = window;
  return [
    name.padEnd(42),
    shown(perValue(window)).padStart(9),
    shown(perValue(window) / perValue(minimal), 2).padStart(8),
    shown(share(window), 2).padStart(8),
    shown(used.residentBytes / 2 ** 20).padStart(6),
    shown(used.peakBytes / 2 ** 20).padStart(6),
    shown(values === 0 ? Number.NaN : used.writtenBytes / values).padStart(9),
    shown(stops?.processorMs ?? Number.NaN).padStart(8),
  ].join(" ");
}

const own: Scenario | null =
  size.sources === undefined
    ? null
    : { sources: Number(size.sources), tags: Number(size.tags ?? 20), every: size.every ?? "3s" };
const keys = own !== null ? ["own"] : positionals.length > 0 ? positionals : Object.keys(SCENARIOS);
for (const key of keys) if (key !== "own" && SCENARIOS[key] === undefined) unknown(key);

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
  const rows = await run(folder, keys, ends);
  const minimalOf = ({ key }: Row) =>
    rows.find((row) => row.key === (key === "many" ? "minimal many" : "minimal"))?.window;
  process.stdout.write(
    `\n${"".padEnd(42)}  µs/value  minimal   % core    MiB   peak  B/value  stop ms\n${rows
      .map((row) => line(row, minimalOf(row) ?? row.window))
      .join("\n")}\n`,
  );
  judge(rows);
} finally {
  await endAll();
  await Promise.all([broker.stop(), database.stop()]);
  rmSync(folder, { recursive: true, force: true });
}

/** What was not measured is not judged. */
function judge(rows: readonly Row[]): void {
  const rowOf = (key: string) => rows.find((row) => row.key === key);
  const both = <T>(one: string, other: string, compare: (a: Row, b: Row) => T): readonly T[] => {
    const [a, b] = [rowOf(one), rowOf(other)];
    return a === undefined || b === undefined ? [] : [compare(a, b)];
  };
  type Judged = readonly [what: string, value: number, most: number];
  const ratio =
    (what: string) =>
    (a: Row, b: Row): Judged => [...([what, perValue(a.window) / perValue(b.window), MOST.ratio] as const)];
  const live = rowOf("live");
  const checks = rows.flatMap(({ checksMs }) => checksMs).toSorted((a, b) => a - b);
  const judged: readonly Judged[] = [
    ...both("live", "minimal", ratio("a live value of 20 sources, of the minimal program's")),
    ...both("many", "minimal many", ratio("a live value of 200 sources, of the minimal program's")),
    ...(live === undefined
      ? []
      : [
          [
            "bytes written for a live value",
            live.window.used.writtenBytes / live.window.values,
            MOST.writtenBytes,
          ] as const,
        ]),
    ...both(
      "large",
      "one",
      (a, b): Judged => ["50,000 tags against 20, share of a core", share(a.window) / share(b.window), MOST.growth],
    ),
    ...both(
      "receivers",
      "standing",
      (a, b): Judged => [
        "% of a core for 1,000 standing alarms and receiver",
        (share(a.window) - share(b.window)) / 10,
        MOST.standing,
      ],
    ),
    ["% of a core for a health check every 60 s", (median(checks) / HEALTH_EVERY_MS) * 100, MOST.health],
    ...rows
      .filter(({ key }) => key === "lists")
      .map((row): Judged => ["seconds to the first value, 3,000 tags", row.firstValue ?? Number.NaN, MOST.firstValue]),
    ...rows.flatMap(({ key, name, stops }): readonly Judged[] =>
      stops === null
        ? []
        : [[`longest stop, ms: ${name}`, stops.processorMs, key === "large" ? MOST.watchedStop : MOST.stop]],
    ),
  ];
  process.stdout.write("\n");
  for (const [what, value, most] of judged) {
    process.stdout.write(
      `  ${value <= most ? "reached" : "MISSED "}  ${what}: ${shown(value, value < 1 ? 3 : 1)}, at most ${most}\n`,
    );
    if (!(value <= most)) process.exitCode = 1;
  }
}

function median(sorted: readonly number[]): number {
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
