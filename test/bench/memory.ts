import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { EVENTS_ACCEPTED } from "#src/core/connector.ts";
import { startVirtualWorker } from "../virtual-worker.ts";
import { checkGoal, decimal, MEBIBYTE } from "./harness.ts";

/** Growth of a worker's memory in virtual time (`npm run bench:memory [hours]`), without the first quarter. */
const HOUR_MS = 3_600_000;
const hours = Number(process.argv[2] ?? 24);

setFlagsFromString("--expose-gc");
const collectGarbage = runInNewContext("gc") as () => void;

let delivered = 0;
let isAway = false;
const sink = (canFail: boolean) => ({
  delivery: { from: "beginning" },
  sink: () => ({
    open: async () => undefined,
    async write(batch: readonly unknown[]) {
      if (canFail && isAway) throw new Error("The sink is away.");
      delivered += batch.length;
      return EVENTS_ACCEPTED;
    },
    close: async () => undefined,
  }),
});

/** Returns the slope of equally spaced figures, per step (least squares). */
function computeSlope(figures: readonly number[]): number {
  const middleIndex = (figures.length - 1) / 2;
  const meanFigure = figures.reduce((sum, each) => sum + each, 0) / figures.length;
  return (
    figures.reduce((sum, each, n) => sum + (n - middleIndex) * (each - meanFigure), 0) /
    figures.reduce((sum, _, n) => sum + (n - middleIndex) ** 2, 0)
  );
}

const virtual = await startVirtualWorker({
  simulator: { sites: [2, 3, 4, 5, 12], request_log: 100 },
  source: {
    read: [{ name: "all", every: "1m" }],
    history: [{ name: "fine", resolution: "5m", every: "5m", backfill: "1d" }],
  },
  state: { max_bytes: 200 * MEBIBYTE, replay_window: "15m" },
  eventsFolder: null,
  sinks: { steady: sink(false), failing: sink(true) },
});
const memoryMebibytes: number[] = [];
for (let hour = 1; hour <= hours; hour += 1) {
  isAway = hour % 2 === 0;
  await virtual.clock.advance(HOUR_MS);
  collectGarbage();
  const { arrayBuffers, external, heapUsed } = process.memoryUsage();
  memoryMebibytes.push((heapUsed + external + arrayBuffers) / MEBIBYTE);
  console.log(`after ${hour} h: ${decimal(memoryMebibytes.at(-1) ?? null, 1)} MiB, ${delivered} events delivered`);
}
await virtual.clear();
checkGoal("growth of memory", computeSlope(memoryMebibytes.slice(Math.floor(hours / 4))), "at most", 1, " MiB an hour");
