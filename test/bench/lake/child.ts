import { readdirSync } from "node:fs";
import { join } from "node:path";
import { ParquetConfig } from "#connectors/parquet/config.ts";
import { createParquetSink } from "#connectors/parquet/sink.ts";
import { encodeEvent, parseEvent } from "#src/core/codec/stored-event.ts";
import { EVENTS_ACCEPTED, type Sink } from "#src/core/connector.ts";
import { type Event, makeEvent } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { DeliveryConfig } from "#src/engine/delivery/config.ts";
import { createEventDispatcher } from "#src/engine/delivery/dispatcher.ts";
import { MAX_BATCH_BYTES } from "#src/engine/store/event-log-rows.ts";
import { openStore } from "#src/engine/store/open.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { contextFor, never } from "../../connectors/context.ts";
import { processorMsOf, readUsage } from "../harness.ts";
import { type Destination, openDestination } from "./destinations.ts";
import { live, plant, recorded, type Workload } from "./workloads.ts";

/** Runs one measurement in its own process and prints the result as JSON. */
const DAY_MS = 86_400_000;
const QUARTER_MS = 15 * 60_000;
const HOUR_MS = 4 * QUARTER_MS;
const BATCH = 5_000;
const WARM_VALUES = 60_000;

let addedMs = 0;
const clock = {
  ...systemClock,
  now: () => systemClock.now() + addedMs,
  monotonic: () => systemClock.monotonic() + addedMs,
};

function createWorkload(name: string, values: number): Workload {
  if (name === "recorded") return recorded();
  return name === "live" ? live(values) : plant(3_000, values);
}

interface EventBatch {
  readonly batch: readonly Event[];
  readonly values: number;
}

/** Groups a workload into offers as the engine makes them, of events as read from the log. */
function* groupIntoBatches(events: Workload, mostValues = Number.POSITIVE_INFINITY): Generator<EventBatch> {
  let batch: Event[] = [];
  let values = 0;
  let bytes = 0;
  for (const workloadEvent of events) {
    const eventText = encodeEvent(workloadEvent.event);
    const isFull = batch.length === BATCH || bytes + eventText.length > MAX_BATCH_BYTES || values >= mostValues;
    if (isFull && batch.length > 0) {
      yield { batch, values };
      [batch, values, bytes] = [[], 0, 0];
    }
    batch.push(parseEvent(eventText));
    values += workloadEvent.values;
    bytes += eventText.length;
  }
  if (batch.length > 0) yield { batch, values };
}

function createWriter(sink: Sink): (batch: readonly Event[]) => Promise<unknown> {
  let position = 0;
  return async (batch) => {
    const commitTimes = batch.map(() => new Date(clock.now()).toISOString());
    const positions = batch.map((_, n) => position + n + 1);
    position += batch.length;
    return sink.write(batch, never(), undefined, { positions, committedAt: commitTimes, isRedelivery: false });
  };
}

export interface CommitResult {
  readonly values: number;
  readonly bytes: number;
  readonly processorMs: number;
  readonly peakBytes: number;
  readonly half: { readonly values: number; readonly bytes: number; readonly processorMs: number };
}

async function land(
  name: string,
  workload: string,
  count: string,
  folder: string,
  port: string,
): Promise<CommitResult> {
  const openPart = (part: string) =>
    openDestination(name as Destination, join(folder, part), Number(port), contextFor(part, clock));
  const valueCount = Number(count);
  let [values, processorMs] = [0, 0];
  const writeAll = async (sink: Sink, events: Workload, afterBatch = async () => {}) => {
    await sink.open(never());
    [values, processorMs] = [0, 0];
    const write = createWriter(sink);
    for (const eventBatch of groupIntoBatches(events)) {
      processorMs += await processorMsOf(() => write(eventBatch.batch));
      values += eventBatch.values;
      await afterBatch();
    }
    // A day later the sink writes what it has buffered.
    addedMs += DAY_MS;
    processorMs += await processorMsOf(() => sink.tick?.(never()));
  };
  const warm = await openPart("warm");
  await writeAll(warm.sink, workload === "live" ? live(WARM_VALUES) : plant(300, WARM_VALUES));
  await warm.sink.close();

  const { sink, bytes } = await openPart("lake");
  await sink.open(never());
  const empty = await bytes();
  let half = { values: 0, processorMs: 0, bytes: 0 };
  await writeAll(sink, createWorkload(workload, valueCount), async () => {
    if (half.values === 0 && values >= valueCount / 2) half = { values, processorMs, bytes: (await bytes()) - empty };
  });
  const commitResult = { values, processorMs };
  // The first value of another day closes and compresses the last file.
  if (name === "file, gzip") {
    await writeAll(sink, live(1));
    commitResult.processorMs += processorMs;
  }
  await sink.close();
  return { ...commitResult, half, bytes: (await bytes()) - empty, peakBytes: readUsage(process.pid).peakBytes };
}

async function log(workload: string, count: string, folder: string) {
  const valuesPerCommit = workload === "live" ? 20 : 8_000;
  const store = await openStore({ folder, clock: systemClock });
  let delivered = 0;
  const idleSink: Sink = {
    maxBatch: BATCH,
    open: async () => {},
    async write(batch) {
      delivered += batch.length;
      return EVENTS_ACCEPTED;
    },
    close: async () => {},
  };
  const deliveryConfig = DeliveryConfig.parse({ from: "beginning", batch: BATCH });
  const dispatcher = createEventDispatcher({
    sinks: [{ name: "idle", connector: "idle", sink: idleSink, delivery: deliveryConfig }],
    ...{ outbox: store.outbox, store, building: createBuildingView(store, new Map()), clock: systemClock },
    ...{ log: createLog({ level: "silent" }), metrics: createMetrics() },
  });
  await dispatcher.start(new AbortController().signal);
  let [values, processorMs, committed] = [0, 0, 0];
  for (const eventBatch of groupIntoBatches(createWorkload(workload, Number(count)), valuesPerCommit)) {
    values += eventBatch.values;
    committed += eventBatch.batch.length;
    processorMs += await processorMsOf(async () => {
      await store.commit({ events: eventBatch.batch });
      while (delivered < committed) await new Promise((resolve) => setImmediate(resolve));
    });
  }
  await dispatcher.stop(5_000);
  await store.close();
  return { values, processorMs };
}

export interface Compaction {
  readonly values: number;
  readonly commitMs: number;
  readonly mergeMs: number;
  readonly stopMs: number;
  readonly filesBefore: number;
}

const VALUES_PER_STEP = 6_000;
const SITE = 1;

/** `cost`: live values with hourly compaction and the merge of days. `stop`: one site, the longest stop of a merge. */
async function compaction(measured: string, count: string, folder: string, format: string): Promise<Compaction> {
  const isStop = measured === "stop";
  const sink = createParquetSink(ParquetConfig.parse({ folder, table_format: format }), contextFor("lake", clock));
  let stopMs = 0;
  const counted = (work: () => Promise<unknown>) =>
    processorMsOf(async () => {
      if (isStop) stopMs = Math.max(stopMs, await longestTick(work));
      else await work();
    });
  const tickUntilDone = async () => {
    for (let n = 0; n < 10_000; n++) {
      const { stateChanges: remember, settled } = (await sink.tick?.(never())) ?? {};
      if (remember === undefined && settled !== true) return;
    }
    throw new Error("The sink never finishes its work.");
  };
  const write = createWriter(sink);
  const days = new Set<string>();
  let [commitMs, mergeMs] = [0, 0];
  await sink.open(never());
  await tickUntilDone();
  for (const { batch, values } of groupIntoBatches(live(Number(count), isStop ? SITE : undefined), VALUES_PER_STEP)) {
    for (const { time } of batch) days.add(time.slice(0, 10));
    commitMs += await counted(() => write(batch));
    if (isStop) continue;
    addedMs += (QUARTER_MS * values) / VALUES_PER_STEP;
    commitMs += await counted(tickUntilDone);
  }
  const filesBefore = mostFiles(folder);
  if (isStop) mergeMs += await counted(() => write([...days].map(daySealed)).then(tickUntilDone));
  for (let hour = 0; hour < 3; hour++) {
    addedMs += HOUR_MS;
    mergeMs += await counted(tickUntilDone);
  }
  await sink.close();
  return { values: Number(count), commitMs, mergeMs, stopMs, filesBefore };
}

async function longestTick(work: () => Promise<unknown>): Promise<number> {
  let longestMs = 0;
  let isDone = false;
  let cpuBefore = process.threadCpuUsage();
  function measureTick(): void {
    const { user, system } = process.threadCpuUsage(cpuBefore);
    longestMs = Math.max(longestMs, (user + system) / 1_000);
    cpuBefore = process.threadCpuUsage();
    if (!isDone) setImmediate(measureTick);
  }
  setImmediate(measureTick);
  await work();
  isDone = true;
  await new Promise((resolve) => setImmediate(resolve));
  return longestMs;
}

function daySealed(date: string): Event {
  const data = { date, revision: 1 } as unknown as Event<"audit-head">["data"];
  return makeEvent({
    ...{ type: "day-sealed" as "audit-head", source: "/sources/main", subject: `site/${SITE}/day/${date}` },
    ...{ time: `${date}T00:00:00.000Z`, siteId: SITE, data, facts: [date, 1] },
  });
}

function mostFiles(folder: string): number {
  const files = readdirSync(folder, { recursive: true, withFileTypes: true }).filter(
    ({ name, parentPath }) => /\/date=/.test(parentPath) && name.endsWith(".parquet"),
  );
  return Math.max(
    0,
    ...Map.groupBy(files, ({ parentPath }) => parentPath)
      .values()
      .map(({ length }) => length),
  );
}

const [measurement = "", ...args] = process.argv.slice(2);
const run = { land, log, compaction }[measurement] as ((...of: readonly string[]) => Promise<object>) | undefined;
if (run === undefined) throw new Error(`There is no measurement ${measurement}.`);
process.stdout.write(`${JSON.stringify(await run(...args))}\n`);
