import { randomUUID } from "node:crypto";
import { buildReceipt, type ConnectorContext, type Receipt, type Sink } from "../../src/core/connector.ts";
import { asFailure, Rejected, Retryable } from "../../src/core/errors/errors.ts";
import type { Event } from "../../src/core/model/event.ts";
import type { BrokerLink } from "./broker-link.ts";
import { buildClientId } from "./client-options.ts";
import type { MqttConfig } from "./config.ts";
import { createConnection, rejectPendingOnAbort, testConnection } from "./connection.ts";
import { detectBrokerRestart, readBrokerUptime } from "./detect-broker-restart.ts";
import { buildMessages } from "./event-messages.ts";
import type { MqttMessage } from "./publish-packets.ts";
import { getBytesIfTooLarge } from "./publish-packets.ts";
import { createPublishedTopics } from "./retained-topics-of-objects.ts";
import { createTopics } from "./topics.ts";

/** Creates the MQTT sink. Accepts an event when the broker has acknowledged all its messages (PUBACK, reason < 128). */
export function createMqttSink(config: MqttConfig, context: ConnectorContext): Sink {
  const topics = createTopics(config.prefix, config.topic, context.assignment?.source);
  const clientId = buildClientId(config, context);
  const connection = createConnection(config, context, {
    clientId,
    statusTopic: topics.status,
    onSession(isSessionPresent) {
      if (isSessionPresent === false) sessionLost = true;
    },
  });
  const publishedTopics = createPublishedTopics(config, context, topics);
  let sessionLost = false;
  const runId = randomUUID();
  let lastRestartCheck: { readonly link: BrokerLink; readonly instanceId: string } | null = null;

  async function publishTopicMoves(link: BrokerLink, options: DeliveryOptions): Promise<void> {
    for (;;) {
      const moves = await publishedTopics.buildNextMoves();
      if (moves.length === 0) return;
      const { rejected, retry } = await deliverBatch(link, moves, ({ messages }) => messages, options);
      if (retry !== undefined) throw retry.error;
      if (rejected.length > 0) context.log.warn({ rejected }, "the broker refused to move topics");
      await publishedTopics.settleMoves(moves);
    }
  }

  return {
    maxBatch: 100,
    toleratesRepeats: true,
    progressMs: () => connection.getLink()?.lastAcknowledgedMs() ?? Number.NEGATIVE_INFINITY,
    open: (signal) => connection.open(signal),
    close: () => connection.close(),
    probe: (signal) => testConnection(config, context, { clientId: `${clientId}-probe`, topic: topics.check }, signal),

    /** Detects a broker restart. Checks once per link, because a restart ends every connection. */
    async detectRestart(storedId, signal) {
      const link = connection.getLink();
      if (link === null) return null;
      if (link === lastRestartCheck?.link) return { instanceId: lastRestartCheck.instanceId, isNew: false };
      const uptime = await readBrokerUptime(config, context, `${clientId}-life`, signal);
      const atMs = Math.floor((context.assignment ?? context.clock).now());
      const { clock } = context;
      const timeSinceBoot = clock.sinceBoot?.() ?? { bootId: runId, ms: clock.monotonic() };
      const serverInstance = detectBrokerRestart(storedId, { uptime, atMs, measured: timeSinceBoot, sessionLost });
      if (connection.getLink() === link) sessionLost = false;
      lastRestartCheck = { link, instanceId: serverInstance.instanceId };
      return serverInstance;
    },

    async write(batch, signal, _accepted, batchInfo) {
      signal.throwIfAborted();
      const link = connection.getLink();
      if (link === null) throw new Retryable("There is no connection to the broker.");
      const buildEventMessages = (event: Event, index: number) =>
        buildMessages(event, publishedTopics.topics, config, batchInfo?.sequences?.[index]);
      const options = {
        maxInFlight: Math.min(config.max_in_flight, link.limits.receiveMaximum),
        maxBytes: config.max_message_bytes,
        signal,
        onBestEffortRejected: (error: unknown) => context.log.warn({ err: error }, "reply not delivered"),
      };
      using _abortListener = rejectPendingOnAbort(link, signal);
      const preparation = publishedTopics.prepareTopics(batch);
      if (preparation !== null) {
        await preparation;
        await publishTopicMoves(link, options);
      }
      const receipt = await deliverBatch(link, batch, buildEventMessages, options);
      if (preparation === null || receipt.retry !== undefined) return receipt;
      return { ...receipt, ...publishedTopics.deleteRemovedObjects() };
    },
  };
}

interface DeliveryOptions {
  readonly maxInFlight: number;
  readonly maxBytes: number;
  readonly signal: AbortSignal;
  readonly onBestEffortRejected: (error: unknown) => void;
}

/** Sends a batch. Stops at an abort or retryable failure; the receipt asks for a retry from the first failed event. */
export async function deliverBatch<Item>(
  link: Pick<BrokerLink, "send">,
  batch: readonly Item[],
  buildMessages: (item: Item, index: number) => readonly MqttMessage[],
  options: DeliveryOptions,
): Promise<Receipt> {
  const { maxBytes, maxInFlight, signal } = options;
  const reasonByIndex = new Map<number, string>();
  let retry: { readonly from: number; readonly error: unknown } | undefined;
  let inFlightCount = 0;
  let inFlightWaiter: { readonly maxCount: number; readonly resolve: () => void } | null = null;

  const waitUntilInFlightAtMost = (maxCount: number) =>
    new Promise<void>((resolve) => {
      if (inFlightCount <= maxCount) resolve();
      else inFlightWaiter = { maxCount, resolve };
    });

  function settleMessage(): void {
    inFlightCount -= 1;
    if (inFlightWaiter === null || inFlightCount > inFlightWaiter.maxCount) return;
    inFlightWaiter.resolve();
    inFlightWaiter = null;
  }

  function retryFromIndex(index: number, error: unknown): void {
    if (retry === undefined || index < retry.from) retry = { from: index, error };
  }

  function handleFailure(index: number, message: MqttMessage, error: unknown): void {
    const failure = asFailure(error);
    if (!(failure instanceof Rejected)) retryFromIndex(index, error);
    else if (message.bestEffort === true) options.onBestEffortRejected(error);
    else reasonByIndex.set(index, failure.message);
  }

  sending: for (const [index, event] of batch.entries()) {
    for (const message of buildMessages(event, index)) {
      if (inFlightCount >= maxInFlight) await waitUntilInFlightAtMost(maxInFlight - 1);
      if (signal.aborted) retryFromIndex(index, signal.reason);
      if (retry !== undefined) break sending;
      const bytes = getBytesIfTooLarge(maxBytes, message);
      if (bytes !== null) {
        const reason = `The message has ${bytes} bytes; max_message_bytes is ${maxBytes}.`;
        handleFailure(index, message, new Rejected(reason));
        continue;
      }
      inFlightCount += 1;
      link.send(message, (error) => {
        if (error !== null) handleFailure(index, message, error);
        settleMessage();
      });
    }
  }
  await waitUntilInFlightAtMost(0);
  if (retry?.from === 0) signal.throwIfAborted();
  return buildReceipt(reasonByIndex, retry);
}
