import { existsSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { runPlenum } from "../../plenum-process.ts";
import { checkGoal, printMachine, readUsage, trackProgram, withFolder } from "../harness.ts";

/** Start, memory and stop of the demo, measured from outside (`npm run bench`). */
const { minutes } = parseArgs({ options: { minutes: { type: "string", default: "10" } } }).values;
const lengthMs = Number(minutes) * 60_000;

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

await withFolder(async (folder) => {
  printMachine();
  // The first start after an installation compiles the code and keeps the compiler in memory, so run once before.
  const { demo } = await startDemo(join(folder, "compiled"));
  await demo.end("SIGINT");
  await measureDemo(join(folder, "demo"));
});
