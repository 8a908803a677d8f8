import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { syncSet } from "#src/engine/sync/snapshot.ts";
import {
  checkGoal,
  fixed,
  MEBIBYTE,
  printMachine,
  printTable,
  sourceConfig,
  startService,
  startWorker,
  usedBy,
  withFolder,
} from "../harness.ts";

/**
 * Cost of a point of history from the reply to the sink's disk or database (`npm run bench:points -- [days, default
 * 365]`, a minute and a half): a backfill of 20 tags every five minutes, 2.1 million points in replies of 230,000, by a
 * worker with a file sink and one with InfluxDB. The processor time is that of the complete process after its start.
 */
const DAYS = Number(process.argv[2] ?? 365);
const TAGS = 20;
const POINTS_PER_DAY = 288;
const REPLY_POINTS = 230_000;
/** Points of buckets that close during the run are not waited for. */
const ENOUGH = DAYS * POINTS_PER_DAY * TAGS * 0.999;
/** Time from a worker's start until it only waits for history. */
const START_MS = 8_000;
const LONGEST_MS = 240_000;

/**
 * Maxima. Time: a third above what was measured on a busy machine, where a point takes twice its time (goals: 1.5 µs to
 * a file, 2 µs to line protocol). Memory: a tenth above the median (goal: 180 MiB). Stops: goal 50 ms.
 */
const MOST = { file: 3.6, influxdb: 4.8, mebibytes: 195, stopMs: 65 };

/** Stores the learned request size, so that the run does not measure how the worker learns it. */
async function storeRequestSize(folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const store = await openStore({ folder, clock: systemClock });
  const window = { good: REPLY_POINTS, bad: REPLY_POINTS + 1_000, doubt: null, streak: 0 };
  await store.commit({ documents: [{ set: syncSet("history-window", "s0"), put: [["values", window]] }] });
  await store.close();
}

async function backfill(kind: "file" | "influxdb", folder: string) {
  const service = await startService("--tags", String(TAGS));
  await storeRequestSize(join(folder, "state"));
  const sink =
    kind === "file" ? { file: { folder: "out" } } : { influxdb: { url: service.url, api: "v2", bucket: "b" } };
  const history = [{ name: "past", resolution: "5m", every: "1d", backfill: `${DAYS}d`, look_back: "1h" }];
  const source = sourceConfig(service.url, 0, { schedules: { hosts: false, systems: false }, read: [], history });
  const worker = await startWorker(folder, { sources: { s0: source }, sinks: { end: sink } });
  await sleep(START_MS);
  const before = usedBy(worker.pid);
  worker.resetStops();
  await fetch(`${service.url}/go`);
  const delivered = async () =>
    kind === "influxdb" ? (await service.counts()).lines : POINTS_PER_DAY * (await acceptedEvents(worker.statusUrl));
  const untilMs = performance.now() + LONGEST_MS;
  while ((await delivered()) < ENOUGH) {
    if (performance.now() > untilMs)
      throw new Error(`${kind}: ${await delivered()} of ${ENOUGH} points.\n${worker.running.output().slice(-2000)}`);
    await sleep(1_000);
  }
  const { points, largest } = await service.counts();
  await sleep(1_500);
  const after = usedBy(worker.pid);
  return {
    ...{ kind, points, largest },
    microseconds: (1_000 * (after.processorMs - before.processorMs)) / points,
    mebibytes: after.peakBytes / MEBIBYTE,
    written: (after.writtenBytes - before.writtenBytes) / points,
    stop: await worker.stops(),
  };
}

/** Events that the sink has accepted; each holds a day of a tag. */
async function acceptedEvents(statusUrl: string): Promise<number> {
  const metrics = await (await fetch(`${statusUrl}/metrics`, { headers: { connection: "close" } })).text();
  return Number(/^plenum_sink_deliveries_total\{[^}]*outcome="accepted"[^}]*\} (\d+)/m.exec(metrics)?.[1] ?? 0);
}

await withFolder(async (folder) => {
  printMachine();
  const rows = await Promise.all((["file", "influxdb"] as const).map((kind) => backfill(kind, join(folder, kind))));
  printTable(
    "",
    ["to", "points", "largest", "µs/point", "peak MiB", "B/point", "stop CPU ms", "stop ms"],
    rows.map(({ kind, points, largest, microseconds, mebibytes, written, stop }) => [
      ...[kind, String(points), String(largest), fixed(microseconds, 2), fixed(mebibytes), fixed(written)],
      ...[fixed(stop.processorMs), fixed(stop.clockMs)],
    ]),
  );
  for (const { kind, microseconds, mebibytes, stop } of rows) {
    checkGoal(`${kind}: processor time of a point`, microseconds, "at most", MOST[kind], " µs");
    checkGoal(`${kind}: peak memory`, mebibytes, "at most", MOST.mebibytes, " MiB");
    checkGoal(`${kind}: longest stop of the event loop`, stop.processorMs, "at most", MOST.stopMs, " ms");
  }
});
