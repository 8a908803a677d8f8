import { Config } from "#src/app/config/config.ts";
import { createWorker } from "#src/app/worker.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { type ClockSpeed, fastClock } from "./fast-clock.ts";

const [configuration = "{}", hurry = "{}"] = process.argv.slice(2);
const clock = fastClock(JSON.parse(hurry) as ClockSpeed);
const worker = await createWorker({
  config: Config.parse(JSON.parse(configuration)),
  clock,
  log: createLog({ level: process.env.PLENUM_TEST_LOG ?? "silent" }),
  armWriting: true,
});
process.once("SIGTERM", () => void worker.stop(60_000).then(() => process.exit(0)));
await worker.start();
process.stdout.write("started\n");
