import { availableParallelism } from "node:os";
import { MqttConfig } from "#connectors/mqtt/config.ts";
import { createMqttSink } from "#connectors/mqtt/sink.ts";
import { contextFor, never } from "../connectors/context.ts";
import { absent, startMosquitto } from "../real-servers.ts";
import { valueEvent } from "../sample-events.ts";

/**
 * How many values a second the MQTT sink delivers to a Mosquitto as it comes, each acknowledged, and what each costs in
 * processor time of ours (`npm run bench:mqtt`, ten seconds). Rounds differ by a third on a shared machine.
 */
const ROUNDS = 3;
const VALUES = 40_000;
/** 100 is what a sink that is behind is offered at once by default, 20 what one reply brings. */
const BATCHES = [100, 20];

if (absent("mosquitto")) process.exit(1);
const broker = await startMosquitto();
const sink = createMqttSink(MqttConfig.parse({ url: broker.url }), contextFor("broker"));
try {
  await sink.open(never());
  process.stdout.write(`Machine: ${availableParallelism()} cores, Node ${process.version}\n`);
  for (const size of BATCHES) {
    const batch = Array.from({ length: size }, (_, n) => valueEvent(n, `tag-${n}`));
    for (let round = 0; round < ROUNDS; round += 1) {
      const from = performance.now();
      const usedBefore = process.cpuUsage();
      for (let sent = 0; sent < VALUES; sent += size) await sink.write(batch, never());
      const seconds = (performance.now() - from) / 1_000;
      const { user, system } = process.cpuUsage(usedBefore);
      process.stdout.write(
        `${String(size).padStart(3)} at once: ${Math.round(VALUES / seconds)} a second, ${((user + system) / VALUES).toFixed(1)} µs each\n`,
      );
    }
  }
} finally {
  await sink.close();
  await broker.stop();
}
