import type { IPublishPacket } from "mqtt";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { ConfigError, Rejected, Retryable } from "../../src/core/errors/errors.ts";
import { abortable, loop, sleepFor } from "../../src/core/runtime/waiting.ts";
import { isoUtc } from "../../src/core/values/iso-utc.ts";
import { brokerAddress, clientOptions, passwordOf } from "./client-options.ts";
import type { MqttConfig } from "./config.ts";
import { type Link, openLink } from "./link.ts";
import type { Message } from "./messages.ts";

/**
 * Keeps at most one link to the broker and a retained status topic. A lost link is replaced in the background, so the
 * status is true also while no event is sent.
 */
export interface Connection {
  /** Returns at once when there is a link; otherwise makes one attempt, which concurrent callers share. */
  open(signal: AbortSignal): Promise<void>;
  /** Starts reconnecting in the background, as a successful `open` does. */
  keep(): void;
  /** The link, or null while there is none. */
  link(): Link | null;
  /** Publishes `offline` and disconnects. */
  close(): Promise<void>;
}

export interface ConnectionOptions {
  readonly config: MqttConfig;
  readonly context: ConnectorContext;
  readonly clientId: string;
  readonly statusTopic: string;
  /** Prepares a new link before it counts as open, e.g. with a subscription. */
  readonly prepare?: (link: Link) => Promise<void>;
  readonly onMessage?: (packet: IPublishPacket) => Promise<void>;
  /** Asks the broker to keep a session and reports whether it had one; null where it keeps none. */
  readonly onSession?: (present: boolean | null) => void;
}

/**
 * Interval of the status message, in milliseconds. A broker that notices the end of an old connection late would
 * otherwise show `offline` forever.
 */
const HEARTBEAT_MS = 60_000;
const RECONNECT = { firstMs: 1_000, maxMs: 60_000 };
/** Wait after a refusal that needs a person, in milliseconds. */
const SLOW_RECONNECT_MS = 300_000;

export function createConnection(options: ConnectionOptions): Connection {
  const { config, context, statusTopic } = options;
  const { clock, log } = context;
  const password = passwordOf(config, clock);
  const closing = new AbortController();
  let current: { readonly link: Link; readonly since: string } | null = null;
  let attempt: Promise<void> | null = null;
  let reconnecting: Promise<void> | null = null;

  const now = () => isoUtc(clock.now());
  const usable = () => (current === null || current.link.lost.aborted ? null : current.link);

  async function connect(): Promise<void> {
    const since = now();
    const will = statusMessage(statusTopic, { status: "offline", reason: "connection lost", since });
    const link = await openLink(
      {
        client: clientOptions(config, {
          clientId: options.clientId,
          will,
          password: password(),
          keepsSession: options.onSession !== undefined,
        }),
        address: brokerAddress(config),
        publishDeadlineMs: config.publish_deadline,
        clock,
        onMessage: options.onMessage,
      },
      closing.signal,
    );
    options.onSession?.(link.sessionPresent);
    try {
      await options.prepare?.(link);
      await publishOnline(link, since);
    } catch (error) {
      await link.end();
      throw error;
    }
    current = { link, since };
    keep();
  }

  function openOnce(): Promise<void> {
    if (usable() !== null) return Promise.resolve();
    attempt ??= connect().finally(() => {
      attempt = null;
    });
    return attempt;
  }

  function keep(): void {
    reconnecting ??= keepConnected();
  }

  function keepConnected(): Promise<void> {
    const away = (error: unknown) => log.warn({ err: error }, "the connection to the broker is away");
    return loop({
      clock,
      signal: closing.signal,
      backoff: RECONNECT,
      fault: away,
      async turn() {
        try {
          await openOrHeartbeat();
          return 0;
        } catch (error) {
          if (!(error instanceof ConfigError) || closing.signal.aborted) throw error;
          away(error);
          return SLOW_RECONNECT_MS;
        }
      },
    });
  }

  /** Opens a link, or waits for the next status message or the loss of the link. */
  async function openOrHeartbeat(): Promise<void> {
    if (current === null || current.link.lost.aborted) return openOnce();
    const { link, since } = current;
    const whole = await sleepFor(clock, HEARTBEAT_MS, closing.signal, link.lost);
    if (closing.signal.aborted) return;
    if (!whole) throw link.lost.reason;
    await publishOnline(link, since);
  }

  async function publishOnline(link: Link, since: string): Promise<void> {
    await allowed(link.publish(statusMessage(statusTopic, { status: "online", since, time: now() })));
  }

  return {
    async open(signal) {
      signal.throwIfAborted();
      closing.signal.throwIfAborted();
      await abortable(openOnce(), signal);
    },
    keep,
    link: usable,
    async close() {
      closing.abort(new Retryable("The connection is closed."));
      await Promise.allSettled([attempt, reconnecting]);
      const goodbye = { status: "offline", reason: "stopped", time: now() };
      await usable()?.end(statusMessage(statusTopic, goodbye));
    },
  };
}

/**
 * Connects with another client id and without a will, publishes one message, waits for its acknowledgement and
 * disconnects. Logs the limits of the broker.
 */
export async function tryConnection(
  config: MqttConfig,
  context: ConnectorContext,
  { clientId, topic }: { readonly clientId: string; readonly topic: string },
  signal: AbortSignal,
): Promise<void> {
  const password = passwordOf(config, context.clock);
  const link = await openLink(
    {
      client: clientOptions(config, { clientId, will: null, password: password(), keepsSession: false }),
      address: brokerAddress(config),
      publishDeadlineMs: config.publish_deadline,
      clock: context.clock,
      onMessage: undefined,
    },
    signal,
  );
  context.log.info({ limits: link.limits }, "the broker lets us in");
  const abandon = () => link.abandon(signal.reason);
  signal.addEventListener("abort", abandon, { once: true });
  try {
    const body = { check: "plenum check", time: isoUtc(context.clock.now()) };
    await allowed(link.publish({ ...statusMessage(topic, body), retain: false }));
  } finally {
    signal.removeEventListener("abort", abandon);
    await link.end();
  }
}

/** A rejected status message is an error in the settings. */
async function allowed(published: Promise<void>): Promise<void> {
  try {
    await published;
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    throw new ConfigError(error.message, {
      reason: "forbidden",
      hint: "Allow it in the broker's access list (see connectors/mqtt/acl.example), or choose another prefix.",
      cause: error,
    });
  }
}

function statusMessage(topic: string, body: Readonly<Record<string, string>>): Message {
  return {
    topic,
    payload: JSON.stringify(body),
    retain: true,
    contentType: "application/json",
    properties: {},
  };
}
