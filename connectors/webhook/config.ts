import { z } from "zod";
import { Duration } from "../../src/duration.ts";
import { ProxyConfig } from "../../src/proxy.ts";
import { SecretRef } from "../../src/secret.ts";
import { parseNetwork } from "./networks.ts";

/** Headers that are ours, or that would change how the request is read. */
const RESERVED =
  /^(webhook-.*|content-.*|host|connection|keep-alive|transfer-encoding|te|trailer|upgrade|expect|proxy-.*)$/i;

const Url = z
  .url({ protocol: /^https?$/, error: "Write a whole address, such as https://example.com/hook." })
  .refine((text) => !hasCredentials(text), {
    error: "Leave user name and password out of the address; use headers with a secret reference.",
  });

const HeaderName = z
  .string()
  .regex(/^[A-Za-z0-9-]{1,64}$/, "A header name consists of letters, digits and `-`.")
  .refine((name) => !RESERVED.test(name), "This header is set by Plenum and cannot be changed.");

const HeaderText = z
  .string()
  .regex(/^[\x20-\x7e]*$/, "A header value is one line of plain ASCII characters.");

const Network = z
  .string()
  .refine((text) => parseNetwork(text) !== null, "Write a network as 10.1.0.0/16, fd00::/8 or 192.0.2.7/32.");

export const WebhookConfig = z
  .strictObject({
    url: Url.meta({
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
    headers: z
      .record(HeaderName, z.union([HeaderText, SecretRef]))
      .default({})
      .meta({ description: "Further request headers; a value may be a secret reference." }),
    timeout: Duration.refine((ms) => ms >= 100 && ms <= 30_000, "Choose between 100ms and 30s.")
      .prefault("15s")
      .meta({ description: "Total time of one request, answer included; at most 30s." }),
    allow_networks: z.array(Network).max(100).default([]).meta({
      description:
        "Networks (CIDR) that may be reached although they are not public; http is allowed only there.",
    }),
    proxy: ProxyConfig.optional(),
    ca_file: z
      .string()
      .min(1)
      .optional()
      .meta({ description: "PEM file of a private certificate authority, in place of the public ones." }),
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
  .meta({ description: "One POST for every event, signed as Standard Webhooks asks." });
export type WebhookConfig = z.infer<typeof WebhookConfig>;

function hasCredentials(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { username, password } = new URL(text);
  return username !== "" || password !== "";
}
