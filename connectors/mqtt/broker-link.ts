import { once } from "node:events";
import { type IClientOptions, type IConnackPacket, type IPublishPacket, MqttClient } from "mqtt";
import { ConfigError, Rejected, Retryable } from "../../src/core/errors/errors.ts";
import { endsWithin, rejectOnAbort, sleepFor } from "../../src/core/runtime/waiting.ts";
import {
  addSizeHint,
  BrokerHungUp,
  diagnoseHangUp,
  mapConnectError,
  mapDisconnectReason,
  mapPublishRejection,
  mapSubscribeError,
} from "./broker-failures.ts";
import { buildClientOptions, type ConfiguredBroker, getBrokerAddress, type SessionOptions } from "./client-options.ts";
import type { MqttMessage } from "./publish-packets.ts";
import { createPublisher, getBytesIfTooLarge, NO_PACKET_LISTENER, openBrokerSocket } from "./publish-packets.ts";
import { createAcknowledgementFlush, createUnacknowledgedQueue } from "./unacknowledged-messages.ts";

/** One connection to the broker. The library never reconnects, so it cannot resend messages of a lost connection. */
export type BrokerLink = ReturnType<typeof createBrokerLink>["link"];

type PublishCallback = (error: unknown) => void;

export interface LinkOptions extends SessionOptions {
  readonly publishDeadlineMs?: number;
  /** Handles a received message. Resolves when the message may be acknowledged; a rejection closes the link. */
  readonly onMessage?: ((packet: IPublishPacket) => Promise<void>) | undefined;
}

const DISCONNECT_TIMEOUT_MS = 1_000;

export async function openBrokerLink(
  broker: ConfiguredBroker,
  options: LinkOptions,
  signal: AbortSignal,
): Promise<BrokerLink> {
  signal.throwIfAborted();
  const address = getBrokerAddress(broker.config);
  const clientOptions = buildClientOptions(broker, options);
  const settings: IClientOptions = {
    ...clientOptions,
    reconnectPeriod: 0,
    queueQoSZero: false,
    resubscribe: false,
    // Send a ping every `keepalive`. Postponing pings after each packet would need a timer per packet.
    reschedulePings: false,
    // The default logger allocates for each packet even when disabled.
    log: () => undefined,
    // The library's cache holds a buffer for each of the 65,536 packet ids, about 8 MB.
    writeCache: false,
  };
  let packetListener = NO_PACKET_LISTENER;
  const client = new MqttClient(
    () =>
      openBrokerSocket(settings, {
        onAcknowledged: (id, reasonCode) => packetListener.onAcknowledged(id, reasonCode),
        onDataReceived: () => packetListener.onDataReceived(),
      }),
    settings,
  );
  try {
    const connack = await waitForConnack(client, address, options.onMessage, signal);
    const deadlineMs = options.publishDeadlineMs ?? broker.config.publish_deadline;
    const brokerLink = createBrokerLink(client, connack, broker, deadlineMs);
    packetListener = brokerLink.listener;
    return brokerLink.link;
  } catch (error) {
    client.end(true);
    if (!(error instanceof BrokerHungUp) || signal.aborted) throw error;
    throw (await diagnoseHangUp(clientOptions, address, error.cause, signal)) ?? error;
  }
}

function waitForConnack(
  client: MqttClient,
  address: string,
  onMessage: LinkOptions["onMessage"],
  signal: AbortSignal,
): Promise<IConnackPacket> {
  const connackPromise = new Promise<IConnackPacket>((resolve, reject) => {
    client.once("connect", resolve);
    client.once("error", (error) => {
      reject(mapConnectError(error, address, client.options.protocolVersion === 5));
    });
    client.once("close", () => {
      reject(new BrokerHungUp(`The broker at ${address} closed the connection before it let us in.`));
    });
    if (onMessage !== undefined) acknowledgeAfterHandling(client, onMessage);
  });
  return rejectOnAbort(connackPromise, signal);
}

/** Acknowledges a message once `onMessage` resolves, then yields to the event loop before the next message. */
function acknowledgeAfterHandling(client: MqttClient, onMessage: (packet: IPublishPacket) => Promise<void>): void {
  client.handleMessage = (packet, done) => {
    onMessage(packet).then(
      () => void setImmediate(done),
      (error: unknown) => {
        done(error instanceof Error ? error : new Error(String(error)));
        client.end(true);
      },
    );
  };
}

function readBrokerLimits({ properties = {} }: IConnackPacket, address: string) {
  const reasonCode = properties.retainAvailable === false ? 154 : properties.maximumQoS === 0 ? 155 : null;
  if (reasonCode !== null)
    throw mapConnectError(Object.assign(new Error(`reason ${reasonCode}`), { code: reasonCode }), address, true);
  const { maximumPacketSize, receiveMaximum = 65_535 } = properties;
  return { maxPacketBytes: maximumPacketSize ?? null, receiveMaximum };
}

interface PendingMessage {
  readonly id: number;
  readonly done: PublishCallback;
  readonly topic: string;
  readonly sentMs: number;
  readonly payloadCharacters: number;
}

function createBrokerLink(
  client: MqttClient,
  connack: IConnackPacket,
  { clock, config }: ConfiguredBroker,
  publishDeadlineMs: number,
) {
  const address = getBrokerAddress(config);
  const limits = readBrokerLimits(connack, address);
  const protocolVersion = config.protocol === "5" ? 5 : 4;
  const lossController = new AbortController();
  const publisher = createPublisher(client.stream, protocolVersion);
  const pendingMessages = createUnacknowledgedQueue<PendingMessage>();
  const acknowledgementFlush = createAcknowledgementFlush(
    () => pendingMessages.size() > 0 && !lossController.signal.aborted,
    publisher.ping,
  );
  let isDeadlineWatched = false;
  let lastAcknowledgedMs = Number.NEGATIVE_INFINITY;
  let lossReason: unknown = null;

  function rejectPendingMessages(reason: unknown): void {
    for (const { done } of pendingMessages.takeAll()) done(reason);
  }

  function handleConnectionLoss(): void {
    const abandonedMessages = pendingMessages.takeAll();
    const maxPayloadLength = Math.max(0, ...abandonedMessages.map(({ payloadCharacters }) => payloadCharacters));
    const failure = lossReason ?? new Retryable(`The connection to the broker at ${address} was lost.`);
    const reason = addSizeHint(failure, maxPayloadLength);
    lossController.abort(reason);
    for (const { done } of abandonedMessages) done(reason);
    client.end(true);
  }

  function handleAcknowledgement(id: number, reasonCode: number): void {
    const message = pendingMessages.take(id);
    if (message === undefined) return;
    lastAcknowledgedMs = clock.monotonic();
    acknowledgementFlush.noteAcknowledged();
    message.done(reasonCode < 128 ? null : mapPublishRejection(reasonCode, message.topic));
  }

  client.on("disconnect", (packet) => {
    lossReason ??= mapDisconnectReason(packet.reasonCode, address);
  });
  client.on("error", (error) => {
    const message = `The connection to the broker at ${address} broke: ${error.message}.`;
    lossReason ??= new Retryable(message, { cause: error });
  });
  client.once("close", handleConnectionLoss);
  if (!client.connected) handleConnectionLoss();

  /** Sends a message. Calls `done` with null after the acknowledgement, or with an error, possibly before returning. */
  function send(message: MqttMessage, done: PublishCallback): void {
    const sendError = findSendError(message);
    if (sendError !== null) {
      done(sendError);
      return;
    }
    const id = allocatePacketId();
    const payloadCharacters = message.payload.length;
    pendingMessages.add({ id, done, topic: message.topic, sentMs: clock.monotonic(), payloadCharacters });
    publisher.bufferMessage(message, id);
    acknowledgementFlush.noteSent();
    if (!isDeadlineWatched) void watchDeadline();
  }

  function findSendError(message: MqttMessage): unknown {
    if (lossController.signal.aborted) return lossController.signal.reason;
    const { maxPacketBytes } = limits;
    const bytes = maxPacketBytes === null ? null : getBytesIfTooLarge(maxPacketBytes, message, protocolVersion);
    if (bytes === null) return null;
    return new Rejected(`The message has ${bytes} bytes; the broker takes ${maxPacketBytes} (149).`);
  }

  /** Returns an unused packet id from the library, whose subscriptions use packet ids too. */
  function allocatePacketId(): number {
    for (;;) {
      const id = client.messageIdProvider.allocate();
      if (id === null) throw new Retryable("All numbers for messages are in use.");
      if (!pendingMessages.has(id)) return id;
    }
  }

  /** Sends a single message and waits for its acknowledgement. Batches use `send`, which needs no promises. */
  const publish = (message: MqttMessage) =>
    new Promise<void>((resolve, reject) => {
      send(message, (error) => (error === null ? resolve() : reject(error)));
    });

  /** Closes the link when no acknowledgement arrives within the deadline. Uses one timer for all messages. */
  async function watchDeadline(): Promise<void> {
    isDeadlineWatched = true;
    for (;;) {
      // Keep only the time of the oldest message, because the message itself would keep its batch in memory.
      const sentMs = pendingMessages.getOldest()?.sentMs;
      if (sentMs === undefined || lossController.signal.aborted) break;
      const timeLeftMs = Math.max(sentMs, lastAcknowledgedMs) + publishDeadlineMs - clock.monotonic();
      if (timeLeftMs <= 0) {
        closeOverdueLink();
        break;
      }
      await sleepFor(clock, timeLeftMs, lossController.signal);
    }
    isDeadlineWatched = false;
  }

  async function awaitBeforeDeadline(response: Promise<void>): Promise<void> {
    if (!(await endsWithin(clock, publishDeadlineMs, response))) closeOverdueLink();
    await response;
  }

  function closeOverdueLink(): void {
    lossReason ??= new Retryable(`The broker at ${address} did not answer within ${publishDeadlineMs} ms.`);
    handleConnectionLoss();
  }

  const link = {
    limits,
    /** True if the broker still had the session of the last link; null if it keeps no sessions (MQTT 5). */
    sessionPresent: connack.properties?.sessionExpiryInterval === 0 ? null : connack.sessionPresent,
    /** Aborts, with the reason, when the connection is lost or ended. */
    lossSignal: lossController.signal,
    /** Monotonic time of the last acknowledgement; minus infinity before the first acknowledgement. */
    lastAcknowledgedMs: () => lastAcknowledgedMs,
    rejectPending: rejectPendingMessages,
    publish,
    send,

    async subscribe(filters: readonly string[], retained?: "include retained messages"): Promise<void> {
      for (const filter of filters)
        await awaitBeforeDeadline(subscribeToFilter(client, filter, retained === undefined ? 2 : 0));
    },

    /** Publishes a last message, if any, and disconnects without a will, within 2 s. */
    async disconnect(lastMessage?: MqttMessage): Promise<void> {
      rejectPendingMessages(new Retryable("The connection is being closed."));
      if (lastMessage !== undefined) await endsWithin(clock, DISCONNECT_TIMEOUT_MS, publish(lastMessage));
      const closePromise = once(lossController.signal, "abort");
      // An unacknowledged last message would block the library forever.
      rejectPendingMessages(new Retryable("The connection is being closed."));
      client.end(false);
      if (!lossController.signal.aborted) await endsWithin(clock, DISCONNECT_TIMEOUT_MS, closePromise);
      // After `end(false)` the library ignores `end(true)` and would go on accepting messages.
      client.stream.destroy();
    },
  };
  return {
    link,
    listener: { onAcknowledged: handleAcknowledgement, onDataReceived: acknowledgementFlush.noteDataReceived },
  };
}

/** Subscribes to topics. With `rh: 2`, the broker sends no retained messages; with `rap`, messages keep this flag. */
async function subscribeToFilter(client: MqttClient, filter: string, retainHandling: 0 | 2): Promise<void> {
  const options = { qos: 1, nl: false, rap: true, rh: retainHandling } as const;
  const granted = await client.subscribeAsync(filter, options).catch((error: unknown) => {
    throw mapSubscribeError(error, filter);
  });
  if (granted.some(({ qos }) => qos === 0))
    throw new ConfigError(`The broker offers no acknowledgements (QoS 1) on ${filter}.`);
}
