export function quoteSqlName(name: string): string {
  return `"${name.replaceAll('"', '""')}"`;
}

export function quoteSqlText(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

const ARRAY_HEADER_BYTES = 20;
const TEXT_TYPE_ID = 25;

/**
 * Encodes a list of texts in PostgreSQL's binary format, which needs no escaping:
 *
 *   dimensions 1 · has null 0 · type text · length · lower bound 1 · (bytes · UTF-8)*
 *
 * Integers are big-endian. Half of a surrogate pair becomes U+FFFD; the server refuses U+0000.
 * https://www.postgresql.org/docs/current/protocol-overview.html#PROTOCOL-FORMAT-CODES, array_recv in arrayfuncs.c
 */
export function textArray(texts: readonly string[]): Buffer {
  const textByteLengths = texts.map((text) => Buffer.byteLength(text));
  const bytes = Buffer.allocUnsafe(ARRAY_HEADER_BYTES + textByteLengths.reduce((sum, length) => sum + 4 + length, 0));
  let offset = 0;
  for (const headerField of [1, 0, TEXT_TYPE_ID, texts.length, 1]) offset = bytes.writeInt32BE(headerField, offset);
  for (const [n, text] of texts.entries()) {
    offset = bytes.writeInt32BE(textByteLengths[n] ?? 0, offset);
    offset += bytes.write(text, offset, "utf8");
  }
  return bytes;
}

export function sqlArray(values: readonly (number | boolean)[]): string {
  return `{${values.join(",")}}`;
}
