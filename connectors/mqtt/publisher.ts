import type { Writable } from "node:stream";
import type { Message } from "./messages.ts";
import { mostBytesOf, type ProtocolVersion, writePublish } from "./publish-packet.ts";

/** What leaves at once at most, in bytes; 100 values of 600 bytes fit. */
const BENCH_BYTES = 65_536;

/** MQTT 5.0 and 3.1.1, section 3.12. */
const PINGREQ = Buffer.of(0xc0, 0);

/** Benches that nobody uses: one is held while packets are written, and until the system has taken them. */
const spare: Buffer[] = [];
const SPARE_MAX = 2;

/** Puts messages into a connection's stream: all that are put in one turn of the event loop leave in one write. */
export interface Publisher {
  put(message: Message, id: number): void;
  /** Asks the broker for a sign of life; one that it gives although the library did not ask does no harm there. */
  ping(): void;
}

export function createPublisher(stream: Pick<Writable, "write">, version: ProtocolVersion): Publisher {
  let bench: Buffer | null = null;
  let filled = 0;
  let isPlanned = false;

  function handOn(): void {
    if (bench === null) return;
    const used = bench;
    // The stream keeps it until the system has taken it, or the connection is gone.
    stream.write(used.subarray(0, filled), () => {
      if (spare.length < SPARE_MAX) spare.push(used);
    });
    bench = null;
    filled = 0;
  }

  function leave(): void {
    isPlanned = false;
    handOn();
  }

  return {
    put(message, id) {
      const most = mostBytesOf(message);
      if (filled + most > BENCH_BYTES) handOn();
      if (most > BENCH_BYTES) {
        const own = Buffer.allocUnsafeSlow(most);
        stream.write(own.subarray(0, writePublish(own, 0, message, id, version)));
        return;
      }
      bench ??= spare.pop() ?? Buffer.allocUnsafeSlow(BENCH_BYTES);
      filled = writePublish(bench, filled, message, id, version);
      if (isPlanned) return;
      isPlanned = true;
      process.nextTick(leave);
    },

    ping: () => void stream.write(PINGREQ),
  };
}
