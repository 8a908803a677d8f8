import { randomUUID } from "node:crypto";
import type { ConnectorContext, Receipt, Rejection, Sink } from "../../src/core/connector.ts";
import { meaningOf, Rejected, Retryable } from "../../src/core/errors/errors.ts";
import type { Event } from "../../src/core/model/event.ts";
import { clientIdOf } from "./client-options.ts";
import type { MqttConfig } from "./config.ts";
import { createConnection, tryConnection } from "./connection.ts";
import { bytesIfOver } from "./fast-path.ts";
import type { Link } from "./link.ts";
import { type Message, messagesOf } from "./messages.ts";
import { serverInstanceOf, uptimeOf } from "./server-instance.ts";
import { createTopics } from "./topics.ts";

/** Accepted means: the broker has acknowledged every message of the event (PUBACK, reason below 128). */
export function createMqttSink(config: MqttConfig, context: ConnectorContext): Sink {
  const topics = createTopics(config.prefix, config.topic, context.share?.source);
  const clientId = clientIdOf(config, context);
  const connection = createConnection({
    config,
    context,
    clientId,
    statusTopic: topics.status,
    onSession(present) {
      // One lost session since the last check is enough.
      if (present === false) sessionLost = true;
    },
  });
  let sessionLost = false;
  /** Identifies the monotonic clock of this process where the boot is unknown. */
  const run = randomUUID();
  let looked: { readonly link: Link; readonly life: string } | null = null;

  return {
    maxBatch: 100,
    mayRepeat: true,
    lastStepMs: () => connection.link()?.answeredMs() ?? Number.NEGATIVE_INFINITY,
    open: (signal) => connection.open(signal),
    close: () => connection.close(),
    probe: (signal) => tryConnection(config, context, { clientId: `${clientId}-probe`, topic: topics.check }, signal),

    /** A restart ends every connection, so check once for each link. */
    async look(before, signal) {
      const link = connection.link();
      if (link === null) return null;
      if (link === looked?.link) return { life: looked.life, isNew: false };
      const uptime = await uptimeOf(config, context, `${clientId}-life`, signal);
      // Use the shared clock: clocks of members may differ by minutes.
      const atMs = Math.floor((context.share ?? context.clock).now());
      const { clock } = context;
      const measured = clock.sinceBoot?.() ?? { boot: run, ms: clock.monotonic() };
      const said = serverInstanceOf(before, { uptime, atMs, measured, sessionLost });
      // A newer link is checked next.
      if (connection.link() === link) sessionLost = false;
      looked = { link, life: said.life };
      return said;
    },

    async write(batch, signal, _accepted, offer) {
      signal.throwIfAborted();
      const link = connection.link();
      if (link === null) throw new Retryable("There is no connection to the broker.");
      const abandon = () => link.abandon(signal.reason);
      signal.addEventListener("abort", abandon, { once: true });
      const messages = (event: Event, index: number) =>
        messagesOf(event, topics, config.retain, offer?.sequences?.[index]);
      try {
        return await deliver(link, batch, messages, {
          maxInFlight: Math.min(config.max_in_flight, link.limits.receiveMaximum),
          maxBytes: config.max_message_bytes,
          signal,
          onBestEffortRejected: (error) => context.log.warn({ err: error }, "reply not delivered"),
        });
      } finally {
        signal.removeEventListener("abort", abandon);
      }
    },
  };
}

interface DeliverOptions {
  readonly maxInFlight: number;
  readonly maxBytes: number;
  readonly signal: AbortSignal;
  readonly onBestEffortRejected: (error: unknown) => void;
}

/**
 * Sends a batch in order with several messages in flight and waits for all acknowledgements. An event is accepted when
 * all its messages are. After the first retryable failure or an abort, sending stops and the receipt keeps all events
 * from that one on; later events that were acknowledged are sent twice.
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
    else if (message.bestEffort === true) options.onBestEffortRejected(error);
    else rejected.set(index, meaning.message);
  }

  sending: for (const [index, event] of batch.entries()) {
    for (const message of messagesOf(event, index)) {
      const room = flight.atMost(options.maxInFlight - 1);
      if (room !== undefined) await room;
      if (options.signal.aborted) keepFrom(index, options.signal.reason);
      if (kept !== undefined) break sending;
      const bytes = bytesIfOver(options.maxBytes, message);
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
  // An abort rejects all messages in flight and ends this wait.
  await flight.atMost(0);
  if (kept?.from === 0) options.signal.throwIfAborted();

  const end = kept?.from ?? batch.length;
  const rejections: Rejection[] = [...rejected]
    .filter(([index]) => index < end)
    .map(([index, reason]) => ({ index, reason }));
  return { rejected: rejections, ...(kept === undefined ? {} : { kept }) };
}

/** Counts messages in flight without an object for each. */
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
    /** Resolves when at most `most` messages are in flight. */
    atMost(most: number): Promise<void> | undefined {
      if (count <= most) return undefined;
      return new Promise((resolve) => {
        awaited = { most, resolve };
      });
    },
  };
}
