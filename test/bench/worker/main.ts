import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { runPlenum } from "../../plenum-process.ts";
import { freePort } from "../../real-servers.ts";
import { usedBy } from "../process-use.ts";

/**
 * What the worker costs, measured from outside, each part as a process of its own:
 *
 * 1. start to first delivered event, of the demo, with its state folder empty;
 * 2. resident memory of the demo (simulator, broker, page and worker in one process) after ten minutes;
 * 3. processor time of a worker with a steady source of 3,000 tags, in percent of one core.
 *
 * `--minutes 10` is the length of 2 and 3; less gives a first look.
 */
const { minutes } = parseArgs({ options: { minutes: { type: "string", default: "10" } } }).values;
const lengthMs = Number(minutes) * 60_000;
const GOALS = { firstEventMs: 5_000, demoBytes: 150e6, coreShare: 0.05 };

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** A demo in a folder of its own, once it has delivered its first event, and how long that took. */
async function started(folder: string) {
  const begin = performance.now();
  const running = runPlenum(["demo", "--folder", join(folder, "demo")], { cwd: folder });
  const events = join(folder, "demo", "events");
  const hasEvent = () =>
    existsSync(events) && readdirSync(events).some((name) => readFileSync(join(events, name)).length > 0);
  while (!hasEvent()) {
    if (performance.now() - begin > 60_000) throw new Error(`No event in a minute:\n${running.output()}`);
    await pause(20);
  }
  return { running, firstEventMs: performance.now() - begin };
}

/** Code that has changed since the installation is compiled in the first start, and its compiler stays in memory. */
async function keepCompiled(folder: string): Promise<void> {
  const { running } = await started(folder);
  await running.end("SIGINT");
}

async function demo(folder: string) {
  const { running, firstEventMs } = await started(folder);
  await pause(Math.max(0, lengthMs - firstEventMs));
  const bytes = usedBy(running.pid).residentBytes;
  const stopBegin = performance.now();
  await running.end("SIGINT");
  return { firstEventMs, bytes, stopMs: performance.now() - stopBegin };
}

async function steady(folder: string) {
  const port = await freePort();
  const statusPort = await freePort();
  writeFileSync(join(folder, "simulator.yaml"), JSON.stringify({ replicate: 10, max_tags: 3000, speed: 60 }));
  const simulator = runPlenum(["simulate", "--options", "simulator.yaml", "--port", String(port)], {
    cwd: folder,
  });
  await simulator.says("The simulator answers");
  writeFileSync(
    join(folder, "plenum.yaml"),
    `
state: { folder: state }
status: { port: ${statusPort} }
sources:
  main:
    base_url: http://127.0.0.1:${port}
    token: { env: PLENUM_TOKEN }
    time_zone: Europe/Helsinki
    quota: { list_requests_per_minute: 600 }
    read: [{ name: all, every: 10m }]
    history: [{ name: all, resolution: 5m, every: 1h, backfill: 6h }]
sinks:
  files: { file: { folder: events }, from: beginning }
`,
  );
  const worker = runPlenum(["run"], { cwd: folder, environment: { PLENUM_TOKEN: "simulator-token" } });
  await worker.says("Plenum is running");
  // The first inventory of 3,000 tags is not the steady state.
  await pause(60_000);
  const before = usedBy(worker.pid).processorMs;
  const begin = performance.now();
  await pause(lengthMs);
  const seconds = (performance.now() - begin) / 1000;
  const share = (usedBy(worker.pid).processorMs - before) / 1_000 / seconds;
  const bytes = usedBy(worker.pid).residentBytes;
  const answer = await fetch(`http://127.0.0.1:${statusPort}/api/status`);
  const status = (await answer.json()) as { sources: { counts: { tags: number; values: number } }[] };
  const counts = status.sources[0]?.counts;
  await worker.end("SIGTERM");
  await simulator.end("SIGTERM");
  return { share, bytes, tags: counts?.tags ?? 0 };
}

const folder = mkdtempSync(join(tmpdir(), "plenum-bench-"));
const within = (name: string): string => {
  const place = join(folder, name);
  mkdirSync(place);
  return place;
};
try {
  await keepCompiled(within("compiled"));
  const first = await demo(within("demo"));
  const second = await steady(within("steady"));
  const rows: readonly (readonly [string, string, string, boolean])[] = [
    [
      "start to first delivered event",
      `${(first.firstEventMs / 1000).toFixed(2)} s`,
      "≤ 5 s",
      first.firstEventMs <= GOALS.firstEventMs,
    ],
    [
      `memory of the demo after ${minutes} min`,
      `${Math.round(first.bytes / 1e6)} MB`,
      "≤ 150 MB",
      first.bytes <= GOALS.demoBytes,
    ],
    ["stop of the demo", `${(first.stopMs / 1000).toFixed(2)} s`, "< 10 s", first.stopMs < 10_000],
    [
      `worker with ${second.tags} tags, share of one core`,
      `${(second.share * 100).toFixed(2)} %`,
      "≤ 5 %",
      second.share <= GOALS.coreShare,
    ],
    [`its memory after ${Number(minutes) + 1} min`, `${Math.round(second.bytes / 1e6)} MB`, "", true],
  ];
  process.stdout.write(
    `Machine: ${availableParallelism()} cores, ${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.version}\n\n`,
  );
  for (const [what, measured, goal, ok] of rows) {
    process.stdout.write(`${ok ? " " : "!"} ${what.padEnd(48)} ${measured.padStart(10)}   ${goal}\n`);
  }
  if (rows.some(([, , , ok]) => !ok)) process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
