import { execFile } from "node:child_process";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { BUNDLE, BUNDLED_MAIN } from "../../../tools/bundle.ts";
import { runProgram } from "../../plenum-process.ts";
import { absent, startMosquitto, startVictoriaMetrics } from "../../real-servers.ts";
import {
  type Counts,
  checkGoal,
  decimal,
  type LoopStops,
  MEBIBYTE,
  printMachine,
  printTable,
  readUsage,
  sourcesConfig,
  startService,
  startWorker,
  trackProgram,
  type UsedResources,
  type Worker,
  withFolder,
} from "../harness.ts";

/** Processor time of workers relative to a minimal program (`npm run bench:cost`, 40 minutes; `--lists`, `--quick`). */
const { positionals, values: size } = parseArgs({
  allowPositionals: true,
  options: {
    sources: { type: "string" },
    tags: { type: "string" },
    every: { type: "string" },
    lists: { type: "boolean", default: false },
    quick: { type: "boolean", default: false },
  },
});

interface Scenario {
  readonly name: string;
  readonly sources: number;
  readonly tags: number;
  readonly every: string | null;
  readonly alarms?: number;
  readonly schedules?: object;
  readonly steady?: boolean;
  readonly receivers?: number;
  readonly defaultLists?: boolean;
  /** True measures the requests of ten minutes of monitoring in a window of their own. */
  readonly isWatched?: boolean;
  readonly program?: "minimal";
}

const FULL_LOAD = { sources: 20, tags: 20, every: "3s" };
const ONE_SOURCE = { ...FULL_LOAD, sources: 1 };
const STANDING = { ...ONE_SOURCE, every: null, alarms: 5_000 };
const LISTED = { ...ONE_SOURCE, every: null, alarms: 400, schedules: { alarms: "* * * * * *" } };
const MINIMAL_PROGRAM = { name: "minimal program", program: "minimal" } as const;
const EVERY_SECOND = "* * * * * *";
const NO_LISTS = { resolved_sweep: false, alarms: false, tags: "0 0 1 1 *" };
const IDLE_LISTS = { ...ONE_SOURCE, every: null, schedules: NO_LISTS };
const ALARM_LISTS = { ...IDLE_LISTS, schedules: { ...NO_LISTS, alarms: EVERY_SECOND } };
const TAG_LISTS = { ...IDLE_LISTS, schedules: { ...NO_LISTS, tags: EVERY_SECOND } };

/** Lists that never change, as often as the rate of list requests allows. */
const LISTS: Readonly<Record<string, Scenario>> = {
  "no-lists": { ...IDLE_LISTS, name: "nothing listed" },
  "alarms-500": { ...ALARM_LISTS, name: "500 alarms, one page", alarms: 500 },
  "alarms-5000": { ...ALARM_LISTS, name: "5,000 alarms, ten pages", alarms: 5_000 },
  "tags-50000": { ...TAG_LISTS, name: "50,000 tags, 100 pages", tags: 50_000 },
  "read-3000": { ...IDLE_LISTS, name: "3,000 tags, read", tags: 3_000, every: "5m" },
  "read-50000": { ...IDLE_LISTS, name: "50,000 tags, read", tags: 50_000, every: "1h" },
};

const WORKERS: Readonly<Record<string, Scenario>> = {
  live: { ...FULL_LOAD, name: "20 sources, 20 tags each, at full quota" },
  steady: { ...FULL_LOAD, name: "the same, nothing changes (on_change)", steady: true },
  idle: { ...FULL_LOAD, name: "20 sources, nothing read", every: null },
  many: { ...FULL_LOAD, name: "200 sources, 20 tags each, at full quota", sources: 200 },
  one: { ...ONE_SOURCE, name: "1 source, 20 tags" },
  tags: { ...ONE_SOURCE, name: "1 source, 3,000 tags", tags: 3_000, every: "10m" },
  large: { ...ONE_SOURCE, name: "1 source, 50,000 tags", tags: 50_000, every: "3h", isWatched: true },
  lists: { ...ONE_SOURCE, name: "1 source, 3,000 tags, default lists", tags: 3_000, every: "10m", defaultLists: true },
  listed: { ...LISTED, name: "1 source, 400 alarms listed each second" },
  standing: { ...STANDING, name: "1 source, 5,000 standing alarms", isWatched: true },
  receivers: { ...STANDING, name: "the same, with two receivers", receivers: 2 },
};
const SCENARIOS: Readonly<Record<string, Scenario>> = { ...WORKERS, ...LISTS };
/** Workers with the load of the minimal program. */
const COMPARED_KEYS = ["live", "steady", "idle"];

/** V8 compiles for about eight minutes at the rate of the quota, and a worker runs for months. */
const WARM_MS = size.quick ? 10_000 : size.lists ? 90_000 : 480_000;
const WINDOW_MS = size.quick ? 10_000 : 60_000;
/** Number of windows, of which the median counts: single minutes differ by a third. */
const WINDOWS = size.quick ? 1 : 3;
const HEALTH_EVERY_MS = 30_000;
const SCRAPE_EVERY_MS = 15_000;
const SETTLED_S = 300;

interface Servers {
  readonly mqtt: string;
  readonly influx: string;
}

interface MeasuredProgram {
  readonly pid: number;
  readonly counts: () => Promise<Counts>;
  readonly worker?: Worker;
  /** Seconds until the first value was requested, once that happened. */
  readonly firstValue?: () => number | null;
  readonly checksMs: number[];
}

async function start(folder: string, scenario: Scenario, servers: Servers): Promise<MeasuredProgram> {
  const { sources, tags, alarms = 0, steady, program } = scenario;
  const service = await startService(
    ...["--tags", `${tags}`, "--alarms", `${alarms}`, ...(steady ? ["--steady"] : [])],
  );
  const programBase = { counts: service.counts, checksMs: [] };
  if (program === "minimal") {
    const args = ["--service", service.url, "--mqtt", servers.mqtt, "--influx", servers.influx];
    const file = join(import.meta.dirname, "minimal.ts");
    const all = [file, ...args, "--sources", String(sources), "--folder", folder];
    const minimal = trackProgram(runProgram(process.execPath, all));
    await minimal.waitForOutput("running");
    return { ...programBase, pid: minimal.pid };
  }
  const worker = await startWorker(folder, workerConfig(folder, scenario, service.url, servers));
  if (scenario.schedules !== undefined) worker.resetStops();
  const startMs = performance.now();
  let firstValue: number | null = null;
  const checkOnce = async () => {
    const { values } = await service.counts().catch(() => ({ values: 0 }));
    if (values === 0) return;
    firstValue ??= (performance.now() - startMs) / 1_000;
    clearInterval(valueCheck);
  };
  const valueCheck = setInterval(() => void checkOnce(), 100);
  if (scenario.every === null) clearInterval(valueCheck);
  valueCheck.unref();
  return { ...programBase, pid: worker.pid, worker, firstValue: () => firstValue };
}

function workerConfig(folder: string, scenario: Scenario, url: string, servers: Servers) {
  const { every, steady, receivers = 0, sources, schedules } = scenario;
  const readClass = {
    name: "all",
    every,
    fresher: every === FULL_LOAD.every,
    ...(steady ? { on_change: true, max_silence: "7d" } : {}),
  };
  const servicenow = {
    ...{ url: new URL(url).origin, user: "bench", password: { env: "BENCH_PASSWORD" } },
    ...{ close_code: "Solved", initial: true, allow_networks: ["127.0.0.0/8"] },
  };
  return {
    sources: sourcesConfig(url, sources, {
      ...(scenario.defaultLists ? { quota: undefined, page_size: undefined } : {}),
      schedules: { hosts: false, systems: false, ...schedules },
      read: every === null ? [] : [readClass],
    }),
    sinks: {
      broker: { mqtt: { url: servers.mqtt, prefix: folder.replaceAll(/\W/g, "_") } },
      lake: { influxdb: { url: servers.influx, api: "v2", bucket: "bench" } },
      ...Object.fromEntries(Array.from({ length: receivers }, (_, n) => [`desk${n}`, { servicenow }])),
    },
  };
}

async function request({ statusUrl }: Worker, path: string): Promise<void> {
  const reply = await fetch(`${statusUrl}${path}`).catch(() => null);
  await reply?.text().catch(() => null);
}

async function sendTenMinutesOfRequests(worker: Worker): Promise<void> {
  const scrapes = (10 * 60_000) / SCRAPE_EVERY_MS;
  for (let n = 0; n < scrapes; n += 1) {
    await request(worker, "/metrics");
    if (n % (HEALTH_EVERY_MS / SCRAPE_EVERY_MS) === 0) await request(worker, "/readyz");
    await sleep(WINDOW_MS / scrapes);
  }
}

function monitor({ worker, checksMs }: MeasuredProgram): readonly NodeJS.Timeout[] {
  if (worker === undefined) return [];
  const repositoryFolder = join(import.meta.dirname, "../../..");
  const runHealthCheck = () => {
    const command = [join(repositoryFolder, BUNDLE, BUNDLED_MAIN), "status", "--probe", "--config", "plenum.yaml"];
    // bash prints the processor time of its command in seconds.
    const script = 'TIMEFORMAT="%U %S"; time "$0" "$@"';
    const env = { ...process.env, NODE_COMPILE_CACHE: join(repositoryFolder, "node_modules/.cache/plenum") };
    const probeProcess = execFile("bash", ["-c", script, process.execPath, ...command], { cwd: worker.folder, env });
    probeProcess.stderr?.on("data", (text: string) => {
      const [, user, system] = /([\d.]+) ([\d.]+)/.exec(text) ?? [];
      checksMs.push((Number(user) + Number(system)) * 1_000);
    });
  };
  const health = () => {
    void request(worker, "/readyz");
    runHealthCheck();
  };
  const scrape = () => void request(worker, "/metrics");
  return [setInterval(scrape, SCRAPE_EVERY_MS), setInterval(health, HEALTH_EVERY_MS)];
}

async function waitForTickets({ alarms = 0, receivers = 0 }: Scenario, { counts }: MeasuredProgram): Promise<void> {
  for (let waitedSeconds = 0; (await counts()).tickets < alarms * receivers; waitedSeconds++) {
    if (waitedSeconds === SETTLED_S) throw new Error("The receivers do not have all records after five minutes.");
    await sleep(1_000);
  }
}

interface Row {
  readonly scenario: Scenario;
  readonly seconds: number;
  readonly used: UsedResources;
  readonly values: number;
  readonly records: number;
  readonly first: LoopStops | null;
  readonly stops: LoopStops | null;
  readonly firstValue: number | null;
  readonly checksMs: readonly number[];
  /** Processor time of ten minutes of `/metrics` and `/readyz`. */
  readonly watchedMs: number | null;
}

async function measureCost(scenario: Scenario, subject: MeasuredProgram): Promise<Row> {
  const { pid, counts, worker, checksMs } = subject;
  const firstStops = scenario.schedules === undefined ? null : ((await worker?.stops()) ?? null);
  const windows: Pick<Row, "seconds" | "used" | "values" | "records">[] = [];
  while (windows.length < WINDOWS) {
    const [before, countsBefore, begin] = [readUsage(pid), await counts(), performance.now()];
    await sleep(WINDOW_MS);
    const [after, countsAfter] = [readUsage(pid), await counts()];
    const processorMs = after.processorMs - before.processorMs;
    windows.push({
      seconds: (performance.now() - begin) / 1_000,
      used: { ...after, processorMs, writtenBytes: after.writtenBytes - before.writtenBytes },
      values: countsAfter.values - countsBefore.values,
      records: countsAfter.records - countsBefore.records,
    });
  }
  const median = windows.toSorted((a, b) => coreShare(a) - coreShare(b))[Math.floor(WINDOWS / 2)];
  if (median === undefined) throw new Error("There is no window.");
  let watchedMs: number | null = null;
  if (worker !== undefined && scenario.isWatched) {
    const [watchedBefore, watchedBegin] = [readUsage(pid), performance.now()];
    await sendTenMinutesOfRequests(worker);
    const unwatchedMs = (coreShare(median) * (performance.now() - watchedBegin)) / 100;
    watchedMs = readUsage(pid).processorMs - watchedBefore.processorMs - unwatchedMs;
  }
  // Measuring stops takes processor time, so that is a window of its own.
  worker?.resetStops();
  await sleep(WINDOW_MS);
  return {
    ...{ scenario, ...median, first: firstStops, checksMs, watchedMs },
    ...{ stops: (await worker?.stops()) ?? null, firstValue: subject.firstValue?.() ?? null },
  };
}

const coreShare = ({ used, seconds }: Pick<Row, "used" | "seconds">) => used.processorMs / seconds / 10;
const perValue = ({ used, values }: Row) => (1_000 * used.processorMs) / values;
const withoutIdleMs = (row: Row, idle: Row) =>
  row.used.processorMs - (idle.used.processorMs * row.seconds) / idle.seconds;
const perRecord = (row: Row, idle: Row) => (1_000 * withoutIdleMs(row, idle)) / row.records;
const resident = ({ used }: Row) => used.residentBytes / MEBIBYTE;

function printRows(rows: ReadonlyMap<string, Row>): void {
  const idleRow = rows.get("no-lists");
  const head = ["", "µs/value", "minimal", "µs/record", "% core", "MiB", "peak", "B/value", "new, stop ms", "stop ms"];
  const tableRows = [...rows].map(([key, row]) => {
    const minimal = rows.get(key.endsWith("many") ? "minimal-many" : "minimal");
    return [
      ...[row.scenario.name, decimal(perValue(row))],
      decimal(minimal === undefined ? null : perValue(row) / perValue(minimal), 2),
      decimal(idleRow === undefined || row.records === 0 ? null : perRecord(row, idleRow), 1),
      ...[decimal(coreShare(row), 2), decimal(resident(row)), decimal(row.used.peakBytes / MEBIBYTE)],
      decimal(row.values === 0 ? null : row.used.writtenBytes / row.values),
      ...[decimal(row.first?.processorMs ?? null), decimal(row.stops?.processorMs ?? null)],
    ];
  });
  printTable("", head, tableRows);
}

function checkGoals(rows: ReadonlyMap<string, Row>): void {
  const checkRows = (what: string, [key, other = key]: string[], value: (a: Row, b: Row) => number, most: number) => {
    const [a, b] = [rows.get(key ?? ""), rows.get(other ?? "")];
    if (a !== undefined && b !== undefined) checkGoal(what, value(a, b), "at most", most);
  };
  const ratio = (a: Row, b: Row) => perValue(a) / perValue(b);
  const growth = (a: Row, b: Row) => coreShare(a) / coreShare(b);
  const perReceiver = (a: Row, b: Row) => (coreShare(a) - coreShare(b)) / 10;
  console.log();
  checkRows("a live value of 20 sources / of the minimal program", ["live", "minimal"], ratio, 1.3);
  const [live, idle, minimal] = [rows.get("live"), rows.get("idle"), rows.get("minimal")];
  // The minimal program polls no alarms and no lists, has no metrics and no health check.
  if (live !== undefined && idle !== undefined && minimal !== undefined) {
    const valueMicros = (1_000 * withoutIdleMs(live, idle)) / live.values;
    checkGoal("the same without the work of an idle worker", valueMicros / perValue(minimal), "at most", 1.3);
  }
  checkRows("a live value of 200 sources / of the minimal program", ["many", "minimal-many"], ratio, 1.3);
  checkRows("bytes written for a live value", ["live"], ({ used, values }) => used.writtenBytes / values, 2_000);
  checkRows("share of a core with 50,000 tags / with 20", ["large", "one"], growth, 2.9);
  checkRows("% of a core with 3,000 tags", ["tags"], coreShare, 5);
  checkRows("% of a core for 1,000 standing alarms and a receiver", ["receivers", "standing"], perReceiver, 0.02);
  checkRows("seconds to the first value, 3,000 tags", ["lists"], ({ firstValue }) => firstValue ?? Number.NaN, 5);
  // Limits are half above the measured figures.
  checkRows("µs of a listed alarm of 500", ["alarms-500", "no-lists"], perRecord, 22);
  checkRows("µs of a listed alarm of 5,000", ["alarms-5000", "no-lists"], perRecord, 18);
  checkRows("µs of a listed tag of 50,000", ["tags-50000", "no-lists"], perRecord, 18);
  checkRows("MiB resident with 3,000 tags", ["read-3000"], resident, 180);
  checkRows("MiB resident with 50,000 tags", ["read-50000"], resident, 230);
  for (const { scenario, first, stops, watchedMs } of rows.values()) {
    if (watchedMs !== null)
      checkGoal(`% of a core for being watched: ${scenario.name}`, watchedMs / 6_000, "at most", 0.1);
    if (first !== null) checkGoal(`longest stop while new, ms: ${scenario.name}`, first.processorMs, "at most", 50);
    const maxStopMs = scenario.isWatched ? 20 : 50;
    if (stops !== null) checkGoal(`longest stop, ms: ${scenario.name}`, stops.processorMs, "at most", maxStopMs);
  }
  const checks = [...rows.values()].flatMap(({ checksMs }) => checksMs).toSorted((a, b) => a - b);
  const median = checks[Math.floor(checks.length / 2)];
  if (median !== undefined) checkGoal("% of a core for a health check every 60 s", median / 600, "at most", 0.1);
}

type NamedScenario = readonly [key: string, Scenario];

/** Scenarios of one group run at once. More load slows all programs, and a worker more than the minimal program. */
function selectScenarios(): readonly (readonly NamedScenario[])[] {
  const { sources, tags = "20", every = "3s" } = size;
  if (sources !== undefined) {
    const customLoad = { sources: Number(sources), tags: Number(tags), every };
    const customName = `${sources} × ${tags} tags, every ${every}`;
    const minimal = ["minimal", { ...customLoad, ...MINIMAL_PROGRAM }] as const;
    return [[minimal, ["own", { ...customLoad, name: customName }]]];
  }
  if (size.lists) return [Object.entries(LISTS)];
  const keys = positionals.length > 0 ? positionals : Object.keys(WORKERS);
  const unknownKeys = keys.filter((key) => SCENARIOS[key] === undefined);
  if (unknownKeys.length > 0)
    throw new Error(`Unknown: ${unknownKeys.join()}. Scenarios: ${Object.keys(SCENARIOS).join(", ")}.`);
  const select = (isChosen: (key: string) => boolean) =>
    keys.filter(isChosen).map((key): NamedScenario => [key, SCENARIOS[key] as Scenario]);
  const minimal: NamedScenario = ["minimal", { ...FULL_LOAD, ...MINIMAL_PROGRAM }];
  const minimalMany: NamedScenario = ["minimal-many", { ...FULL_LOAD, ...MINIMAL_PROGRAM, sources: 200 }];
  const compared = select((key) => COMPARED_KEYS.includes(key));
  const many = select((key) => key === "many");
  const others = select((key) => key !== "many" && !COMPARED_KEYS.includes(key));
  return [
    compared.length > 0 ? [minimal, ...compared] : [],
    many.length > 0 ? [minimalMany, ...many] : [],
    others,
  ].filter((group) => group.length > 0);
}

function measureGroup(group: readonly NamedScenario[], servers: Servers): Promise<readonly (readonly [string, Row])[]> {
  return withFolder(async (folder) => {
    const programs = await Promise.all(
      group.map(async ([key, scenario]) => {
        const subject = await start(join(folder, key), scenario, servers);
        return { key, scenario, subject };
      }),
    );
    const timers = programs.flatMap(({ subject }) => monitor(subject));
    await Promise.all([sleep(WARM_MS), ...programs.map(({ scenario, subject }) => waitForTickets(scenario, subject))]);
    const rows = await Promise.all(
      programs.map(async ({ key, scenario, subject }) => [key, await measureCost(scenario, subject)] as const),
    );
    for (const timer of timers) clearInterval(timer);
    return rows;
  });
}

if (absent("mosquitto") || absent("victoria-metrics")) process.exit(1);
const broker = await startMosquitto({ moreLines: ["max_queued_messages 0"] });
const database = await startVictoriaMetrics();
try {
  printMachine();
  const rows = new Map<string, Row>();
  for (const group of selectScenarios())
    for (const [key, row] of await measureGroup(group, { mqtt: broker.url, influx: database.url })) rows.set(key, row);
  printRows(rows);
  checkGoals(rows);
} finally {
  await Promise.all([broker.stop(), database.stop()]);
}
