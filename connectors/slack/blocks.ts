import type { IncidentMessage, IncidentStatus } from "../shared/receiver/receiver.ts";
import { cut, withFewerTimeSeries } from "../shared/receiver/text.ts";

/**
 * Message of an incident in Block Kit.
 *
 * Texts of the service are escaped `plain_text`, so Slack interprets neither markup (`*bold*`), emoji names,
 * `<!channel>` nor links in names.
 */
export interface Message {
  /** Text for notifications and clients without blocks. */
  readonly text: string;
  readonly blocks: Block[];
}

export type Block =
  | { readonly type: "header"; readonly text: Plain }
  | { readonly type: "section"; readonly text: Plain }
  | { readonly type: "section"; readonly fields: (Plain | Marked)[] }
  | { readonly type: "context"; readonly elements: Marked[] };

interface Plain {
  readonly type: "plain_text";
  readonly text: string;
  readonly emoji: false;
}

interface Marked {
  readonly type: "mrkdwn";
  readonly text: string;
  readonly verbatim: true;
}

/** The largest sizes, in UTF-16 units after escaping. */
export interface Sizes {
  readonly text: number;
  readonly header: number;
  readonly field: number;
  readonly list: number;
  readonly curves: number;
}

/** Slack's limits: header 150, field 2,000, text of a section 3,000; 4,000 is its advice for `text`. */
export const FULL: Sizes = { text: 4_000, header: 150, field: 2_000, list: 3_000, curves: 3_000 };

/** Sizes for a message that Slack finds too large; it names no total limit. */
export const SMALL: Sizes = { text: 300, header: 150, field: 150, list: 1_000, curves: 0 };

/** Pairs in one section (Slack: 10 fields): a label and its text, side by side. */
const PAIRS_OF_A_SECTION = 5;

/** Slack's limit for an address in a link. */
const LONGEST_LINK = 3_000;

const MARKS: Readonly<Record<IncidentStatus, string>> = {
  active: "🔴",
  acknowledged: "🟠",
  recovering: "🟡",
  unknown: "⚪",
  resolved: "🟢",
};

/** Returns the complete message. */
export function messageOf(incident: IncidentMessage, sizes: Sizes): Message {
  const { fields, list } = incident.text;
  return {
    text: within(headingOf(incident), sizes.text),
    blocks: [
      { type: "header", text: plain(headingOf(incident), sizes.header) },
      ...sectionsOf(fields, sizes.field),
      ...listOf(list, sizes.list),
      ...curvesOf(incident, sizes.curves),
      ...linkOf(incident),
    ],
  };
}

/** Returns one line with the status. */
export function lineOf(incident: IncidentMessage, sizes: Sizes): Message {
  return {
    text: within(headingOf(incident), sizes.text),
    blocks: [{ type: "section", text: plain(headingOf(incident), sizes.list) }],
  };
}

/** 🔴 Active: Supply temperature low, Kvarnholmen 4 */
function headingOf({ status, text }: IncidentMessage): string {
  return `${MARKS[status]} ${text.status}: ${text.title}`;
}

function sectionsOf(fields: IncidentMessage["text"]["fields"], most: number): Block[] {
  const pairs = fields.map(({ label, text }) => [marked(`*${within(label, 200)}*`), plain(text, most)]);
  return Array.from({ length: Math.ceil(pairs.length / PAIRS_OF_A_SECTION) }, (_, n) => ({
    type: "section",
    fields: pairs.slice(n * PAIRS_OF_A_SECTION, (n + 1) * PAIRS_OF_A_SECTION).flat(),
  }));
}

/** All lines have equal length, so every member is listed: 141 characters each for 21 lines. */
function listOf(list: readonly string[], most: number): Block[] {
  if (list.length === 0) return [];
  const room = Math.floor(most / list.length) - 1;
  const text = list.map((line) => cut(line, room)).join("\n");
  return [{ type: "section", text: plain(text, most) }];
}

/** As many complete time series as fit. */
function curvesOf({ text }: IncidentMessage, most: number): Block[] {
  const texts = withFewerTimeSeries(text).map(({ curves }) => curves.join("\n"));
  const kept = texts.find((each) => escaped(each).length <= most);
  return kept === undefined || kept === "" ? [] : [{ type: "section", text: plain(kept, most) }];
}

/** A link, because Slack shows a warning when an app does not respond to a button. */
function linkOf({ link, text }: IncidentMessage): Block[] {
  const url = link === null ? null : URL.parse(link);
  if (url === null || !/^https?:$/.test(url.protocol)) return [];
  const address = escaped(url.href.replaceAll("|", "%7C"));
  if (address.length > LONGEST_LINK) return [];
  const words = within(text.linkText.replaceAll("|", " "), 75);
  return [{ type: "context", elements: [marked(`<${address}|${words}>`)] }];
}

function plain(text: string, most: number): Plain {
  return { type: "plain_text", text: within(text, most), emoji: false };
}

function marked(text: string): Marked {
  return { type: "mrkdwn", text, verbatim: true };
}

/** Escapes the three characters that Slack requires. */
function escaped(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/** Cuts before escaping, so that no partial `&am` remains. */
function within(text: string, most: number): string {
  for (let room = most; ; ) {
    const kept = escaped(cut(text, room));
    if (kept.length <= most) return kept;
    // Escaping adds at most 5 units for one, so this never cuts too much.
    room -= Math.ceil((kept.length - most) / 5);
  }
}
