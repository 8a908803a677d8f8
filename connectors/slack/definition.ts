import type { ConnectorDefinition } from "../../src/connector.ts";
import { createReceiverSink } from "../../src/receiver/sink.ts";
import { SlackConfig } from "./config.ts";

export const slack = {
  name: "slack",
  summary: "One message for every alarm in a Slack channel, edited in place.",
  Config: SlackConfig,
  async sink(config, context) {
    const { createSlackReceiver } = await import("./receiver.ts");
    return createReceiverSink(createSlackReceiver(config, context), config, context);
  },
} satisfies ConnectorDefinition<SlackConfig>;
