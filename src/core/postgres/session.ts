import { Socket } from "node:net";
import { Client, types } from "pg";
import { ConfigError } from "../errors/errors.ts";
import { VERIFIED_TLS } from "../http/verified-tls.ts";
import type { Secret } from "../runtime/log.ts";
import { describeServer, type PostgresAddress } from "./server-address.ts";

export type PostgresSession = Awaited<ReturnType<typeof openSession>>;

export type QueryValues = readonly (Buffer | string | readonly string[] | null)[];

export interface Query {
  readonly text: string;
  readonly values?: QueryValues;
  /** Name of a prepared statement, so that the server parses and plans it once per connection. */
  readonly name?: string;
}

export type ResultValue = string | number | boolean | null;

export interface QueryResult {
  readonly command: string;
  readonly rows: readonly (readonly ResultValue[])[];
  readonly columns?: readonly string[];
}

export interface ServerNotification {
  readonly channel: string;
  readonly payload: string;
}

export interface SessionOptions {
  readonly address: PostgresAddress;
  readonly password: Secret | null;
  /** PEM; undefined for the public authorities. */
  readonly ca: string | undefined;
  readonly connectTimeoutMs: number;
  readonly onNotification?: (notification: ServerNotification) => void;
  readonly onLost?: () => void;
}

const KEEP_ALIVE_DELAY_MS = 10_000;
const CLOSE_TIMEOUT_MS = 1_000;

export async function openSession(options: SessionOptions, signal: AbortSignal) {
  const { address, password, ca } = options;
  const socket = new Socket();
  let lostReason: unknown = null;
  const client = new Client({
    host: address.host,
    port: address.port,
    database: address.database,
    user: address.user,
    // If the password were undefined, the library would search the environment and ~/.pgpass.
    password: () => {
      if (password !== null) return password.reveal();
      throw new ConfigError(`${describeServer(address).name} asks for a password.`, {
        reason: "unauthenticated",
        field: "password",
        hint: `Give the password of the role ${address.user}.`,
      });
    },
    ssl: address.sslmode === "disable" ? false : { ...VERIFIED_TLS, ...(ca === undefined ? {} : { ca }) },
    sslnegotiation: "postgres",
    application_name: "plenum",
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_DELAY_MS,
    stream: () => socket,
    pipeline: true,
    types: { getTypeParser },
  });
  ignoreEnvironment(client);
  client.on("error", (error) => (lostReason ??= error));
  client.on("end", () => {
    lostReason ??= new Error("Connection terminated unexpectedly");
    options.onLost?.();
  });
  client.on("notification", ({ channel, payload = "" }) => options.onNotification?.({ channel, payload }));
  let cutBecause: unknown = null;
  const cut = (reason: unknown): void => {
    cutBecause ??= reason;
    lostReason ??= reason;
    socket.destroy();
  };
  const connectSignal = AbortSignal.any([signal, AbortSignal.timeout(options.connectTimeoutMs)]);
  const abort = () => cut(connectSignal.reason);
  connectSignal.addEventListener("abort", abort, { once: true });
  try {
    connectSignal.throwIfAborted();
    await client.connect();
  } catch (error) {
    socket.destroy();
    throw connectSignal.aborted ? connectSignal.reason : error;
  } finally {
    connectSignal.removeEventListener("abort", abort);
  }

  async function runQuery({ text, values, name }: Query): Promise<QueryResult> {
    if (lostReason !== null) throw lostReason;
    try {
      const queryResult = await client.query({
        text,
        rowMode: "array",
        ...(name && { name }),
        ...(values && { values: [...values] }),
      });
      const lastResult = Array.isArray(queryResult) ? queryResult.at(-1) : queryResult;
      const columns = lastResult.fields.map(({ name: column }: { readonly name: string }) => column);
      return { command: lastResult.command, rows: lastResult.rows as ResultValue[][], columns };
    } catch (error) {
      throw cutBecause ?? error;
    }
  }

  async function outcomes(statements: readonly Query[]): Promise<readonly PromiseSettledResult<QueryResult>[]> {
    socket.cork();
    const resultPromises = statements.map(runQuery);
    socket.uncork();
    return Promise.allSettled(resultPromises);
  }
  return {
    address,
    /** Without values, the text may hold several statements; returns the result of the last one. */
    query: (text: string, values?: QueryValues): Promise<QueryResult> =>
      runQuery(values === undefined ? { text } : { text, values }),
    outcomes,
    /** Sends all statements at once. Throws the first error when all are answered. */
    async queries(statements: readonly Query[]): Promise<readonly QueryResult[]> {
      return (await outcomes(statements)).map((each) => {
        if (each.status === "rejected") throw each.reason;
        return each.value;
      });
    },
    lost: (): unknown => lostReason,
    /** Ends the connection at once. The server rolls back, unless it has received the commit already. */
    cut,
    async end(): Promise<void> {
      if (lostReason !== null) return cut(lostReason);
      socket.setTimeout(CLOSE_TIMEOUT_MS, () => socket.destroy());
      await client.end();
    },
  };
}

/** The field `detail` is not read, because it may quote a row. */
export interface ServerError {
  readonly code: string;
  readonly message: string;
  readonly detail?: string;
  readonly constraint?: string;
}

/** Five capital letters and digits: https://www.postgresql.org/docs/current/errcodes-appendix.html */
export function isServerError(error: unknown): error is ServerError {
  return (
    error instanceof Error &&
    "severity" in error &&
    typeof (error as { code?: unknown }).code === "string" &&
    /^[0-9A-Z]{5}$/.test((error as unknown as ServerError).code)
  );
}

const BIGINT_TYPE_ID = 20;

function getTypeParser(type: number, format?: "text" | "binary") {
  return type === BIGINT_TYPE_ID ? Number : types.getTypeParser(type, format as "text");
}

/** Ignores PGOPTIONS, which could weaken commits, and PGREPLICATION, which selects another protocol. */
function ignoreEnvironment(client: Client): void {
  const { connectionParameters } = client as unknown as { connectionParameters: Record<string, unknown> };
  connectionParameters.options = undefined;
  connectionParameters.replication = undefined;
}
