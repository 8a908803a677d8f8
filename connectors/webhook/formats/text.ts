import { printable } from "../../../src/core/values/printable.ts";
import type { IncidentMessage } from "../../shared/receiver/receiver.ts";
import { cut, type IncidentText, withFewerTimeSeries } from "../../shared/receiver/text.ts";

/** Not seen, and of no direction: takes the meaning from the character before it. */
const UNSEEN = "\u200b";

/** The text of an incident without what nobody sees and what turns the direction of reading; only lists have no lines. */
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

/** A name on one line, cut; the second where nothing of it can be seen. */
export function nameOf(name: string | undefined, otherwise: string, most: number): string {
  return cut(printable(name ?? "").trim() || otherwise, most);
}

/** The status word first: what a phone shows of a message is its beginning. */
export function headingOf({ status, title }: IncidentText): string {
  return `${status}: ${title}`;
}

/** All but the title, one thing a line; each text by way of `spelled`. How the values went is last, where it is cut. */
export function bodyOf(text: IncidentText, spelled: (text: string) => string = (text) => text): string {
  return [
    ...text.fields.map(({ label, text }) => `${spelled(label)}: ${spelled(text)}`),
    ...text.list.map(spelled),
    ...text.curves.map(spelled),
  ].join("\n");
}

/** Labels and texts as one object; where a label stands twice its texts are one. */
export function detailsOf(text: IncidentText, most: number): Record<string, string> {
  const details = new Map<string, string>();
  for (const field of text.fields) {
    const before = details.get(field.label);
    details.set(field.label, before === undefined ? field.text : `${before}\n${field.text}`);
  }
  return Object.fromEntries([...details].map(([label, each]) => [label, cut(each, most)]));
}

/** How long a single text may be, from generous to scarce, in UTF-16 units. */
const LENGTHS = [2_000, 1_000, 400, 150, 50];

/**
 * The message with as much of the text as fits, first without how the values went: a limit of 20 kB is kept by texts of at most 400, say, where those of
 * 1,000 do not fit. The scarcest always fit: 12 fields and 21 lines are then some 10 kB, escapes and all.
 */
export function fitting<T>(
  text: IncidentText,
  make: (text: IncidentText) => T,
  fits: (message: T) => boolean,
): T {
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

/** For what is read as HTML. */
export function html(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

/**
 * For what is read as Markdown by people's chat programs, so that it is shown as it is: no emphasis, heading, list,
 * link, HTML, emoji or mention. Marks get a backslash; what a backslash does not stop everywhere (Mattermost reads
 * `<!channel>` as a mention, whatever stands before it) is torn apart by a character that nobody sees.
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
