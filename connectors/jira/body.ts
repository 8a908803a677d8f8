import type { IncidentMessage, IncidentText } from "../shared/receiver/receiver.ts";
import { cut, fitted } from "../shared/receiver/text.ts";

const MAX_SUMMARY = 255;
const MAX_BODY = 32_000;
const LONGEST_TEXT = 4_000;

type Body = Pick<IncidentText, "status" | "fields" | "list" | "curves" | "linkText"> & { readonly href: string | null };

interface Format {
  render(body: Body): unknown;
  sentence(text: string): unknown;
}

export const summaryOf = ({ text }: IncidentMessage): string => cut(text.title, MAX_SUMMARY);

export function descriptionOf({ text, link }: Pick<IncidentMessage, "text" | "link">, format: Format): unknown {
  const href = link === null ? null : new URL(link).href;
  const lengthOf = (body: unknown) => (typeof body === "string" ? body : JSON.stringify(body)).length;
  return fitted(
    text,
    LONGEST_TEXT,
    (shortened) => format.render({ ...shortened, href }),
    (body) => lengthOf(body) <= MAX_BODY,
  );
}

export function commentOf({ text }: IncidentMessage, labels: readonly string[], format: Format): unknown {
  const fields = text.fields.filter(({ label }) => labels.includes(label));
  return descriptionOf({ text: { ...text, fields, list: [], curves: [] }, link: null }, format);
}

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

const documentOf = (content: readonly Node[]) => ({ version: 1, type: "doc", content });

const paragraph = (content: readonly Node[]): Node => ({ type: "paragraph", content });

function bullets(items: readonly (readonly Node[])[]): Node | null {
  if (items.length === 0) return null;
  return { type: "bulletList", content: items.map((item) => ({ type: "listItem", content: [paragraph(item)] })) };
}

function text(text: string, ...marks: readonly Mark[]): Node {
  return { type: "text", text, ...(marks.length === 0 ? {} : { marks }) };
}

function linesOf(lines: string): readonly Node[] {
  const [first = "", ...others] = lines.split("\n");
  return [text(`: ${first}`), ...others.flatMap((line) => [{ type: "hardBreak" }, text(line)])];
}

/** Jira Data Center: in wiki text each character that could be markup is written by its number. */
export const WIKI: Format = {
  render({ status, fields, list, curves, linkText, href }) {
    return [
      `*${escaped(status)}*`,
      ...fields.map(({ label, text }) => `* *${escaped(label)}*: ${text.split("\n").map(escaped).join("\\\\")}`),
      ...(list.length === 0 ? [] : ["", ...list.map((line) => `* ${escaped(line)}`)]),
      ...(curves.length === 0 ? [] : ["", "{noformat}", ...curves.map(inert), "{noformat}"]),
      ...(href === null ? [] : ["", `[${escaped(linkText)}|${address(href)}]`]),
    ].join("\n");
  },
  sentence: escaped,
};

/** `[~ola]` becomes `&#91;&#126;ola&#93;`. `-` and `_` inside a word stay, so that people can search for VS1-GT11. */
function escaped(text: string): string {
  return text.replaceAll(
    /[!-+:-@[-^`{-~]|(?<![0-9A-Za-z])[-_]|[-_](?![0-9A-Za-z])/g,
    (sign) => `&#${sign.charCodeAt(0)};`,
  );
}

/** Inside `{noformat}` Jira shows `&#91;` literally, so a space prevents an early end and mentions such as `[~ola]`. */
const inert = (text: string): string => text.replaceAll(/[{[]/g, "$& ");

function address(href: string): string {
  return href.replaceAll(/[^\w:/?#&=%.~+-]/g, (sign) => encodeURIComponent(sign).replace(/^[^%]$/, hex));
}

const hex = (sign: string): string => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`;
