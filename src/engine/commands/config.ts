import { z } from "zod";
import { byteSizeSchema } from "../../core/values/byte-size.ts";
import { Duration } from "../../core/values/duration.ts";
import { parsePublicKey } from "./approval/signature.ts";

/** Hours of the day in the source's time zone, e.g. `06:00-18:00`; may run over midnight. */
const WriteHours = z.string().regex(/^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$/, "Write hours as 06:00-18:00.");

const CommonAllowedTagOptions = {
  source: z.string().optional().meta({ description: "Name of the source; may be left out when there is only one." }),
  site_id: z.int().meta({ description: "Id of the site that the tag has to belong to." }),
  tag_id: z
    .string()
    .regex(/^[^\s,*\p{Cc}]{1,128}$/u, "Write the id of one tag, without commas, spaces and wildcards.")
    .meta({ description: "Id of exactly one tag. There are no wildcards on purpose." }),
  unit: z
    .string()
    .optional()
    .meta({ description: "The unit that the tag must have; a changed unit closes the entry." }),
  gateway_id: z
    .string()
    .optional()
    .meta({ description: "Gateway of the tag; nothing is written while it is offline." }),
  min_interval: Duration.prefault("60s").meta({
    description: "Least time between two writes of this tag. A controller's memory wears out by writing.",
  }),
  max_per_day: z.int().min(1).default(48).meta({ description: "Most writes of this tag in any 24 hours." }),
  hours: WriteHours.optional().meta({ description: "Only within these hours of the day, e.g. 06:00-18:00." }),
  restore: z.boolean().default(false).meta({
    description: "Allow writes that end by themselves (`for_s`): the old value is put back after that time.",
  }),
  second_person: z.boolean().default(false).meta({
    description: "A second person has to agree to every write of this tag before it leaves, within its time to live.",
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
    .meta({ description: "Only from these sinks' command topics, or `operator` for the command line." }),
};

const AllowedNumberTag = z.strictObject({
  type: z.literal("number").meta({ description: "The tag takes a number." }),
  min: z.number().meta({ description: "Smallest value that may be written." }),
  max: z.number().meta({ description: "Largest value that may be written." }),
  max_step: z
    .number()
    .positive()
    .optional()
    .meta({ description: "Largest change against a value read within the last 60 seconds." }),
  ...CommonAllowedTagOptions,
});

const AllowedBooleanTag = z.strictObject({
  type: z.literal("boolean").meta({ description: "The tag takes true or false." }),
  ...CommonAllowedTagOptions,
});

export const AllowedTag = z
  .discriminatedUnion("type", [AllowedNumberTag, AllowedBooleanTag])
  .refine((entry) => entry.type === "boolean" || entry.min <= entry.max, {
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

const ApproverPublicKey = z.string().superRefine((text, context) => {
  if (parsePublicKey(text) !== null) return;
  const message = "Write an Ed25519 public key: the middle line of `openssl pkey -in key.pem -pubout`.";
  context.addIssue({ code: "custom", message });
});

export const WriteApprovalConfig = z
  .strictObject({
    approvers: z
      .record(z.string().regex(/^[a-z0-9][a-z0-9_-]{0,63}$/, "Use a-z, 0-9, _ and -."), ApproverPublicKey)
      .refine((approvers) => Object.keys(approvers).length > 0, "Name at least one person.")
      .meta({ description: "Who may approve, by a name of your own, each with an Ed25519 public key." }),
    needed: z.int().min(1).default(1).meta({
      description: "How many of them have to approve. With 1, whoever edits this file must hold no key.",
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

/** Rules of writing to the building. Writing is closed unless this section opens it, tag by tag. */
export const CommandsConfig = z.strictObject({
  enabled: z.boolean().default(false).meta({ description: "Nothing is ever written while this is false." }),
  rehearsal: z.boolean().default(false).meta({
    description: "Do everything but the write itself, with the same answers, to look at commands before arming.",
  }),
  default_ttl: Duration.prefault("30s").meta({
    description: "Life of a command that does not state its own.",
  }),
  max_ttl: Duration.prefault("5m").meta({ description: "Longest life that a command may ask for." }),
  max_payload_bytes: byteSizeSchema({ min: 64 })
    .prefault("16KiB")
    .meta({ description: "Larger command messages are refused." }),
  group_window: Duration.prefault("200ms").meta({
    description: "Commands that arrive within this time travel in one request of up to 20 tags; 0s sends each alone.",
  }),
  read_back_after: Duration.prefault("2s").meta({
    description: "Time that a device gets before the written tag is read back.",
  }),
  max_per_hour: z.int().min(1).default(600).meta({
    description: "Most writes of all tags of a source together in any hour, against a loop over many tags.",
  }),
  max_restore_after: Duration.prefault("24h").meta({
    description: "Longest time after which a write with `for_s` is put back.",
  }),
  approval: WriteApprovalConfig.optional().meta({
    description: "Two-person rule: nothing is written while what decides about writing is not approved as it stands.",
  }),
  audit_max_bytes: byteSizeSchema({ min: 1024 ** 2 })
    .prefault("4GiB")
    .meta({
      description:
        "Bytes that the audit log may take. From 80 % on there is a warning; beyond, nothing is written to the building.",
    }),
  allow: AllowedTagList.prefault([]).meta({ description: "The tags that may be written, one entry each." }),
});
export type CommandsConfig = z.output<typeof CommandsConfig>;
