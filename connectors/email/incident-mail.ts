import { hash } from "node:crypto";
import type { SendMailOptions } from "nodemailer";
import { cutText } from "../shared/receiver/message-texts.ts";
import type { IncidentMessage } from "../shared/receiver/receiver-interface.ts";
import type { EmailConfig } from "./config.ts";

const MAX_MAIL_SUBJECT_LENGTH = 150;
const MAX_MAIL_TEXT_LENGTH = 4_000;

/** Builds a mail. `title` is the title of the first mail, so all mails of an incident stay in one thread. */
export function buildIncidentMail(
  incident: IncidentMessage,
  title: string,
  config: Pick<EmailConfig, "from" | "to" | "cc" | "subject_prefix">,
  nowMs: number,
): SendMailOptions {
  const { changeId, key, status } = incident;
  const mailSender = parseMailSender(config.from);
  const senderHost = mailSender.address.slice(mailSender.address.indexOf("@") + 1);
  const mailThreadId = `<${key}@${senderHost}>`;
  return {
    from: mailSender,
    to: config.to,
    cc: config.cc,
    subject:
      `${config.subject_prefix} ${cutMailText(incident.text.status)}: ${cutText(title, MAX_MAIL_SUBJECT_LENGTH)}`.trim(),
    date: new Date(nowMs),
    // A repeated mail has the same id, so mailboxes can merge the copies.
    messageId: `<${hash("sha256", JSON.stringify([key, changeId, status])).slice(0, 32)}@${senderHost}>`,
    inReplyTo: mailThreadId,
    references: mailThreadId,
    ...(incident.priority === "A" && incident.status === "active" ? { priority: "high" } : {}),
    headers: {
      // Headers of RFC 3834 and of Exchange that prevent automatic replies and mail loops.
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

function parseMailSender(text: string): { name: string; address: string } {
  const [, name = "", address = text] = /^(.*) <(.*)>$/.exec(text) ?? [];
  return { name, address };
}

function formatPlainText({ link, text }: IncidentMessage): string {
  return [
    `${cutMailText(text.status)}: ${cutMailText(text.title)}`,
    text.fields.map((field) => `${cutMailText(field.label)}: ${cutMailText(field.text)}`).join("\n"),
    text.list.map((entry) => `- ${cutMailText(entry)}`).join("\n"),
    text.timeSeriesLines.map(cutMailText).join("\n"),
    link === null ? "" : `${cutMailText(text.linkText)}: ${link}`,
  ]
    .filter((section) => section !== "")
    .join("\n\n");
}

function formatHtml({ link, text }: IncidentMessage): string {
  const htmlTableRows = text.fields.map(
    (field) =>
      `<tr><td style="padding:2px 12px 2px 0;vertical-align:top;color:#555">${escapeHtmlText(field.label)}</td><td>${escapeHtmlText(field.text)}</td></tr>`,
  );
  const htmlListItems = text.list.map((entry) => `<li>${escapeHtmlText(entry)}</li>`);
  return [
    '<!doctype html><html><body style="font-family:sans-serif">',
    `<p><strong>${escapeHtmlText(text.status)}</strong>: ${escapeHtmlText(text.title)}</p>`,
    `<table>${htmlTableRows.join("")}</table>`,
    ...(htmlListItems.length === 0 ? [] : [`<ul>${htmlListItems.join("")}</ul>`]),
    ...(text.timeSeriesLines.length === 0 ? [] : [`<pre>${text.timeSeriesLines.map(escapeHtmlText).join("\n")}</pre>`]),
    ...(link === null ? [] : [`<p><a href="${escapeHtmlText(link)}">${escapeHtmlText(text.linkText)}</a></p>`]),
    "</body></html>",
  ].join("\n");
}

const cutMailText = (text: string): string => cutText(text, MAX_MAIL_TEXT_LENGTH);

const HTML_ENTITIES: Readonly<Record<string, string>> = {
  ...{ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" },
  "\n": "<br>",
};

function escapeHtmlText(text: string): string {
  return cutMailText(text).replaceAll(/[&<>"'\n]/g, (character) => HTML_ENTITIES[character] ?? character);
}
