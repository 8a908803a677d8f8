/**
 * Numbers as few bytes, as text. A whole number takes seven bits a byte, the lowest first, the highest bit of a byte says
 * that more follow; with a sign it is folded first (0, -1, 1, -2 … are 0, 1, 2, 3 …).
 */

/** The largest number that can be folded. */
export const LARGEST = 2 ** 51;

export class ByteWriter {
  #bytes = Buffer.allocUnsafe(256);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** 0 to 2^53 - 1. */
  whole(value: number): void {
    this.#room(8);
    let left = value;
    while (left >= 128) {
      this.#bytes[this.#length++] = (left % 128) + 128;
      left = Math.floor(left / 128);
    }
    this.#bytes[this.#length++] = left;
  }

  /** A whole number of at most `LARGEST`. */
  signed(value: number): void {
    this.whole(value < 0 ? -2 * value - 1 : 2 * value);
  }

  float(value: number): void {
    this.#room(8);
    this.#length = this.#bytes.writeDoubleLE(value, this.#length);
  }

  /** Appends the bytes of another writer after their length. */
  part(other: ByteWriter): void {
    this.whole(other.#length);
    this.#room(other.#length);
    other.#bytes.copy(this.#bytes, this.#length, 0, other.#length);
    this.#length += other.#length;
  }

  clear(): void {
    this.#length = 0;
  }

  text(): string {
    return this.#bytes.toString("base64", 0, this.#length);
  }

  #room(bytes: number): void {
    if (this.#length + bytes <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(2 * this.#bytes.length + bytes);
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }
}

/** Throws `RangeError` where the bytes end before the number does. */
export class ByteReader {
  readonly #bytes: Buffer;
  readonly #end: number;
  #at: number;

  constructor(text: string | Buffer, at = 0, end?: number) {
    this.#bytes = typeof text === "string" ? Buffer.from(text, "base64") : text;
    this.#at = at;
    this.#end = end ?? this.#bytes.length;
  }

  get isDone(): boolean {
    return this.#at >= this.#end;
  }

  whole(): number {
    let value = 0;
    let weight = 1;
    for (let count = 0; count < 8; count++) {
      if (this.#at >= this.#end) break;
      const byte = this.#bytes[this.#at++] as number;
      value += (byte % 128) * weight;
      if (byte < 128) return value;
      weight *= 128;
    }
    throw new RangeError("There is no number.");
  }

  signed(): number {
    const folded = this.whole();
    return folded % 2 === 0 ? folded / 2 : -(folded + 1) / 2;
  }

  float(): number {
    if (this.#at + 8 > this.#end) throw new RangeError("There is no number.");
    this.#at += 8;
    return this.#bytes.readDoubleLE(this.#at - 8);
  }

  /** Reads bytes that `part` wrote. */
  part(): ByteReader {
    const length = this.whole();
    const at = this.#at;
    if (at + length > this.#end) throw new RangeError("There is no such part.");
    this.#at += length;
    return new ByteReader(this.#bytes, at, at + length);
  }
}
