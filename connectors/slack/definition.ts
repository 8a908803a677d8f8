import type { ConnectorDefinition } from "../../src/connector.ts";
import { createReceiverSink } from "../../src/receiver/sink.ts";
import { SlackConfig } from "./config.ts";
import { createSlackReceiver } from "./receiver.ts";

export const slack = {
  name: "slack",
  summary: "One message for every alarm in a Slack channel, edited in place.",
  Config: SlackConfig,
  sink: (config, context) => createReceiverSink(createSlackReceiver(config, context), config, context),
} satisfies ConnectorDefinition<SlackConfig>;
