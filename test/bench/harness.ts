import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Running, runPlenum, runProgram } from "../plenum-process.ts";
import { freePort } from "../real-servers.ts";

export const MEBIBYTE = 2 ** 20;

export function printMachine(): void {
  const gib = Math.round(totalmem() / 2 ** 30);
  console.log(`Machine: ${availableParallelism()} cores, ${gib} GiB, Node ${process.version}\n`);
}

export function decimal(value: number | null, digits = 0): string {
  return value === null || !Number.isFinite(value) ? "–" : value.toFixed(digits);
}

export const percent = (share: number, digits = 1): string => decimal(share * 100, digits);

export function printTable(title: string, head: readonly string[], rows: readonly (readonly string[])[]): void {
  const cellWidth = head.map((cell, column) => Math.max(cell.length, ...rows.map((row) => row[column]?.length ?? 0)));
  const line = (cells: readonly string[]) =>
    cells.map((cell, n) => (n === 0 ? cell.padEnd(cellWidth[n] ?? 0) : cell.padStart(cellWidth[n] ?? 0))).join("  ");
  console.log(["", ...(title === "" ? [] : [title, ""]), line(head), ...rows.map(line)].join("\n"));
}

/** A missed goal makes the exit code 1. */
export function checkGoal(what: string, value: number, bound: "at most" | "at least", goal: number, unit = ""): void {
  const isReached = bound === "at most" ? value <= goal : value >= goal;
  if (!isReached) process.exitCode = 1;
  const rounded = (number: number) => Math.round(number * 1_000) / 1_000;
  const goalVerdict = isReached ? "reached" : "MISSED ";
  console.log(`  ${goalVerdict}  ${what}: ${rounded(value)}${unit}, ${bound} ${rounded(goal)}${unit}`);
}

export interface UsedResources {
  readonly processorMs: number;
  readonly writtenBytes: number;
  readonly residentBytes: number;
  readonly peakBytes: number;
}

export function readUsage(pid: number): UsedResources {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const written = /^write_bytes: (\d+)/m.exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1];
  const bytes = (name: string) => Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(status)?.[1]) * 1_024;
  return {
    processorMs: (Number(stat[11]) + Number(stat[12])) * 10,
    writtenBytes: Number(written),
    residentBytes: bytes("VmRSS"),
    peakBytes: bytes("VmHWM"),
  };
}

export async function processorMsOf(work: () => unknown): Promise<number> {
  const cpuBefore = process.cpuUsage();
  await work();
  const { user, system } = process.cpuUsage(cpuBefore);
  return (user + system) / 1_000;
}

const running: Running[] = [];

export function trackProgram(program: Running): Running {
  running.push(program);
  return program;
}

export async function endPrograms(signal: "SIGTERM" | "SIGKILL" = "SIGTERM"): Promise<void> {
  await Promise.all(running.splice(0).map((program) => program.end(signal)));
}

/** Runs `work` with a temporary folder, then ends all started programs and removes the folder. */
export async function withFolder<T>(work: (folder: string) => Promise<T>): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), "plenum-bench-"));
  const cleanUp = async () => {
    await endPrograms("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  };
  for (const signal of ["SIGINT", "SIGTERM"] as const)
    process.once(signal, () => void cleanUp().then(() => process.exit(1)));
  try {
    return await work(folder);
  } finally {
    await cleanUp();
  }
}

export interface Counts {
  readonly values: number;
  readonly records: number;
  readonly tickets: number;
  readonly points: number;
  readonly largest: number;
  /** Lines of history and bytes that arrived as line protocol. */
  readonly lines: number;
  readonly bytes: number;
}

export interface Service {
  readonly pid: number;
  readonly url: string;
  counts(): Promise<Counts>;
}

export async function startService(...args: readonly string[]): Promise<Service> {
  const program = trackProgram(runProgram(process.execPath, [join(import.meta.dirname, "service.ts"), ...args]));
  await program.waitForOutput(/port \d+/);
  const url = `http://127.0.0.1:${/port (\d+)/.exec(program.output())?.[1]}`;
  // The service may close an idle connection at any moment, so use a new one.
  const request = () => fetch(`${url}/counts`, { headers: { connection: "close" } });
  return { pid: program.pid, url, counts: async () => (await (await request()).json()) as Counts };
}

/** Longest stops of an event loop in milliseconds: of processor time, and by the clock. */
export interface LoopStops {
  readonly processorMs: number;
  readonly clockMs: number;
}

export interface Worker {
  readonly running: Running;
  readonly pid: number;
  readonly folder: string;
  readonly statusUrl: string;
  resetStops(): void;
  stops(): Promise<LoopStops>;
}

const TOKEN = "bench-token-0123456789";

export function sourceConfig(url: string, n: number, options: object): object {
  return {
    base_url: `${url}/s${n}`,
    token: { env: `BENCH_TOKEN_${n}` },
    time_zone: "Europe/Stockholm",
    quota: { list_requests_per_minute: 600 },
    page_size: { others: 500 },
    ...options,
  };
}

export function sourcesConfig(url: string, count: number, options: object): Record<string, object> {
  return Object.fromEntries(Array.from({ length: count }, (_, n) => [`s${n}`, sourceConfig(url, n, options)]));
}

export async function startWorker(
  folder: string,
  config: { readonly sources: object; readonly sinks: object; readonly state?: object },
  ...args: readonly string[]
): Promise<Worker> {
  mkdirSync(folder, { recursive: true });
  const port = await freePort();
  const completeConfig = { ...config, state: { folder: "state", ...config.state }, status: { port } };
  writeFileSync(join(folder, "plenum.yaml"), JSON.stringify(completeConfig));
  const stopsFile = join(folder, "stops.json");
  const tokens = Object.keys(config.sources).map((_, n) => [`BENCH_TOKEN_${n}`, TOKEN]);
  const environment = {
    ...Object.fromEntries(tokens),
    BENCH_PASSWORD: TOKEN,
    BENCH_STOPS: stopsFile,
    NODE_OPTIONS: `--import ${new URL("loop-stops.ts", import.meta.url).href}`,
  };
  const worker = trackProgram(runPlenum(["run", "--config", "plenum.yaml", ...args], { cwd: folder, environment }));
  await worker.waitForOutput("is running");
  return {
    running: worker,
    pid: worker.pid,
    folder,
    statusUrl: `http://127.0.0.1:${port}`,
    resetStops: () => void process.kill(worker.pid, "SIGUSR2"),
    async stops() {
      // The worker rewrites the file once a second, so a read can find it incomplete.
      for (let attempt = 0; attempt < 20; attempt += 1) {
        const stopsJson = readFileSync(stopsFile, "utf8");
        if (stopsJson.endsWith("}")) return JSON.parse(stopsJson) as LoopStops;
        await sleep(50);
      }
      throw new Error(`${stopsFile} is never complete.`);
    },
  };
}
