import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { absent, startMosquitto, startVictoriaMetrics } from "../real-servers.ts";
import { endAll, startWorker } from "./cost/subjects.ts";
import { usedBy } from "./process-use.ts";
import { slopeOf } from "./slope.ts";

/**
 * Whether a real worker's memory grows by the clock of the wall (`npm run bench:memory:real [hours, default 8]`): a
 * process as a user starts it, 400 tags at full quota and a hundred alarms, Mosquitto and VictoriaMetrics at the far
 * end. The resident set is looked at each second, and the least of each five minutes counts, because the collector lets
 * it rise in between. The first quarter is left out, because caches and the log fill up to their bounds then; of the
 * rest the slope may be 1 MB an hour at most. Ends with exit code 1 otherwise.
 *
 * Under libfaketime eight hours of the worker pass in two:
 *
 *     faketime -f "+0 x4" npm run bench:memory:real
 */
const HOUR_MS = 3_600_000;
const SPAN_MS = 300_000;
const LOOK_MS = 1_000;
const MEBIBYTE = 1024 ** 2;
const MOST_MB_PER_HOUR = 1;
const hours = Number(process.argv[2] ?? 8);

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

async function leastResident(pid: number): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (const end = performance.now() + SPAN_MS; performance.now() < end; ) {
    least = Math.min(least, usedBy(pid).residentBytes);
    await pause(LOOK_MS);
  }
  return least / MEBIBYTE;
}

if (absent("mosquitto") || absent("victoria-metrics")) process.exit(1);
const folder = mkdtempSync(join(tmpdir(), "plenum-memory-"));
const broker = await startMosquitto();
const database = await startVictoriaMetrics();
try {
  const worker = await startWorker(
    folder,
    { sources: 1, tags: 400, every: "1m", alarms: 100, alarmsEvery: "* * * * *" },
    { mqtt: broker.url, influx: database.url },
  );
  const least: number[] = [];
  for (let span = 1; span <= (hours * HOUR_MS) / SPAN_MS; span += 1) {
    least.push(await leastResident(worker.pid));
    console.log(
      `after ${(span * SPAN_MS) / 60_000} min: ${least.at(-1)?.toFixed(1)} MiB resident, ${await worker.values()} values`,
    );
  }
  const settled = least.slice(Math.floor(least.length / 4));
  const slope = slopeOf(settled) * (HOUR_MS / SPAN_MS);
  console.log(
    `${slope.toFixed(3)} MiB an hour over the last ${(settled.length * SPAN_MS) / HOUR_MS} of ${hours} h (at most ${MOST_MB_PER_HOUR})`,
  );
  process.exitCode = slope <= MOST_MB_PER_HOUR ? 0 : 1;
} finally {
  await endAll();
  await broker.stop();
  await database.stop();
  rmSync(folder, { recursive: true, force: true });
}
