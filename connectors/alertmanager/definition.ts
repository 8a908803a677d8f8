import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { INCIDENT_KINDS } from "../shared/receiver/config.ts";
import { createReceiverSink } from "../shared/receiver/sink.ts";
import { AlertmanagerConfig } from "./config.ts";

export const alertmanager = {
  name: "alertmanager",
  summary: "Alarms as alerts of Prometheus Alertmanager, which routes them further.",
  Config: AlertmanagerConfig,
  kinds: () => INCIDENT_KINDS,
  async sink(config, context) {
    const { createAlertmanagerReceiver } = await import("./receiver.ts");
    return createReceiverSink(createAlertmanagerReceiver(config, context), config, context);
  },
} satisfies ConnectorDefinition<AlertmanagerConfig>;
