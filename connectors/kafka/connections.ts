import {
  apiVersionsV1,
  apiVersionsV3,
  Connection,
  type ConnectionOptions,
  ConnectionStatuses,
  clientSoftwareName,
  clientSoftwareVersion,
  findErrorBy,
  NetworkError,
  ResponseError,
} from "@platformatic/kafka";
import { ConfigError, Retryable } from "../../src/core/errors/errors.ts";
import type { Address } from "./config.ts";
import { brokerAt, connectionFailure } from "./outcome.ts";

/** One request of the protocol in one version, as the library writes and reads it. */
export interface Request<Arguments extends unknown[], Response> {
  readonly key: number;
  readonly version: number;
  async(connection: Connection, ...asked: Arguments): Promise<Response>;
}

/** A broker that is connected. */
export interface Broker {
  readonly address: Address;
  /** Asks in the newest of these versions that the broker knows; throws what the library says. */
  request<Arguments extends unknown[], Response>(
    versions: readonly Request<Arguments, Response>[],
    ...asked: Arguments
  ): Promise<Response>;
}

/**
 * The connections to the brokers of one cluster, one for each. Of the library only these and its reading and writing of
 * the protocol are used: its producer tries again by itself, and takes a new producer id each time, by which a batch
 * that is late could land behind newer ones.
 */
export interface Connections {
  to(address: Address): Promise<Broker>;
  /** The first of these that lets us in. */
  toAny(addresses: readonly Address[]): Promise<Broker>;
  /** Ends them all, and so whatever was asked. */
  end(): void;
}

export interface ConnectionsOptions {
  readonly clientId: string;
  readonly options: (host: string) => ConnectionOptions;
  /** Throws where nothing may be said to that host. */
  readonly checkAllowed: (address: Address) => void;
}

/** The broker does not know a request that is needed. */
export class UnsupportedRequest extends ConfigError {}

export function createConnections({ clientId, options, checkAllowed }: ConnectionsOptions): Connections {
  const open = new Map<string, { readonly connection: Connection; readonly broker: Promise<Broker> }>();

  function to(address: Address): Promise<Broker> {
    const place = `${address.host} ${address.port}`;
    const known = open.get(place);
    if (known !== undefined && isAlive(known.connection)) return ready(known);
    checkAllowed(address);
    const connection = new Connection(clientId, options(address.host));
    const broker = handshake(connection, address);
    open.set(place, { connection, broker });
    broker.catch(() => connection.socket?.destroy());
    return broker;
  }

  async function handshake(connection: Connection, address: Address): Promise<Broker> {
    // Whoever waits is told only that the connection was closed. Without a listener an error later on, such as one of a
    // reauthentication, would end the process.
    let cause: Error | null = null;
    connection.on("error", (error) => {
      cause ??= error;
    });
    try {
      await connection.connect(address.host, address.port);
      const { apiKeys } = await versionsOf(connection);
      const newest = new Map(
        apiKeys.map(({ apiKey, minVersion, maxVersion }) => [apiKey, { minVersion, maxVersion }]),
      );
      return {
        address,
        request(versions, ...asked) {
          const [first] = versions;
          const range = newest.get(first?.key ?? -1);
          const request = versions.find(
            ({ version }) =>
              range !== undefined && version >= range.minVersion && version <= range.maxVersion,
          );
          if (request === undefined) {
            throw new UnsupportedRequest(
              `${brokerAt(address).name} does not know a request that is needed.`,
              {
                hint: "It has to be Kafka 0.11 or newer.",
              },
            );
          }
          return request.async(connection, ...asked).catch((error: unknown) => {
            throw error instanceof NetworkError ? (cause ?? error) : error;
          });
        },
      };
    } catch (error) {
      throw connectionFailure(cause ?? error, address);
    }
  }

  return {
    to,
    async toAny(addresses) {
      let cause: unknown = new Retryable("There is no Kafka broker to ask.");
      for (const address of addresses) {
        try {
          return await to(address);
        } catch (error) {
          // What a person has to change is worth more than that another broker is away.
          if (!(cause instanceof ConfigError)) cause = error;
        }
      }
      throw cause;
    },
    end() {
      for (const { connection, broker } of open.values()) {
        broker.catch(() => undefined);
        connection.close().catch(() => undefined);
        // The library lets a socket end by itself, which a broker that has stopped never does.
        connection.socket?.destroy();
      }
      open.clear();
    },
  };
}

/** While it shows its password again, as brokers may demand, nothing else may be asked. */
async function ready({
  connection,
  broker,
}: {
  readonly connection: Connection;
  readonly broker: Promise<Broker>;
}) {
  if (connection.status === ConnectionStatuses.REAUTHENTICATING) await connection.ready();
  return broker;
}

function isAlive({ status }: Connection): boolean {
  return (
    status !== ConnectionStatuses.CLOSED &&
    status !== ConnectionStatuses.CLOSING &&
    status !== ConnectionStatuses.ERROR
  );
}

/** A broker before Kafka 2.4 does not know the third version of the question itself. */
async function versionsOf(connection: Connection) {
  try {
    return await apiVersionsV3.api.async(connection, clientSoftwareName, clientSoftwareVersion);
  } catch (error) {
    if (!(error instanceof ResponseError) || !findErrorBy(error, "apiId", "UNSUPPORTED_VERSION")) throw error;
    return await apiVersionsV1.api.async(connection, clientSoftwareName, clientSoftwareVersion);
  }
}
