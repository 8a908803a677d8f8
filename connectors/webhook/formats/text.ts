import { printable } from "../../../src/core/values/printable.ts";
import type { IncidentText } from "../../shared/receiver/receiver.ts";
import { cut } from "../../shared/receiver/text.ts";

/** Zero-width space: takes the meaning from the character before it. */
const UNSEEN = "\u200b";

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
