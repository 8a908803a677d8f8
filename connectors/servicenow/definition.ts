import { defineReceiverConnector } from "../shared/receiver/sink.ts";
import { ServiceNowConfig } from "./config.ts";

export const servicenow = defineReceiverConnector(
  "servicenow",
  "One incident in ServiceNow for every alarm, resolved when it is over.",
  ServiceNowConfig,
  async () => (await import("./receiver.ts")).createServiceNowReceiver,
);
