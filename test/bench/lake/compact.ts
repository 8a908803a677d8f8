import { mkdirSync, readdirSync } from "node:fs";
import { ParquetConfig } from "#connectors/parquet/config.ts";
import { createParquetSink } from "#connectors/parquet/sink.ts";
import { eventIn, eventText } from "#src/core/codec/stored-event.ts";
import { type Event, makeEvent } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { contextFor, never } from "../../connectors/context.ts";
import { usedBy } from "../process-use.ts";
import { live, type Workload } from "./workloads.ts";

/**
 * Measures the lake in a process of its own and prints the result as JSON: `compact.ts <cost or stop> <values> <folder>
 * <plain or delta>`.
 *
 * `cost` writes live values of all sites in steps of 15 minutes, with the hourly compaction of the open day and the merge
 * of the days that are over, and counts the processor time. `stop` writes the same number of values of one site and
 * day as fast as the sink takes them, finalizes that day, and finds the longest stop of the event loop. Watching the
 * event loop takes processor time, so one run does not measure both.
 */
export interface CompactedLake {
  readonly values: number;
  /** User and system time of all threads: up to the last landing with the hourly compaction, and the merge of the days. */
  readonly landingMs: number;
  readonly mergeMs: number;
  /** The longest turn of the event loop in each of the two, in processor time of the main thread; 0 for `cost`. */
  readonly landingStopMs: number;
  readonly mergeStopMs: number;
  /** Maximum number of files of one table, site and day: before the merge, and after it. */
  readonly filesBefore: number;
  readonly filesAfter: number;
  readonly peakBytes: number;
}

const QUARTER_MS = 15 * 60_000;
const HOUR_MS = 4 * QUARTER_MS;
/** Values of a step: 15 minutes of 20 tags every 3 s. */
const STEP = 6_000;
const MOST_TICKS = 10_000;

const SITE = 1;

const [measured = "", count = "0", folder = "", format = "plain"] = process.argv.slice(2);
const isStop = measured === "stop";
mkdirSync(folder, { recursive: true });
let passedMs = 0;
const clock = {
  ...systemClock,
  now: () => systemClock.now() + passedMs,
  monotonic: () => systemClock.monotonic() + passedMs,
};
const config = ParquetConfig.parse({ folder, table_format: format });
const sink = createParquetSink(config, contextFor("lake", clock));
const longestMs = { landing: 0, merge: 0 };

async function counted(phase: "landing" | "merge", work: () => Promise<unknown>): Promise<number> {
  const before = process.cpuUsage();
  if (isStop) longestMs[phase] = Math.max(longestMs[phase], await longestTurn(work));
  else await work();
  const { user, system } = process.cpuUsage(before);
  return (user + system) / 1_000;
}

/**
 * Returns the longest turn of the event loop while `work` runs, in milliseconds of processor time of this thread. Waiting
 * for the disk or for a busy machine does not count.
 */
async function longestTurn(work: () => Promise<unknown>): Promise<number> {
  let longestMs = 0;
  let isDone = false;
  let before = process.threadCpuUsage();
  function look(): void {
    const { user, system } = process.threadCpuUsage(before);
    longestMs = Math.max(longestMs, (user + system) / 1_000);
    before = process.threadCpuUsage();
    if (!isDone) setImmediate(look);
  }
  setImmediate(look);
  await work();
  isDone = true;
  await new Promise((resolve) => setImmediate(resolve));
  return longestMs;
}

async function ticks(): Promise<void> {
  for (let n = 0; n < MOST_TICKS; n++) {
    const { remember, settled } = (await sink.tick?.(never())) ?? {};
    if (remember === undefined && settled !== true) return;
  }
  throw new Error("The sink never ends its work.");
}

function* steps(events: Workload): Generator<readonly Event[]> {
  let step: Event[] = [];
  let values = 0;
  for (const each of events) {
    step.push(eventIn(eventText(each.event)));
    values += each.values;
    if (values < STEP) continue;
    yield step;
    [step, values] = [[], 0];
  }
  if (step.length > 0) yield step;
}

const days = new Set<string>();
let values = 0;
let position = 0;
async function write(batch: readonly Event[]): Promise<void> {
  const committedAt = batch.map(() => new Date(clock.now()).toISOString());
  const positions = batch.map((_, n) => position + n + 1);
  position += batch.length;
  for (let n = 0; n < batch.length; n += 5_000) {
    const part = { positions: positions.slice(n, n + 5_000), committedAt: committedAt.slice(n, n + 5_000) };
    await sink.write(batch.slice(n, n + 5_000), never(), undefined, { ...part, again: false });
  }
}

function mostFiles(): number {
  const found = new Map<string, number>();
  for (const entry of readdirSync(folder, { recursive: true, withFileTypes: true })) {
    if (!entry.isFile() || !/\/date=/.test(entry.parentPath) || !entry.name.endsWith(".parquet")) continue;
    found.set(entry.parentPath, (found.get(entry.parentPath) ?? 0) + 1);
  }
  return Math.max(0, ...found.values());
}

await sink.open(never());
await ticks();
let landingMs = 0;
for (const batch of steps(live(Number(count), isStop ? SITE : undefined))) {
  for (const event of batch) days.add(`${event.siteid ?? ""} ${event.time.slice(0, 10)}`);
  landingMs += await counted("landing", () => write(batch));
  if (isStop) continue;
  passedMs += QUARTER_MS;
  landingMs += await counted("landing", ticks);
}
values = Number(count);
const filesBefore = mostFiles();
let mergeMs = 0;
if (isStop) {
  const seals = [...days].map((word) => daySealed(word.split(" ")[0] ?? "", word.split(" ")[1] ?? ""));
  mergeMs += await counted("merge", () => write(seals));
  mergeMs += await counted("merge", ticks);
}
for (let hour = 0; hour < 3; hour++) {
  passedMs += HOUR_MS;
  mergeMs += await counted("merge", ticks);
}
await sink.close();

function daySealed(site: string, date: string): Event {
  const data = { date, revision: 1 } as unknown as Event<"audit-head">["data"];
  return makeEvent({
    ...{ type: "day-sealed" as "audit-head", source: "/sources/main", subject: `site/${site}/day/${date}` },
    ...{ time: `${date}T00:00:00.000Z`, siteId: Number(site), data, facts: [date, 1] },
  });
}

const filesAfter = format === "delta" ? 0 : mostFiles();
const lake: CompactedLake = {
  ...{ values, landingMs, mergeMs, filesBefore, filesAfter },
  ...{ landingStopMs: longestMs.landing, mergeStopMs: longestMs.merge },
  peakBytes: usedBy(process.pid).peakBytes,
};
process.stdout.write(`${JSON.stringify(lake)}\n`);
