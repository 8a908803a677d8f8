import { z } from "zod";
import { Headers, OUTBOUND, ReceiverUrl } from "../../src/core/http/outbound/config.ts";
import { SecretRef } from "../../src/core/runtime/secret.ts";
import { RECEIVER } from "../shared/receiver/config.ts";
import { complaintsAbout } from "./config-rules.ts";
import { FORMAT_NAMES } from "./formats/by-name.ts";
import { TemplateConfig } from "./formats/template-config.ts";

export const WebhookConfig = z
  .strictObject({
    url: z.union([ReceiverUrl, SecretRef]).optional().meta({
      description:
        "Where it is posted to: https, unless its network is in allow_networks. Of a format for chats it is a secret reference, because whoever has the address can post there.",
    }),
    secrets: z.array(SecretRef).max(5).default([]).meta({
      description: "Signing keys (whsec_…, 24 to 64 bytes in base64). Two while a key is being exchanged.",
    }),
    unsigned: z.boolean().default(false).meta({
      description: "Has to be true to send without a signature, so that nobody does it by accident.",
    }),
    format: z
      .enum(["cloudevents", "standard", ...FORMAT_NAMES, "template"])
      .default("cloudevents")
      .meta({
        description:
          "Body. For every event: a CloudEvent in JSON, or type, timestamp and data as Standard Webhooks suggests. For alarms only: what the receiver of that name understands, or requests of your own (template).",
      }),
    key: SecretRef.optional().meta({
      description: "Key of the integration at the receiver: pagerduty, jsm, incidentio; for ntfy a token.",
    }),
    template: TemplateConfig.optional().meta({
      description: "Requests of your own, for the format template.",
    }),
    headers: Headers,
    ...OUTBOUND,
    ...RECEIVER,
  })
  .superRefine((config, context) => {
    for (const { path, message } of complaintsAbout(config))
      context.addIssue({ code: "custom", path: [...path], message });
  })
  .meta({
    description:
      "One POST for every event, signed as Standard Webhooks asks; or alarms, as a receiver understands them.",
  });
export type WebhookConfig = z.infer<typeof WebhookConfig>;
