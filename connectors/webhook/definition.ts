import type { ConnectorDefinition } from "../../src/connector.ts";
import { createReceiverSink } from "../../src/receiver/sink.ts";
import { WebhookConfig } from "./config.ts";
import { isForEvents } from "./config-rules.ts";
import { createWebhookReceiver } from "./receiver.ts";
import { createWebhookSink } from "./sink.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

export const webhook = {
  name: "webhook",
  summary: "One signed POST for every event, or alarms in the form of PagerDuty, Slack, Teams and others.",
  Config: WebhookConfig,
  // The first waits of the schedule that Standard Webhooks suggests; after 17.6 h the event is given up.
  scheduleMs: [5_000, 5 * MINUTE_MS, 30 * MINUTE_MS, 2 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS],
  carriesSequence: true,
  sink: (config, context) =>
    isForEvents(config.format)
      ? createWebhookSink(config, context)
      : createReceiverSink(createWebhookReceiver(config, context), config, context),
} satisfies ConnectorDefinition<WebhookConfig>;
