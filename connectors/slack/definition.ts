import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { INCIDENT_KINDS } from "../shared/receiver/config.ts";
import { createReceiverSink } from "../shared/receiver/sink.ts";
import { SlackConfig } from "./config.ts";

export const slack = {
  name: "slack",
  summary: "One message for every alarm in a Slack channel, edited in place.",
  Config: SlackConfig,
  kinds: () => INCIDENT_KINDS,
  async sink(config, context) {
    const { createSlackReceiver } = await import("./receiver.ts");
    return createReceiverSink(createSlackReceiver(config, context), config, context);
  },
} satisfies ConnectorDefinition<SlackConfig>;
