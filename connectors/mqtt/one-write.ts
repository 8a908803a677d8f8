import { Socket } from "node:net";

/** What a tick puts together at most before it is handed on; 100 values of 600 bytes fit. */
const BENCH_BYTES = 65_536;
/** A UTF-16 unit takes at most so many bytes of UTF-8. */
const BYTES_A_UNIT = 3;

/** Benches that nobody uses: one is held between a first piece and the next `uncork` only, also by 300 connections. */
const spare: Buffer[] = [];
const SPARE_MAX = 2;

/**
 * The library writes a PUBLISH in some twenty pieces (its header, a length, a name …), and a stream keeps each as an
 * object and hands it to the system by itself. Here the pieces of all packets between a `cork` and the next `uncork`
 * are put together: 20 messages of 400 bytes are one write of 8,000 bytes and not 400 small ones.
 *
 * A stream that is no socket (WebSocket) is left as it is.
 */
export function putTogether(stream: unknown): void {
  if (!(stream instanceof Socket)) return;
  let bench: Buffer | null = null;
  let filled = 0;
  const write = stream.write.bind(stream) as (chunk: string | Uint8Array, ...rest: unknown[]) => boolean;
  const uncork = stream.uncork.bind(stream);
  const end = stream.end.bind(stream) as (...args: unknown[]) => Socket;

  function handOn(): void {
    if (bench === null) return;
    // The stream keeps what it is given until the system has taken it.
    const pieces = Buffer.from(bench.subarray(0, filled));
    if (spare.length < SPARE_MAX) spare.push(bench);
    bench = null;
    filled = 0;
    write(pieces);
  }

  Object.assign(stream, {
    write(chunk: string | Uint8Array, ...rest: unknown[]): boolean {
      const most = typeof chunk === "string" ? BYTES_A_UNIT * chunk.length : chunk.length;
      const isPlain = rest.length === 0 || (rest.length === 1 && rest[0] === "utf8");
      if (filled + most > BENCH_BYTES) handOn();
      if (stream.writableCorked === 0 || !isPlain || most > BENCH_BYTES) {
        handOn();
        return write(chunk, ...rest);
      }
      bench ??= spare.pop() ?? Buffer.allocUnsafeSlow(BENCH_BYTES);
      if (typeof chunk === "string") filled += bench.write(chunk, filled);
      else {
        bench.set(chunk, filled);
        filled += chunk.length;
      }
      return !stream.writableNeedDrain;
    },
    uncork(): void {
      handOn();
      uncork();
    },
    end(...args: unknown[]): Socket {
      handOn();
      return end(...args);
    },
  });
}
