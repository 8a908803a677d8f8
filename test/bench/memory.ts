import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { ACCEPTED } from "#src/core/connector.ts";
import { startVirtualWorker } from "../virtual-worker.ts";
import { slopeOf } from "./slope.ts";

/**
 * Whether a worker's memory grows while it runs (`npm run bench:memory [hours, default 24]`): in virtual time, at full
 * quota, with alarms that come and go, a sink that takes everything and one that is away every other hour. Each hour the
 * garbage is collected and what is left is measured, heap and buffers. The first quarter is left out, because caches and
 * the log fill up to their bounds then; of the rest the slope (least squares) may be 1 MB an hour at most. Ends with exit
 * code 1 otherwise.
 */
const HOUR_MS = 3_600_000;
const MEBIBYTE = 1024 ** 2;
const MOST_MB_PER_HOUR = 1;
const hours = Number(process.argv[2] ?? 24);

setFlagsFromString("--expose-gc");
const collect = runInNewContext("gc") as () => void;

let delivered = 0;
let isAway = false;
const sink = (name: string) => ({
  delivery: { from: "beginning" },
  sink: () => ({
    open: async () => undefined,
    async write(batch: readonly unknown[]) {
      if (name === "moody" && isAway) throw new Error("It is away.");
      delivered += batch.length;
      return ACCEPTED;
    },
    close: async () => undefined,
  }),
});

const virtual = await startVirtualWorker({
  simulator: { sites: [2, 3, 4, 5, 12], request_log: 100 },
  source: {
    read: [{ name: "all", every: "1m" }],
    history: [{ name: "fine", resolution: "5m", every: "5m", backfill: "1d" }],
  },
  state: { max_bytes: 200 * MEBIBYTE, replay_window: "15m" },
  eventsFolder: null,
  sinks: { steady: sink("steady"), moody: sink("moody") },
});
const used: number[] = [];
const from = performance.now();
for (let hour = 1; hour <= hours; hour += 1) {
  isAway = hour % 2 === 0;
  await virtual.clock.advance(HOUR_MS);
  collect();
  const { arrayBuffers, external, heapUsed } = process.memoryUsage();
  used.push((heapUsed + external + arrayBuffers) / MEBIBYTE);
  console.log(
    `after ${hour} h: ${used.at(-1)?.toFixed(1)} MiB, ${delivered} events delivered, ${Math.round(process.memoryUsage.rss() / MEBIBYTE)} MiB resident`,
  );
}
await virtual.clear();

const settled = used.slice(Math.floor(hours / 4));
const slope = slopeOf(settled);
console.log(
  `${slope.toFixed(3)} MiB an hour over the last ${settled.length} of ${hours} h (at most ${MOST_MB_PER_HOUR}), in ${Math.round((performance.now() - from) / 1_000)} s`,
);
process.exitCode = slope <= MOST_MB_PER_HOUR ? 0 : 1;
