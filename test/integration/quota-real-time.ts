import { rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Running, runPlenum } from "../plenum-process.ts";
import { freePort, temporaryFolder } from "../real-servers.ts";

/** Runs the quota for five minutes in real time, with real sockets and two processes (`npm run integration:quota`). */
const MINUTES = 5;
const PER_MINUTE = 20;
const GOAL = 0.98;
/** Without a record of the quota a worker is careful for a minute from its first tag request on. */
const SETTLE_MS = 70_000;
const folder = temporaryFolder();
const ports = { service: await freePort(), status: await freePort() };
writeFileSync(join(folder, "simulator.yaml"), "limits: {tag_endpoints: {model: first_hit_window}}\n");
writeFileSync(
  join(folder, "plenum.yaml"),
  `state: {folder: ${join(folder, "state")}}
status: {port: ${ports.status}}
log: {level: warn}
sources:
  real:
    base_url: http://127.0.0.1:${ports.service}
    token: {env: TOKEN}
    time_zone: Europe/Oslo
    read: [{name: all, every: 10s, fresher: true}]
    history: [{name: five, resolution: 5m, backfill: 30d}]
`,
);

const running: Running[] = [];
const start = (...args: string[]) => {
  const child = runPlenum(args, { cwd: folder, environment: { TOKEN: "simulator-token" } });
  running.push(child);
  return child;
};

try {
  const service = start("simulate", "--options", "simulator.yaml", "--port", String(ports.service));
  await service.waitForOutput("answers at");
  const worker = start("--config", "plenum.yaml", "run");
  await worker.waitForOutput("is running");
  while ((await counted()).ok === 0) await pass(5_000, "listing tags");
  await pass(SETTLE_MS, "until the careful first minute is over");
  const before = await counted();
  const beganMs = performance.now();
  await pass(MINUTES * 60_000, "measuring");
  const tookMs = performance.now() - beganMs;
  const after = await counted();
  const requests = after.ok - before.ok;
  const utilisation = requests / ((PER_MINUTE * tookMs) / 60_000);
  const { refused } = after;
  const exitCode = await worker.end("SIGTERM");
  process.stdout.write(
    `\n${requests} tag requests in ${(tookMs / 1_000).toFixed(1)} s: ${(utilisation * 100).toFixed(2)} % of the quota ` +
      `(at least ${GOAL * 100} %), ${refused} refused since the start (0), exit code of the worker ${exitCode}\n`,
  );
  process.exitCode = refused === 0 && utilisation >= GOAL && exitCode === 0 ? 0 : 1;
} finally {
  for (const child of running) await child.end("SIGKILL");
  rmSync(folder, { recursive: true, force: true });
}

async function counted(): Promise<{ readonly ok: number; readonly refused: number }> {
  const reply = await fetch(`http://127.0.0.1:${ports.service}/_simulator/truth/totals`);
  const { data } = (await reply.json()) as { data: { totals: Record<string, number> } };
  const tagRequests = Object.entries(data.totals).filter(([name]) => /^(read|write|history) /.test(name));
  const sum = (isRefused: boolean) =>
    tagRequests.filter(([name]) => name.endsWith(" 429") === isRefused).reduce((total, [, count]) => total + count, 0);
  return { ok: sum(false), refused: sum(true) };
}

async function pass(ms: number, what: string): Promise<void> {
  const until = performance.now() + ms;
  while (performance.now() < until) {
    const { ok, refused } = await counted();
    const seconds = Math.round((until - performance.now()) / 1_000);
    process.stdout.write(`${what}: ${seconds} s to go, ${ok} answered, ${refused} refused\n`);
    await new Promise((resolve) => setTimeout(resolve, Math.min(30_000, until - performance.now())));
  }
}
