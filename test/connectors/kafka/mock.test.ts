import { describe } from "vitest";
import { KafkaConfig } from "#connectors/kafka/config.ts";
import { createKafkaSink } from "#connectors/kafka/sink.ts";
import { absent, type MockKafka, startMockKafka } from "../../real-servers.ts";
import { describeSink } from "../../suites/sink-suite.ts";
import { contextFor } from "../context.ts";
import { cloudEventOf } from "./cloud-event.ts";

const TOPIC = "plenum";

function createSink(server: MockKafka) {
  const config = { brokers: server.brokers, topic: TOPIC, tls: { enabled: false }, idempotent: false };
  return createKafkaSink(KafkaConfig.parse({ ...config, publish_deadline: "1s" }), contextFor("lake"));
}

function readEvents(server: MockKafka) {
  return server.records().map(({ headers, payload }) => {
    const headerPairs = Object.fromEntries(
      headers.flatMap((name, n) => (n % 2 === 0 ? [[name, headers[n + 1] ?? ""]] : [])),
    ) as Readonly<Record<string, string>>;
    const event = cloudEventOf(headerPairs, payload);
    return { identity: event.id, event };
  });
}

describe.skipIf(absent("kcat"))("the Kafka sink with librdkafka's mock cluster", () => {
  describeSink("kafka at librdkafka's mock brokers", {
    async make() {
      const server = await startMockKafka(TOPIC, 2);
      return {
        sink: createSink(server),
        received: async () => readEvents(server),
        breakServer: () => server.signal("SIGSTOP"),
        repairServer: () => server.signal("SIGCONT"),
        stall: () => server.signal("SIGSTOP"),
        dispose: () => server.stop(),
      };
    },
  });
});
