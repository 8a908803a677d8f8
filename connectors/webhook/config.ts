import { z } from "zod";
import { OUTBOUND_HTTP_OPTIONS, ReceiverUrl, RequestHeaders } from "../../src/core/http/outbound/config.ts";
import { SecretRef } from "../../src/core/runtime/secret.ts";
import { RECEIVER_OPTIONS } from "../shared/receiver/config.ts";
import { FORMAT_NAMES, type FormatName, getFormatRequirements } from "./formats/format-by-name.ts";
import { TemplateConfig } from "./formats/template.ts";

const WebhookOptions = z.strictObject({
  url: z.union([ReceiverUrl, SecretRef]).optional().meta({
    description:
      "Address: https, unless its network is in allow_networks. A secret reference for chat formats, because the address is enough to post there.",
  }),
  secrets: z.array(SecretRef).max(5).default([]).meta({
    description: "Signing keys (whsec_…, 24 to 64 bytes in base64). Two during a key change.",
  }),
  unsigned: z.boolean().default(false).meta({
    description: "Must be true to send without a signature, to prevent accidents.",
  }),
  format: z
    .enum(["cloudevents", "standard", ...FORMAT_NAMES, "template"])
    .default("cloudevents")
    .meta({
      description:
        "Body. For every event: a CloudEvent in JSON (cloudevents), or type, timestamp and data (standard). For alarms only: the format of the named receiver, or your own requests (template).",
    }),
  key: SecretRef.optional().meta({
    description: "Integration key of the receiver: pagerduty, jsm, incidentio; for ntfy a token.",
  }),
  template: TemplateConfig.optional().meta({ description: "Your own requests, for the format template." }),
  headers: RequestHeaders,
  ...OUTBOUND_HTTP_OPTIONS,
  ...RECEIVER_OPTIONS,
});
type WebhookOptions = z.infer<typeof WebhookOptions>;

export function isEventFormat(format: WebhookOptions["format"]): format is "cloudevents" | "standard" {
  return format === "cloudevents" || format === "standard";
}

type ReportIssue = (option: string, message: string) => void;

function checkEventFormatOptions(config: WebhookOptions, reportIssue: ReportIssue): void {
  const { format, secrets, unsigned, url } = config;
  if (url === undefined) reportIssue("url", "This is needed and missing: where every event is posted to.");
  else if (typeof url !== "string")
    reportIssue("url", `With the format ${format} write the address itself; a secret can stand in \`headers\`.`);
  if (secrets.length === 0 && !unsigned)
    reportIssue("secrets", "Give at least one signing secret, or say `unsigned: true`.");
  if (secrets.length > 0 && unsigned)
    reportIssue("unsigned", "There are signing secrets, so `unsigned: true` contradicts them; take one away.");
  for (const option of ["key", "template"] as const) {
    if (config[option] !== undefined) reportIssue(option, `The format ${format} has no use for this; take it away.`);
  }
  for (const option of Object.keys(RECEIVER_OPTIONS) as (keyof typeof RECEIVER_OPTIONS)[]) {
    if (JSON.stringify(config[option]) === JSON.stringify(RECEIVER_OPTION_DEFAULTS[option])) continue;
    reportIssue(option, `This is for alarms; the format ${format} sends every event as it comes. Take it away.`);
  }
}

const RECEIVER_OPTION_DEFAULTS: Readonly<Record<string, unknown>> = z.object(RECEIVER_OPTIONS).parse({});

function checkAlarmOptions(config: WebhookOptions, format: FormatName | "template", reportIssue: ReportIssue): void {
  const { key, secrets, template, unsigned, url } = config;
  const formatRequirements = getFormatRequirements(format);
  if (url === undefined && formatRequirements.url === undefined)
    reportIssue("url", `This is needed and missing: where ${format} takes what is posted.`);
  if (typeof url === "string" && formatRequirements.addressKind === "secret")
    reportIssue(
      "url",
      `Everyone who knows this address can post to ${format}, so keep it out of the configuration: write {file: path} or {env: NAME}.`,
    );
  if (secrets.length > 0) reportIssue("secrets", `Nothing is signed with the format ${format}; take it away.`);
  if (unsigned) reportIssue("unsigned", `Nothing is signed with the format ${format}; take it away.`);
  if (key === undefined && formatRequirements.key === "needed")
    reportIssue("key", `The format ${format} needs the key of the integration: {file: path} or {env: NAME}.`);
  if (key !== undefined && formatRequirements.key === undefined)
    reportIssue("key", `The format ${format} has no use for this; take it away.`);
  if (template === undefined && format === "template")
    reportIssue("template", "This is needed and missing: what is sent.");
  if (template !== undefined && format !== "template")
    reportIssue("template", `This is for \`format: template\`, not for ${format}; take one away.`);
}

export const WebhookConfig = WebhookOptions.superRefine((config, context) => {
  const reportIssue = (option: string, message: string) =>
    context.addIssue({ code: "custom", path: [option], message });
  const { format, headers, proxy, url } = config;
  if (isEventFormat(format)) checkEventFormatOptions(config, reportIssue);
  else checkAlarmOptions(config, format, reportIssue);
  if (proxy !== undefined && typeof url === "string" && URL.parse(url)?.protocol === "http:")
    reportIssue("url", "Through a proxy use https://, because the proxy would read and could change every event.");
  if (Object.keys(headers).some((name) => /^webhook-/i.test(name)))
    reportIssue("headers", "The headers webhook-… are set by Plenum and cannot be changed.");
}).meta({
  description: "One POST per event, signed by Standard Webhooks; or alarms in the format of a receiver.",
});
export type WebhookConfig = z.infer<typeof WebhookConfig>;
