import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Running, runPlenum, runProgram } from "../../plenum-process.ts";
import { freePort } from "../../real-servers.ts";
import { type Used, usedBy } from "../process-use.ts";
import { nodeRedProgram, writeNodeRed } from "./node-red.ts";

const HERE = import.meta.dirname;
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
  /** Looks how long the event loop is stopped, which takes processor time itself. */
  readonly stops?: boolean;
}

export interface Subject {
  readonly pid: number;
  /** Values that were asked of its service so far. */
  values(): Promise<number>;
  /** Where it tells the longest stops of its event loop since the last SIGUSR2; undefined when nobody looks. */
  readonly stopsFile?: string;
}

/** As `loop-stops.ts` tells them, in milliseconds. */
interface Stops {
  readonly processorMs: number;
  readonly clockMs: number;
}

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
  const values = async () => Number(await (await fetch(`${url}/api/v1/values`)).json());
  return { url, values };
}

/** A worker as a user starts it, with a service of its own. */
export async function startWorker(folder: string, scenario: Scenario, ends: Ends): Promise<Subject> {
  const { url, values } = await startService(scenario);
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
          quota: { list_requests_per_minute: 600 },
          page_size: { others: 500 },
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
    },
  };
  writeFileSync(join(folder, "plenum.yaml"), JSON.stringify(config));
  const stopsFile = join(folder, "stops.json");
  const environment = {
    ...Object.fromEntries(Array.from({ length: scenario.sources }, (_, n) => [`BENCH_TOKEN_${n}`, TOKEN])),
    ...(scenario.stops === true ? { BENCH_STOPS: stopsFile, NODE_OPTIONS: `--import ${LOOP_STOPS}` } : {}),
  };
  const worker = started(runPlenum(["run", "--config", "plenum.yaml"], { cwd: folder, environment }));
  await worker.says("Plenum is running");
  return { pid: worker.pid, values, ...(scenario.stops === true ? { stopsFile } : {}) };
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
  const nodeRed = started(
    runProgram(process.execPath, [program, "--port", String(await freePort()), ...args]),
  );
  await nodeRed.says("Started flows");
  return { pid: nodeRed.pid, values };
}

/** What was used between two moments, and for how many values. */
export interface Window {
  readonly seconds: number;
  readonly used: Used;
  readonly values: number;
  readonly stops: Stops | null;
}

export async function watch({ pid, values, stopsFile }: Subject, lengthMs: number): Promise<Window> {
  if (stopsFile !== undefined) process.kill(pid, "SIGUSR2");
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
    stops: stopsFile === undefined ? null : (JSON.parse(readFileSync(stopsFile, "utf8")) as Stops),
  };
}
