import { addAbortListener } from "node:events";
import { Socket } from "node:net";
import { Client, types } from "pg";
import { ConfigError } from "../errors/errors.ts";
import { VERIFIED_TLS } from "../http/verified-tls.ts";
import type { Secret } from "../runtime/log.ts";
import { describePostgresServer, type PostgresAddress } from "./server-address.ts";

export type PostgresSession = Awaited<ReturnType<typeof openPostgresSession>>;

export type SqlValues = readonly (Buffer | string | readonly string[] | null)[];

export interface SqlQuery {
  readonly text: string;
  readonly values?: SqlValues;
  /** Name of a prepared statement, so that the server parses and plans it once per connection. */
  readonly name?: string;
}

export type ColumnValue = string | number | boolean | null;

export interface SqlResult {
  readonly command: string;
  readonly rows: readonly (readonly ColumnValue[])[];
  readonly columns?: readonly string[];
}

export interface PostgresSessionOptions {
  readonly address: PostgresAddress;
  readonly password: Secret | null;
  /** Certificate authority as PEM; undefined for the public authorities. */
  readonly ca: string | undefined;
  readonly connectTimeoutMs: number;
  readonly onNotification?: (notification: { readonly channel: string; readonly payload: string }) => void;
  readonly onConnectionLost?: () => void;
}

const TCP_KEEP_ALIVE_DELAY_MS = 10_000;
const SESSION_CLOSE_TIMEOUT_MS = 1_000;

export async function openPostgresSession(options: PostgresSessionOptions, signal: AbortSignal) {
  const { address, password, ca } = options;
  const socket = new Socket();
  let lostReason: unknown = null;
  const postgresClient = new Client({
    host: address.host,
    port: address.port,
    database: address.database,
    user: address.user,
    // If the password were undefined, the library would search the environment and ~/.pgpass.
    password: () => {
      if (password !== null) return password.reveal();
      throw new ConfigError(`${describePostgresServer(address).name} asks for a password.`, {
        reason: "unauthenticated",
        field: "password",
        hint: `Give the password of the role ${address.user}.`,
      });
    },
    ssl: address.sslmode === "disable" ? false : { ...VERIFIED_TLS, ...(ca === undefined ? {} : { ca }) },
    sslnegotiation: "postgres",
    application_name: "plenum",
    keepAlive: true,
    keepAliveInitialDelayMillis: TCP_KEEP_ALIVE_DELAY_MS,
    stream: () => socket,
    pipeline: true,
    types: { getTypeParser: getPostgresTypeParser },
  });
  ignorePostgresEnvironment(postgresClient);
  postgresClient.on("error", (error) => (lostReason ??= error));
  postgresClient.on("end", () => {
    lostReason ??= new Error("Connection terminated unexpectedly");
    options.onConnectionLost?.();
  });
  postgresClient.on("notification", ({ channel, payload = "" }) => options.onNotification?.({ channel, payload }));
  let cutReason: unknown = null;
  const cutConnection = (reason: unknown): void => {
    cutReason ??= reason;
    lostReason ??= reason;
    socket.destroy();
  };
  const connectSignal = AbortSignal.any([signal, AbortSignal.timeout(options.connectTimeoutMs)]);
  using _abortListener = addAbortListener(connectSignal, () => cutConnection(connectSignal.reason));
  try {
    connectSignal.throwIfAborted();
    await postgresClient.connect();
  } catch (error) {
    socket.destroy();
    throw connectSignal.aborted ? connectSignal.reason : error;
  }

  async function runQuery({ text, values, name }: SqlQuery): Promise<SqlResult> {
    if (lostReason !== null) throw lostReason;
    try {
      const queryResult = await postgresClient.query({
        text,
        rowMode: "array",
        ...(name && { name }),
        ...(values && { values: [...values] }),
      });
      const lastSqlResult = Array.isArray(queryResult) ? queryResult.at(-1) : queryResult;
      const columns = lastSqlResult.fields.map(({ name: column }: { readonly name: string }) => column);
      return { command: lastSqlResult.command, rows: lastSqlResult.rows as ColumnValue[][], columns };
    } catch (error) {
      throw cutReason ?? error;
    }
  }

  async function runStatements(statements: readonly SqlQuery[]): Promise<readonly PromiseSettledResult<SqlResult>[]> {
    socket.cork();
    const resultPromises = statements.map(runQuery);
    socket.uncork();
    return Promise.allSettled(resultPromises);
  }
  return {
    address,
    /** Runs a statement; without `values`, `text` may contain several. Returns the result of the last statement. */
    query: (text: string, values?: SqlValues): Promise<SqlResult> =>
      runQuery(values === undefined ? { text } : { text, values }),
    runBatch: runStatements,
    /** Sends all statements at once and waits for all responses. Then throws the first error, if any. */
    async runQueries(statements: readonly SqlQuery[]): Promise<readonly SqlResult[]> {
      return (await runStatements(statements)).map((outcome) => {
        if (outcome.status === "rejected") throw outcome.reason;
        return outcome.value;
      });
    },
    lostReason: (): unknown => lostReason,
    /** Ends the connection at once. The server rolls back the transaction, unless the commit has already arrived. */
    cut: cutConnection,
    async end(): Promise<void> {
      if (lostReason !== null) return cutConnection(lostReason);
      socket.setTimeout(SESSION_CLOSE_TIMEOUT_MS, () => socket.destroy());
      await postgresClient.end();
    },
  };
}

/** Error of the PostgreSQL server. Do not log `detail`, because it may quote a row. */
export interface PostgresError {
  readonly code: string;
  readonly message: string;
  readonly detail?: string;
  readonly constraint?: string;
}

/** Checks for a code of five capitals and digits: https://www.postgresql.org/docs/current/errcodes-appendix.html */
export function isPostgresError(error: unknown): error is PostgresError {
  return (
    error instanceof Error &&
    "severity" in error &&
    typeof (error as { code?: unknown }).code === "string" &&
    /^[0-9A-Z]{5}$/.test((error as unknown as PostgresError).code)
  );
}

const BIGINT_TYPE_ID = 20;

function getPostgresTypeParser(type: number, format?: "text" | "binary") {
  return type === BIGINT_TYPE_ID ? Number : types.getTypeParser(type, format as "text");
}

/** Ignores PGOPTIONS, which could weaken commits, and PGREPLICATION, which selects another protocol. */
function ignorePostgresEnvironment(client: Client): void {
  const { connectionParameters } = client as unknown as { connectionParameters: Record<string, unknown> };
  connectionParameters.options = undefined;
  connectionParameters.replication = undefined;
}
