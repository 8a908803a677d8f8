import { printable } from "../../../src/core/values/printable.ts";
import type { IncidentMessage, IncidentText } from "../../shared/receiver/receiver.ts";
import { cut, withFewerTimeSeries } from "../../shared/receiver/text.ts";

/** Zero-width space: takes the meaning from the character before it. */
const UNSEEN = "\u200b";

/**
 * Returns the text without invisible characters and characters that change the reading direction. List lines have no
 * line breaks.
 */
export function textOf(incident: IncidentMessage): IncidentText {
  const { title, status, fields, list, curves, linkText } = incident.text;
  return {
    title: printable(title),
    status: printable(status),
    fields: fields
      .map(({ label, text }) => ({ label: printable(label), text: linesOf(text) }))
      .filter(({ text }) => text !== ""),
    list: list.map(printable),
    curves: curves.map(printable),
    linkText: printable(linkText),
  };
}

/** A name on one line, cut; `otherwise` when nothing visible remains. */
export function nameOf(name: string | undefined, otherwise: string, most: number): string {
  return cut(printable(name ?? "").trim() || otherwise, most);
}

/** The status comes first, because a phone shows only the beginning. */
export function headingOf({ status, title }: IncidentText): string {
  return `${status}: ${title}`;
}

/**
 * Everything except the title, one item a line. `spelled` escapes each text. Time series come last, where the text is
 * cut.
 */
export function bodyOf(text: IncidentText, spelled: (text: string) => string = (text) => text): string {
  return [
    ...text.fields.map(({ label, text }) => `${spelled(label)}: ${spelled(text)}`),
    ...text.list.map(spelled),
    ...text.curves.map(spelled),
  ].join("\n");
}

/** Labels and texts as one object; texts of equal labels are joined. */
export function detailsOf(text: IncidentText, most: number): Record<string, string> {
  const details = new Map<string, string>();
  for (const field of text.fields) {
    const before = details.get(field.label);
    details.set(field.label, before === undefined ? field.text : `${before}\n${field.text}`);
  }
  return Object.fromEntries([...details].map(([label, each]) => [label, cut(each, most)]));
}

/** Tried text lengths, in UTF-16 units. */
const LENGTHS = [2_000, 1_000, 400, 150, 50];

/**
 * Returns the longest message that fits: first drops time series, then shortens texts. A limit of 20 kB may need texts
 * of 400. The shortest always fit: 12 fields and 21 lines are some 10 kB.
 */
export function fitting<T>(text: IncidentText, make: (text: IncidentText) => T, fits: (message: T) => boolean): T {
  const [longest = 0] = LENGTHS;
  const bare = { ...text, curves: [] };
  for (const each of [
    ...withFewerTimeSeries(text).map((fewer) => shortened(fewer, longest)),
    ...LENGTHS.map((most) => shortened(bare, most)),
  ]) {
    const message = make(each);
    if (fits(message)) return message;
  }
  return make(shortened(bare, 0));
}

export function bytesOf(message: unknown): number {
  return Buffer.byteLength(JSON.stringify(message));
}

function shortened(text: IncidentText, most: number): IncidentText {
  return {
    title: cut(text.title, Math.max(most, 50)),
    status: cut(text.status, 50),
    fields: text.fields.map(({ label, text }) => ({ label: cut(label, 50), text: cut(text, most) })),
    list: text.list.map((line) => cut(line, most)),
    curves: text.curves,
    linkText: cut(text.linkText, 50),
  };
}

/** Escapes text for HTML. */
export function html(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/**
 * Escapes text for Markdown in chats: no emphasis, heading, list, link, HTML, emoji or mention. Marks get a backslash.
 * Mattermost reads `<!channel>` as a mention even after a backslash, so a zero-width space splits it.
 */
export function markdown(text: string): string {
  return (
    text
      .replaceAll(/[\\`*_[\]|~>#]/g, "\\$&")
      // A time such as 07:15:00 is no emoji.
      .replaceAll(/[<@&]|:(?!\d\d:)(?=[\w+-]+:|\/\/)/g, `$&${UNSEEN}`)
      .replaceAll(/www\./gi, (word) => `${word.slice(0, 3)}${UNSEEN}.`)
      .replaceAll(/\n\s*/g, `\n${UNSEEN}`)
  );
}

/** A link in Markdown; the address is our own. */
export function markdownLink(words: string, address: string): string {
  return `[${markdown(words)}](${address.replaceAll("(", "%28").replaceAll(")", "%29")})`;
}

function linesOf(text: string): string {
  return text
    .split(/\r\n|[\n\v\f\r\u0085\u2028\u2029]/)
    .map((line) => printable(line).trim())
    .filter((line) => line !== "")
    .join("\n");
}
