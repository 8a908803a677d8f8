/**
 * Encodes numbers as short base64 text. Each byte holds seven bits of a whole number, the lowest bits first. Its
 * highest bit is 1 if more bytes follow. Signed numbers become unsigned first: 0, -1, 1, -2 become 0, 1, 2, 3.
 */

export const MAX_SIGNED_NUMBER = 2 ** 51;

export class ByteWriter {
  readonly #bytes: number[] = [];

  writeUnsigned(value: number): void {
    let remainder = value;
    for (; remainder >= 128; remainder = Math.floor(remainder / 128)) this.#bytes.push((remainder % 128) + 128);
    this.#bytes.push(remainder);
  }

  writeSigned(value: number): void {
    this.writeUnsigned(signedToUnsigned(value));
  }

  writeFloat(value: number): void {
    const floatBytes = Buffer.allocUnsafe(8);
    floatBytes.writeDoubleLE(value);
    this.#bytes.push(...floatBytes);
  }

  writePart(partWriter: ByteWriter): void {
    this.writeUnsigned(partWriter.#bytes.length);
    for (const byte of partWriter.#bytes) this.#bytes.push(byte);
  }

  toBase64(): string {
    return Buffer.from(this.#bytes).toString("base64");
  }
}

export class ByteReader {
  readonly #bytes: Buffer;
  #position = 0;

  constructor(encodedBytes: string | Buffer) {
    this.#bytes = typeof encodedBytes === "string" ? Buffer.from(encodedBytes, "base64") : encodedBytes;
  }

  get isDone(): boolean {
    return this.#position >= this.#bytes.length;
  }

  readUnsigned(): number {
    let value = 0;
    let byteWeight = 1;
    for (let count = 0; count < 8; count++) {
      const byte = this.#bytes.readUInt8(this.#position++);
      value += (byte % 128) * byteWeight;
      if (byte < 128) return value;
      byteWeight *= 128;
    }
    throw new RangeError("The number is too long.");
  }

  readSigned(): number {
    return unsignedToSigned(this.readUnsigned());
  }

  readFloat(): number {
    this.#position += 8;
    return this.#bytes.readDoubleLE(this.#position - 8);
  }

  readPart(): ByteReader {
    const partByteLength = this.readUnsigned();
    this.#position += partByteLength;
    if (this.#position > this.#bytes.length) throw new RangeError("The part is incomplete.");
    return new ByteReader(this.#bytes.subarray(this.#position - partByteLength, this.#position));
  }
}

const signedToUnsigned = (value: number): number => (value < 0 ? -2 * value - 1 : 2 * value);

const unsignedToSigned = (value: number): number => (value % 2 === 0 ? value / 2 : -(value + 1) / 2);

/** Numbers with more decimals than this are stored as floats, all others as scaled whole numbers: 21.3 as 213. */
const MAX_DECIMALS = 6;
const FLOAT_COLUMN_MARK = MAX_DECIMALS + 1;
/** Largest scaled number (213 for 21.3), so that the difference of two of them is at most MAX_SIGNED_NUMBER. */
const MAX_SCALED_NUMBER = MAX_SIGNED_NUMBER / 4;

/** Writes the number of decimals. Returns a function that writes a value as its difference from the previous value. */
export function numberWriter(writer: ByteWriter, values: readonly (number | null)[]): (value: number | null) => void {
  const decimals = fewestExactDecimals(values);
  let previousScaledNumber = 0;
  writer.writeUnsigned(decimals);
  return (value) => {
    if (value === null) return writer.writeUnsigned(0);
    if (decimals === FLOAT_COLUMN_MARK) {
      writer.writeUnsigned(1);
      return writer.writeFloat(value);
    }
    const scaledNumber = Math.round(value * 10 ** decimals);
    writer.writeUnsigned(1 + signedToUnsigned(scaledNumber - previousScaledNumber));
    previousScaledNumber = scaledNumber;
  };
}

export function numberReader(reader: ByteReader): () => number | null {
  const decimals = reader.readUnsigned();
  let previousScaledNumber = 0;
  return () => {
    const encodedValue = reader.readUnsigned();
    if (encodedValue === 0) return null;
    if (decimals === FLOAT_COLUMN_MARK) return reader.readFloat();
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
