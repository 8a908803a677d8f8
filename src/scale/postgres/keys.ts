import { createHash } from "node:crypto";

/** U+E000, a private character: prefix of a key that PostgreSQL would reject as it is. */
const MARK = "\ue000";
const LONG = `${MARK}#`;

/** Longest key in characters; an index row holds 2,704 bytes. */
const LONGEST = 500;

/**
 * Encodes an external name as a key. PostgreSQL rejects U+0000, UTF-8 has no half of a surrogate pair, and an index
 * takes no long text: a longer name becomes its SHA-256.
 */
export function storedKey(key: string): string {
  if (key.length > LONGEST) return LONG + createHash("sha256").update(key, "utf16le").digest("hex");
  const isPlain = !key.includes("\0") && !key.startsWith(MARK) && key.isWellFormed();
  return isPlain ? key : MARK + JSON.stringify(key);
}

/** Decodes a key; a long one stays its hash. */
export function shownKey(stored: string): string {
  if (!stored.startsWith(MARK) || stored.startsWith(LONG)) return stored;
  return JSON.parse(stored.slice(MARK.length)) as string;
}

/** Encodes the body of a document; when only the hash of its key is stored, the body contains the key. */
export function storedBody(key: string, json: string): string {
  return key.length > LONGEST ? `[${JSON.stringify(key)},${json}]` : json;
}

/** Decodes key and value of a document. */
export function shownDocument(stored: string, body: string): readonly [key: string, value: unknown] {
  const value: unknown = JSON.parse(body);
  if (stored.startsWith(LONG)) return value as [string, unknown];
  return [shownKey(stored), value];
}

/** Encodes a text for people, such as the reason of a dead letter: characters that PostgreSQL rejects become U+FFFD. */
export function storedText(text: string): string {
  return text.toWellFormed().replaceAll("\0", "\ufffd");
}
