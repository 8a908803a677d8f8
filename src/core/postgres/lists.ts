/**
 * A list of texts as PostgreSQL takes it in binary, which needs no escaping and no search for quotes:
 *
 *   dimensions 1 · has null 0 · type text · length · lower bound 1 · (bytes · UTF-8)*
 *
 * Integers are big-endian. Half of a pair of surrogates becomes U+FFFD; U+0000 the server refuses.
 * https://www.postgresql.org/docs/current/protocol-overview.html#PROTOCOL-FORMAT-CODES, array_recv in arrayfuncs.c
 */
export function textList(texts: readonly string[]): Buffer {
  const lengths = texts.map((text) => Buffer.byteLength(text));
  const bytes = Buffer.allocUnsafe(HEAD_BYTES + lengths.reduce((sum, length) => sum + 4 + length, 0));
  let at = bytes.writeInt32BE(1, 0);
  at = bytes.writeInt32BE(0, at);
  at = bytes.writeInt32BE(TEXT_TYPE, at);
  at = bytes.writeInt32BE(texts.length, at);
  at = bytes.writeInt32BE(1, at);
  for (const [n, text] of texts.entries()) {
    at = bytes.writeInt32BE(lengths[n] ?? 0, at);
    at += bytes.write(text, at, "utf8");
  }
  return bytes;
}

/** A list of numbers or truth values, as a text that PostgreSQL reads. */
export function plainList(values: readonly (number | boolean)[]): string {
  return `{${values.join(",")}}`;
}

const HEAD_BYTES = 20;
/** The number by which the server knows the type. */
const TEXT_TYPE = 25;
