import type { ConnectorDefinition } from "../../src/connector.ts";
import { WebhookConfig } from "./config.ts";
import { createWebhookSink } from "./sink.ts";

export const webhook = {
  name: "webhook",
  summary: "One signed POST for every event (Standard Webhooks, CloudEvents).",
  Config: WebhookConfig,
  sink: (config, context) => createWebhookSink(config, context),
} satisfies ConnectorDefinition<WebhookConfig>;
