import { type IClientOptions, type IConnackPacket, type IPublishPacket, MqttClient } from "mqtt";
import { ConfigError, Rejected, Retryable } from "../../src/core/errors/errors.ts";
import { sleepFor, WOKEN, within } from "../../src/core/runtime/waiting.ts";
import { type Broker, brokerAddress, clientOptions, type SessionOptions } from "./client-options.ts";
import {
  connectFailure,
  diagnoseHangUp,
  disconnectFailure,
  HungUp,
  publishFailure,
  subscribeFailure,
  withSizeHint,
} from "./failures.ts";
import { bytesIfOver, createPublisher, type Listener, NO_LISTENER, openSocket } from "./fast-path.ts";
import { createAcknowledgementFlush, createInFlight } from "./in-flight.ts";
import type { Message } from "./messages.ts";

/**
 * One connection to the broker, from CONNECT to its end. The library never reconnects it; a new link replaces it, so no
 * message of a lost connection is sent again unnoticed.
 */
export interface Link {
  readonly limits: Limits;
  /** True when the broker still had the session of the last link; null when it keeps none. */
  readonly sessionPresent: boolean | null;
  /** Aborts, with the reason, when the connection is lost or ended. */
  readonly lost: AbortSignal;
  /** Time of the last acknowledgement, monotonic; minus infinity before the first. */
  answeredMs(): number;
  /** Resolves when the broker acknowledges; rejects with an error of errors.ts. */
  publish(message: Message): Promise<void>;
  /**
   * Like `publish` with a callback: null for success, else an error of errors.ts. It may be called before this returns.
   * Promises for each of 100 messages would outlive them.
   */
  send(message: Message, done: Done): void;
  /** Rejects all unacknowledged messages with `reason`. */
  abandon(reason: unknown): void;
  /** Subscribes; retained messages are sent only on request. */
  subscribe(filters: readonly string[], retained?: "with what is retained"): Promise<void>;
  /** Publishes a last message, if any, and disconnects without a will. Takes at most 2 s. */
  end(last?: Message): Promise<void>;
}

type Done = (error: unknown) => void;

/** Limits of the broker (MQTT 5 CONNACK); unlimited with 3.1.1. */
interface Limits {
  readonly maxPacketBytes: number | null;
  /** Most unacknowledged messages. */
  readonly receiveMaximum: number;
}

export interface LinkOptions extends SessionOptions {
  /** Longest time without any acknowledgement while messages wait, in milliseconds. */
  readonly publishDeadlineMs?: number;
  /** Resolves when the message may be acknowledged; a rejection closes the link. */
  readonly onMessage?: ((packet: IPublishPacket) => Promise<void>) | undefined;
}

/** Longest time for a last message, and for disconnecting, in milliseconds. */
const GOODBYE_MS = 1_000;

export async function openLink(broker: Broker, options: LinkOptions, signal: AbortSignal): Promise<Link> {
  signal.throwIfAborted();
  const address = brokerAddress(broker.config);
  const session = clientOptions(broker, options);
  const settings: IClientOptions = {
    ...session,
    reconnectPeriod: 0,
    queueQoSZero: false,
    resubscribe: false,
    // Ping in each `keepalive`: postponing it with every packet needs a timer each.
    reschedulePings: false,
    // The default logger allocates for each packet even when disabled.
    log: () => undefined,
    // The cache would hold a buffer for each of the 65,536 packet ids: some 8 MB.
    writeCache: false,
  };
  /** Replaced before the first message is sent. */
  let listener = NO_LISTENER;
  const client = new MqttClient(
    () =>
      openSocket(settings, {
        acknowledged: (id, reason) => listener.acknowledged(id, reason),
        arrived: () => listener.arrived(),
      }),
    settings,
  );
  try {
    const connack = await connected(client, address, options.onMessage, signal);
    const opened = createLink(client, connack, broker, options.publishDeadlineMs ?? broker.config.publish_deadline);
    listener = opened.listener;
    return opened.link;
  } catch (error) {
    client.end(true);
    if (!(error instanceof HungUp) || signal.aborted) throw error;
    throw (await diagnoseHangUp(session, address, error.cause, signal)) ?? error;
  }
}

function connected(
  client: MqttClient,
  address: string,
  onMessage: LinkOptions["onMessage"],
  signal: AbortSignal,
): Promise<IConnackPacket> {
  return new Promise<IConnackPacket>((resolve, reject) => {
    const aborted = () => reject(signal.reason);
    signal.addEventListener("abort", aborted, { once: true });
    const settle = () => signal.removeEventListener("abort", aborted);
    client.once("connect", (connack) => {
      settle();
      resolve(connack);
    });
    client.once("error", (error) => {
      settle();
      reject(connectFailure(error, address, client.options.protocolVersion === 5));
    });
    client.once("close", () => {
      settle();
      reject(new HungUp(`The broker at ${address} closed the connection before it let us in.`));
    });
    if (onMessage !== undefined) acknowledgeAfter(client, onMessage);
  });
}

/**
 * Acknowledges a message only after it is stored; works with 3.1.1 and 5. The next message waits for another tick of the
 * event loop, so a burst of commands, each written to disk, does not block timers and requests.
 */
function acknowledgeAfter(client: MqttClient, onMessage: (packet: IPublishPacket) => Promise<void>): void {
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

function limitsOf({ properties = {} }: IConnackPacket, address: string): Limits {
  const missing = properties.retainAvailable === false ? 154 : properties.maximumQoS === 0 ? 155 : null;
  if (missing !== null)
    throw connectFailure(Object.assign(new Error(`reason ${missing}`), { code: missing }), address, true);
  const { maximumPacketSize, receiveMaximum = 65_535 } = properties;
  return { maxPacketBytes: maximumPacketSize ?? null, receiveMaximum };
}

interface Pending {
  readonly id: number;
  readonly done: Done;
  readonly topic: string;
  /** On the monotonic clock. */
  readonly sentMs: number;
  /** Length of its payload, in UTF-16 units. */
  readonly length: number;
}

function createLink(
  client: MqttClient,
  connack: IConnackPacket,
  { clock, config }: Broker,
  publishDeadlineMs: number,
): { readonly link: Link; readonly listener: Listener } {
  const address = brokerAddress(config);
  const limits = limitsOf(connack, address);
  const version = config.protocol === "5" ? 5 : 4;
  const lost = new AbortController();
  const publisher = createPublisher(client.stream, version);
  const pending = createInFlight<Pending>();
  const flush = createAcknowledgementFlush(() => pending.size() > 0 && !lost.signal.aborted, publisher.ping);
  let isWatched = false;
  let answeredMs = Number.NEGATIVE_INFINITY;
  let cause: unknown = null;

  function abandon(reason: unknown): void {
    for (const { done } of pending.takeAll()) done(reason);
  }

  function loseConnection(): void {
    const abandoned = pending.takeAll();
    const longest = abandoned.reduce((most, { length }) => Math.max(most, length), 0);
    const failure = cause ?? new Retryable(`The connection to the broker at ${address} was lost.`);
    const reason = withSizeHint(failure, longest);
    lost.abort(reason);
    for (const { done } of abandoned) done(reason);
    client.end(true);
  }

  function acknowledged(id: number, reason: number): void {
    const message = pending.take(id);
    if (message === undefined) return;
    answeredMs = clock.monotonic();
    flush.acknowledged();
    // A reason below 128 means that the broker accepted the message.
    message.done(reason < 128 ? null : publishFailure(reason, message.topic));
  }

  client.on("disconnect", (packet) => {
    cause ??= disconnectFailure(packet.reasonCode, address);
  });
  client.on("error", (error) => {
    cause ??= new Retryable(`The connection to the broker at ${address} broke: ${error.message}.`, { cause: error });
  });
  client.once("close", loseConnection);
  if (!client.connected) loseConnection();

  function send(message: Message, done: Done): void {
    const refusal = refusalOf(message);
    if (refusal !== null) {
      done(refusal);
      return;
    }
    const id = freeId();
    pending.add({ id, done, topic: message.topic, sentMs: clock.monotonic(), length: message.payload.length });
    publisher.put(message, id);
    flush.sent();
    if (!isWatched) void watch();
  }

  /** Returns the error that prevents sending; null for none. */
  function refusalOf(message: Message): unknown {
    if (lost.signal.aborted) return lost.signal.reason;
    const { maxPacketBytes } = limits;
    const bytes = maxPacketBytes === null ? null : bytesIfOver(maxPacketBytes, message, version);
    if (bytes === null) return null;
    return new Rejected(`The message has ${bytes} bytes; the broker takes ${maxPacketBytes} (149).`);
  }

  /** The library allocates ids, because subscriptions use them too. */
  function freeId(): number {
    for (;;) {
      const id = client.messageIdProvider.allocate();
      if (id === null) throw new Retryable("All numbers for messages are in use.");
      if (!pending.has(id)) return id;
    }
  }

  const publish = (message: Message) =>
    new Promise<void>((resolve, reject) => {
      send(message, (error) => (error === null ? resolve() : reject(error)));
    });

  /**
   * One timer for all messages: until the oldest is overdue or none is left. A slow broker acknowledges the last of 100
   * messages late, so each acknowledgement extends the deadline.
   */
  async function watch(): Promise<void> {
    isWatched = true;
    for (;;) {
      // Keep only the time: the message would keep its batch in memory during the wait.
      const sentMs = pending.oldest()?.sentMs;
      if (sentMs === undefined || lost.signal.aborted) break;
      const leftMs = Math.max(sentMs, answeredMs) + publishDeadlineMs - clock.monotonic();
      if (leftMs <= 0) {
        overdue();
        break;
      }
      await sleepFor(clock, leftMs, lost.signal);
    }
    isWatched = false;
  }

  /** Closes the connection when the broker does not respond within the deadline. */
  async function inTime(response: Promise<void>): Promise<void> {
    const settled = new AbortController();
    void sleepFor(clock, publishDeadlineMs, settled.signal).then((isOver) => isOver && overdue());
    try {
      await response;
    } finally {
      settled.abort(WOKEN);
    }
  }

  /** A missing response makes the connection unreliable; a new one begins clean. */
  function overdue(): void {
    cause ??= new Retryable(`The broker at ${address} did not answer within ${publishDeadlineMs} ms.`);
    loseConnection();
  }

  const link: Link = {
    limits,
    // A broker of MQTT 5 may keep a session for 0 seconds.
    sessionPresent: connack.properties?.sessionExpiryInterval === 0 ? null : connack.sessionPresent,
    lost: lost.signal,
    answeredMs: () => answeredMs,
    abandon,
    publish,
    send,

    async subscribe(filters, retained) {
      for (const filter of filters) await inTime(subscribe(client, filter, retained === undefined ? 2 : 0));
    },

    async end(last) {
      abandon(new Retryable("The connection is being closed."));
      if (last !== undefined) await within(clock, GOODBYE_MS, publish(last));
      const closed = new Promise<void>((resolve) => {
        lost.signal.addEventListener("abort", () => resolve(), { once: true });
      });
      // An unacknowledged last message would block the library forever.
      abandon(new Retryable("The connection is being closed."));
      client.end(false);
      if (!lost.signal.aborted) await within(clock, GOODBYE_MS, closed);
      // After `end(false)` the library ignores `end(true)` and would go on accepting messages.
      client.stream.destroy();
    },
  };
  return { link, listener: { acknowledged, arrived: flush.arrived } };
}

/** rh 2: do not send retained messages. rap: mark a retained message as such. */
function subscribe(client: MqttClient, filter: string, rh: 0 | 2): Promise<void> {
  return new Promise((resolve, reject) => {
    client.subscribe(filter, { qos: 1, nl: false, rap: true, rh }, (error, granted) => {
      if (error !== null && error !== undefined) reject(subscribeFailure(error, filter));
      else if (granted?.some(({ qos }) => qos === 0) === true) {
        reject(new ConfigError(`The broker offers no acknowledgements (QoS 1) on ${filter}.`));
      } else resolve();
    });
  });
}
