import { MqttConfig } from "#connectors/mqtt/config.ts";
import { createMqttSink } from "#connectors/mqtt/sink.ts";
import { contextFor, never } from "../connectors/context.ts";
import { absent, startMosquitto } from "../real-servers.ts";
import { valueEvent } from "../sample-events.ts";
import { decimal, printMachine, processorMsOf } from "./harness.ts";

/** Values per second to a Mosquitto, each acknowledged (`npm run bench:mqtt`); rounds differ by a third. */
const ROUNDS = 3;
const VALUES = 40_000;
const BATCHES = [100, 20];

if (absent("mosquitto")) process.exit(1);
const broker = await startMosquitto();
const sink = createMqttSink(MqttConfig.parse({ url: broker.url }), contextFor("broker"));
try {
  await sink.open(never());
  printMachine();
  for (const batchSize of BATCHES) {
    const batch = Array.from({ length: batchSize }, (_, n) => valueEvent(n, `tag-${n}`));
    for (let round = 0; round < ROUNDS; round += 1) {
      const startMs = performance.now();
      const processorMs = await processorMsOf(async () => {
        for (let sentValues = 0; sentValues < VALUES; sentValues += batchSize) await sink.write(batch, never());
      });
      const perSecond = (1_000 * VALUES) / (performance.now() - startMs);
      console.log(
        `batches of ${batchSize}: ${decimal(perSecond)} a second, ${decimal((1_000 * processorMs) / VALUES, 1)} µs each`,
      );
    }
  }
} finally {
  await sink.close();
  await broker.stop();
}
