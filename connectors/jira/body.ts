import { printable } from "../../src/core/values/printable.ts";
import type { PhraseName } from "../shared/receiver/phrases.ts";
import type { IncidentMessage } from "../shared/receiver/receiver.ts";
import { cut, withFewerTimeSeries } from "../shared/receiver/text.ts";

/** Longest summary, in characters (Jira). */
const MAX_SUMMARY = 255;
/** Longest description or comment as it is sent, in characters (Jira: 32,767). */
const MAX_BODY = 32_000;
/** Longest text of one field to begin with, in characters; all are shortened further where the whole is too long. */
const LONGEST_TEXT = 4_000;

/** Content of a description or comment before formatting. */
interface Body {
  readonly status: string;
  readonly fields: readonly { readonly label: string; readonly lines: readonly string[] }[];
  readonly list: readonly string[];
  /** Block characters for a fixed-width font. */
  readonly curves: readonly string[];
  readonly link: { readonly text: string; readonly href: string } | null;
}

/** Text format: a document (ADF) for Cloud, wiki text for Data Center. */
interface Format {
  render(body: Body): unknown;
  /** Formats one sentence. */
  sentence(text: string): unknown;
}

export function summaryOf({ text }: IncidentMessage): string {
  return cut(printable(text.title), MAX_SUMMARY);
}

export function descriptionOf(incident: IncidentMessage, format: Format): unknown {
  const untruncated = withFewerTimeSeries(bodyOf(incident, LONGEST_TEXT))
    .map((body) => format.render(body))
    .find((rendered) => sizeOf(rendered) <= MAX_BODY);
  return untruncated ?? fitting(format, (longest) => ({ ...bodyOf(incident, longest), curves: [] }));
}

/** Returns a short comment with the fields that have these labels. */
export function commentOf(incident: IncidentMessage, labels: readonly string[], format: Format): unknown {
  return fitting(format, (longest) => {
    const { status, fields } = bodyOf(incident, longest);
    return {
      status,
      fields: fields.filter(({ label }) => labels.includes(label)),
      list: [],
      curves: [],
      link: null,
    };
  });
}

/** Phrases of the fields in the comment for a change; null for no comment. */
export function phrasesOfComment(incident: IncidentMessage, cameBack: boolean): readonly PhraseName[] | null {
  if (incident.status === "resolved") return ["ended", "lasted"];
  if (cameBack || incident.change === "retriggered") return ["since"];
  if (incident.change === "acknowledged") return ["acknowledgedBy", "message"];
  if (incident.change === "recovering") return [];
  return incident.change === "vanished" || incident.change === "out-of-scope" ? ["unknown"] : null;
}

/** Halves all texts until the result fits, because escaping adds characters. */
function fitting(format: Format, body: (longest: number) => Body): unknown {
  let longest = LONGEST_TEXT;
  let rendered = format.render(body(longest));
  while (sizeOf(rendered) > MAX_BODY && longest > 1) {
    longest = Math.floor(longest / 2);
    rendered = format.render(body(longest));
  }
  return rendered;
}

function sizeOf(rendered: unknown): number {
  return typeof rendered === "string" ? rendered.length : JSON.stringify(rendered).length;
}

function bodyOf({ text, link }: IncidentMessage, longest: number): Body {
  return {
    status: printable(text.status),
    fields: text.fields.map(({ label, text }) => ({
      label: printable(label),
      lines: linesOf(text, longest),
    })),
    list: text.list.map((line) => cut(printable(line), longest)).filter((line) => line !== ""),
    curves: text.curves.map((line) => printable(line).trim()),
    link: link === null ? null : { text: printable(text.linkText), href: new URL(link).href },
  };
}

function linesOf(text: string, longest: number): readonly string[] {
  return cut(text, longest)
    .split(/[\r\n\u0085\u2028\u2029]+/)
    .map((line) => printable(line).trim())
    .filter((line) => line !== "");
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

/** Jira Cloud: nothing in a text node is a mention, a link or a format, whatever it says. */
export const ADF: Format = {
  render({ status, fields, list, curves, link }) {
    const parts = [
      paragraph([text(status, { type: "strong" })]),
      bullets(fields.map(({ label, lines }) => [text(label, { type: "strong" }), ...textOf(lines)])),
      bullets(list.map((line) => [text(line)])),
      curves.length === 0 ? null : { type: "codeBlock", content: [text(curves.join("\n"))] },
      link === null ? null : paragraph([text(link.text, { type: "link", attrs: { href: link.href } })]),
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

/** `: first`, and each further line behind a break. An empty text is not allowed. */
function textOf(lines: Body["fields"][number]["lines"]): readonly Node[] {
  return lines.flatMap((line, index) => (index === 0 ? [text(`: ${line}`)] : [{ type: "hardBreak" }, text(line)]));
}

/** Jira Data Center: wiki text, in which every sign that could mean something is written by its number. */
export const WIKI: Format = {
  render({ status, fields, list, curves, link }) {
    return [
      `*${escaped(status)}*`,
      ...fields.map(({ label, lines }) => `* *${escaped(label)}*: ${lines.map(escaped).join("\\\\")}`),
      // A blank line, so that this is a list of its own.
      ...(list.length === 0 ? [] : ["", ...list.map((line) => `* ${escaped(line)}`)]),
      ...(curves.length === 0 ? [] : ["", "{noformat}", ...curves.map(inert), "{noformat}"]),
      ...(link === null ? [] : ["", `[${escaped(link.text)}|${address(link.href)}]`]),
    ].join("\n");
  },
  sentence: escaped,
};

/**
 * `[~ola]` becomes `&#91;&#126;ola&#93;`: the renderer does the same with what stands behind a backslash, but knows
 * fewer signs there. `-` and `_` inside a word mean nothing and stay, so that VS1-GT11 can be searched for.
 */
function escaped(text: string): string {
  return text.replaceAll(
    /[!-+:-@[-^`{-~]|(?<![0-9A-Za-z])[-_]|[-_](?![0-9A-Za-z])/g,
    (sign) => `&#${sign.charCodeAt(0)};`,
  );
}

/**
 * Between `{noformat}` signs are shown as they are, also those that are written by their number. A space keeps a name
 * from ending it, and from calling people: Jira looks for `[~ola]` in the text as it was sent.
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
