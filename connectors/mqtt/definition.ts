import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { MqttConfig } from "./config.ts";
import { findPublishedTopic } from "./retained-topics-of-objects.ts";

export const mqtt = {
  name: "mqtt",
  summary: "Values, alarms and events as topics at an MQTT broker; commands from there.",
  Config: MqttConfig,
  carriesSequence: true,
  locateEvent: findPublishedTopic,
  sink: async (config, context) => (await import("./sink.ts")).createMqttSink(config, context),
  commands: async (config, context) => (await import("./commands.ts")).createMqttCommands(config, context),
} satisfies ConnectorDefinition<MqttConfig>;
