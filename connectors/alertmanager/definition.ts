import { defineReceiverConnector } from "../shared/receiver/sink.ts";
import { AlertmanagerConfig } from "./config.ts";

export const alertmanager = defineReceiverConnector(
  "alertmanager",
  "Alarms as alerts of Prometheus Alertmanager, which routes them further.",
  AlertmanagerConfig,
  async () => (await import("./receiver.ts")).createAlertmanagerReceiver,
);
