import type { Format } from "./body.ts";

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
