import type { Receipt, Rejection } from "../../src/core/connector.ts";
import { meaningOf, Rejected } from "../../src/core/errors/errors.ts";
import type { Event } from "../../src/core/model/event.ts";
import type { Link } from "./link.ts";
import type { Message } from "./messages.ts";
import { bytesBeyond } from "./publish-packet.ts";

export interface DeliverOptions {
  readonly maxInFlight: number;
  readonly maxBytes: number;
  readonly signal: AbortSignal;
  readonly onCourtesyRefused: (error: unknown) => void;
}

/**
 * Sends a batch in order, several messages in flight, and waits for every acknowledgement. An event is accepted
 * when all of its messages are. After the first failure that may pass, or an abort, nothing more is sent, and everything
 * from that event on is kept; later events that the broker had acknowledged by then will come to it twice.
 */
export async function deliver(
  link: Pick<Link, "send">,
  batch: readonly Event[],
  messagesOf: (event: Event, index: number) => readonly Message[],
  options: DeliverOptions,
): Promise<Receipt> {
  const rejected = new Map<number, string>();
  const flight = createFlight();
  let kept: { readonly from: number; readonly error: unknown } | undefined;

  function keepFrom(index: number, error: unknown): void {
    if (kept === undefined || index < kept.from) kept = { from: index, error };
  }

  function failed(index: number, message: Message, error: unknown): void {
    const meaning = meaningOf(error);
    if (!(meaning instanceof Rejected)) keepFrom(index, error);
    else if (message.courtesy === true) options.onCourtesyRefused(error);
    else rejected.set(index, meaning.message);
  }

  sending: for (const [index, event] of batch.entries()) {
    for (const message of messagesOf(event, index)) {
      const room = flight.atMost(options.maxInFlight - 1);
      if (room !== undefined) await room;
      if (options.signal.aborted) keepFrom(index, options.signal.reason);
      if (kept !== undefined) break sending;
      const bytes = bytesBeyond(options.maxBytes, message);
      if (bytes !== null) {
        const reason = `The message has ${bytes} bytes; max_message_bytes is ${options.maxBytes}.`;
        failed(index, message, new Rejected(reason));
        continue;
      }
      flight.began();
      link.send(message, (error) => {
        if (error !== null) failed(index, message, error);
        flight.ended();
      });
    }
  }
  // Who aborts abandons what is on its way, and ends this wait with it.
  await flight.atMost(0);
  if (kept?.from === 0) options.signal.throwIfAborted();

  const end = kept?.from ?? batch.length;
  const rejections: Rejection[] = [...rejected]
    .filter(([index]) => index < end)
    .map(([index, reason]) => ({ index, reason }));
  return { rejected: rejections, ...(kept === undefined ? {} : { kept }) };
}

/** Counts what is on its way, without an object for each. */
function createFlight() {
  let count = 0;
  let awaited: { readonly most: number; readonly resolve: () => void } | null = null;
  return {
    began() {
      count += 1;
    },
    ended() {
      count -= 1;
      if (awaited === null || count > awaited.most) return;
      awaited.resolve();
      awaited = null;
    },
    /** Resolves when no more than so many are on their way. */
    atMost(most: number): Promise<void> | undefined {
      if (count <= most) return undefined;
      return new Promise((resolve) => {
        awaited = { most, resolve };
      });
    },
  };
}
