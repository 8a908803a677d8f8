import { execFile } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { BUNDLE, BUNDLED_MAIN } from "../../../tools/bundle.ts";
import { type Running, runPlenum, runProgram } from "../../plenum-process.ts";
import { freePort } from "../../real-servers.ts";
import { type Used, usedBy } from "../process-use.ts";
import { nodeRedProgram, writeNodeRed } from "./node-red.ts";

const HERE = import.meta.dirname;
const ROOT = join(HERE, "../../..");
/** The bundle, as the container image runs it. */
const PROGRAM = join(ROOT, BUNDLE, BUNDLED_MAIN);
const LOOP_STOPS = new URL("../loop-stops.ts", import.meta.url).href;

/** Where a scenario's values go: the addresses of the broker and the database. */
export interface Ends {
  readonly mqtt: string;
  readonly influx: string;
}

export interface Scenario {
  readonly sources: number;
  /** Tags of each source. */
  readonly tags: number;
  /** How old a value of them may become; 20 tags every 3 s are the whole quota. */
  readonly every: string | null;
  readonly alarms?: number;
  readonly alarmsEvery?: string;
  /** Nothing changes, and only changes are told. */
  readonly steady?: boolean;
  /** Receivers that have one record for each alarm. */
  readonly receivers?: number;
  /** Lists are read as fast as a configuration without settings says. */
  readonly defaultLists?: boolean;
}

export interface Subject {
  readonly pid: number;
  /** Values that were asked of its service so far. */
  values(): Promise<number>;
  /** A worker's own: where it tells the longest stops of its event loop from SIGUSR2 on, and how it is watched. */
  readonly worker?: { readonly stopsFile: string; readonly status: string; readonly folder: string };
  /** Resolves once every receiver has a record for each alarm; rejects after five minutes. */
  settled?(): Promise<void>;
  /** Seconds from the start until its service was asked for a value; null while it was not. */
  firstValue?(): number | null;
}

/** As `loop-stops.ts` tells them, in milliseconds. */
export interface Stops {
  readonly processorMs: number;
  readonly clockMs: number;
}

/** A record takes some 20 ms where everything runs at once. */
const SETTLED_S = 300;

/** All of them are ended together, whatever happens. */
const TOKEN = "bench-token-0123456789";
const running: Running[] = [];

export async function endAll(): Promise<void> {
  await Promise.all(running.splice(0).map((each) => each.end("SIGTERM")));
}

function started(subject: Running): Running {
  running.push(subject);
  return subject;
}

async function startService(scenario: Scenario) {
  const args = ["--tags", String(scenario.tags), "--alarms", String(scenario.alarms ?? 0)];
  const steady = scenario.steady ? ["--steady"] : [];
  const service = started(runProgram(process.execPath, [join(HERE, "service.ts"), ...args, ...steady]));
  await service.says(/port \d+/);
  const url = `http://127.0.0.1:${/port (\d+)/.exec(service.output())?.[1]}`;
  const count = async (what: string) => Number(await (await fetch(`${url}/api/v1/${what}`)).json());
  return { url, values: () => count("values"), records: () => count("records") };
}

/** A worker as a user starts it, with a service of its own. */
export async function startWorker(folder: string, scenario: Scenario, ends: Ends): Promise<Subject> {
  const { records, url, values } = await startService(scenario);
  const port = await freePort();
  mkdirSync(folder, { recursive: true });
  const lists = { hosts: false, systems: false };
  const config = {
    state: { folder: join(folder, "state") },
    status: { port },
    sources: Object.fromEntries(
      Array.from({ length: scenario.sources }, (_, n) => [
        `s${n}`,
        {
          base_url: `${url}/s${n}`,
          token: { env: `BENCH_TOKEN_${n}` },
          time_zone: "Europe/Stockholm",
          ...(scenario.defaultLists === true
            ? {}
            : { quota: { list_requests_per_minute: 600 }, page_size: { others: 500 } }),
          schedules: {
            ...lists,
            ...(scenario.alarmsEvery === undefined ? {} : { alarms: scenario.alarmsEvery }),
          },
          read:
            scenario.every === null
              ? []
              : [
                  {
                    name: "all",
                    every: scenario.every,
                    ...(scenario.steady ? { on_change: true, max_silence: "7d" } : {}),
                  },
                ],
        },
      ]),
    ),
    sinks: {
      broker: { mqtt: { url: ends.mqtt, prefix: folder.replaceAll(/\W/g, "_") } },
      lake: { influxdb: { url: ends.influx, api: "v2", bucket: "bench" } },
      ...Object.fromEntries(
        Array.from({ length: scenario.receivers ?? 0 }, (_, n) => [
          `desk${n}`,
          {
            servicenow: {
              ...{ url: new URL(url).origin, user: "bench", password: { env: "BENCH_PASSWORD" } },
              ...{ close_code: "Solved", initial: true, allow_networks: ["127.0.0.0/8"] },
            },
          },
        ]),
      ),
    },
  };
  writeFileSync(join(folder, "plenum.yaml"), JSON.stringify(config));
  const stopsFile = join(folder, "stops.json");
  const environment = {
    ...Object.fromEntries(Array.from({ length: scenario.sources }, (_, n) => [`BENCH_TOKEN_${n}`, TOKEN])),
    ...{
      BENCH_PASSWORD: TOKEN,
      BENCH_STOPS: stopsFile,
      BENCH_STOPS_LATER: "1",
      NODE_OPTIONS: `--import ${LOOP_STOPS}`,
    },
  };
  const worker = started(runPlenum(["run", "--config", "plenum.yaml"], { cwd: folder, environment }));
  await worker.says("Plenum is running");
  const begun = performance.now();
  let firstValue: number | null = null;
  const lookOnce = async () => {
    const count = await values().catch(() => 0);
    if (count > 0) firstValue ??= (performance.now() - begun) / 1_000;
    if (count > 0) clearInterval(look);
  };
  const look = setInterval(() => void lookOnce(), 100);
  if (scenario.every === null) clearInterval(look);
  const watched = { stopsFile, status: `http://127.0.0.1:${port}`, folder };
  const settled = async () => {
    const wanted = (scenario.alarms ?? 0) * (scenario.receivers ?? 0);
    for (let look = 0; (await records()) < wanted; look++) {
      if (look === SETTLED_S) throw new Error(`The receivers have ${await records()} of ${wanted} records.`);
      await sleep(1_000);
    }
  };
  return { pid: worker.pid, values, settled, firstValue: () => firstValue, worker: watched };
}

export async function startMinimal(folder: string, scenario: Scenario, ends: Ends): Promise<Subject> {
  const { url, values } = await startService(scenario);
  const args = ["--service", url, "--mqtt", ends.mqtt, "--influx", ends.influx];
  const size = ["--sources", String(scenario.sources), "--folder", folder];
  const minimal = started(runProgram(process.execPath, [join(HERE, "minimal.ts"), ...args, ...size]));
  await minimal.says("running");
  return { pid: minimal.pid, values };
}

/** Null where Node-RED is not installed. */
export async function startNodeRed(folder: string, scenario: Scenario, ends: Ends): Promise<Subject | null> {
  const program = nodeRedProgram();
  if (program === null) return null;
  const { url, values } = await startService(scenario);
  const args = writeNodeRed(folder, { sources: scenario.sources, service: url, ...ends });
  const nodeRed = started(runProgram(process.execPath, [program, "--port", String(await freePort()), ...args]));
  await nodeRed.says("Started flows");
  return { pid: nodeRed.pid, values };
}

/** What was used between two moments, and for how many values. */
export interface Window {
  readonly seconds: number;
  readonly used: Used;
  readonly values: number;
}

export async function watch({ pid, values }: Subject, lengthMs: number): Promise<Window> {
  const [before, valuesBefore, begin] = [usedBy(pid), await values(), performance.now()];
  await new Promise((resolve) => setTimeout(resolve, lengthMs));
  const [after, valuesAfter] = [usedBy(pid), await values()];
  return {
    seconds: (performance.now() - begin) / 1_000,
    used: {
      ...after,
      processorMs: after.processorMs - before.processorMs,
      writtenBytes: after.writtenBytes - before.writtenBytes,
    },
    values: valuesAfter - valuesBefore,
  };
}

/** The longest stops of its event loop meanwhile; null for a program that is no worker. */
export async function watchStops({ pid, worker }: Subject, lengthMs: number): Promise<Stops | null> {
  if (worker === undefined) return null;
  process.kill(pid, "SIGUSR2");
  await new Promise((resolve) => setTimeout(resolve, lengthMs));
  // The worker writes the file anew all the time, and may be in the middle of it.
  for (let tries = 0; tries < 20; tries += 1) {
    const text = readFileSync(worker.stopsFile, "utf8");
    if (text.endsWith("}")) return JSON.parse(text) as Stops;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${worker.stopsFile} is never complete.`);
}

const METRICS_EVERY_MS = 15_000;
const HEALTH_EVERY_MS = 30_000;

/** Scrapes a worker and runs its health check as often as people do, until `stop`. */
export function lookedAt({ worker }: Subject): { stop(): void; readonly checksMs: readonly number[] } {
  const checksMs: number[] = [];
  if (worker === undefined) return { stop: () => undefined, checksMs };
  const get = async (path: string) => {
    await (await fetch(`${worker.status}${path}`)).text();
  };
  const check = () => {
    const command = ["status", "--probe", "--config", "plenum.yaml"];
    // The shell says how much processor time its command took, in milliseconds.
    const script = 'TIMEFORMAT="%U %S"; time "$0" "$@"';
    const child = execFile("bash", ["-c", script, process.execPath, PROGRAM, ...command], {
      cwd: worker.folder,
      // As the image and the start script have it.
      env: { ...process.env, NODE_COMPILE_CACHE: join(ROOT, "node_modules/.cache/plenum") },
    });
    child.stderr?.on("data", (text: string) => {
      const [, user, system] = /([\d.]+) ([\d.]+)/.exec(text) ?? [];
      checksMs.push((Number(user) + Number(system)) * 1_000);
    });
  };
  const timers = [
    setInterval(() => void get("/metrics").catch(() => undefined), METRICS_EVERY_MS),
    setInterval(() => {
      void get("/readyz").catch(() => undefined);
      check();
    }, HEALTH_EVERY_MS),
  ];
  return {
    checksMs,
    stop() {
      for (const timer of timers) clearInterval(timer);
    },
  };
}
