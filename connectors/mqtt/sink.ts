import { randomUUID } from "node:crypto";
import type { ConnectorContext, Receipt, Sink } from "../../src/core/connector.ts";
import { meaningOf, Rejected, Retryable } from "../../src/core/errors/errors.ts";
import type { Event } from "../../src/core/model/event.ts";
import { clientIdOf } from "./client-options.ts";
import type { MqttConfig } from "./config.ts";
import { abandonOnAbort, createConnection, tryConnection } from "./connection.ts";
import { bytesIfOver } from "./fast-path.ts";
import type { Link } from "./link.ts";
import { type Message, messagesOf } from "./messages.ts";
import { serverInstanceOf, uptimeOf } from "./server-instance.ts";
import { createTopics } from "./topics.ts";

/** Accepted means: the broker has acknowledged every message of the event (PUBACK, reason below 128). */
export function createMqttSink(config: MqttConfig, context: ConnectorContext): Sink {
  const topics = createTopics(config.prefix, config.topic, context.assignment?.source);
  const clientId = clientIdOf(config, context);
  const connection = createConnection(config, context, {
    clientId,
    statusTopic: topics.status,
    onSession(present) {
      if (present === false) sessionLost = true;
    },
  });
  let sessionLost = false;
  const run = randomUUID();
  let checked: { readonly link: Link; readonly instanceId: string } | null = null;

  return {
    maxBatch: 100,
    toleratesRepeats: true,
    progressMs: () => connection.link()?.answeredMs() ?? Number.NEGATIVE_INFINITY,
    open: (signal) => connection.open(signal),
    close: () => connection.close(),
    probe: (signal) => tryConnection(config, context, { clientId: `${clientId}-probe`, topic: topics.check }, signal),

    /** A restart ends every connection, so check once for each link. */
    async detectRestart(before, signal) {
      const link = connection.link();
      if (link === null) return null;
      if (link === checked?.link) return { instanceId: checked.instanceId, isNew: false };
      const uptime = await uptimeOf(config, context, `${clientId}-life`, signal);
      const atMs = Math.floor((context.assignment ?? context.clock).now());
      const { clock } = context;
      const measured = clock.sinceBoot?.() ?? { boot: run, ms: clock.monotonic() };
      const instance = serverInstanceOf(before, { uptime, atMs, measured, sessionLost });
      if (connection.link() === link) sessionLost = false;
      checked = { link, instanceId: instance.instanceId };
      return instance;
    },

    async write(batch, signal, _accepted, offer) {
      signal.throwIfAborted();
      const link = connection.link();
      if (link === null) throw new Retryable("There is no connection to the broker.");
      const messages = (event: Event, index: number) =>
        messagesOf(event, topics, config.retain, offer?.sequences?.[index]);
      return abandonOnAbort(link, signal, () =>
        deliver(link, batch, messages, {
          maxInFlight: Math.min(config.max_in_flight, link.limits.receiveMaximum),
          maxBytes: config.max_message_bytes,
          signal,
          onBestEffortRejected: (error) => context.log.warn({ err: error }, "reply not delivered"),
        }),
      );
    },
  };
}

interface DeliverOptions {
  readonly maxInFlight: number;
  readonly maxBytes: number;
  readonly signal: AbortSignal;
  readonly onBestEffortRejected: (error: unknown) => void;
}

/** After the first retryable failure or an abort, sending stops and the receipt keeps the events from that one on. */
export async function deliver(
  link: Pick<Link, "send">,
  batch: readonly Event[],
  messagesOf: (event: Event, index: number) => readonly Message[],
  options: DeliverOptions,
): Promise<Receipt> {
  const { maxBytes, maxInFlight, signal } = options;
  const rejected = new Map<number, string>();
  let retry: { readonly from: number; readonly error: unknown } | undefined;
  let inFlight = 0;
  let awaited: { readonly most: number; readonly resolve: () => void } | null = null;

  const atMost = (most: number) =>
    new Promise<void>((resolve) => {
      if (inFlight <= most) resolve();
      else awaited = { most, resolve };
    });

  function settleOne(): void {
    inFlight -= 1;
    if (awaited === null || inFlight > awaited.most) return;
    awaited.resolve();
    awaited = null;
  }

  function keepFrom(index: number, error: unknown): void {
    if (retry === undefined || index < retry.from) retry = { from: index, error };
  }

  function failed(index: number, message: Message, error: unknown): void {
    const meaning = meaningOf(error);
    if (!(meaning instanceof Rejected)) keepFrom(index, error);
    else if (message.bestEffort === true) options.onBestEffortRejected(error);
    else rejected.set(index, meaning.message);
  }

  sending: for (const [index, event] of batch.entries()) {
    for (const message of messagesOf(event, index)) {
      if (inFlight >= maxInFlight) await atMost(maxInFlight - 1);
      if (signal.aborted) keepFrom(index, signal.reason);
      if (retry !== undefined) break sending;
      const bytes = bytesIfOver(maxBytes, message);
      if (bytes !== null) {
        const reason = `The message has ${bytes} bytes; max_message_bytes is ${maxBytes}.`;
        failed(index, message, new Rejected(reason));
        continue;
      }
      inFlight += 1;
      link.send(message, (error) => {
        if (error !== null) failed(index, message, error);
        settleOne();
      });
    }
  }
  await atMost(0);
  if (retry?.from === 0) signal.throwIfAborted();

  const settled = [...rejected].filter(([index]) => index < (retry?.from ?? batch.length));
  return { rejected: settled.map(([index, reason]) => ({ index, reason })), ...(retry === undefined ? {} : { retry }) };
}
