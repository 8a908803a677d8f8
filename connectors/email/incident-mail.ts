import { hash } from "node:crypto";
import type { SendMailOptions } from "nodemailer";
import type { IncidentMessage } from "../shared/receiver/receiver-interface.ts";
import { cutText } from "../shared/receiver/text.ts";
import type { EmailConfig } from "./config.ts";

const MAX_SUBJECT_LENGTH = 150;
const MAX_TEXT_LENGTH = 4_000;

/** Builds a mail. `title` is the title of the first mail, so all mails of an incident stay in one thread. */
export function buildMail(
  incident: IncidentMessage,
  title: string,
  config: Pick<EmailConfig, "from" | "to" | "cc" | "subject_prefix">,
  nowMs: number,
): SendMailOptions {
  const sender = parseSender(config.from);
  const host = sender.address.slice(sender.address.indexOf("@") + 1);
  const threadId = `<${incident.key}@${host}>`;
  return {
    from: sender,
    to: config.to,
    cc: config.cc,
    subject:
      `${config.subject_prefix} ${limitText(incident.text.status)}: ${cutText(title, MAX_SUBJECT_LENGTH)}`.trim(),
    date: new Date(nowMs),
    messageId: `<${buildMessageId(incident)}@${host}>`,
    // All mails of a thread refer to this id, which no mail has, so their order does not matter.
    inReplyTo: threadId,
    references: threadId,
    ...(incident.priority === "A" && incident.status === "active" ? { priority: "high" } : {}),
    headers: {
      // RFC 3834, and the header of Exchange: prevent automatic replies and mail loops.
      "Auto-Submitted": "auto-generated",
      "X-Auto-Response-Suppress": "All",
    },
    text: formatPlainText(incident),
    html: formatHtml(incident),
    xMailer: false,
    disableFileAccess: true,
    disableUrlAccess: true,
  };
}

/** Builds the message id. A repeated mail has the same id, so mailboxes can merge the copies. */
function buildMessageId({ changeId, key, status }: IncidentMessage): string {
  return hash("sha256", JSON.stringify([key, changeId, status])).slice(0, 32);
}

function parseSender(text: string): { name: string; address: string } {
  const [, name = "", address = text] = /^(.*) <(.*)>$/.exec(text) ?? [];
  return { name, address };
}

function formatPlainText({ link, text }: IncidentMessage): string {
  return [
    `${limitText(text.status)}: ${limitText(text.title)}`,
    text.fields.map((field) => `${limitText(field.label)}: ${limitText(field.text)}`).join("\n"),
    text.list.map((entry) => `- ${limitText(entry)}`).join("\n"),
    text.curves.map(limitText).join("\n"),
    link === null ? "" : `${limitText(text.linkText)}: ${link}`,
  ]
    .filter((part) => part !== "")
    .join("\n\n");
}

function formatHtml({ link, text }: IncidentMessage): string {
  const rows = text.fields.map(
    (field) =>
      `<tr><td style="padding:2px 12px 2px 0;vertical-align:top;color:#555">${escapeHtmlText(field.label)}</td><td>${escapeHtmlText(field.text)}</td></tr>`,
  );
  const entries = text.list.map((entry) => `<li>${escapeHtmlText(entry)}</li>`);
  return [
    '<!doctype html><html><body style="font-family:sans-serif">',
    `<p><strong>${escapeHtmlText(text.status)}</strong>: ${escapeHtmlText(text.title)}</p>`,
    `<table>${rows.join("")}</table>`,
    ...(entries.length === 0 ? [] : [`<ul>${entries.join("")}</ul>`]),
    ...(text.curves.length === 0 ? [] : [`<pre>${text.curves.map(escapeHtmlText).join("\n")}</pre>`]),
    ...(link === null ? [] : [`<p><a href="${escapeHtmlText(link)}">${escapeHtmlText(text.linkText)}</a></p>`]),
    "</body></html>",
  ].join("\n");
}

const limitText = (text: string): string => cutText(text, MAX_TEXT_LENGTH);

const HTML_ENTITIES: Readonly<Record<string, string>> = {
  ...{ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" },
  "\n": "<br>",
};

function escapeHtmlText(text: string): string {
  return limitText(text).replaceAll(/[&<>"'\n]/g, (character) => HTML_ENTITIES[character] ?? character);
}
