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

/** One version of a protocol request, encoded and decoded by the library. */
export interface Request<Arguments extends unknown[], Response> {
  readonly key: number;
  readonly version: number;
  async(connection: Connection, ...asked: Arguments): Promise<Response>;
}

export interface Broker {
  readonly address: Address;
  /** Sends the newest of these versions that the broker supports; throws the library's errors. */
  request<Arguments extends unknown[], Response>(
    versions: readonly Request<Arguments, Response>[],
    ...asked: Arguments
  ): Promise<Response>;
}

/**
 * Connections to the brokers of one cluster, one for each. Only the library's connections and protocol codecs are
 * used: its producer retries on its own, with a new producer id each time, so a late batch could land behind newer
 * ones.
 */
export interface Connections {
  to(address: Address): Promise<Broker>;
  toAny(addresses: readonly Address[]): Promise<Broker>;
  end(): void;
}

export interface ConnectionsOptions {
  readonly clientId: string;
  readonly options: (host: string) => ConnectionOptions;
  /** Throws where the configuration forbids a connection to that host. */
  readonly checkAllowed: (address: Address) => void;
}

/** Thrown where the broker does not support a required request. */
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
    // Pending requests learn only that the connection closed. An unhandled error event, for example of a
    // reauthentication, would end the process.
    let cause: Error | null = null;
    connection.on("error", (error) => {
      cause ??= error;
    });
    try {
      await connection.connect(address.host, address.port);
      const { apiKeys } = await versionsOf(connection);
      const newest = new Map(apiKeys.map(({ apiKey, minVersion, maxVersion }) => [apiKey, { minVersion, maxVersion }]));
      return {
        address,
        request(versions, ...asked) {
          const [first] = versions;
          const range = newest.get(first?.key ?? -1);
          const request = versions.find(
            ({ version }) => range !== undefined && version >= range.minVersion && version <= range.maxVersion,
          );
          if (request === undefined) {
            throw new UnsupportedRequest(`${brokerAt(address).name} does not know a request that is needed.`, {
              hint: "It has to be Kafka 0.11 or newer.",
            });
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
          // Prefer an error that a person must fix over an unreachable broker.
          if (!(cause instanceof ConfigError)) cause = error;
        }
      }
      throw cause;
    },
    end() {
      for (const { connection, broker } of open.values()) {
        broker.catch(() => undefined);
        connection.close().catch(() => undefined);
        // The library waits for the other side to close, which a stopped broker never does.
        connection.socket?.destroy();
      }
      open.clear();
    },
  };
}

/** Waits for a reauthentication, during which no other request is allowed. */
async function ready({ connection, broker }: { readonly connection: Connection; readonly broker: Promise<Broker> }) {
  if (connection.status === ConnectionStatuses.REAUTHENTICATING) await connection.ready();
  return broker;
}

function isAlive({ status }: Connection): boolean {
  return (
    status !== ConnectionStatuses.CLOSED && status !== ConnectionStatuses.CLOSING && status !== ConnectionStatuses.ERROR
  );
}

/** Brokers before Kafka 2.4 do not support version 3 of this request. */
async function versionsOf(connection: Connection) {
  try {
    return await apiVersionsV3.api.async(connection, clientSoftwareName, clientSoftwareVersion);
  } catch (error) {
    if (!(error instanceof ResponseError) || !findErrorBy(error, "apiId", "UNSUPPORTED_VERSION")) throw error;
    return await apiVersionsV1.api.async(connection, clientSoftwareName, clientSoftwareVersion);
  }
}
