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

/** What a description or a comment says, before it gets a format. */
export interface Body {
  readonly status: string;
  readonly fields: readonly { readonly label: string; readonly lines: readonly string[] }[];
  readonly list: readonly string[];
  /** Drawn in blocks, so they want letters of one width. */
  readonly curves: readonly string[];
  readonly link: { readonly text: string; readonly href: string } | null;
}

/** How Jira wants text: a document (ADF) on Cloud, wiki text on Data Center. */
export interface Format {
  render(body: Body): unknown;
  /** One sentence of our own. */
  sentence(text: string): unknown;
}

export function summaryOf({ text }: IncidentMessage): string {
  return cut(printable(text.title), MAX_SUMMARY);
}

export function descriptionOf(told: IncidentMessage, format: Format): unknown {
  const whole = withFewerTimeSeries(bodyOf(told, LONGEST_TEXT))
    .map((body) => format.render(body))
    .find((rendered) => sizeOf(rendered) <= MAX_BODY);
  return whole ?? fitting(format, (longest) => ({ ...bodyOf(told, longest), curves: [] }));
}

/** One short comment; `labels` are those of the fields that it repeats. */
export function commentOf(told: IncidentMessage, labels: readonly string[], format: Format): unknown {
  return fitting(format, (longest) => {
    const { status, fields } = bodyOf(told, longest);
    return {
      status,
      fields: fields.filter(({ label }) => labels.includes(label)),
      list: [],
      curves: [],
      link: null,
    };
  });
}

/** Of what happened, the fields that a comment repeats; null where there is none to write. */
export function wordsOfComment(told: IncidentMessage, cameBack: boolean): readonly PhraseName[] | null {
  if (told.status === "resolved") return ["ended", "lasted"];
  if (cameBack || told.change === "retriggered") return ["since"];
  if (told.change === "acknowledged") return ["acknowledgedBy", "message"];
  if (told.change === "recovering") return [];
  return told.change === "vanished" || told.change === "out-of-scope" ? ["unknown"] : null;
}

/** Shortens every text by half until the whole has room: quotation marks and brackets grow when they are escaped. */
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
