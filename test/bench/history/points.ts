import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { systemClock } from "#src/core/runtime/clock.ts";
import { openStore } from "#src/engine/store/open.ts";
import { syncSet } from "#src/engine/sync/stored-documents.ts";
import {
  checkGoal,
  decimal,
  MEBIBYTE,
  printMachine,
  printTable,
  readUsage,
  sourceConfig,
  startService,
  startWorker,
  withFolder,
} from "../harness.ts";

/** Cost of a point of history from the reply to the sink (`npm run bench:points -- [days]`, a minute and a half). */
const DAYS = Number(process.argv[2] ?? 365);
const TAGS = 20;
const POINTS_PER_DAY = 288;
const REPLY_POINTS = 230_000;
/** Points of buckets that close during the run are not waited for. */
const ENOUGH = DAYS * POINTS_PER_DAY * TAGS * 0.999;
const START_MS = 8_000;
const LONGEST_MS = 240_000;

/** Time: a third above the figure of a busy machine. Memory: a tenth above the median. Stops: goal 50 ms. */
const POINT_GOALS = { file: 3.6, influxdb: 4.8, mebibytes: 195, stopMs: 65 };

/** Stores the learned request size, so that the run does not measure how the worker learns it. */
async function storeRequestSize(folder: string): Promise<void> {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const store = await openStore({ folder, clock: systemClock });
  const sizeWindow = { good: REPLY_POINTS, bad: REPLY_POINTS + 1_000, doubt: null, streak: 0 };
  await store.commit({ documents: [{ set: syncSet("history-window", "s0"), put: [["values", sizeWindow]] }] });
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
  const usageBefore = readUsage(worker.pid);
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
  const usageAfter = readUsage(worker.pid);
  return {
    ...{ kind, points, largest },
    microseconds: (1_000 * (usageAfter.processorMs - usageBefore.processorMs)) / points,
    mebibytes: usageAfter.peakBytes / MEBIBYTE,
    written: (usageAfter.writtenBytes - usageBefore.writtenBytes) / points,
    stop: await worker.stops(),
  };
}

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
      ...[kind, String(points), String(largest), decimal(microseconds, 2), decimal(mebibytes), decimal(written)],
      ...[decimal(stop.processorMs), decimal(stop.clockMs)],
    ]),
  );
  for (const { kind, microseconds, mebibytes, stop } of rows) {
    checkGoal(`${kind}: processor time of a point`, microseconds, "at most", POINT_GOALS[kind], " µs");
    checkGoal(`${kind}: peak memory`, mebibytes, "at most", POINT_GOALS.mebibytes, " MiB");
    checkGoal(`${kind}: longest stop of the event loop`, stop.processorMs, "at most", POINT_GOALS.stopMs, " ms");
  }
});
