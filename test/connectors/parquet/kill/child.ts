import { ParquetConfig } from "#connectors/parquet/config.ts";
import { createParquetSink } from "#connectors/parquet/sink.ts";
import type { Sink } from "#src/core/connector.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createSinkState } from "#src/engine/delivery/batches.ts";
import { DeliveryConfig } from "#src/engine/delivery/config.ts";
import { createEventDispatcher } from "#src/engine/delivery/dispatcher.ts";
import { openStore } from "#src/engine/store/open.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { sampleEvent, valueEvent } from "../../../sample-events.ts";

/** A worker's store and delivery with a lake: `child.ts <state> <configuration> <events>`. */
const [folder = "", config = "{}", count = "0"] = process.argv.slice(2);
const metrics = createMetrics();
const log = createLog({ level: "silent" });
const clock = systemClock;
const store = await openStore({ folder, clock });
const building = createBuildingView(store, new Map());
const sinkState = createSinkState("lake", store);
/** An hour of the sink takes 0.1 s. */
const FASTER = 36_000;
const lake = createParquetSink(ParquetConfig.parse(JSON.parse(config)), {
  name: "lake",
  clock: { ...clock, monotonic: () => clock.monotonic() * FASTER },
  log,
  metrics,
  sinkState,
  building,
});
const sink: Sink = {
  ...lake,
  progressMs: () => clock.monotonic(),
  async tick(signal) {
    return { ...(await lake.tick?.(signal)), tickInMs: 10 };
  },
};
const delivery = DeliveryConfig.parse({ from: "beginning", batch: 1 + Math.floor(Math.random() * 40) });
const dispatcher = createEventDispatcher({
  sinks: [{ name: "lake", connector: "parquet", sink, delivery }],
  outbox: store.outbox,
  store,
  building,
  clock,
  log,
  metrics,
});
const isUnfinished = (await sinkState.get("landings")) !== undefined;
const isCompacting = (await sinkState.get("compaction")) !== undefined;
await dispatcher.start(new AbortController().signal);
process.stdout.write(`${isUnfinished ? "landing" : "no landing"}, ${isCompacting ? "compacting" : "no compaction"}\n`);

const wanted = Number(count);
const committed = async () => (await store.document<number>("test", "committed")) ?? 0;
for (let n = await committed(); n < wanted; n = await committed()) {
  const events = Array.from({ length: Math.min(20, wanted - n) }, (_, index) => eventNumber(n + index));
  const put = [["committed", n + events.length]] as const;
  await store.commit({ events, documents: [{ set: "test", put }] });
}
while ((await store.outbox.lag()).some(({ depth }) => depth > 0)) await clock.sleep(20);
process.exit(0);

function eventNumber(n: number) {
  if (n % 50 === 7) return sampleEvent("alarm-changed", {}, n);
  if (n % 50 === 9) return sampleEvent("tag-changed", {}, n);
  const event = valueEvent(n + (n % 2) * 86_400_000, `1004${n % 5}`);
  return { ...event, siteid: String(n % 3) };
}
