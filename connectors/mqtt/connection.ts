import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { hostname } from "node:os";
import type { IClientOptions, IPublishPacket } from "mqtt";
import { backoffMs } from "../../src/backoff.ts";
import { isoUtc } from "../../src/clock.ts";
import type { ConnectorContext } from "../../src/connector.ts";
import { ConfigError, Rejected, Retryable, sentence } from "../../src/errors.ts";
import { readSecret } from "../../src/secret.ts";
import type { MqttConfig } from "./config.ts";
import { type Link, openLink } from "./link.ts";
import type { Message } from "./messages.ts";

/**
 * A place at the broker: at most one link at a time, and a retained status topic that says whether there is one.
 *
 * `open` gives the link or fails with the reason; between calls a lost link is replaced in the background, so
 * that the status is true also while nothing is to be sent. The library's own reconnection is not used.
 */
export interface Connection {
  /** Returns at once when there is a link; otherwise makes one attempt, which concurrent callers share. */
  open(signal: AbortSignal): Promise<void>;
  /** The link, or null while there is none. */
  link(): Link | null;
  close(): Promise<void>;
}

export interface ConnectionOptions {
  readonly config: MqttConfig;
  readonly context: ConnectorContext;
  readonly clientId: string;
  readonly statusTopic: string;
  /** What a new link needs before it counts as open, e.g. a subscription. */
  readonly prepare?: (link: Link) => Promise<void>;
  readonly onMessage?: (packet: IPublishPacket) => Promise<void>;
}

/**
 * How often the status is said again, in milliseconds. A broker that notices the end of an old connection only
 * after the new one has begun would otherwise show `offline` for ever.
 */
const HEARTBEAT_MS = 60_000;
const RECONNECT = { firstMs: 1_000, maxMs: 60_000 };
/** After a refusal that only a person can change, in milliseconds: nobody is helped by a storm of attempts. */
const SLOW_RECONNECT_MS = 300_000;

export function createConnection(options: ConnectionOptions): Connection {
  const { context } = options;
  const { clock, log } = context;
  const closing = new AbortController();
  let link: Link | null = null;
  let attempt: Promise<void> | null = null;
  let upkeep: Promise<void> | null = null;

  async function connectOnce(): Promise<void> {
    const since = isoUtc(clock.now());
    const opened = await openLink(
      {
        client: clientOptions(options, since),
        place: placeOf(options.config),
        publishDeadlineMs: options.config.publish_deadline,
        clock,
        ...(options.onMessage === undefined ? {} : { onMessage: options.onMessage }),
      },
      closing.signal,
    );
    try {
      await options.prepare?.(opened);
      await tellStatus(opened, options, since);
      closing.signal.throwIfAborted();
    } catch (error) {
      await opened.end();
      throw error;
    }
    link = opened;
    upkeep ??= keepUp(since);
  }

  function open(): Promise<void> {
    if (link !== null && !link.lost.aborted) return Promise.resolve();
    attempt ??= connectOnce().finally(() => {
      attempt = null;
    });
    return attempt;
  }

  /** Says the status again and again; when the link is lost, makes another. Ends with `close`. */
  async function keepUp(first: string): Promise<void> {
    let since = first;
    let failures = 0;
    while (!closing.signal.aborted) {
      try {
        if (link === null || link.lost.aborted) {
          await open();
          since = isoUtc(clock.now());
          log.info({ sink: context.name }, "connected to the broker again");
        } else {
          await clock.sleep(HEARTBEAT_MS, AbortSignal.any([closing.signal, link.lost]));
          await tellStatus(link, options, since);
        }
        failures = 0;
      } catch (error) {
        if (closing.signal.aborted) return;
        failures += 1;
        log.warn({ sink: context.name, err: error }, "the connection to the broker is away");
        const waitMs = error instanceof ConfigError ? SLOW_RECONNECT_MS : backoffMs(RECONNECT, failures);
        await clock.sleep(waitMs, closing.signal).catch(() => undefined);
      }
    }
  }

  return {
    async open(signal) {
      signal.throwIfAborted();
      closing.signal.throwIfAborted();
      await unlessAborted(open(), signal);
    },

    link: () => (link === null || link.lost.aborted ? null : link),

    async close() {
      closing.abort(new Retryable("The connection is closed."));
      await Promise.allSettled([attempt, upkeep]);
      if (link === null || link.lost.aborted) return;
      const farewell = statusMessage(options.statusTopic, {
        status: "offline",
        reason: "stopped",
        time: isoUtc(clock.now()),
      });
      await link.publish(farewell).catch((error: unknown) => {
        log.debug({ sink: context.name, err: error }, "the farewell did not reach the broker");
      });
      await link.end();
    },
  };
}

async function tellStatus(link: Link, options: ConnectionOptions, since: string): Promise<void> {
  const time = isoUtc(options.context.clock.now());
  try {
    await link.publish(statusMessage(options.statusTopic, { status: "online", since, time }));
  } catch (error) {
    if (!(error instanceof Rejected)) throw error;
    throw new ConfigError(sentence(error), {
      reason: "forbidden",
      hint: "Allow it in the broker's access list (see acl.example), or choose another prefix.",
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

/** Rejects as soon as the signal aborts; the attempt goes on for those who share it. */
async function unlessAborted(attempt: Promise<void>, signal: AbortSignal): Promise<void> {
  let abort = () => {};
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(signal.reason);
    signal.addEventListener("abort", abort, { once: true });
  });
  try {
    await Promise.race([attempt, aborted]);
  } finally {
    signal.removeEventListener("abort", abort);
  }
}

/** Host and port, for messages to people. */
function placeOf(config: MqttConfig): string {
  return new URL(config.url).host;
}

/** Files and secrets are read anew for each connection, so that renewed ones need no restart. */
function clientOptions(options: ConnectionOptions, since: string): IClientOptions {
  const { config } = options;
  const url = new URL(config.url);
  const secure = url.protocol === "mqtts:";
  const will = statusMessage(options.statusTopic, { status: "offline", reason: "connection lost", since });
  return {
    protocol: secure ? "mqtts" : "mqtt",
    host: url.hostname.replace(/^\[|\]$/g, ""),
    port: url.port === "" ? (secure ? 8883 : 1883) : Number(url.port),
    ...(secure ? tlsOptions(config) : {}),
    clientId: options.clientId,
    ...(config.username === undefined ? {} : { username: config.username }),
    ...(config.password === undefined ? {} : { password: readSecret(config.password).reveal() }),
    protocolVersion: config.protocol === "5" ? 5 : 4,
    clean: true,
    keepalive: Math.round(config.keepalive / 1_000),
    connectTimeout: config.connect_deadline,
    will: { topic: will.topic, payload: Buffer.from(will.payload), qos: 1, retain: true },
    // Nothing that the broker sends us is large: commands, and those are refused long before this size.
    properties: { sessionExpiryInterval: 0, maximumPacketSize: 1_048_576, receiveMaximum: 20 },
  };
}

function tlsOptions(config: MqttConfig): IClientOptions {
  const { ca_file, cert_file, key_file, servername } = config.tls;
  return {
    rejectUnauthorized: true,
    ...(ca_file === undefined ? {} : { ca: pem(ca_file) }),
    ...(cert_file === undefined ? {} : { cert: pem(cert_file) }),
    ...(key_file === undefined ? {} : { key: pem(key_file) }),
    ...(servername === undefined ? {} : { servername }),
  };
}

function pem(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    throw new ConfigError(`The certificate file ${path} cannot be read.`, { field: "tls", cause: error });
  }
}

/**
 * The same after a restart, so that a broker which still holds the old connection ends it and says so before the
 * new one begins; different on another machine.
 */
export function clientIdOf(config: MqttConfig, name: string, host = hostname()): string {
  if (config.client_id !== undefined) return config.client_id;
  const digest = createHash("sha256").update(`${host}\n${name}`).digest("hex").slice(0, 8);
  return `plenum-${name.replace(/[^A-Za-z0-9_.-]/g, "-").slice(0, 64)}-${digest}`;
}
