import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { Client } from "pg";
import { absent, startMosquitto, startPostgres, startVictoriaMetrics } from "../../real-servers.ts";
import {
  checkGoal,
  decimal,
  endPrograms,
  printMachine,
  printTable,
  readUsage,
  type Service,
  sourcesConfig,
  startService,
  startWorker,
  withFolder,
} from "../harness.ts";

/** A fleet of 300 sources in 1, 2 and 3 members, compared with SQLite (`npm run bench:fleet`, eight minutes). */
const { values: options } = parseArgs({
  options: { sources: { type: "string", default: "300" }, seconds: { type: "string", default: "30" } },
});
const MANY = Number(options.sources);
const FEW = Math.max(1, Math.round(MANY / 10));
const TAGS = 300;
/** 15 requests of 20 tags each 45 s are 20 requests a minute, the complete quota. */
const READ_INTERVAL = "45s";
const VALUES_PER_S = (20 * 20) / 60;
const CONNECTIONS = 16;
const WARM_MOST_MS = 60_000;
const FULL_QUOTA = 0.88;
const BUSY = 0.93;

interface Scenario {
  readonly name: string;
  readonly sources: number;
  readonly members: number;
}

/** Runs one after the other; the scenarios of one run are measured at the same time. */
const RUNS: readonly (readonly Scenario[])[] = [
  [
    { name: `SQLite, ${FEW} sources`, sources: FEW, members: 0 },
    { name: `PostgreSQL, ${FEW}, 1 member`, sources: FEW, members: 1 },
  ],
  [{ name: `SQLite, ${MANY} sources`, sources: MANY, members: 0 }],
  ...[1, 2, 3].map((members) => [{ name: `PostgreSQL, ${MANY}, ${members} member(s)`, sources: MANY, members }]),
];

interface Servers {
  readonly mqtt: string;
  readonly influx: string;
  readonly postgres: { readonly url: string; readonly pid: number };
}

interface RunningFleet {
  readonly scenario: Scenario;
  readonly service: Service;
  readonly pids: readonly number[];
  readonly stateFolder: string;
  readonly schema: string;
}

async function start(folder: string, scenario: Scenario, servers: Servers): Promise<RunningFleet> {
  const { sources, members } = scenario;
  const service = await startService("--tags", String(TAGS));
  const schema = `bench_${sources}_${members}`;
  const postgres = { url: `${servers.postgres.url}?sslmode=disable`, schema, connections: CONNECTIONS };
  const filter = { kinds: ["tag-value"] };
  const config = {
    state: members === 0 ? {} : { postgres },
    sources: sourcesConfig(service.url, sources, {
      schedules: { hosts: false, systems: false },
      read: [{ name: "all", every: READ_INTERVAL, fresher: true }],
    }),
    sinks: {
      broker: { mqtt: { url: servers.mqtt, prefix: folder.replaceAll(/\W/g, "_") }, filter },
      lake: { influxdb: { url: servers.influx, api: "v2", bucket: "bench" }, filter },
    },
  };
  const names = Array.from({ length: Math.max(1, members) }, (_, n) => `m${n}`);
  const workers = await Promise.all(
    names.map((name) => startWorker(join(folder, name), config, ...(members === 0 ? [] : ["--member", name]))),
  );
  const pids = workers.map(({ pid }) => pid);
  return { scenario, service, pids, schema, stateFolder: join(folder, "m0", "state") };
}

async function warm({ scenario, service }: RunningFleet): Promise<void> {
  const untilMs = performance.now() + WARM_MOST_MS;
  while (performance.now() < untilMs && (await service.counts()).values < scenario.sources * TAGS) await sleep(1_000);
}

/** Totals since the start. Null where SQLite has no such figure. */
interface FleetTotals {
  readonly seconds: number;
  readonly values: number;
  readonly events: number;
  readonly delivered: number;
  readonly databaseMs: number;
  readonly machineBusy: number;
  readonly machineAll: number;
  readonly commits: number;
  readonly walBytes: number;
  readonly stateBytes: number;
}

interface Row {
  readonly scenario: Scenario;
  readonly grown: FleetTotals;
  readonly workersMs: number;
  readonly busiestMs: number;
}

async function measureFleet(subject: RunningFleet, servers: Servers): Promise<Row> {
  const workers = () => subject.pids.map((pid) => readUsage(pid).processorMs);
  const [before, workersBefore] = [await readTotals(subject, servers), workers()];
  await sleep(Number(options.seconds) * 1_000);
  const [after, workersAfter] = [await readTotals(subject, servers), workers()];
  const usedMs = workersAfter.map((ms, n) => ms - (workersBefore[n] ?? 0));
  const differences = Object.entries(after).map(([key, value]) => [key, value - before[key as keyof FleetTotals]]);
  return {
    scenario: subject.scenario,
    grown: Object.fromEntries(differences) as FleetTotals,
    workersMs: usedMs.reduce((a, b) => a + b, 0),
    busiestMs: Math.max(...usedMs),
  };
}

async function readTotals(subject: RunningFleet, { postgres }: Servers): Promise<FleetTotals> {
  const isSqlite = subject.scenario.members === 0;
  const stateTotals = isSqlite ? sqliteTotals(subject.stateFolder) : await postgresTotals(postgres.url, subject.schema);
  const ticks = (/^cpu +(.*)/.exec(readFileSync("/proc/stat", "utf8"))?.[1] ?? "").split(" ").slice(0, 8).map(Number);
  const machineAll = ticks.reduce((a, b) => a + b, 0);
  return {
    seconds: performance.now() / 1_000,
    values: (await subject.service.counts()).values,
    ...stateTotals,
    databaseMs: isSqlite ? 0 : treeMs(postgres.pid),
    machineAll,
    // Fields 3 and 4 are idle and waiting for the disk.
    machineBusy: machineAll - (ticks[3] ?? 0) - (ticks[4] ?? 0),
  };
}

/** Reads the database file, because the worker's metrics of many sources would cost more than what is measured. */
function sqliteTotals(folder: string) {
  const database = new DatabaseSync(join(folder, "plenum.db"), { readOnly: true });
  try {
    const one = (text: string) => Number(Object.values(database.prepare(text).get() ?? {})[0]);
    return {
      events: one("select seq from sqlite_sequence where name = 'event'"),
      delivered: one("select sum(position) from sink"),
      ...{ commits: Number.NaN, walBytes: Number.NaN },
      stateBytes: Number(execFileSync("du", ["-sb", folder]).toString().split("\t")[0]),
    };
  } finally {
    database.close();
  }
}

async function postgresTotals(url: string, schema: string) {
  const client = new Client({ connectionString: url, options: `-c search_path=${schema}` });
  await client.connect();
  try {
    const { rows } = await client.query({
      text: `select (select sum(last_position) from source), (select sum(position) from sink),
          (select xact_commit from pg_stat_database where datname = current_database()),
          pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0'),
          (select sum(pg_total_relation_size(c.oid)) from pg_class c join pg_namespace n on n.oid = relnamespace
           where nspname = $1 and relkind = 'r')`,
      values: [schema],
      rowMode: "array",
    });
    const [events = 0, delivered = 0, commits = 0, walBytes = 0, stateBytes = 0] = (rows[0] as unknown[]).map(Number);
    return { events, delivered, commits, walBytes, stateBytes };
  } finally {
    await client.end();
  }
}

/** Processor time of a process and its children, ended ones included. Linux counts in hundredths of a second. */
function treeMs(pid: number): number {
  let ticks = 0;
  for (const processName of readdirSync("/proc")) {
    if (!/^\d+$/.test(processName)) continue;
    try {
      const fields = readFileSync(`/proc/${processName}/stat`, "utf8").split(") ").at(-1)?.split(" ") ?? [];
      const isRoot = Number(processName) === pid;
      if (!isRoot && Number(fields[1]) !== pid) continue;
      ticks += Number(fields[11]) + Number(fields[12]);
      if (isRoot) ticks += Number(fields[13]) + Number(fields[14]);
    } catch {
      // The process has ended; its parent counts it.
    }
  }
  return ticks * 10;
}

const valueCost = ({ workersMs, grown }: Row) => (1_000 * workersMs) / grown.values;
const machineShare = ({ grown }: Row) => grown.machineBusy / grown.machineAll;
const HEAD = ["", "values/s", "wanted", "settled/s", "µs/value", "database", "commits/s", "B/event", "WAL/event"];

function cells(row: Row): readonly string[] {
  const { scenario, grown, workersMs, busiestMs } = row;
  const { seconds, values, delivered, events } = grown;
  return [
    ...[scenario.name, decimal(values / seconds), decimal(scenario.sources * VALUES_PER_S)],
    // Each value goes to two sinks.
    ...[decimal(delivered / 2 / seconds), decimal(valueCost(row))],
    scenario.members === 0 ? "–" : decimal((1_000 * grown.databaseMs) / values),
    ...[decimal(grown.commits / seconds), decimal(grown.stateBytes / events), decimal(grown.walBytes / events)],
    ...[decimal(workersMs / seconds / 10), decimal(busiestMs / seconds / 10), decimal(100 * machineShare(row))],
  ];
}

function describeLimit(row: Row): string {
  const { scenario, grown, busiestMs } = row;
  const quotaShare = grown.values / grown.seconds / (scenario.sources * VALUES_PER_S);
  const isBehind = grown.delivered / 2 / grown.values <= 0.95;
  if (quotaShare > FULL_QUOTA && !isBehind) return `${scenario.name}: the complete quota is used`;
  const limits = [
    ...(busiestMs / grown.seconds / 1_000 > BUSY ? ["the one thread of a worker"] : []),
    ...(machineShare(row) > BUSY ? ["the machine's processors"] : []),
  ];
  const limitCause = limits.length === 0 ? "not a processor" : limits.join(" and ");
  return `${scenario.name}: ${decimal(100 * quotaShare)} % of the quota${isBehind ? ", delivery falls behind" : ""}; limit: ${limitCause}`;
}

function compareCosts(measured: readonly Row[]): void {
  const findCost = (sources: number, members: number) => {
    const row = measured.find(({ scenario }) => scenario.sources === sources && scenario.members === members);
    return row === undefined ? Number.NaN : valueCost(row);
  };
  const ratios = [
    [`${MANY} sources / ${FEW}, SQLite`, findCost(MANY, 0) / findCost(FEW, 0)],
    [`PostgreSQL / SQLite, ${FEW} sources`, findCost(FEW, 1) / findCost(FEW, 0)],
    [`PostgreSQL / SQLite, ${MANY} sources`, findCost(MANY, 1) / findCost(MANY, 0)],
    ["3 members / 1", findCost(MANY, 3) / findCost(MANY, 1)],
  ] as const;
  const rows = ratios.map(([what, ratio]) => [what, decimal(ratio, 2)]);
  printTable("Cost of a value, ratios", ["", ""], rows);
  const growth = findCost(MANY, 1) / findCost(FEW, 1);
  checkGoal(`cost of a value, ${MANY} sources / ${FEW}, PostgreSQL`, growth, "at most", 1.1);
}

if (absent("postgres") || absent("mosquitto") || absent("victoria-metrics")) process.exit(1);
const broker = await startMosquitto({ moreLines: ["max_queued_messages 0", "set_tcp_nodelay true"] });
const lake = await startVictoriaMetrics();
const postgres = await startPostgres({ lines: ["max_connections = 200", "max_wal_size = 4GB"] });
try {
  await withFolder(async (folder) => {
    printMachine();
    const [pid = ""] = readFileSync(join(postgres.folder, "data", "postmaster.pid"), "utf8").split("\n");
    const servers = { mqtt: broker.url, influx: lake.url, postgres: { url: postgres.url, pid: Number(pid) } };
    const rows: Row[] = [];
    for (const [n, scenarios] of RUNS.entries()) {
      const fleets = await Promise.all(
        scenarios.map((scenario) => start(join(folder, `${n}-${scenario.members}`), scenario, servers)),
      );
      await Promise.all(fleets.map(warm));
      rows.push(...(await Promise.all(fleets.map((subject) => measureFleet(subject, servers)))));
      await endPrograms("SIGKILL");
    }
    printTable("", [...HEAD, "% core", "busiest", "machine"], rows.map(cells));
    console.log(`\n${rows.map(describeLimit).join("\n")}`);
    compareCosts(rows);
  });
} finally {
  await Promise.all([broker.stop(), lake.stop(), postgres.stop()]);
}
