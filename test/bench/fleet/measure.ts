import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { Client } from "pg";
import { usedBy } from "../process-use.ts";
import type { Subject } from "./subjects.ts";

/** What was used between two moments, and for how much. */
export interface Window {
  readonly seconds: number;
  /** Asked of the service. */
  readonly values: number;
  /** Events that a sink has settled, both sinks together. */
  readonly delivered: number;
  readonly events: number;
  /** Processor time in milliseconds. */
  readonly workersMs: number;
  /** Of the worker that used most. */
  readonly busiestMs: number;
  readonly databaseMs: number;
  readonly serviceMs: number;
  /** Share of all processors that was not idle, of everybody on this machine. */
  readonly machineShare: number;
  /** Null where it is not known (SQLite). */
  readonly commits: number | null;
  readonly walBytes: number | null;
  /** By which the state grew. */
  readonly stateBytes: number;
}

/** The server's own process; its connections are its children. */
export interface DatabaseProcess {
  readonly pid: number;
  readonly url: string;
}

interface Snapshot {
  readonly atMs: number;
  readonly values: number;
  readonly delivered: number;
  readonly events: number;
  readonly workers: readonly number[];
  readonly databaseMs: number;
  readonly serviceMs: number;
  readonly machine: { readonly busy: number; readonly all: number };
  readonly commits: number | null;
  readonly walBytes: number | null;
  readonly stateBytes: number;
}

export async function watch(subject: Subject, database: DatabaseProcess, lengthMs: number): Promise<Window> {
  const before = await snapshot(subject, database);
  await new Promise((resolve) => setTimeout(resolve, lengthMs));
  const after = await snapshot(subject, database);
  const workers = after.workers.map((ms, n) => ms - (before.workers[n] ?? 0));
  const grown = (of: (each: Snapshot) => number | null) => {
    const [from, to] = [of(before), of(after)];
    return from === null || to === null ? null : to - from;
  };
  return {
    seconds: (after.atMs - before.atMs) / 1_000,
    values: after.values - before.values,
    delivered: after.delivered - before.delivered,
    events: after.events - before.events,
    workersMs: workers.reduce((a, b) => a + b, 0),
    busiestMs: Math.max(...workers),
    databaseMs: after.databaseMs - before.databaseMs,
    serviceMs: after.serviceMs - before.serviceMs,
    machineShare: (after.machine.busy - before.machine.busy) / (after.machine.all - before.machine.all),
    commits: grown(({ commits }) => commits),
    walBytes: grown(({ walBytes }) => walBytes),
    stateBytes: after.stateBytes - before.stateBytes,
  };
}

async function snapshot(subject: Subject, database: DatabaseProcess): Promise<Snapshot> {
  const { schema, service } = subject;
  const state = schema === null ? ofFolder(subject.folder) : await ofDatabase(database, schema);
  const values = await service.values();
  return {
    atMs: performance.now(),
    values,
    ...state,
    workers: subject.pids.map((pid) => usedBy(pid).processorMs),
    databaseMs: schema === null ? 0 : treeMs(database.pid),
    serviceMs: usedBy(service.pid).processorMs,
    machine: machineTicks(),
  };
}

type State = Pick<Snapshot, "events" | "delivered" | "commits" | "walBytes" | "stateBytes">;

/** Asked beside the worker, whose metrics of so many sources would cost more than what is measured. */
function ofFolder(folder: string): State {
  const database = new DatabaseSync(join(folder, "plenum.db"), { readOnly: true });
  try {
    const one = (text: string) => Number(Object.values(database.prepare(text).get() ?? {})[0]);
    return {
      events: one("select seq from sqlite_sequence where name = 'event'"),
      delivered: one("select sum(position) from sink"),
      commits: null,
      walBytes: null,
      stateBytes: Number(execFileSync("du", ["-sb", folder]).toString().split("\t")[0]),
    };
  } finally {
    database.close();
  }
}

async function ofDatabase({ url }: DatabaseProcess, schema: string): Promise<State> {
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

/** Processor time of a process, its children, and those of them that have ended. Linux counts in hundredths of a second. */
function treeMs(pid: number): number {
  let ticks = 0;
  for (const name of readdirSync("/proc")) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const fields = readFileSync(`/proc/${name}/stat`, "utf8").split(") ").at(-1)?.split(" ") ?? [];
      const isRoot = Number(name) === pid;
      if (!isRoot && Number(fields[1]) !== pid) continue;
      ticks += Number(fields[11]) + Number(fields[12]);
      if (isRoot) ticks += Number(fields[13]) + Number(fields[14]);
    } catch {
      // It ended meanwhile; its parent counts it.
    }
  }
  return ticks * 10;
}

function machineTicks(): Snapshot["machine"] {
  const line = readFileSync("/proc/stat", "utf8").split("\n")[0] ?? "";
  const ticks = line.split(/\s+/).slice(1, 9).map(Number);
  const all = ticks.reduce((a, b) => a + b, 0);
  return { all, busy: all - (ticks[3] ?? 0) - (ticks[4] ?? 0) };
}
