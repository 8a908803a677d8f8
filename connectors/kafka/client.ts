import { isIP } from "node:net";
import {
  Connection,
  type ConnectionOptions,
  findErrorBy,
  ResponseError,
  type SASLCustomAuthenticator,
  type SASLOptions,
  saslHandshakeV1,
  saslScramSha,
} from "@platformatic/kafka";
import { ConfigError } from "../../src/core/errors/errors.ts";
import { probeServer, speaksTls } from "../../src/core/http/connection-problem.ts";
import { isLoopback } from "../../src/core/http/loopback.ts";
import { VERIFIED_TLS } from "../../src/core/http/verified-tls.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { cachedSecret, readCertificates } from "../../src/core/runtime/secret.ts";
import { type Cluster, createCluster } from "./cluster.ts";
import { type Address, addressOf, type KafkaConfig } from "./config.ts";
import { createConnections } from "./connections.ts";
import { brokerAt, speaksTlsOnly } from "./outcome.ts";
import { createProducer, type Producer } from "./producer.ts";

/** Connections, cluster and producer of one Kafka cluster. */
export interface Client {
  readonly cluster: Cluster;
  readonly producer: Producer;
  /** Runs `work`; when the signal aborts, every connection ends, and the work with it. */
  during<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T>;
  end(): void;
}

export function createClient(config: KafkaConfig, clock: Clock): Client {
  const bootstrap = config.brokers.map(addressOf);
  const options = connectionOptions(config, clock);
  /** Signal of the current work. */
  let current = AbortSignal.abort();
  const connections = createConnections({
    clientId: config.client_id,
    options,
    checkAllowed(address) {
      current.throwIfAborted();
      refusePlainPassword(config, address);
    },
  });
  const cluster = createCluster({
    bootstrap,
    connections,
    createTopics: config.create_topics,
    clock,
    diagnoseDisconnect: (address) => diagnoseDisconnect(address, options(address.host), current),
  });
  const producer = createProducer({
    cluster,
    connections,
    idempotent: config.idempotent,
    compression: config.compression,
    maxBatchBytes: config.max_message_bytes,
    ackWithinMs: config.publish_deadline,
  });
  return {
    cluster,
    producer,
    async during(signal, work) {
      signal.throwIfAborted();
      current = signal;
      const abort = () => connections.end();
      signal.addEventListener("abort", abort, { once: true });
      try {
        return await work();
      } catch (error) {
        throw signal.aborted ? signal.reason : error;
      } finally {
        signal.removeEventListener("abort", abort);
      }
    },
    end: () => connections.end(),
  };
}

/** Refuses to send a password in plain text to brokers on other machines, which a local cluster may name. */
function refusePlainPassword({ sasl, tls, plain_text }: KafkaConfig, address: Address): void {
  if (sasl === undefined || tls.enabled || plain_text || isLoopback(address.host)) return;
  throw new ConfigError(`${brokerAt(address).name} would get our password readable to everybody on the way.`, {
    hint: "Set tls.enabled: true, or plain_text: true to send it anyway.",
    field: "sasl",
  });
}

/** Extra time for the brokers' own timeout response to arrive, in milliseconds. */
const NETWORK_MS = 1_000;

/** Reads files and secrets for each connection, so replaced ones need no restart. */
function connectionOptions(config: KafkaConfig, clock: Clock): (host: string) => ConnectionOptions {
  const { sasl, tls } = config;
  const password = sasl === undefined ? null : cachedSecret(sasl.password, clock);
  return (host) => ({
    connectTimeout: config.connect_deadline,
    requestTimeout: config.publish_deadline + NETWORK_MS,
    maxInflights: 1,
    ...(tls.enabled
      ? {
          tls: {
            ...VERIFIED_TLS,
            ...(tls.ca_file === undefined ? {} : { ca: pem(tls.ca_file) }),
            ...(tls.cert_file === undefined ? {} : { cert: pem(tls.cert_file) }),
            ...(tls.key_file === undefined ? {} : { key: pem(tls.key_file) }),
          },
          // Brokers behind one address are distinguished by SNI, which does not allow IP addresses (RFC
          // 6066).
          ...(isIP(host) === 0 ? { tlsServerName: host } : {}),
        }
      : {}),
    ...(sasl === undefined || password === null ? {} : { sasl: saslOptions(sasl, password().reveal()) }),
  });
}

function saslOptions({ mechanism, username }: NonNullable<KafkaConfig["sasl"]>, password: string): SASLOptions {
  return {
    mechanism,
    username,
    password,
    ...(mechanism === "PLAIN" ? {} : { authenticate: byScram }),
  };
}

/**
 * SCRAM of the library. Its parser throws outside of any handler, so an invalid response would end the worker;
 * here it becomes a failed authentication.
 */
const byScram: SASLCustomAuthenticator = (mechanism, connection, ask, username, password, _token, done) => {
  const guarded = (...[to, bytes, answered]: Parameters<typeof ask>) =>
    ask(to, bytes, (error, answer) => {
      try {
        answered?.(error, answer);
      } catch (thrown) {
        done(thrown instanceof Error ? thrown : new Error(String(thrown)));
      }
    });
  const algorithm = mechanism === "SCRAM-SHA-256" ? "SHA-256" : "SHA-512";
  const authenticate = Object.assign(guarded, { async: ask.async, key: ask.key, version: ask.version });
  const { defaultCrypto } = saslScramSha;
  saslScramSha.authenticate(authenticate, connection, algorithm, username ?? "", password ?? "", defaultCrypto, done);
};

function pem(path: string): string {
  return readCertificates(path, "tls");
}

/** Longest wait for each probe, in milliseconds: the broker has just disconnected quickly. */
const PROBE_MS = 3_000;

/**
 * Finds out why a broker disconnected at our first request. It may be restarting, which passes; or its listener
 * speaks TLS or wants authentication, which never passes. Probes TLS, and sends a handshake with a mechanism that
 * does not exist, to which a SASL listener responds with its mechanisms. Sends no credentials. Null where neither
 * explains it.
 */
async function diagnoseDisconnect(
  address: Address,
  { tls, sasl }: ConnectionOptions,
  signal: AbortSignal,
): Promise<ConfigError | null> {
  const server = brokerAt(address);
  if (tls === undefined && (await speaksTls((limit) => probeServer(address, AbortSignal.any([limit, signal]))))) {
    return speaksTlsOnly(server);
  }
  const ways = sasl === undefined && !signal.aborted ? await offeredMechanisms(address, tls, signal) : [];
  if (ways.length === 0) return null;
  return new ConfigError(`${server.name} wants a password (${ways.join(", ")}).`, {
    hint: "Set sasl, or another port in brokers.",
    reason: "unauthenticated",
    field: "sasl",
  });
}

async function offeredMechanisms(
  { host, port }: Address,
  tls: ConnectionOptions["tls"],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const connection = new Connection("plenum", {
    connectTimeout: PROBE_MS,
    requestTimeout: PROBE_MS,
    ...(tls === undefined ? {} : { tls }),
  });
  connection.on("error", () => undefined);
  const end = () => void connection.socket?.destroy(new Error("This wait was ended early."));
  signal.addEventListener("abort", end, { once: true });
  try {
    await connection.connect(host, port);
    const { mechanisms } = await saslHandshakeV1.api.async(connection, "NONE");
    return mechanisms;
  } catch (error) {
    if (!(error instanceof ResponseError) || !findErrorBy(error, "apiId", "UNSUPPORTED_SASL_MECHANISM")) return [];
    return (error.response as { readonly mechanisms: readonly string[] }).mechanisms;
  } finally {
    signal.removeEventListener("abort", end);
    connection.socket?.destroy();
  }
}
