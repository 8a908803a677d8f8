import { z } from "zod";
import { isLoopbackHost } from "../../src/core/http/loopback.ts";
import { CaFileOption } from "../../src/core/http/outbound/config.ts";
import { SecretRef } from "../../src/core/runtime/secret.ts";
import { durationBetween } from "../../src/core/values/duration.ts";
import { PriorityLetter, RECEIVER_OPTIONS } from "../shared/receiver/config.ts";

const EMAIL_ADDRESS_PATTERN = String.raw`[A-Za-z0-9!#$%&'*+/=?^_{|}~.-]{1,64}@[\p{L}\p{N}.-]{1,253}`;

const EmailAddress = z
  .string()
  .regex(new RegExp(`^${EMAIL_ADDRESS_PATTERN}$`, "u"), "Write an address as operations@example.com.");

const SenderAddress = z
  .string()
  .regex(
    new RegExp(`^(${EMAIL_ADDRESS_PATTERN}|[^<>"\\p{Cc}]{1,100} <${EMAIL_ADDRESS_PATTERN}>)$`, "u"),
    "Write an address as plenum@example.com, or with a name as Plenum <plenum@example.com>.",
  );

const MailServerHost = z
  .string()
  .regex(
    /^[A-Za-z0-9._:[\]-]{1,253}$/,
    "Write the name of the mail server alone, such as mail.example.com; port and security are options.",
  )
  .refine((text) => !/^[^[\]:]+:\d+$/.test(text), "Write the port as an option of its own.");

const ALARM_CHANGES_FOR_MAIL = [
  "retriggered",
  "acknowledged",
  "unacknowledged",
  "recovering",
  "changed",
  "vanished",
  "out-of-scope",
  "members",
] as const;

const AlarmChangeMailRule = z.strictObject({
  changes: z.array(z.enum(ALARM_CHANGES_FOR_MAIL)).min(1).meta({ description: "Changes that get a mail." }),
  priorities: z
    .array(PriorityLetter)
    .default([])
    .meta({ description: "Only alarms of these priorities; all by default." }),
});

export const EmailConfig = z
  .strictObject({
    host: MailServerHost.meta({ description: "Name or address of the mail server." }),
    port: z.int().min(1).max(65_535).optional().meta({
      description: "Port; 587 by default, 465 with `security: tls`.",
    }),
    security: z.enum(["starttls", "tls", "none"]).default("starttls").meta({
      description: "starttls: starts without TLS and must switch to it; tls: TLS from the start; none: no encryption.",
    }),
    allow_plain: z.boolean().default(false).meta({
      description: "Allow `security: none` to another machine, where others in the network can read the mail.",
    }),
    user: z.string().min(1).max(255).optional().meta({ description: "User name, with password." }),
    password: SecretRef.optional().meta({ description: "Password, with user." }),
    from: SenderAddress.meta({
      description: "Sender, with or without a name; undeliverable mails return there.",
    }),
    to: z.array(EmailAddress).min(1).max(50).meta({ description: "Recipients." }),
    cc: z.array(EmailAddress).max(50).default([]).meta({ description: "Recipients of a copy." }),
    subject_prefix: z
      .string()
      .max(60)
      .regex(/^\P{Cc}*$/u, "A subject is one line.")
      .default("")
      .meta({ description: "Prefix of every subject, such as [Buildings]." }),
    tell: z
      .array(AlarmChangeMailRule)
      .max(20)
      .prefault([{ changes: ["acknowledged"], priorities: ["A"] }])
      .meta({ description: "Changes that also get a mail, in addition to the start and the end." }),
    timeout: durationBetween("1s", "2m").prefault("30s").meta({
      description: "Maximum time of one mail with its connection; at most 2m. Above 30s raise the sink's deadline too.",
    }),
    ca_file: CaFileOption,
    ...RECEIVER_OPTIONS,
  })
  .refine((config) => (config.user === undefined) === (config.password === undefined), {
    path: ["user"],
    message: "Give user and password together.",
  })
  .refine((config) => config.security !== "none" || config.allow_plain || isLoopbackHost(config.host), {
    path: ["security"],
    message: "Without TLS everybody on the way can read the mails; set allow_plain: true to send them anyway.",
  })
  .meta({ description: "A mail for each alarm and its end, in one thread (SMTP)." });
export type EmailConfig = z.infer<typeof EmailConfig>;
