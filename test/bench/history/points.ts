import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism, tmpdir, totalmem } from "node:os";
import { join } from "node:path";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { syncSet } from "#src/engine/sync/snapshot.ts";
import { type Running, runPlenum, runProgram } from "../../plenum-process.ts";
import { freePort } from "../../real-servers.ts";
import { usedBy } from "../process-use.ts";

/**
 * What a point of history costs on its whole way, from the reply to the sink's disk or database (`npm run bench:points
 * -- [days, default 365]`, a minute and a half): a backfill of 20 tags every five minutes, 2.1 million points of a year
 * in replies of 230,000, by two workers as a user starts them, one with a file and one with a database as its sink.
 * Processor time is that of the whole process after its start. Ends with exit code 1 when something is above the most
 * that is allowed; see `MOST`.
 */
const DAYS = Number(process.argv[2] ?? 365);
const TAGS = 20;
const REPLY = 230_000;
/** What closes while it runs is not waited for. */
const ENOUGH = DAYS * 288 * TAGS * 0.999;

/**
 * The most that is allowed: of time a third more than what was measured on a machine that was busy with others, where a
 * point takes twice its time; of memory a tenth more than the median. The goals are 1.5 µs to file, 2 µs to line protocol,
 * 180 MiB and 50 ms.
 */
const MOST = {
  file: { microseconds: 3.6, mebibytes: 195, processorMs: 65 },
  influxdb: { microseconds: 4.8, mebibytes: 195, processorMs: 65 },
} as const;
type Kind = keyof typeof MOST;

/** A worker needs so long from its start until it waits for history alone, in milliseconds. */
const START_MS = 8_000;
const LONGEST_MS = 240_000;

const running: Running[] = [];
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

interface Figures {
  readonly points: number;
  readonly largest: number;
  readonly microseconds: number;
  readonly mebibytes: number;
  readonly written: number;
  readonly stop: { readonly clockMs: number; readonly processorMs: number };
}

/** The size of a reply is known beforehand, so that the time does not go into finding out. */
async function knowWindow(folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const store = await openStore({ folder, clock: systemClock });
  const window = { good: REPLY, bad: REPLY + 1_000, doubt: null, streak: 0 };
  await store.commit({ documents: [{ set: syncSet("history-window", "s"), put: [["values", window]] }] });
  await store.close();
}

function delivered(kind: Kind, url: string, position: () => Promise<number>): () => Promise<number> {
  return kind === "file" ? position : async () => (await count(url)).lines;
}

/** A connection that was kept may have been given up by whoever had no time for it. */
const get = (url: string) => fetch(url, { headers: { connection: "close" } });

async function count(url: string): Promise<{ points: number; largest: number; lines: number }> {
  return (await get(`${url}/count`)).json() as Promise<{ points: number; largest: number; lines: number }>;
}

async function backfill(kind: Kind, folder: string): Promise<Figures> {
  const service = runProgram(process.execPath, [join(import.meta.dirname, "points-service.ts")]);
  running.push(service);
  await service.says(/port \d+/);
  const url = `http://127.0.0.1:${/port (\d+)/.exec(service.output())?.[1]}`;
  const state = join(folder, "state");
  await knowWindow(state);
  const port = await freePort();
  const config = {
    state: { folder: state },
    status: { port },
    sources: {
      s: {
        base_url: url,
        token: { env: "BENCH_TOKEN" },
        time_zone: "Europe/Stockholm",
        schedules: { hosts: false, systems: false },
        read: [],
        history: [{ name: "past", resolution: "5m", every: "1d", backfill: `${DAYS}d`, look_back: "1h" }],
      },
    },
    sinks: {
      end: kind === "file" ? { file: { folder: join(folder, "out") } } : { influxdb: { url, api: "v2", bucket: "b" } },
    },
  };
  writeFileSync(join(folder, "plenum.yaml"), JSON.stringify(config));
  const probed = join(folder, "loop.json");
  const worker = runPlenum(["run", "--config", "plenum.yaml"], {
    cwd: folder,
    environment: {
      BENCH_TOKEN: "bench-token-0123456789",
      BENCH_STOPS: probed,
      NODE_OPTIONS: `--import ${new URL("../loop-stops.ts", import.meta.url).href}`,
    },
  });
  running.push(worker);
  await worker.says("Plenum is running");
  await pause(START_MS);
  const before = usedBy(worker.pid);
  process.kill(worker.pid, "SIGUSR2");
  await fetch(`${url}/go`);
  const has = delivered(kind, url, () => deliveredTo(port));
  const began = performance.now();
  while ((await has()) < ENOUGH) {
    if (performance.now() - began > LONGEST_MS)
      throw new Error(`${kind}: ${await has()} of ${ENOUGH} points.\n${worker.output().slice(-2000)}`);
    await pause(1_000);
  }
  const { points, largest } = await count(url);
  await pause(1_500);
  const after = usedBy(worker.pid);
  const stop = JSON.parse(readFileSync(probed, "utf8")) as Figures["stop"];
  await worker.end("SIGTERM");
  await service.end("SIGTERM");
  return {
    points,
    largest,
    microseconds: (1_000 * (after.processorMs - before.processorMs)) / points,
    mebibytes: after.peakBytes / 2 ** 20,
    written: (after.writtenBytes - before.writtenBytes) / points,
    stop,
  };
}

/** Points that the file has, by the events that its sink has accepted: one of these has a day of a tag. */
async function deliveredTo(port: number): Promise<number> {
  const metrics = await (await get(`http://127.0.0.1:${port}/metrics`)).text();
  const [, events] = /^plenum_sink_deliveries_total\{[^}]*outcome="accepted"[^}]*\} (\d+)/m.exec(metrics) ?? [];
  return Number(events ?? 0) * 288;
}

const folder = mkdtempSync(join(tmpdir(), "plenum-points-"));
const shortfalls: string[] = [];
try {
  process.stdout.write(
    `Machine: ${availableParallelism()} cores, ${Math.round(totalmem() / 2 ** 30)} GiB, Node ${process.version}\n\n`,
  );
  const kinds = Object.keys(MOST) as Kind[];
  const rows = await Promise.all(
    kinds.map(async (kind) => {
      const own = join(folder, kind);
      mkdirSync(own);
      return [kind, await backfill(kind, own)] as const;
    }),
  );
  const cells = (...all: readonly (string | number)[]) => all.map((cell) => String(cell).padStart(12)).join("");
  console.log(cells("to", "points", "largest", "µs/point", "peak MiB", "B/point", "stop CPU ms", "stop ms"));
  for (const [kind, figures] of rows) {
    const { points, largest, microseconds, mebibytes, written, stop } = figures;
    console.log(
      cells(
        kind,
        points,
        largest,
        microseconds.toFixed(2),
        Math.round(mebibytes),
        Math.round(written),
        Math.round(stop.processorMs),
        Math.round(stop.clockMs),
      ),
    );
    const most = MOST[kind];
    const judged = [
      ["µs of processor time for a point", microseconds, most.microseconds],
      ["MiB at most in memory", mebibytes, most.mebibytes],
      ["ms of processor time, the longest stop of the event loop", stop.processorMs, most.processorMs],
    ] as const;
    for (const [what, value, allowed] of judged)
      if (!(value <= allowed)) shortfalls.push(`to ${kind}: ${value.toFixed(1)} ${what}, at most ${allowed}`);
  }
} finally {
  await Promise.all(running.map((each) => each.end("SIGTERM")));
  rmSync(folder, { recursive: true, force: true });
}
for (const shortfall of shortfalls) console.log(`\nFALLS SHORT: ${shortfall}`);
process.exitCode = shortfalls.length > 0 ? 1 : 0;
