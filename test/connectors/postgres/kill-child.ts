import { writeSync } from "node:fs";
import type { Sink } from "#src/core/connector.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { DeliveryConfig } from "#src/engine/delivery/config.ts";
import { createEventDispatcher } from "#src/engine/delivery/dispatcher.ts";
import { openStore } from "#src/engine/store/open.ts";
import { createBuildingView } from "#src/engine/views/building-view.ts";
import { PostgresConfig } from "../../../connectors/postgres/config.ts";
import { createPostgresSink } from "../../../connectors/postgres/sink.ts";
import { contextFor } from "../context.ts";
import { eventNo } from "./kill-events.ts";

/** Delivers events until it is killed: `kill-child.ts <folder> <connector options as JSON> [go or finish]`. */
const [folder = "", options = "{}", mode = "go"] = process.argv.slice(2);
const BEHIND_AT_MOST = 2_000;
const NAME = "warehouse";

const log = createLog({ level: "silent" });
const store = await openStore({ folder, clock: systemClock });
const config = PostgresConfig.parse(JSON.parse(options));
const postgres = createPostgresSink(config, contextFor(NAME, systemClock, store));
let hasLanded = false;
const sink: Sink = {
  ...postgres,
  async write(...offer) {
    const receipt = await postgres.write(...offer);
    if (!hasLanded && mode === "go") writeSync(1, "landing\n");
    hasLanded = true;
    return receipt;
  },
};
const dispatcher = createEventDispatcher({
  sinks: [
    {
      name: NAME,
      connector: "postgres",
      sink,
      delivery: DeliveryConfig.parse({ from: "beginning", batch: 60, retry: { first: "20ms", max: "50ms" } }),
    },
  ],
  outbox: store.outbox,
  store,
  building: createBuildingView(store, new Map()),
  clock: systemClock,
  log,
  metrics: createMetrics(),
});
await dispatcher.start(new AbortController().signal);

const behind = async () => (await store.outbox.lag())[0]?.depth ?? 0;
let made = (await store.document<number>("made", "events")) ?? 0;
while (mode === "go") {
  const events = Array.from({ length: 30 }, (_, n) => eventNo(made + n));
  made += events.length;
  await store.commit({ events, documents: [{ set: "made", put: [["events", made]] }] });
  do await systemClock.sleep(2);
  while ((await behind()) > BEHIND_AT_MOST);
}
while ((await behind()) > 0) await systemClock.sleep(20);
const dead = await store.outbox.deadLetters();
await dispatcher.stop(5_000);
await store.close();
writeSync(1, `${JSON.stringify({ made, dead: dead.length })}\n`);
