/**
 * Encodes numbers as base64 text of few bytes. A whole number takes seven bits a byte, lowest first; the highest bit of a byte
 * marks that more bytes follow. Signed numbers are folded first: 0, -1, 1, -2 become 0, 1, 2, 3.
 */

export const MAX_SIGNED_NUMBER = 2 ** 51;

export class ByteWriter {
  readonly #bytes: number[] = [];

  unsigned(value: number): void {
    let remainder = value;
    for (; remainder >= 128; remainder = Math.floor(remainder / 128)) this.#bytes.push((remainder % 128) + 128);
    this.#bytes.push(remainder);
  }

  signed(value: number): void {
    this.unsigned(signedToUnsigned(value));
  }

  float(value: number): void {
    const floatBytes = Buffer.allocUnsafe(8);
    floatBytes.writeDoubleLE(value);
    this.#bytes.push(...floatBytes);
  }

  part(other: ByteWriter): void {
    this.unsigned(other.#bytes.length);
    for (const byte of other.#bytes) this.#bytes.push(byte);
  }

  text(): string {
    return Buffer.from(this.#bytes).toString("base64");
  }
}

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
    return unsignedToSigned(this.unsigned());
  }

  float(): number {
    this.#at += 8;
    return this.#bytes.readDoubleLE(this.#at - 8);
  }

  part(): ByteReader {
    const partByteLength = this.unsigned();
    this.#at += partByteLength;
    if (this.#at > this.#bytes.length) throw new RangeError("The part is incomplete.");
    return new ByteReader(this.#bytes.subarray(this.#at - partByteLength, this.#at));
  }
}

function signedToUnsigned(value: number): number {
  return value < 0 ? -2 * value - 1 : 2 * value;
}

function unsignedToSigned(value: number): number {
  return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
}

/** Numbers with more decimals than this are stored as floats; other numbers as whole numbers, 21.3 as 213. */
const MAX_DECIMALS = 6;
const FLOAT_COLUMN_MARK = MAX_DECIMALS + 1;
/** Limits scaled numbers, so that the difference of two of them is a valid signed number. */
const MAX_SCALED_NUMBER = MAX_SIGNED_NUMBER / 4;

/** Writes the number of decimals and returns a function that writes the difference to the previous value. */
export function writeNumbers(writer: ByteWriter, values: readonly (number | null)[]): (value: number | null) => void {
  const decimals = fewestExactDecimals(values);
  let previousScaledNumber = 0;
  writer.unsigned(decimals);
  return (value) => {
    if (value === null) return writer.unsigned(0);
    if (decimals === FLOAT_COLUMN_MARK) {
      writer.unsigned(1);
      return writer.float(value);
    }
    const scaledNumber = Math.round(value * 10 ** decimals);
    writer.unsigned(1 + signedToUnsigned(scaledNumber - previousScaledNumber));
    previousScaledNumber = scaledNumber;
  };
}

export function readNumbers(reader: ByteReader): () => number | null {
  const decimals = reader.unsigned();
  let previousScaledNumber = 0;
  return () => {
    const encodedValue = reader.unsigned();
    if (encodedValue === 0) return null;
    if (decimals === FLOAT_COLUMN_MARK) return reader.float();
    previousScaledNumber += unsignedToSigned(encodedValue - 1);
    return previousScaledNumber / 10 ** decimals;
  };
}

function fewestExactDecimals(values: readonly (number | null)[]): number {
  const isExactWithDecimals = (value: number | null, decimals: number) => {
    if (value === null) return true;
    const scaledNumber = Math.round(value * 10 ** decimals);
    return Math.abs(scaledNumber) <= MAX_SCALED_NUMBER && scaledNumber / 10 ** decimals === value;
  };
  let decimalCount = 0;
  while (decimalCount < FLOAT_COLUMN_MARK && !values.every((value) => isExactWithDecimals(value, decimalCount)))
    decimalCount += 1;
  return decimalCount;
}
