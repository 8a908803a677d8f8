import type { IncidentMessage, IncidentText } from "../shared/receiver/receiver.ts";
import { cut, fitted } from "../shared/receiver/text.ts";

/** Longest summary, in characters (Jira). */
const MAX_SUMMARY = 255;
/** Longest description or comment as it is sent, in characters (Jira: 32,767). */
const MAX_BODY = 32_000;
/** Longest text of one field, in characters; all are shortened further when the message is too long. */
const LONGEST_TEXT = 4_000;

/** Content of a description or comment before formatting. */
type Body = Pick<IncidentText, "status" | "fields" | "list" | "curves" | "linkText"> & { readonly href: string | null };

/** Text format: a document (ADF) for Cloud, wiki text for Data Center. */
interface Format {
  render(body: Body): unknown;
  /** Formats one sentence. */
  sentence(text: string): unknown;
}

export function summaryOf({ text }: IncidentMessage): string {
  return cut(text.title, MAX_SUMMARY);
}

export function descriptionOf({ text, link }: IncidentMessage, format: Format): unknown {
  return rendered(text, link, format);
}

/** Returns a short comment with the fields that have these labels. */
export function commentOf({ text }: IncidentMessage, labels: readonly string[], format: Format): unknown {
  const fields = text.fields.filter(({ label }) => labels.includes(label));
  return rendered({ ...text, fields, list: [], curves: [] }, null, format);
}

function rendered(text: IncidentText, link: string | null, format: Format): unknown {
  const href = link === null ? null : new URL(link).href;
  const lengthOf = (body: unknown) => (typeof body === "string" ? body : JSON.stringify(body)).length;
  return fitted(
    text,
    LONGEST_TEXT,
    (shortened) => format.render({ ...shortened, href }),
    (body) => lengthOf(body) <= MAX_BODY,
  );
}

/** A node of Atlassian's document format (ADF), version 1. */
interface Node {
  readonly type: string;
  readonly content?: readonly Node[];
  readonly text?: string;
  readonly marks?: readonly Mark[];
}

interface Mark {
  readonly type: string;
  readonly attrs?: Readonly<Record<string, string>>;
}

/** Jira Cloud. A text node is literal: it cannot contain a mention, link or format. */
export const ADF: Format = {
  render({ status, fields, list, curves, linkText, href }) {
    const parts = [
      paragraph([text(status, { type: "strong" })]),
      bullets(fields.map((field) => [text(field.label, { type: "strong" }), ...linesOf(field.text)])),
      bullets(list.map((line) => [text(line)])),
      curves.length === 0 ? null : { type: "codeBlock", content: [text(curves.join("\n"))] },
      href === null ? null : paragraph([text(linkText, { type: "link", attrs: { href } })]),
    ];
    return documentOf(parts.filter((part) => part !== null));
  },
  sentence: (sentence) => documentOf([paragraph([text(sentence)])]),
};

function documentOf(content: readonly Node[]) {
  return { version: 1, type: "doc", content };
}

function paragraph(content: readonly Node[]): Node {
  return { type: "paragraph", content };
}

/** An empty list is not allowed. */
function bullets(items: readonly (readonly Node[])[]): Node | null {
  if (items.length === 0) return null;
  return {
    type: "bulletList",
    content: items.map((item) => ({ type: "listItem", content: [paragraph(item)] })),
  };
}

function text(text: string, ...marks: readonly Mark[]): Node {
  return { type: "text", text, ...(marks.length === 0 ? {} : { marks }) };
}

/** `: first line`, then each further line after a break. */
function linesOf(lines: string): readonly Node[] {
  const [first = "", ...others] = lines.split("\n");
  return [text(`: ${first}`), ...others.flatMap((line) => [{ type: "hardBreak" }, text(line)])];
}

/** Jira Data Center: wiki text in which each character that could be markup is written by its number. */
export const WIKI: Format = {
  render({ status, fields, list, curves, linkText, href }) {
    return [
      `*${escaped(status)}*`,
      ...fields.map(({ label, text }) => `* *${escaped(label)}*: ${text.split("\n").map(escaped).join("\\\\")}`),
      // A blank line, so that this is a list of its own.
      ...(list.length === 0 ? [] : ["", ...list.map((line) => `* ${escaped(line)}`)]),
      ...(curves.length === 0 ? [] : ["", "{noformat}", ...curves.map(inert), "{noformat}"]),
      ...(href === null ? [] : ["", `[${escaped(linkText)}|${address(href)}]`]),
    ].join("\n");
  },
  sentence: escaped,
};

/**
 * `[~ola]` becomes `&#91;&#126;ola&#93;`; a backslash would escape fewer characters. `-` and `_` inside a word are no
 * markup and stay, so that people can search for VS1-GT11.
 */
function escaped(text: string): string {
  return text.replaceAll(
    /[!-+:-@[-^`{-~]|(?<![0-9A-Za-z])[-_]|[-_](?![0-9A-Za-z])/g,
    (sign) => `&#${sign.charCodeAt(0)};`,
  );
}

/**
 * Inside `{noformat}` Jira shows `&#91;` literally, so a space prevents an early end and mentions such as `[~ola]`.
 */
function inert(text: string): string {
  return text.replaceAll(/[{[]/g, "$& ");
}

/** An address between `|` and `]`. */
function address(href: string): string {
  return href.replaceAll(/[^\w:/?#&=%.~+-]/g, (sign) => encodeURIComponent(sign).replace(/^[^%]$/, hex));
}

function hex(sign: string): string {
  return `%${sign.charCodeAt(0).toString(16).toUpperCase()}`;
}
