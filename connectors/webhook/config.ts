import { z } from "zod";
import { Headers, OUTBOUND, ReceiverUrl } from "../../src/core/http/outbound/config.ts";
import { SecretRef } from "../../src/core/runtime/secret.ts";
import { RECEIVER } from "../shared/receiver/config.ts";
import { FORMAT_NAMES, type FormatName, requirementsOf } from "./formats/by-name.ts";
import { TemplateConfig } from "./formats/template.ts";

const Options = z.strictObject({
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
  template: TemplateConfig.optional().meta({ description: "Requests of your own, for the format template." }),
  headers: Headers,
  ...OUTBOUND,
  ...RECEIVER,
});
type Options = z.infer<typeof Options>;

export function isForEvents(format: Options["format"]): format is "cloudevents" | "standard" {
  return format === "cloudevents" || format === "standard";
}

type Complain = (option: string, message: string) => void;

function checkEventOptions(config: Options, complain: Complain): void {
  const { format, secrets, unsigned, url } = config;
  if (url === undefined) complain("url", "This is needed and missing: where every event is posted to.");
  else if (typeof url !== "string")
    complain("url", `With the format ${format} write the address itself; a secret can stand in \`headers\`.`);
  if (secrets.length === 0 && !unsigned)
    complain("secrets", "Give at least one signing secret, or say `unsigned: true`.");
  if (secrets.length > 0 && unsigned)
    complain("unsigned", "There are signing secrets, so `unsigned: true` contradicts them; take one away.");
  for (const option of ["key", "template"] as const) {
    if (config[option] !== undefined) complain(option, `The format ${format} has no use for this; take it away.`);
  }
  for (const option of Object.keys(RECEIVER) as (keyof typeof RECEIVER)[]) {
    if (JSON.stringify(config[option]) === JSON.stringify(DEFAULTS[option])) continue;
    complain(option, `This is for alarms; the format ${format} sends every event as it comes. Take it away.`);
  }
}

const DEFAULTS: Readonly<Record<string, unknown>> = z.object(RECEIVER).parse({});

function checkAlarmOptions(config: Options, format: FormatName | "template", complain: Complain): void {
  const { key, secrets, template, unsigned, url } = config;
  const required = requirementsOf(format);
  if (url === undefined && required.url === undefined)
    complain("url", `This is needed and missing: where ${format} takes what is posted.`);
  if (typeof url === "string" && required.address === "secret")
    complain(
      "url",
      `Whoever has this address can post to ${format}, so it must not stand here: write {file: path} or {env: NAME}.`,
    );
  if (secrets.length > 0) complain("secrets", `Nothing is signed with the format ${format}; take it away.`);
  if (unsigned) complain("unsigned", `Nothing is signed with the format ${format}; take it away.`);
  if (key === undefined && required.key === "needed")
    complain("key", `The format ${format} needs the key of the integration: {file: path} or {env: NAME}.`);
  if (key !== undefined && required.key === undefined)
    complain("key", `The format ${format} has no use for this; take it away.`);
  if (template === undefined && format === "template")
    complain("template", "This is needed and missing: what is sent.");
  if (template !== undefined && format !== "template")
    complain("template", `This is for \`format: template\`, not for ${format}; take one away.`);
}

export const WebhookConfig = Options.superRefine((config, context) => {
  const complain = (option: string, message: string) => context.addIssue({ code: "custom", path: [option], message });
  const { format, headers, proxy, url } = config;
  if (isForEvents(format)) checkEventOptions(config, complain);
  else checkAlarmOptions(config, format, complain);
  if (proxy !== undefined && typeof url === "string" && URL.parse(url)?.protocol === "http:")
    complain("url", "Through a proxy use https://, because the proxy would read and could change every event.");
  if (Object.keys(headers).some((name) => /^webhook-/i.test(name)))
    complain("headers", "The headers webhook-… are set by Plenum and cannot be changed.");
}).meta({
  description: "One POST for every event, signed as Standard Webhooks asks; or alarms, as a receiver understands them.",
});
export type WebhookConfig = z.infer<typeof WebhookConfig>;
