import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { MqttConfig } from "./config.ts";
import { buildMessages } from "./event-messages.ts";
import { createTopics } from "./topics.ts";

export const mqtt = {
  name: "mqtt",
  summary: "Values, alarms and events as topics at an MQTT broker; commands from there.",
  Config: MqttConfig,
  carriesSequence: true,
  locateEvent(config, event) {
    const topics = createTopics(config.prefix, config.topic);
    const [message] = buildMessages(event, topics, config);
    return message === undefined || topics.dependsOnNames(event) ? null : message.topic;
  },
  sink: async (config, context) => (await import("./sink.ts")).createMqttSink(config, context),
  commands: async (config, context) => (await import("./commands.ts")).createMqttCommands(config, context),
} satisfies ConnectorDefinition<MqttConfig>;
