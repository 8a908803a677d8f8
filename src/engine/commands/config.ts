import { z } from "zod";
import { byteSizeSchema } from "../../core/values/byte-size.ts";
import { Duration } from "../../core/values/duration.ts";
import { parsePublicKey } from "./approval/signature.ts";

/** Hours of the day in the source's time zone, e.g. `06:00-18:00`; may run over midnight. */
const WriteHours = z.string().regex(/^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$/, "Write hours as 06:00-18:00.");

const CommonAllowedTagOptions = {
  source: z.string().optional().meta({ description: "Name of the source; optional if there is only one." }),
  site_id: z.int().meta({ description: "Id of the tag's site." }),
  tag_id: z
    .string()
    .regex(/^[^\s,*\p{Cc}]{1,128}$/u, "Write the id of one tag, without commas, spaces and wildcards.")
    .meta({ description: "Id of one tag. There are no wildcards on purpose." }),
  unit: z.string().optional().meta({
    description: "Required unit of the tag; if the unit changes, the tag may not be written.",
  }),
  gateway_id: z.string().optional().meta({
    description: "Gateway of the tag; the tag is not written while it is offline.",
  }),
  min_interval: Duration.prefault("60s").meta({
    description: "Minimum time between two writes of this tag. Writes wear out a controller's memory.",
  }),
  max_per_day: z.int().min(1).default(48).meta({ description: "Maximum writes of this tag in any 24 hours." }),
  hours: WriteHours.optional().meta({ description: "Hours of the day in which writes are allowed, e.g. 06:00-18:00." }),
  restore: z.boolean().default(false).meta({
    description: "Allow timed writes (`for_s`): the old value is restored after that time.",
  }),
  second_person: z.boolean().default(false).meta({
    description: "A second person must agree to every write of this tag within its time to live.",
  }),
  plain: z.boolean().default(false).meta({
    description: "Accept a bare value such as `21.5` or `true` on the topic of this tag, next to JSON with an id.",
  }),
  coalesce: z.boolean().default(false).meta({
    description: "A command within `min_interval` waits, and the last one wins. Without it the command is rejected.",
  }),
  from: z
    .array(z.string())
    .optional()
    .meta({ description: "Allowed senders: command topics of these sinks, or `operator` for the command line." }),
};

const AllowedNumberTag = z.strictObject({
  type: z.literal("number").meta({ description: "The tag takes a number." }),
  min: z.number().meta({ description: "Minimum value." }),
  max: z.number().meta({ description: "Maximum value." }),
  max_step: z.number().positive().optional().meta({
    description: "Maximum change from a value that was read within the last 60 seconds.",
  }),
  ...CommonAllowedTagOptions,
});

const AllowedBooleanTag = z.strictObject({
  type: z.literal("boolean").meta({ description: "The tag takes true or false." }),
  ...CommonAllowedTagOptions,
});

export const AllowedTag = z
  .discriminatedUnion("type", [AllowedNumberTag, AllowedBooleanTag])
  .refine((allowedTag) => allowedTag.type === "boolean" || allowedTag.min <= allowedTag.max, {
    error: "min must not be larger than max.",
    path: ["min"],
  });
export type AllowedTag = z.output<typeof AllowedTag>;

const AllowedTagList = z.array(AllowedTag).superRefine((entries, context) => {
  const seenTagKeys = new Set<string>();
  for (const [index, { source, tag_id }] of entries.entries()) {
    const key = `${source ?? ""}/${tag_id}`;
    if (seenTagKeys.has(key)) {
      const message = `Tag ${tag_id} has two entries; keep one.`;
      context.addIssue({ code: "custom", path: [index, "tag_id"], message });
    }
    seenTagKeys.add(key);
  }
});

const ApproverPublicKey = z
  .string()
  .refine(
    (text) => parsePublicKey(text) !== null,
    "Write an Ed25519 public key: the middle line of `openssl pkey -in key.pem -pubout`.",
  );

export const WriteApprovalConfig = z
  .strictObject({
    approvers: z
      .record(z.string().regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, "Use a-z, 0-9, _ and -."), ApproverPublicKey)
      .refine((approvers) => Object.keys(approvers).length > 0, "Name at least one person.")
      .meta({ description: "Approvers, with names that you choose and an Ed25519 public key each." }),
    needed: z.int().min(1).default(1).meta({
      description: "Number of required approvals. With 1, the editor of this file must not have a key.",
    }),
    file: z
      .string()
      .min(1)
      .default("approvals.json")
      .meta({ description: "File of the approvals; `plenum writes approve` writes it." }),
  })
  .superRefine(({ approvers, needed }, context) => {
    const keys = Object.values(approvers);
    if (new Set(keys).size < keys.length) {
      const message = "Two names have the same key; a person counts once.";
      context.addIssue({ code: "custom", path: ["approvers"], message });
    }
    if (needed > keys.length) {
      const message = keys.length === 1 ? "There is only 1 approver." : `There are only ${keys.length} approvers.`;
      context.addIssue({ code: "custom", path: ["needed"], message });
    }
  });
export type WriteApprovalConfig = z.output<typeof WriteApprovalConfig>;

/** Rules for commands that write tags. Plenum writes only the tags that this section lists. */
export const CommandsConfig = z.strictObject({
  enabled: z.boolean().default(false).meta({ description: "While this is false, Plenum writes no tag." }),
  rehearsal: z.boolean().default(false).meta({
    description: "Do everything except the write, with the same results, to test commands.",
  }),
  default_ttl: Duration.prefault("30s").meta({ description: "Time to live of a command that does not state one." }),
  max_ttl: Duration.prefault("5m").meta({ description: "Maximum time to live that a command may request." }),
  max_payload_bytes: byteSizeSchema({ min: 64 })
    .prefault("16KiB")
    .meta({ description: "Larger command messages are rejected." }),
  group_window: Duration.prefault("200ms").meta({
    description: "Commands that arrive within this time share one request of up to 20 tags; 0s sends each alone.",
  }),
  read_back_after: Duration.prefault("2s").meta({ description: "Time between a write and reading the tag back." }),
  max_per_hour: z.int().min(1).default(600).meta({
    description: "Maximum writes of all tags of a source in any hour, against loops over many tags.",
  }),
  max_restore_after: Duration.prefault("24h").meta({
    description: "Maximum time after which a write with `for_s` is restored.",
  }),
  approval: WriteApprovalConfig.optional().meta({
    description: "Two-person rule: nothing is written until the current write settings are approved.",
  }),
  audit_max_bytes: byteSizeSchema({ min: 1024 ** 2 })
    .prefault("4GiB")
    .meta({ description: "Maximum size of the audit log. A warning appears at 80 %; at the limit no tag is written." }),
  allow: AllowedTagList.prefault([]).meta({ description: "Tags that may be written, one entry each." }),
});
export type CommandsConfig = z.output<typeof CommandsConfig>;
