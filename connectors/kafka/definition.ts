import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { KafkaConfig } from "./config.ts";
import { createTopicTemplate } from "./topic-template.ts";

export const kafka = {
  name: "kafka",
  summary: "Events as CloudEvents in Kafka topics, acknowledged by all replicas in sync.",
  Config: KafkaConfig,
  carriesSequence: true,
  locateEvent: ({ topic }, event) => createTopicTemplate(topic).buildTopic(event),
  sink: async (config, context) => (await import("./sink.ts")).createKafkaSink(config, context),
} satisfies ConnectorDefinition<KafkaConfig>;
