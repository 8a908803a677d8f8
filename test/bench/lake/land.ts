import { mkdirSync } from "node:fs";
import { eventIn, eventText } from "#src/core/codec/stored-event.ts";
import type { Sink } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { OFFER_BYTES } from "#src/engine/store/outbox-rules.ts";
import { contextFor, never } from "../../connectors/context.ts";
import { usedBy } from "../process-use.ts";
import { type Contestant, contestant } from "./contestants.ts";
import { live, plant, recorded, type Workload } from "./workloads.ts";

/**
 * Lands one workload with one sink, in a process of its own, and says what it took as JSON: `land.ts <contestant>
 * <workload> <values> <folder> <port>`. Events are made beforehand, batch by batch, and are not counted: read as they come
 * from the log, with positions and times.
 */
export interface Landed {
  readonly values: number;
  readonly bytes: number;
  /** User and system of all threads, while the sink had the word. */
  readonly processorMs: number;
  /** Of the process, at most. */
  readonly peakBytes: number;
  /** The same of the first half. */
  readonly half: { readonly values: number; readonly bytes: number; readonly processorMs: number };
}

const BATCH = 5_000;
const WARM_VALUES = 60_000;
const LATE_MS = 86_400_000;

const [name = "", workload = "", count = "0", folder = "", port = "0"] = process.argv.slice(2);
const WORKLOADS: Readonly<Record<string, (values: number) => Workload>> = {
  recorded,
  live,
  plant: (values) => plant(3_000, values),
};

let passedMs = 0;
const clock = {
  ...systemClock,
  now: () => systemClock.now() + passedMs,
  monotonic: () => systemClock.monotonic() + passedMs,
};

/** As much as one offer of the engine has. */
function* offers(events: Workload): Generator<{ readonly batch: readonly Event[]; readonly values: number }> {
  let batch: Event[] = [];
  let values = 0;
  let bytes = 0;
  for (const each of events) {
    const text = eventText(each.event);
    if (batch.length === BATCH || (batch.length > 0 && bytes + text.length > OFFER_BYTES)) {
      yield { batch, values };
      [batch, values, bytes] = [[], 0, 0];
    }
    batch.push(eventIn(text));
    values += each.values;
    bytes += text.length;
  }
  if (batch.length > 0) yield { batch, values };
}

interface Course {
  readonly sink: Sink;
  readonly events: Workload;
  /** Called after each batch with all so far. */
  readonly after?: (values: number, processorMs: number) => Promise<void>;
}

/** Everything is durable when it resolves. */
async function run({ sink, events, after }: Course): Promise<{ values: number; processorMs: number }> {
  let values = 0;
  let processorMs = 0;
  let position = 0;
  async function counted(work: () => Promise<unknown> | undefined): Promise<void> {
    const before = process.cpuUsage();
    await work();
    const { user, system } = process.cpuUsage(before);
    processorMs += (user + system) / 1_000;
  }
  await sink.open(never());
  for (const offer of offers(events)) {
    const committedAt = new Date(clock.now()).toISOString();
    const offered = {
      positions: offer.batch.map((_, n) => position + n + 1),
      committedAt: offer.batch.map(() => committedAt),
      again: false,
    };
    position += offer.batch.length;
    await counted(() => sink.write(offer.batch, never(), undefined, offered));
    values += offer.values;
    await after?.(values, processorMs);
  }
  // What is only gathered lands, because it is old now.
  passedMs += LATE_MS;
  await counted(() => sink.tick?.(never()));
  return { values, processorMs };
}

const wanted = Number(count);
const make = WORKLOADS[workload];
if (make === undefined) throw new Error(`There is no workload ${workload}.`);
const own = (part: string) => {
  const path = `${folder}/${part}`;
  mkdirSync(path, { recursive: true });
  return path;
};
const warm = await contestant(
  name as Contestant,
  { folder: own("warm"), port: Number(port) },
  contextFor("warm", clock),
);
await run({ sink: warm.sink, events: workload === "live" ? live(WARM_VALUES) : plant(300, WARM_VALUES) });
await warm.sink.close();

const { sink, bytes } = await contestant(
  name as Contestant,
  { folder: own("lake"), port: Number(port) },
  contextFor("lake", clock),
);
await sink.open(never());
const empty = await bytes();
let half: Landed["half"] | null = null;
const done = await run({
  sink,
  events: make(wanted),
  async after(values, processorMs) {
    if (half === null && values >= wanted / 2) half = { values, processorMs, bytes: (await bytes()) - empty };
  },
});
// The last file is closed, and compressed, because the first value of another day comes.
const last = name === "file, gzip" ? (await run({ sink, events: live(1) })).processorMs : 0;
await sink.close();
const landed: Landed = {
  ...done,
  processorMs: done.processorMs + last,
  bytes: (await bytes()) - empty,
  peakBytes: usedBy(process.pid).peakBytes,
  half: half ?? { values: 0, bytes: 0, processorMs: 0 },
};
process.stdout.write(`${JSON.stringify(landed)}\n`);
