import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { INCIDENT_KINDS } from "../shared/receiver/config.ts";
import { createReceiverSink } from "../shared/receiver/sink.ts";
import { ServiceNowConfig } from "./config.ts";

export const servicenow = {
  name: "servicenow",
  summary: "One incident in ServiceNow for every alarm, resolved when it is over.",
  Config: ServiceNowConfig,
  kinds: () => INCIDENT_KINDS,
  async sink(config, context) {
    const { createServiceNowReceiver } = await import("./receiver.ts");
    return createReceiverSink(createServiceNowReceiver(config, context), config, context);
  },
} satisfies ConnectorDefinition<ServiceNowConfig>;
