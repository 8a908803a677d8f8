import { z } from "zod";
import { Headers, OUTBOUND, ReceiverUrl } from "../../src/outbound/config.ts";
import { SecretRef } from "../../src/secret.ts";

export const WebhookConfig = z
  .strictObject({
    url: ReceiverUrl.meta({
      description: "Where every event is posted to. https, unless its network is in allow_networks.",
    }),
    secrets: z.array(SecretRef).max(5).default([]).meta({
      description: "Signing keys (whsec_…, 24 to 64 bytes in base64). Two while a key is being exchanged.",
    }),
    unsigned: z.boolean().default(false).meta({
      description: "Has to be true to send without a signature, so that nobody does it by accident.",
    }),
    format: z.enum(["cloudevents", "standard"]).default("cloudevents").meta({
      description: "Body: a CloudEvent in JSON, or type, timestamp and data as Standard Webhooks suggests.",
    }),
    headers: Headers,
    ...OUTBOUND,
  })
  .refine((config) => config.secrets.length > 0 || config.unsigned, {
    path: ["secrets"],
    message: "Give at least one signing secret, or say `unsigned: true`.",
  })
  .refine((config) => config.secrets.length === 0 || !config.unsigned, {
    path: ["unsigned"],
    message: "There are signing secrets, so `unsigned: true` contradicts them; take one away.",
  })
  .refine((config) => config.proxy === undefined || URL.parse(config.url)?.protocol !== "http:", {
    path: ["url"],
    message: "Through a proxy use https://, because the proxy would read and could change every event.",
  })
  .refine((config) => Object.keys(config.headers).every((name) => !/^webhook-/i.test(name)), {
    path: ["headers"],
    message: "The headers webhook-… are set by Plenum and cannot be changed.",
  })
  .meta({ description: "One POST for every event, signed as Standard Webhooks asks." });
export type WebhookConfig = z.infer<typeof WebhookConfig>;
