import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Running, runPlenum, runProgram } from "../../plenum-process.ts";
import { freePort } from "../../real-servers.ts";

/** Where values go, and where the state is. */
export interface Ends {
  readonly mqtt: string;
  readonly influx: string;
  /** `postgresql://…`, of the same server in all runs. */
  readonly postgres: string;
}

export interface Scenario {
  readonly name: string;
  readonly sources: number;
  /** 0: one worker with the folder's SQLite. */
  readonly members: number;
}

/** Workers on their own service. */
export interface Subject {
  readonly scenario: Scenario;
  readonly pids: readonly number[];
  /** Schema of its tables, and the folder of its state; what it has not got is left empty. */
  readonly schema: string | null;
  readonly folder: string;
  readonly service: { readonly pid: number; values(): Promise<number> };
}

const TOKEN = "bench-token-0123456789";
export const TAGS = 300;
/** Of a member: enough that many sources' commits share a write to the disk. */
const CONNECTIONS = 16;
/** 15 requests of 20 tags each 45 s are 20 requests a minute, the whole quota. */
const EVERY = "45s";
/** Values a second that one source may be asked for. */
export const VALUES_PER_S = (20 * 20) / 60;

const running: Running[] = [];

export async function endAll(): Promise<void> {
  await Promise.all(running.splice(0).map((each) => each.end("SIGKILL")));
}

function started(subject: Running): Running {
  running.push(subject);
  return subject;
}

async function startService(): Promise<Subject["service"] & { readonly url: string }> {
  const program = join(import.meta.dirname, "../cost/service.ts");
  const service = started(runProgram(process.execPath, [program, "--tags", String(TAGS)]));
  await service.says(/port \d+/);
  const url = `http://127.0.0.1:${/port (\d+)/.exec(service.output())?.[1]}`;
  // A connection that was kept from the last time may be closed just now: then it is asked once more.
  const once = async () => Number(await (await fetch(`${url}/api/v1/values`)).json());
  const values = () => once().catch(once);
  return { url, values, pid: service.pid };
}

export async function startSubject(folder: string, scenario: Scenario, ends: Ends): Promise<Subject> {
  const service = await startService();
  const schema = scenario.members === 0 ? null : `bench_${scenario.sources}_${scenario.members}`;
  const pids: number[] = [];
  const names = scenario.members === 0 ? [null] : Array.from({ length: scenario.members }, (_, n) => `m${n}`);
  const workers: Running[] = [];
  for (const name of names) {
    const port = await freePort();
    const own = join(folder, name ?? "worker");
    mkdirSync(own, { recursive: true });
    const config = configurationOf({ scenario, service: service.url, ends, schema, port, folder });
    writeFileSync(join(own, "plenum.yaml"), JSON.stringify(config));
    const args = ["run", "--config", "plenum.yaml", ...(name === null ? [] : ["--member", name])];
    const environment = Object.fromEntries(
      Array.from({ length: scenario.sources }, (_, n) => [`BENCH_TOKEN_${n}`, TOKEN]),
    );
    const worker = started(runPlenum(args, { cwd: own, environment }));
    workers.push(worker);
    pids.push(worker.pid);
  }
  await Promise.all(workers.map((worker) => worker.says("is running", 120_000)));
  return {
    scenario,
    pids,
    schema,
    service,
    folder: join(folder, "worker", "state"),
  };
}

function configurationOf(parts: {
  readonly scenario: Scenario;
  readonly service: string;
  readonly ends: Ends;
  readonly schema: string | null;
  readonly port: number;
  readonly folder: string;
}): object {
  const { scenario, service, ends, schema, port, folder } = parts;
  // What is measured are values, not the first inventory.
  const filter = { kinds: ["tag-value"] };
  const source = (n: number) => ({
    base_url: `${service}/s${n}`,
    token: { env: `BENCH_TOKEN_${n}` },
    time_zone: "Europe/Stockholm",
    quota: { list_requests_per_minute: 600 },
    page_size: { others: 500 },
    schedules: { hosts: false, systems: false },
    read: [{ name: "all", every: EVERY }],
  });
  return {
    state: {
      folder: "state",
      ...(schema === null
        ? {}
        : { postgres: { url: `${ends.postgres}?sslmode=disable`, schema, connections: CONNECTIONS } }),
    },
    status: { port },
    sources: Object.fromEntries(Array.from({ length: scenario.sources }, (_, n) => [`s${n}`, source(n)])),
    sinks: {
      broker: { mqtt: { url: ends.mqtt, prefix: folder.replaceAll(/\W/g, "_") }, filter },
      lake: { influxdb: { url: ends.influx, api: "v2", bucket: "bench" }, filter },
    },
  };
}
