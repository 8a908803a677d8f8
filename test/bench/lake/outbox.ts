import { ACCEPTED } from "#src/core/connector.ts";
import type { Event } from "#src/core/model/event.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { DeliveryConfig } from "#src/engine/delivery/config.ts";
import { createDispatcher } from "#src/engine/delivery/dispatcher.ts";
import { openStore } from "#src/engine/store/open.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { live, plant } from "./workloads.ts";

/**
 * What the log and the engine cost before a sink does anything, as JSON: `outbox.ts <live or plant> <values> <folder>`. Values
 * are committed as the worker does it (20 live ones of a reply, or 8,000 points) and delivered to a sink that takes all.
 */
const VALUES_PER_COMMIT: Readonly<Record<string, number>> = { live: 20, plant: 8_000 };

const [workload = "", count = "0", folder = ""] = process.argv.slice(2);
const store = await openStore({ folder, clock: systemClock });
let delivered = 0;
const dispatcher = createDispatcher({
  sinks: [
    {
      name: "idle",
      connector: "idle",
      sink: {
        maxBatch: 5_000,
        open: async () => {},
        async write(batch) {
          delivered += batch.length;
          return ACCEPTED;
        },
        close: async () => {},
      },
      delivery: DeliveryConfig.parse({ from: "beginning", batch: 5_000 }),
    },
  ],
  outbox: store.outbox,
  store,
  picture: createBuildingView(store, new Map()),
  clock: systemClock,
  log: createLog({ level: "silent" }),
  metrics: createMetrics(),
});
await dispatcher.start(new AbortController().signal);

let values = 0;
let processorMs = 0;
let committed = 0;
async function commit(events: readonly Event[]): Promise<void> {
  const before = process.cpuUsage();
  await store.commit({ events });
  committed += events.length;
  while (delivered < committed) await new Promise((resolve) => setImmediate(resolve));
  const { user, system } = process.cpuUsage(before);
  processorMs += (user + system) / 1_000;
}

let events: Event[] = [];
let waiting = 0;
for (const each of workload === "live" ? live(Number(count)) : plant(3_000, Number(count))) {
  events.push(each.event);
  waiting += each.values;
  values += each.values;
  if (waiting < (VALUES_PER_COMMIT[workload] ?? 1)) continue;
  await commit(events);
  [events, waiting] = [[], 0];
}
await commit(events);
await dispatcher.stop(5_000);
await store.close();
process.stdout.write(`${JSON.stringify({ values, processorMs })}\n`);
