import { rmSync } from "node:fs";
import { join } from "node:path";
import { Config } from "#src/config/config.ts";
import type { AnyEvent } from "#src/event.ts";
import { createLog } from "#src/log.ts";
import type { SimulatorOptionsInput } from "#src/simulator/options.ts";
import { createSimulator, type Simulator } from "#src/simulator/simulator.ts";
import { clockTicker } from "#src/sync/schedule.ts";
import { createWorker, type Worker } from "#src/worker.ts";
import { freePort, temporaryFolder } from "./real-servers.ts";
import { simulatedTransport } from "./simulated-transport.ts";
import { createVirtualClock, type VirtualClock } from "./virtual-clock.ts";

/** The whole worker, as `plenum run` builds it, beside the simulated service, on one clock that we move. */
export interface VirtualWorker {
  readonly worker: Worker;
  readonly simulator: Simulator;
  readonly clock: VirtualClock;
  /** Every event that was committed, the oldest first. */
  events(): Promise<readonly AnyEvent[]>;
  clear(): Promise<void>;
}

const START_MS = Date.UTC(2026, 5, 1, 0, 0, 0);
const LATENCY_MS = 50;

export async function startVirtualWorker(options: {
  readonly simulator: SimulatorOptionsInput;
  /** A source's part of the configuration. */
  readonly source: object;
  readonly state?: object;
  /** Where the file sink writes; among the rest unless given. */
  readonly eventsFolder?: string;
}): Promise<VirtualWorker> {
  const folder = temporaryFolder("virtual-worker");
  const virtual = createVirtualClock(START_MS, { turns: 3 });
  // The machine's wall clock has whole milliseconds, and the store keeps no others.
  const clock = { ...virtual, now: () => Math.floor(virtual.now()) };
  const simulator = createSimulator({ epoch: START_MS, ...options.simulator }, { now: () => clock.now() });
  const transport = simulatedTransport(simulator, clock, { thereMs: () => LATENCY_MS });
  const worker = await createWorker({
    config: Config.parse({
      state: { ...options.state, folder: join(folder, "state") },
      status: { port: await freePort() },
      sources: {
        main: {
          base_url: "http://127.0.0.1",
          token: { env: "TOKEN" },
          time_zone: "Europe/Oslo",
          ...options.source,
        },
      },
      sinks: { files: { file: { folder: options.eventsFolder ?? join(folder, "events") } } },
    }),
    environment: { TOKEN: "simulator-token" },
    clock,
    log: createLog({ level: "silent" }),
    transport,
    ticker: clockTicker(clock),
  });
  await worker.start();
  return {
    worker,
    simulator,
    clock,
    async events() {
      const latest = await worker.store.outbox.latest(1_000_000);
      return latest.map(({ event }) => event as AnyEvent).reverse();
    },
    async clear() {
      const stopped = worker.stop(1_000);
      await clock.advance(2_000);
      await stopped;
      rmSync(folder, { recursive: true });
    },
  };
}
