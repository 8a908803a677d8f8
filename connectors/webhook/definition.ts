import type { ConnectorDefinition } from "../../src/connector.ts";
import { WebhookConfig } from "./config.ts";
import { createWebhookSink } from "./sink.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

export const webhook = {
  name: "webhook",
  summary: "One signed POST for every event (Standard Webhooks, CloudEvents).",
  Config: WebhookConfig,
  // The first waits of the schedule that Standard Webhooks suggests; after 17.6 h the event is given up.
  scheduleMs: [5_000, 5 * MINUTE_MS, 30 * MINUTE_MS, 2 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS],
  sink: (config, context) => createWebhookSink(config, context),
} satisfies ConnectorDefinition<WebhookConfig>;
