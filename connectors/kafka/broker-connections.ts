import { addAbortListener } from "node:events";
import { isIP } from "node:net";
import * as kafka from "@platformatic/kafka";
import { ConfigError, Retryable } from "../../src/core/errors/errors.ts";
import { probeTlsHandshake, serverSpeaksTls } from "../../src/core/http/connection-problem.ts";
import { isLoopbackHost } from "../../src/core/http/loopback.ts";
import { VERIFIED_TLS } from "../../src/core/http/verified-tls.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { readCertificateFile, secretReader } from "../../src/core/runtime/secret.ts";
import { createTlsRequiredError, describeBroker, mapConnectionError } from "./broker-failures.ts";
import type { HostAndPort, KafkaConfig } from "./config.ts";

interface KafkaRequestVersion<Arguments extends unknown[], Response> {
  readonly key: number;
  readonly version: number;
  async(connection: kafka.Connection, ...requestArguments: Arguments): Promise<Response>;
}

/** Returns the library's implementations of a request, newest version first, e.g. `metadata` from 12 down to 1. */
export function listRequestVersions<T>(name: string, newest: number, oldest: number): readonly T[] {
  const kafkaLibrary = kafka as unknown as Readonly<Record<string, { readonly api: T }>>;
  const requestVersions = Array.from({ length: newest - oldest + 1 }, (_, n) => kafkaLibrary[`${name}V${newest - n}`]);
  return requestVersions.flatMap((version) => (version === undefined ? [] : [version.api]));
}

export type BrokerConnection = Awaited<ReturnType<typeof connectAndReadVersions>>;

interface OpenConnection {
  readonly connection: kafka.Connection;
  readonly broker: Promise<BrokerConnection>;
}

export class UnsupportedKafkaRequest extends ConfigError {}

/** Time after the publish deadline in which the timeout response of the broker may still arrive. */
const TIMEOUT_GRACE_MS = 1_000;

const SASL_PROBE_TIMEOUT_MS = 3_000;

export type BrokerConnections = ReturnType<typeof createBrokerConnections>;

/** Manages connections to brokers. The library's producer is not used: its retries could reorder batches. */
export function createBrokerConnections(config: KafkaConfig, clock: Clock) {
  const { client_id, sasl, tls } = config;
  const readPassword = sasl === undefined ? null : secretReader(sasl.password, clock);
  const connectionByBroker = new Map<string, OpenConnection>();
  let currentSignal = AbortSignal.abort();

  /** Reads certificates and secrets for each connection, so replaced files need no restart. */
  function buildConnectionOptions(host: string): kafka.ConnectionOptions {
    return {
      connectTimeout: config.connect_deadline,
      requestTimeout: config.publish_deadline + TIMEOUT_GRACE_MS,
      maxInflights: 1,
      ...buildTlsOptions(host),
      ...(sasl === undefined || readPassword === null ? {} : { sasl: buildSaslOptions(sasl, readPassword().reveal()) }),
    };
  }

  function buildTlsOptions(host: string): kafka.ConnectionOptions {
    if (!tls.enabled) return {};
    const [ca, cert, key] = [tls.ca_file, tls.cert_file, tls.key_file].map((path) =>
      path === undefined ? undefined : readCertificateFile(path, "tls"),
    );
    // Brokers behind one address are distinguished by SNI, which does not allow IP addresses (RFC 6066).
    return { tls: { ...VERIFIED_TLS, ca, cert, key }, ...(isIP(host) === 0 ? { tlsServerName: host } : {}) };
  }

  /** Throws instead of sending a password in plain text to another machine, even if a local broker refers to it. */
  function refuseUnencryptedPassword(address: HostAndPort): void {
    if (sasl === undefined || tls.enabled || config.plain_text || isLoopbackHost(address.host)) return;
    const message = `${describeBroker(address).name} would get our password readable to everybody on the way.`;
    const hint = "Set tls.enabled: true, or plain_text: true to send it anyway.";
    throw new ConfigError(message, { hint, field: "sasl" });
  }

  function connectToBroker(address: HostAndPort): Promise<BrokerConnection> {
    const brokerKey = `${address.host} ${address.port}`;
    const existingConnection = connectionByBroker.get(brokerKey);
    if (existingConnection !== undefined && isConnectionAlive(existingConnection.connection))
      return awaitReauthentication(existingConnection);
    currentSignal.throwIfAborted();
    refuseUnencryptedPassword(address);
    const connection = new kafka.Connection(client_id, buildConnectionOptions(address.host));
    const broker = connectAndReadVersions(connection, address);
    connectionByBroker.set(brokerKey, { connection, broker });
    broker.catch(() => connection.socket?.destroy());
    return broker;
  }

  function endBrokerConnections(): void {
    for (const { connection, broker } of connectionByBroker.values()) {
      broker.catch(() => undefined);
      connection.close().catch(() => undefined);
      // The library waits until the broker closes the connection, which a stopped broker never does.
      connection.socket?.destroy();
    }
    connectionByBroker.clear();
  }

  return {
    connect: connectToBroker,
    end: endBrokerConnections,

    async connectToAny(addresses: readonly HostAndPort[]): Promise<BrokerConnection> {
      let connectError: unknown = new Retryable("There is no Kafka broker to ask.");
      for (const address of addresses) {
        try {
          return await connectToBroker(address);
        } catch (error) {
          // Prefer an error that a person must fix over an unreachable broker.
          if (!(connectError instanceof ConfigError)) connectError = error;
        }
      }
      throw connectError;
    },

    /** Runs `work`. Ends every connection, and so the work, when the signal aborts. */
    async runWithSignal<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
      signal.throwIfAborted();
      currentSignal = signal;
      using _abortListener = addAbortListener(signal, endBrokerConnections);
      try {
        return await work();
      } catch (error) {
        throw signal.aborted ? signal.reason : error;
      }
    },

    /** Finds out why a broker disconnected, by probing TLS and SASL without credentials; null if a retry may help. */
    async diagnoseDisconnect(address: HostAndPort): Promise<ConfigError | null> {
      const signal = currentSignal;
      const server = describeBroker(address);
      const probeBrokerTls = (timeout: AbortSignal) => probeTlsHandshake(address, AbortSignal.any([timeout, signal]));
      if (!tls.enabled && (await serverSpeaksTls(probeBrokerTls))) return createTlsRequiredError(server);
      if (sasl !== undefined || signal.aborted) return null;
      const saslMechanisms = await requestSaslMechanisms(address, buildTlsOptions(address.host), signal);
      if (saslMechanisms.length === 0) return null;
      const message = `${server.name} wants a password (${saslMechanisms.join(", ")}).`;
      const hint = "Set sasl, or another port in brokers.";
      return new ConfigError(message, { hint, reason: "unauthenticated", field: "sasl" });
    },
  };
}

async function connectAndReadVersions(connection: kafka.Connection, address: HostAndPort) {
  // Store the error: pending requests report only "connection closed". An unhandled error event ends the process.
  let connectionError: Error | null = null;
  connection.on("error", (error) => {
    connectionError ??= error;
  });
  try {
    await connection.connect(address.host, address.port);
    const { apiKeys } = await requestApiVersions(connection);
    return {
      address,
      /** Sends the newest supported version of a request. Also returns responses that contain errors. */
      async request<Arguments extends unknown[], Response>(
        versions: readonly KafkaRequestVersion<Arguments, Response>[],
        ...requestArguments: Arguments
      ): Promise<Response> {
        const support = apiKeys.find(({ apiKey }) => apiKey === versions[0]?.key);
        const requestVersion = versions.find(
          ({ version }) => support !== undefined && version >= support.minVersion && version <= support.maxVersion,
        );
        if (requestVersion === undefined) {
          const message = `${describeBroker(address).name} does not know a request that is needed.`;
          throw new UnsupportedKafkaRequest(message, { hint: "It has to be Kafka 0.11 or newer." });
        }
        return requestVersion.async(connection, ...requestArguments).catch((error: unknown) => {
          if (error instanceof kafka.ResponseError) return error.response as Response;
          throw error instanceof kafka.NetworkError ? (connectionError ?? error) : error;
        });
      },
    };
  } catch (error) {
    throw mapConnectionError(connectionError ?? error, address);
  }
}

async function awaitReauthentication({ connection, broker }: OpenConnection): Promise<BrokerConnection> {
  if (connection.status === kafka.ConnectionStatuses.REAUTHENTICATING) await connection.ready();
  return broker;
}

function isConnectionAlive({ status }: kafka.Connection): boolean {
  const { CLOSED, CLOSING, ERROR } = kafka.ConnectionStatuses;
  return status !== CLOSED && status !== CLOSING && status !== ERROR;
}

/** Requests the API versions of a broker. Brokers before Kafka 2.4 do not support version 3 of the request. */
async function requestApiVersions(connection: kafka.Connection) {
  const { clientSoftwareName, clientSoftwareVersion } = kafka;
  try {
    return await kafka.apiVersionsV3.api.async(connection, clientSoftwareName, clientSoftwareVersion);
  } catch (error) {
    if (!isResponseError(error, "UNSUPPORTED_VERSION")) throw error;
    return await kafka.apiVersionsV1.api.async(connection, clientSoftwareName, clientSoftwareVersion);
  }
}

function isResponseError(error: unknown, apiId: string): error is kafka.ResponseError {
  return error instanceof kafka.ResponseError && Boolean(kafka.findErrorBy(error, "apiId", apiId));
}

function buildSaslOptions(
  { mechanism, username }: NonNullable<KafkaConfig["sasl"]>,
  password: string,
): kafka.SASLOptions {
  return { mechanism, username, password, ...(mechanism === "PLAIN" ? {} : { authenticate: authenticateByScram }) };
}

/** Fails the authentication for an invalid SCRAM response. The library alone would throw outside of any handler. */
const authenticateByScram: kafka.SASLCustomAuthenticator = (
  mechanism,
  connection,
  authenticate,
  username,
  password,
  _token,
  done,
) => {
  const authenticateCatchingErrors = (...[connection, requestBytes, onResponse]: Parameters<typeof authenticate>) =>
    authenticate(connection, requestBytes, (error, response) => {
      try {
        onResponse?.(error, response);
      } catch (handlerError) {
        done(handlerError instanceof Error ? handlerError : new Error(String(handlerError)));
      }
    });
  const { async, key, version } = authenticate;
  const scramHashAlgorithm = mechanism === "SCRAM-SHA-256" ? "SHA-256" : "SHA-512";
  const api = Object.assign(authenticateCatchingErrors, { async, key, version });
  const { authenticate: authenticateWithScram, defaultCrypto } = kafka.saslScramSha;
  authenticateWithScram(api, connection, scramHashAlgorithm, username ?? "", password ?? "", defaultCrypto, done);
};

async function requestSaslMechanisms(
  { host, port }: HostAndPort,
  tls: kafka.ConnectionOptions,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const connection = new kafka.Connection("plenum", {
    connectTimeout: SASL_PROBE_TIMEOUT_MS,
    requestTimeout: SASL_PROBE_TIMEOUT_MS,
    ...tls,
  });
  connection.on("error", () => undefined);
  using _abortListener = addAbortListener(signal, () => {
    connection.socket?.destroy(new Error("This wait was ended early."));
  });
  try {
    await connection.connect(host, port);
    const { mechanisms } = await kafka.saslHandshakeV1.api.async(connection, "NONE");
    return mechanisms;
  } catch (error) {
    if (!isResponseError(error, "UNSUPPORTED_SASL_MECHANISM")) return [];
    return (error.response as { readonly mechanisms: readonly string[] }).mechanisms;
  } finally {
    connection.socket?.destroy();
  }
}
