import type { ConnectorDefinition } from "../../src/connector.ts";
import { createMqttCommands } from "./commands.ts";
import { MqttConfig } from "./config.ts";
import { createMqttSink } from "./sink.ts";

export const mqtt = {
  name: "mqtt",
  summary: "Values, alarms and events as topics at an MQTT broker; commands from there.",
  Config: MqttConfig,
  carriesSequence: true,
  sink: createMqttSink,
  commands: createMqttCommands,
} satisfies ConnectorDefinition<MqttConfig>;
