import { z } from "zod";
import { OUTBOUND_HTTP_OPTIONS, ReceiverUrl } from "../../src/core/http/outbound/config.ts";
import { SecretRef } from "../../src/core/runtime/secret.ts";
import { PriorityLetter, RECEIVER_OPTIONS } from "../shared/receiver/config.ts";

const RESERVED_RECORD_FIELDS = [
  "short_description",
  "description",
  "correlation_id",
  "correlation_display",
  "state",
  "work_notes",
  "assignment_group",
];

const ServiceNowIdentifier = z
  .string()
  .regex(/^[a-z][a-z0-9_]{0,79}$/, "Write the name as ServiceNow has it: a-z, 0-9 and _.");

const ConfigurableRecordField = ServiceNowIdentifier.refine(
  (name) => !RESERVED_RECORD_FIELDS.includes(name),
  "Plenum fills this field by itself, or there is an option for it.",
);

const ChoiceValue = z
  .union([z.string().min(1).max(40), z.int()], { error: "Write the value as ServiceNow stores it, such as 6." })
  .transform(String);

const ImpactAndUrgency = z.strictObject({
  impact: ChoiceValue.meta({ description: "Value of the field impact, 1 to 3." }),
  urgency: ChoiceValue.meta({ description: "Value of the field urgency, 1 to 3." }),
});

export const ServiceNowConfig = z
  .strictObject({
    url: ReceiverUrl.refine((text) => !URL.canParse(text) || isServiceNowBaseUrl(new URL(text)), {
      error: "Write the address of the instance itself, such as https://example.service-now.com.",
    }).meta({ description: "Address of the instance, such as https://example.service-now.com." }),
    user: z
      .string()
      .regex(/^[^:\p{Cc}]{1,255}$/u, "A user name has neither `:` nor control characters.")
      .optional()
      .meta({ description: "User name (Basic), with password." }),
    password: SecretRef.optional().meta({ description: "Password (Basic), with user." }),
    token: SecretRef.optional().meta({ description: "Token (Bearer), instead of user and password." }),
    table: ServiceNowIdentifier.default("incident").meta({ description: "Table of the records." }),
    assignment_group: z
      .string()
      .regex(/^[0-9a-f]{32}$/, "Write the group's sys_id, 32 of 0-9 and a-f.")
      .optional()
      .meta({ description: "sys_id of the group for new records." }),
    priority: z.record(PriorityLetter, ImpactAndUrgency).prefault({}).meta({
      description: "Impact and urgency for each alarm priority; ServiceNow's defaults for omitted ones.",
    }),
    fields: z
      .record(ConfigurableRecordField, z.union([z.string(), z.number(), z.boolean()]))
      .default({})
      .meta({ description: "Additional fields of every new record by name, such as caller_id." }),
    resolved_state: ChoiceValue.prefault("6").meta({ description: "Value of the field state that means resolved." }),
    reopen_state: ChoiceValue.optional().meta({
      description: "Value of the field state that reopens a resolved record when the alarm returns.",
    }),
    close_code: z.string().min(1).max(100).optional().meta({
      description: "Value of the field close_code, which most instances require.",
    }),
    close_notes: z.string().max(1_000).optional().meta({
      description: "Text of the field close_notes; the end and the duration of the alarm follow.",
    }),
    ...OUTBOUND_HTTP_OPTIONS,
    ...RECEIVER_OPTIONS,
  })
  .superRefine((config, context) => {
    const reportIssue = (path: string, message: string) => context.addIssue({ code: "custom", path: [path], message });
    if ((config.user === undefined) !== (config.password === undefined))
      reportIssue("user", "Give user and password together.");
    else if ((config.user === undefined) === (config.token === undefined))
      reportIssue("token", "Give either a token, or user and password.");
    if (config.proxy !== undefined && URL.parse(config.url)?.protocol === "http:")
      reportIssue("url", "Through a proxy use https://, because the proxy would read the password.");
  })
  .meta({ description: "A ServiceNow incident per alarm, edited in place and resolved at the end." });
export type ServiceNowConfig = z.infer<typeof ServiceNowConfig>;

const isServiceNowBaseUrl = ({ hash, pathname, search }: URL): boolean =>
  search === "" && hash === "" && !/\/(api|nav_to\.do|now)(\/|$)/.test(pathname);
