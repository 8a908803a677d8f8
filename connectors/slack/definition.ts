import { defineReceiverConnector } from "../shared/receiver/sink.ts";
import { SlackConfig } from "./config.ts";

export const slack = defineReceiverConnector(
  "slack",
  "One message for every alarm in a Slack channel, edited in place.",
  SlackConfig,
  async () => (await import("./receiver.ts")).createSlackReceiver,
);
