import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "../../real-servers.ts";
import { type Measured, start, type Used } from "./process.ts";

const HERE = import.meta.dirname;
const ROOT = join(HERE, "../../..");

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
  readonly sinks?: readonly ("mqtt" | "influx" | "file")[];
  /** How far back history is fetched, at 5 minutes. */
  readonly history?: string;
}

export interface Subject {
  readonly process: Measured;
  readonly statusUrl: string | null;
  /** What was asked of its service so far. */
  asked(): Promise<Asked>;
}

export interface Asked {
  readonly read: number;
  readonly values: number;
  readonly points: number;
  readonly alarms: number;
  readonly tags: number;
}

async function startService(scenario: Scenario) {
  const service = start(process.execPath, [
    ...[join(HERE, "service.ts"), "--tags", String(scenario.tags), "--alarms", String(scenario.alarms ?? 0)],
    ...(scenario.steady ? ["--steady"] : []),
  ]);
  const port = /port (\d+)/.exec(await service.says("port "))?.[1];
  const url = `http://127.0.0.1:${port}`;
  const asked = async () => (await (await fetch(`${url}/api/v1/asked`)).json()) as Asked;
  return { url, asked };
}

/** A worker as a user starts it, with a service of its own. */
export async function startWorker(folder: string, scenario: Scenario, ends: Ends): Promise<Subject> {
  const { url, asked } = await startService(scenario);
  const port = await freePort();
  mkdirSync(folder, { recursive: true });
  const sinks = scenario.sinks ?? ["mqtt", "influx"];
  const lists = { hosts: false, systems: false };
  const config = {
    state: { folder: join(folder, "state") },
    status: { port },
    sources: Object.fromEntries(
      Array.from({ length: scenario.sources }, (_, n) => [
        `s${n}`,
        {
          base_url: `${url}/s${n}`,
          token: { env: "BENCH_TOKEN" },
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
          ...(scenario.history === undefined
            ? {}
            : { history: [{ name: "all", resolution: "5m", every: "1h", backfill: scenario.history }] }),
        },
      ]),
    ),
    sinks: {
      ...(sinks.includes("mqtt")
        ? { broker: { mqtt: { url: ends.mqtt, prefix: folder.replaceAll(/\W/g, "_") } } }
        : {}),
      ...(sinks.includes("influx")
        ? { lake: { influxdb: { url: ends.influx, api: "v2", bucket: "bench" } } }
        : {}),
      ...(sinks.includes("file") ? { files: { file: { folder: join(folder, "events") } } } : {}),
    },
  };
  const file = join(folder, "plenum.yaml");
  writeFileSync(file, JSON.stringify(config));
  const worker = start(join(ROOT, "plenum"), ["run", "--config", file], {
    BENCH_TOKEN: "bench-token-0123456789",
  });
  await worker.says("Plenum is running");
  return { process: worker, statusUrl: `http://127.0.0.1:${port}`, asked };
}

export async function startMinimal(folder: string, scenario: Scenario, ends: Ends): Promise<Subject> {
  const { url, asked } = await startService(scenario);
  const minimal = start(process.execPath, [
    ...[join(HERE, "minimal.ts"), "--service", url, "--mqtt", ends.mqtt, "--influx", ends.influx],
    ...["--sources", String(scenario.sources), "--folder", folder],
  ]);
  await minimal.says("running");
  return { process: minimal, statusUrl: null, asked };
}

/** What was used between two moments, and for what. */
export interface Window {
  readonly seconds: number;
  readonly used: Used;
  readonly asked: Asked;
}

export async function watch(subject: Subject, lengthMs: number): Promise<Window> {
  const [before, askedBefore, begin] = [subject.process.used(), await subject.asked(), performance.now()];
  await new Promise((resolve) => setTimeout(resolve, lengthMs));
  const [after, askedAfter] = [subject.process.used(), await subject.asked()];
  const asked = Object.fromEntries(
    Object.entries(askedAfter).map(([what, count]) => [what, count - askedBefore[what as keyof Asked]]),
  ) as unknown as Asked;
  return {
    seconds: (performance.now() - begin) / 1_000,
    used: {
      ...after,
      processorMs: after.processorMs - before.processorMs,
      writtenBytes: after.writtenBytes - before.writtenBytes,
    },
    asked,
  };
}
