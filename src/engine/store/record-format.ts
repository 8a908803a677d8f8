/**
 * SQLite's record format, as far as it takes to read rows without SQLite: https://www.sqlite.org/fileformat2.html
 * Every read is bounded; what does not fit is null, because the bytes come from a damaged file.
 */
export type StoredValue = string | number | null | Uint8Array;

interface Varint {
  readonly value: number;
  readonly next: number;
}

/** Seven bits a byte, the high bit says that there are more; the ninth byte counts whole. */
export function varint(bytes: Buffer, at: number): Varint | null {
  let value = 0;
  for (let n = 0; n < 9; n += 1) {
    const byte = bytes[at + n];
    if (byte === undefined) return null;
    value = n === 8 ? value * 256 + byte : value * 128 + (byte & 0x7f);
    if (n === 8 || byte < 0x80) return Number.isSafeInteger(value) ? { value, next: at + n + 1 } : null;
  }
  return null;
}

const INTEGER_BYTES = [0, 1, 2, 3, 4, 6, 8];

/** The values of a record; null when it is none. */
export function recordOf(payload: Buffer): readonly StoredValue[] | null {
  const header = varint(payload, 0);
  if (header === null || header.value > payload.length) return null;
  const values: StoredValue[] = [];
  let at = header.value;
  for (let place = header.next; place < header.value; ) {
    const type = varint(payload, place);
    if (type === null) return null;
    const size = sizeOfType(type.value);
    if (size === null || at + size > payload.length) return null;
    values.push(valueIn(type.value, payload.subarray(at, at + size)));
    at += size;
    place = type.next;
  }
  return values;
}

function sizeOfType(type: number): number | null {
  if (type >= 12) return Math.floor((type - 12) / 2);
  if (type === 8 || type === 9) return 0;
  return type === 7 ? 8 : (INTEGER_BYTES[type] ?? null);
}

function valueIn(type: number, bytes: Buffer): StoredValue {
  if (type >= 12) return type % 2 === 0 ? bytes : bytes.toString("utf8");
  if (type === 0) return null;
  if (type === 7) return bytes.readDoubleBE(0);
  if (type === 8 || type === 9) return type - 8;
  return bytes.length === 8 ? Number(bytes.readBigInt64BE(0)) : bytes.readIntBE(0, bytes.length);
}
