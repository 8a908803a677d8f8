import { createHash } from "node:crypto";
import type { SendMailOptions } from "nodemailer";
import type { IncidentMessage } from "../shared/receiver/receiver.ts";
import { cut, oneLine } from "../shared/receiver/text.ts";
import type { EmailConfig } from "./config.ts";

/** Longest subject after the status, and longest other text, in characters; phones show no more. */
const SUBJECT_LENGTH = 150;
const TEXT_LENGTH = 4_000;

/** Builds one mail. `title` is that of the first mail, so that all stay in one thread. */
export function mailOf(
  incident: IncidentMessage,
  title: string,
  config: Pick<EmailConfig, "from" | "to" | "cc" | "subject_prefix">,
  nowMs: number,
): SendMailOptions {
  const sender = senderOf(config.from);
  const host = sender.address.slice(sender.address.indexOf("@") + 1);
  const root = `<${incident.key}@${host}>`;
  const status = line(incident.text.status);
  return {
    from: sender,
    to: config.to,
    cc: config.cc,
    subject: `${config.subject_prefix} ${status}: ${cut(line(title), SUBJECT_LENGTH)}`.trim(),
    date: new Date(nowMs),
    messageId: `<${changeOf(incident)}@${host}>`,
    // No mail has this id. All mails of a thread refer to it, in any order.
    inReplyTo: root,
    references: root,
    ...(isUrgent(incident) ? { priority: "high" } : {}),
    headers: {
      // RFC 3834, and the header of Exchange: prevent automatic replies and mail loops.
      "Auto-Submitted": "auto-generated",
      "X-Auto-Response-Suppress": "All",
    },
    text: plainOf(incident),
    html: htmlOf(incident),
    xMailer: false,
    disableFileAccess: true,
    disableUrlAccess: true,
  };
}

/**
 * Message id for a change; a repeated mail has the same id, so a mailbox can merge them. One event may concern several
 * incidents.
 */
function changeOf({ changeId, key, status }: IncidentMessage): string {
  return createHash("sha256")
    .update(JSON.stringify([key, changeId, status]))
    .digest("hex")
    .slice(0, 32);
}

function isUrgent({ priority, status }: IncidentMessage): boolean {
  return priority === "A" && status === "active";
}

/** `Plenum <plenum@example.com>`, or the address alone. */
function senderOf(text: string): { name: string; address: string } {
  const [, name = "", address = text] = /^(.*) <(.*)>$/.exec(text) ?? [];
  return { name, address };
}

function plainOf({ link, text }: IncidentMessage): string {
  const fields = text.fields.map((field) => `${line(field.label)}: ${plain(field.text)}`);
  return [
    `${line(text.status)}: ${line(text.title)}`,
    fields.join("\n"),
    text.list.map((entry) => `- ${line(entry)}`).join("\n"),
    text.curves.map(line).join("\n"),
    link === null ? "" : `${line(text.linkText)}: ${link}`,
  ]
    .filter((part) => part !== "")
    .join("\n\n");
}

/** Loads nothing external; texts of the service are never markup. */
function htmlOf({ link, text }: IncidentMessage): string {
  const rows = text.fields.map(
    (field) =>
      `<tr><td style="padding:2px 12px 2px 0;vertical-align:top;color:#555">${html(line(field.label))}</td><td>${html(plain(field.text))}</td></tr>`,
  );
  const entries = text.list.map((entry) => `<li>${html(line(entry))}</li>`);
  return [
    '<!doctype html><html><body style="font-family:sans-serif">',
    `<p><strong>${html(line(text.status))}</strong>: ${html(line(text.title))}</p>`,
    `<table>${rows.join("")}</table>`,
    ...(entries.length === 0 ? [] : [`<ul>${entries.join("")}</ul>`]),
    ...(text.curves.length === 0 ? [] : [`<pre>${text.curves.map((curve) => html(line(curve))).join("\n")}</pre>`]),
    ...(link === null ? [] : [`<p><a href="${html(link)}">${html(line(text.linkText))}</a></p>`]),
    "</body></html>",
  ].join("\n");
}

function line(text: string): string {
  return oneLine(plain(text));
}

/** Removes direction and control characters except line breaks. */
function plain(text: string): string {
  const clean = text
    .toWellFormed()
    .replaceAll(/[\u202a-\u202e\u2066-\u2069]/g, "")
    .replaceAll(/\r\n?/g, "\n")
    .replaceAll(/[^\P{Cc}\n]+/gu, " ");
  return cut(clean, TEXT_LENGTH);
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
  "\n": "<br>",
};

function html(text: string): string {
  return text.replaceAll(/[&<>"'\n]/g, (character) => ENTITIES[character] ?? character);
}
