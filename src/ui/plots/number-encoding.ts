/**
 * Encodes numbers as base64 text of few bytes. A whole number takes seven bits a byte, lowest first; the highest bit of a byte
 * marks that more bytes follow. Signed numbers are folded first: 0, -1, 1, -2 become 0, 1, 2, 3.
 */

export const LARGEST_SIGNED = 2 ** 51;

export class ByteWriter {
  readonly #bytes: number[] = [];

  unsigned(value: number): void {
    let remainder = value;
    for (; remainder >= 128; remainder = Math.floor(remainder / 128)) this.#bytes.push((remainder % 128) + 128);
    this.#bytes.push(remainder);
  }

  signed(value: number): void {
    this.unsigned(foldSign(value));
  }

  float(value: number): void {
    const bytes = Buffer.allocUnsafe(8);
    bytes.writeDoubleLE(value);
    this.#bytes.push(...bytes);
  }

  /** Appends the length and the bytes of another writer. */
  part(other: ByteWriter): void {
    this.unsigned(other.#bytes.length);
    for (const byte of other.#bytes) this.#bytes.push(byte);
  }

  text(): string {
    return Buffer.from(this.#bytes).toString("base64");
  }
}

/** Throws `RangeError` when the bytes end within a number. */
export class ByteReader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(text: string | Buffer) {
    this.#bytes = typeof text === "string" ? Buffer.from(text, "base64") : text;
  }

  get isDone(): boolean {
    return this.#at >= this.#bytes.length;
  }

  unsigned(): number {
    let value = 0;
    let byteWeight = 1;
    for (let count = 0; count < 8; count++) {
      const byte = this.#bytes.readUInt8(this.#at++);
      value += (byte % 128) * byteWeight;
      if (byte < 128) return value;
      byteWeight *= 128;
    }
    throw new RangeError("The number is too long.");
  }

  signed(): number {
    return unfoldSign(this.unsigned());
  }

  float(): number {
    this.#at += 8;
    return this.#bytes.readDoubleLE(this.#at - 8);
  }

  part(): ByteReader {
    const partLength = this.unsigned();
    this.#at += partLength;
    if (this.#at > this.#bytes.length) throw new RangeError("The part is incomplete.");
    return new ByteReader(this.#bytes.subarray(this.#at - partLength, this.#at));
  }
}

function foldSign(value: number): number {
  return value < 0 ? -2 * value - 1 : 2 * value;
}

function unfoldSign(value: number): number {
  return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
}

/** A column stores its number of decimals and whole numbers: 21.3 is 213 with one decimal. Other columns store floats. */
const MOST_DECIMALS = 6;
const FLOAT_COLUMN = MOST_DECIMALS + 1;
/** Largest scaled value: differences of two must fit as well. */
const LARGEST_SCALED = LARGEST_SIGNED / 4;

/** Writes the number of decimals and returns a function that writes the next value, as the difference from its predecessor. */
export function writeColumn(writer: ByteWriter, values: readonly (number | null)[]): (value: number | null) => void {
  const decimals = fewestDecimals(values);
  let previousScaled = 0;
  writer.unsigned(decimals);
  return (value) => {
    if (value === null) return writer.unsigned(0);
    if (decimals === FLOAT_COLUMN) {
      writer.unsigned(1);
      return writer.float(value);
    }
    const scaledValue = Math.round(value * 10 ** decimals);
    writer.unsigned(1 + foldSign(scaledValue - previousScaled));
    previousScaled = scaledValue;
  };
}

export function readColumn(reader: ByteReader): () => number | null {
  const decimals = reader.unsigned();
  let previousScaled = 0;
  return () => {
    const encodedValue = reader.unsigned();
    if (encodedValue === 0) return null;
    if (decimals === FLOAT_COLUMN) return reader.float();
    previousScaled += unfoldSign(encodedValue - 1);
    return previousScaled / 10 ** decimals;
  };
}

function fewestDecimals(values: readonly (number | null)[]): number {
  const fitsDecimals = (value: number | null, decimals: number) => {
    if (value === null) return true;
    const scaledValue = Math.round(value * 10 ** decimals);
    return Math.abs(scaledValue) <= LARGEST_SCALED && scaledValue / 10 ** decimals === value;
  };
  let decimals = 0;
  while (decimals < FLOAT_COLUMN && !values.every((value) => fitsDecimals(value, decimals))) decimals += 1;
  return decimals;
}
