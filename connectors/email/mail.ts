import { hash } from "node:crypto";
import type { SendMailOptions } from "nodemailer";
import type { IncidentMessage } from "../shared/receiver/receiver.ts";
import { cut } from "../shared/receiver/text.ts";
import type { EmailConfig } from "./config.ts";

const SUBJECT_LENGTH = 150;
const TEXT_LENGTH = 4_000;

/** `title` is that of the first mail, so that all mails stay in one thread. */
export function mailOf(
  incident: IncidentMessage,
  title: string,
  config: Pick<EmailConfig, "from" | "to" | "cc" | "subject_prefix">,
  nowMs: number,
): SendMailOptions {
  const sender = senderOf(config.from);
  const host = sender.address.slice(sender.address.indexOf("@") + 1);
  const root = `<${incident.key}@${host}>`;
  return {
    from: sender,
    to: config.to,
    cc: config.cc,
    subject: `${config.subject_prefix} ${limited(incident.text.status)}: ${cut(title, SUBJECT_LENGTH)}`.trim(),
    date: new Date(nowMs),
    messageId: `<${messageIdOf(incident)}@${host}>`,
    // All mails of a thread refer to this id, which no mail has, so their order does not matter.
    inReplyTo: root,
    references: root,
    ...(incident.priority === "A" && incident.status === "active" ? { priority: "high" } : {}),
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

/** A repeated mail has the same id, so a mailbox can merge them. One event may concern several incidents. */
function messageIdOf({ changeId, key, status }: IncidentMessage): string {
  return hash("sha256", JSON.stringify([key, changeId, status])).slice(0, 32);
}

function senderOf(text: string): { name: string; address: string } {
  const [, name = "", address = text] = /^(.*) <(.*)>$/.exec(text) ?? [];
  return { name, address };
}

function plainOf({ link, text }: IncidentMessage): string {
  return [
    `${limited(text.status)}: ${limited(text.title)}`,
    text.fields.map((field) => `${limited(field.label)}: ${limited(field.text)}`).join("\n"),
    text.list.map((entry) => `- ${limited(entry)}`).join("\n"),
    text.curves.map(limited).join("\n"),
    link === null ? "" : `${limited(text.linkText)}: ${link}`,
  ]
    .filter((part) => part !== "")
    .join("\n\n");
}

function htmlOf({ link, text }: IncidentMessage): string {
  const rows = text.fields.map(
    (field) =>
      `<tr><td style="padding:2px 12px 2px 0;vertical-align:top;color:#555">${html(field.label)}</td><td>${html(field.text)}</td></tr>`,
  );
  const entries = text.list.map((entry) => `<li>${html(entry)}</li>`);
  return [
    '<!doctype html><html><body style="font-family:sans-serif">',
    `<p><strong>${html(text.status)}</strong>: ${html(text.title)}</p>`,
    `<table>${rows.join("")}</table>`,
    ...(entries.length === 0 ? [] : [`<ul>${entries.join("")}</ul>`]),
    ...(text.curves.length === 0 ? [] : [`<pre>${text.curves.map(html).join("\n")}</pre>`]),
    ...(link === null ? [] : [`<p><a href="${html(link)}">${html(text.linkText)}</a></p>`]),
    "</body></html>",
  ].join("\n");
}

const limited = (text: string): string => cut(text, TEXT_LENGTH);

const ENTITIES: Readonly<Record<string, string>> = {
  ...{ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" },
  "\n": "<br>",
};

function html(text: string): string {
  return limited(text).replaceAll(/[&<>"'\n]/g, (character) => ENTITIES[character] ?? character);
}
