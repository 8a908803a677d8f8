import { writeFileSync } from "node:fs";
import { monitorEventLoopDelay } from "node:perf_hooks";

/**
 * Goes into a worker by `--import` and writes to the file of LOOP_PROBE, once a second, the longest stops of its event
 * loop so far in milliseconds: `clock`, by the clock, which is longer where the machine is busy with others, and
 * `processor`, in processor time of that thread, which no other process makes longer and no slow disk either. SIGUSR2
 * begins anew.
 */
const LOOK_MS = 5;
const path = process.env.LOOP_PROBE;
if (path !== undefined) {
  const delay = monitorEventLoopDelay({ resolution: LOOK_MS });
  delay.enable();
  let longest = 0;
  const used = () => {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1_000;
  };
  let before = used();
  setInterval(() => {
    const now = used();
    longest = Math.max(longest, now - before);
    before = now;
  }, LOOK_MS).unref();
  setInterval(
    () => writeFileSync(path, JSON.stringify({ clock: delay.max / 1e6, processor: longest })),
    1_000,
  ).unref();
  process.on("SIGUSR2", () => {
    delay.reset();
    longest = 0;
  });
}
