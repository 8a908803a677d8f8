import { MAX_ARRIVAL_BYTES } from "./client-options.ts";

/**
 * Takes the acknowledgements of our messages (PUBACK; MQTT 5.0 and 3.1.1, section 3.4) out of what a broker sends, and
 * leaves everything else to the library: each is six bytes at most, and the library takes 3 kB of memory to read it.
 *
 *     40 02 00 2A        message 42 is taken          40 03 00 2A 87        message 42 is refused, reason 135
 */
export interface Acknowledgements {
  /** Reads what came; answers what is left of it for the library, null when nothing is. */
  read(chunk: Buffer): Buffer | null;
}

/** `reason` is 0 where the broker gives none. */
export type Acknowledged = (id: number, reason: number) => void;

/** A PUBACK as it has to begin; of a header with other flags the library says what is wrong. */
const PUBACK = 0x40;
/** A length has four bytes at most (section 1.5.5). */
const LENGTH_BYTES_MAX = 4;
/** The message's number; behind it a reason may stand, and properties, which nobody reads. */
const ID_BYTES = 2;

export function createAcknowledgements(acknowledged: Acknowledged): Acknowledgements {
  /** The beginning of a packet whose header, or whose acknowledgement, is not whole yet. */
  let begun: Buffer | null = null;
  /** Bytes of another packet that are still to come. */
  let passing = 0;
  /** What the library cannot read, we cannot either: from there on all is its own. */
  let isLost = false;

  return {
    read(chunk) {
      if (isLost) return chunk;
      const bytes = begun === null ? chunk : Buffer.concat([begun, chunk]);
      begun = null;
      const left: Buffer[] = [];
      /** Where what is left for the library begins; -1 while nothing is. */
      let leftFrom = -1;
      let at = 0;
      const cut = () => {
        if (leftFrom >= 0) left.push(bytes.subarray(leftFrom, at));
        leftFrom = -1;
      };
      while (at < bytes.length) {
        if (passing > 0) {
          if (leftFrom < 0) leftFrom = at;
          const step = Math.min(passing, bytes.length - at);
          passing -= step;
          at += step;
          continue;
        }
        const header = headerAt(bytes, at);
        if (header === "broken") {
          isLost = true;
          if (leftFrom < 0) leftFrom = at;
          at = bytes.length;
          break;
        }
        const isOurs = bytes[at] === PUBACK && isSound(header);
        if (header === "short" || (isOurs && at + header.size > bytes.length)) {
          cut();
          begun = Buffer.from(bytes.subarray(at));
          at = bytes.length;
          break;
        }
        if (!isOurs) {
          passing = header.size;
          continue;
        }
        cut();
        const id = at + header.size - header.length;
        acknowledged(bytes.readUInt16BE(id), header.length > ID_BYTES ? (bytes[id + ID_BYTES] ?? 0) : 0);
        at += header.size;
      }
      cut();
      const [only] = left;
      if (only === undefined) return null;
      return left.length === 1 ? only : Buffer.concat(left);
    },
  };
}

/** One that is longer than anything that we let a broker send would be kept until it is whole. */
function isSound(header: Header | "short"): boolean {
  return header !== "short" && header.length >= ID_BYTES && header.size <= MAX_ARRIVAL_BYTES;
}

interface Header {
  /** Bytes after the header, and of the whole packet. */
  readonly length: number;
  readonly size: number;
}

function headerAt(bytes: Buffer, at: number): Header | "short" | "broken" {
  let length = 0;
  for (let n = 0; n < LENGTH_BYTES_MAX; n += 1) {
    const byte = bytes[at + 1 + n];
    if (byte === undefined) return "short";
    length += (byte & 0x7f) * 128 ** n;
    if (byte < 0x80) return { length, size: 2 + n + length };
  }
  return "broken";
}
