import type { ConnectorDefinition } from "../../src/core/connector.ts";
import { INCIDENT_EVENT_KINDS } from "../shared/receiver/config.ts";
import { createReceiverSink } from "../shared/receiver/sink.ts";
import { isEventFormat, WebhookConfig } from "./config.ts";

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

export const webhook = {
  name: "webhook",
  summary: "One signed POST for every event, or alarms in the form of PagerDuty, Slack, Teams and others.",
  Config: WebhookConfig,
  // First retry delays that Standard Webhooks suggests. After all six (17.6 h), the event becomes a dead letter.
  retryWaitsMs: [5_000, 5 * MINUTE_MS, 30 * MINUTE_MS, 2 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS],
  carriesSequence: true,
  kinds: ({ format }) => (isEventFormat(format) ? undefined : INCIDENT_EVENT_KINDS),
  async sink(config, context) {
    if (isEventFormat(config.format)) return (await import("./sink.ts")).createWebhookSink(config, context);
    const { createWebhookReceiver } = await import("./receiver.ts");
    return createReceiverSink(createWebhookReceiver(config, context), config, context);
  },
} satisfies ConnectorDefinition<WebhookConfig>;
