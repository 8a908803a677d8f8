import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { runPlenum } from "../../plenum-process.ts";
import { freePort } from "../../real-servers.ts";
import { checkGoal, printMachine, readUsage, sourceConfig, startWorker, trackProgram, withFolder } from "../harness.ts";

/** Start, memory and processor time of the worker, measured from outside (`npm run bench`). */
const { minutes } = parseArgs({ options: { minutes: { type: "string", default: "10" } } }).values;
const lengthMs = Number(minutes) * 60_000;
const INVENTORY_MS = Math.min(60_000, lengthMs);

async function startDemo(folder: string) {
  mkdirSync(folder);
  const startMs = performance.now();
  const demo = trackProgram(runPlenum(["demo", "--folder", "demo"], { cwd: folder }));
  const events = join(folder, "demo", "events");
  const hasEvent = () =>
    existsSync(events) && readdirSync(events).some((name) => readFileSync(join(events, name)).length > 0);
  while (!hasEvent()) {
    if (performance.now() - startMs > 60_000) throw new Error(`No event in a minute:\n${demo.output()}`);
    await sleep(20);
  }
  return { demo, firstEventMs: performance.now() - startMs };
}

async function measureDemo(folder: string): Promise<void> {
  const { demo, firstEventMs } = await startDemo(folder);
  await sleep(Math.max(0, lengthMs - firstEventMs));
  const bytes = readUsage(demo.pid).residentBytes;
  const stopBegin = performance.now();
  await demo.end("SIGINT");
  checkGoal("start to first delivered event", firstEventMs / 1_000, "at most", 5, " s");
  checkGoal(`memory of the demo after ${minutes} min`, bytes / 1e6, "at most", 150, " MB");
  checkGoal("stop of the demo", (performance.now() - stopBegin) / 1_000, "at most", 10, " s");
}

async function measureWorker(folder: string): Promise<void> {
  mkdirSync(folder);
  const port = await freePort();
  writeFileSync(join(folder, "simulator.yaml"), JSON.stringify({ replicate: 10, max_tags: 3000, speed: 60 }));
  const args = ["simulate", "--options", "simulator.yaml", "--port", String(port)];
  const simulator = trackProgram(runPlenum(args, { cwd: folder }));
  await simulator.waitForOutput("The simulator answers");
  const source = sourceConfig("", 0, {
    base_url: `http://127.0.0.1:${port}`,
    ...{ time_zone: "Europe/Helsinki", token: { file: "token.txt" }, page_size: undefined },
    read: [{ name: "all", every: "10m" }],
    history: [{ name: "all", resolution: "5m", every: "1h", backfill: "6h" }],
  });
  writeFileSync(join(folder, "token.txt"), "simulator-token", { mode: 0o600 });
  const sinks = { files: { file: { folder: "events" }, from: "beginning" } };
  const worker = await startWorker(folder, { sources: { main: source }, sinks });
  await sleep(INVENTORY_MS);
  const processorMsBefore = readUsage(worker.pid).processorMs;
  const startMs = performance.now();
  await sleep(lengthMs);
  const { processorMs, residentBytes } = readUsage(worker.pid);
  const coreShare = (processorMs - processorMsBefore) / (performance.now() - startMs);
  const status = (await (await fetch(`${worker.statusUrl}/api/status`)).json()) as {
    sources: { counts: { tags: number } }[];
  };
  const tags = status.sources[0]?.counts.tags ?? 0;
  checkGoal(`worker with ${tags} tags, share of one core`, 100 * coreShare, "at most", 5, " %");
  console.log(`           its resident memory: ${Math.round(residentBytes / 1e6)} MB`);
}

await withFolder(async (folder) => {
  printMachine();
  // The first start after an installation compiles the code and keeps the compiler in memory, so run once before.
  const { demo } = await startDemo(join(folder, "compiled"));
  await demo.end("SIGINT");
  await measureDemo(join(folder, "demo"));
  await measureWorker(join(folder, "steady"));
});
