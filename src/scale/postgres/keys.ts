import { createHash } from "node:crypto";

/** U+E000, which stands for no letter: it begins a key that PostgreSQL would not take as it is. */
const MARK = "\ue000";
const LONG = `${MARK}#`;

/** An index holds no longer keys, in characters: 2,704 bytes for all of its columns. */
const LONGEST = 500;

/**
 * A name from outside as a key of a table. PostgreSQL keeps no U+0000 in a text, UTF-8 has no half of a pair of surrogates,
 * and no index holds a long text: of one that is longer its SHA-256 stands there.
 */
export function storedKey(key: string): string {
  if (key.length > LONGEST) return LONG + createHash("sha256").update(key, "utf16le").digest("hex");
  const isPlain = !key.includes("\0") && !key.startsWith(MARK) && key.isWellFormed();
  return isPlain ? key : MARK + JSON.stringify(key);
}

/** What `storedKey` was given; of a long one the hash. */
export function shownKey(stored: string): string {
  if (!stored.startsWith(MARK) || stored.startsWith(LONG)) return stored;
  return JSON.parse(stored.slice(MARK.length)) as string;
}

/** The body of a document, as JSON: beside a key of which only the hash is stored it has the key itself. */
export function storedBody(key: string, json: string): string {
  return key.length > LONGEST ? `[${JSON.stringify(key)},${json}]` : json;
}

/** Key and value of a document, as it was stored. */
export function shownDocument(stored: string, body: string): readonly [key: string, value: unknown] {
  const value: unknown = JSON.parse(body);
  if (stored.startsWith(LONG)) return value as [string, unknown];
  return [shownKey(stored), value];
}

/** A text for people, such as the reason of a dead letter: what PostgreSQL does not take becomes U+FFFD. */
export function storedText(text: string): string {
  return text.toWellFormed().replaceAll("\0", "\ufffd");
}
