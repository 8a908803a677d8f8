import { createHash } from "node:crypto";
import { hostname } from "node:os";
import type { IClientOptions } from "mqtt";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { VERIFIED_TLS } from "../../src/core/http/verified-tls.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import type { Secret } from "../../src/core/runtime/log.ts";
import { cachedSecret, readCertificates } from "../../src/core/runtime/secret.ts";
import type { MqttConfig } from "./config.ts";
import type { Message } from "./messages.ts";

/** Largest packet that the broker may send us, in bytes: commands, which are refused far below this size. */
export const MAX_ARRIVAL_BYTES = 1_048_576;
/** Most commands that the broker may send before we have acknowledged one. */
const ARRIVALS_IN_FLIGHT = 20;

/** How long a broker keeps a session after the connection has ended, in seconds. */
const SESSION_SECONDS = 86_400;

/** Settings of one connection in addition to the configuration. */
export interface SessionOptions {
  readonly clientId: string;
  readonly will: Message | null;
  /** Current password; null without one. */
  readonly password: Secret | null;
  /**
   * Ask the broker to keep the session. It has no subscriptions, so no messages are queued; a lost session means that
   * the broker was restarted.
   */
  readonly keepsSession: boolean;
}

/** Reads files and secrets again for each connection, so renewed ones need no restart. */
export function clientOptions(
  config: MqttConfig,
  { clientId, will, password, keepsSession }: SessionOptions,
): IClientOptions {
  const url = new URL(config.url);
  const secure = url.protocol === "mqtts:";
  return {
    protocol: secure ? "mqtts" : "mqtt",
    host: url.hostname.replace(/^\[|\]$/g, ""),
    port: url.port === "" ? (secure ? 8883 : 1883) : Number(url.port),
    ...(secure ? tlsOptions(config) : {}),
    clientId,
    ...(config.username === undefined ? {} : { username: config.username }),
    ...(password === null ? {} : { password: password.reveal() }),
    protocolVersion: config.protocol === "5" ? 5 : 4,
    clean: !keepsSession,
    keepalive: Math.round(config.keepalive / 1_000),
    connectTimeout: config.connect_deadline,
    ...(will === null
      ? {}
      : { will: { topic: will.topic, payload: Buffer.from(will.payload), qos: 1, retain: will.retain } }),
    properties: {
      sessionExpiryInterval: keepsSession ? SESSION_SECONDS : 0,
      maximumPacketSize: MAX_ARRIVAL_BYTES,
      receiveMaximum: ARRIVALS_IN_FLIGHT,
    },
  };
}

function tlsOptions(config: MqttConfig): IClientOptions {
  const { ca_file, cert_file, key_file, servername } = config.tls;
  return {
    ...VERIFIED_TLS,
    ...(ca_file === undefined ? {} : { ca: pem(ca_file) }),
    ...(cert_file === undefined ? {} : { cert: pem(cert_file) }),
    ...(key_file === undefined ? {} : { key: pem(key_file) }),
    ...(servername === undefined ? {} : { servername }),
  };
}

function pem(path: string): string {
  return readCertificates(path, "tls");
}

/** Returns a function that reads the current password; null without one. */
export function passwordOf(config: MqttConfig, clock: Clock): () => Secret | null {
  return config.password === undefined ? () => null : cachedSecret(config.password, clock);
}

/** Host and port of the broker for messages. */
export function brokerAddress(config: MqttConfig): string {
  return new URL(config.url).host;
}

/**
 * Returns a client id that is stable over restarts, so the broker ends the old connection with its will before the new
 * one begins. It differs between machines, between workers on one machine (by prefix), and from a worker whose state
 * was copied. In a fleet it belongs to the source, so the broker ends the connection of the previous member.
 */
export function clientIdOf(
  config: MqttConfig,
  { name, identity, share }: Pick<ConnectorContext, "name" | "identity" | "share">,
  host = hostname(),
): string {
  const { client_id: given } = config;
  if (given !== undefined) return share === undefined ? given : `${given}-${share.source}`;
  const where = share === undefined ? [host] : [share.fleet, share.source];
  const facts = [...where, name, config.prefix, ...(identity === undefined ? [] : [identity])];
  const digest = createHash("sha256").update(facts.join("\n")).digest("hex").slice(0, 8);
  const whose = share === undefined ? name : `${name}-${share.source}`;
  return `plenum-${whose.replace(/[^A-Za-z0-9_.-]/g, "-").slice(0, 96)}-${digest}`;
}
