import { ConfigError, type Failure, Retryable } from "../../core/errors/errors.ts";
import { type PostgresErrorWording, sqlErrorToFailure } from "../../core/postgres/error-meaning.ts";
import { createPostgresPool, cutSessionAfterTimeout } from "../../core/postgres/pool.ts";
import { openPrimarySession } from "../../core/postgres/primary-server.ts";
import { type PostgresAddress, parsePostgresAddress, serverUrls } from "../../core/postgres/server-address.ts";
import { isPostgresError, type PostgresSession, type PostgresSessionOptions } from "../../core/postgres/session.ts";
import { quoteSqlName } from "../../core/postgres/sql-quoting.ts";
import { runStatementsInTransaction, runTransaction } from "../../core/postgres/transaction.ts";
import { readCertificateFile, secretReader } from "../../core/runtime/secret.ts";
import { createWakeup, runLoop, WAIT_ENDED_EARLY } from "../../core/runtime/waiting.ts";
import { FencedError } from "../../engine/store/fenced-store.ts";
import { DocumentKeyConflict } from "../../engine/store/store.ts";
import { decodeKeyFromPostgres } from "./document-store.ts";
import { prepareSchema, SCHEMA_VERSION } from "./schema.ts";
import type { StateDatabase, StateDatabaseOptions } from "./state-database.ts";

const CONNECT_TIMEOUT_MS = 5_000;
const STATEMENT_TIMEOUT_MS = 8_000;
/** Limits idle transactions, because a stalled process with an open transaction blocks others. */
const IDLE_TRANSACTION_TIMEOUT_MS = 3_000;
const TRANSACTION_TIMEOUT_MS = 10_000;
const MIGRATION_TIMEOUT_MS = 10 * 60_000;

/** Limits the transaction that moves a state: 10 GB of events take some minutes. */
const LONG_TRANSACTION_TIMEOUT_MS = 60 * 60_000;
const LONG_TRANSACTION_LIMITS = { statementMs: LONG_TRANSACTION_TIMEOUT_MS, idleMs: 60_000 };

type PostgresListenerOptions = Pick<PostgresSessionOptions, "onNotification" | "onConnectionLost">;

/** Connects and prepares the schema. Throws `ConfigError` when a person must act, otherwise `Retryable`. */
export async function openStateDatabase(options: StateDatabaseOptions): Promise<StateDatabase> {
  const { config, clock, migrate, connections = config.connections, allowsLongTransaction = false } = options;
  const statementMs = Math.min(STATEMENT_TIMEOUT_MS, options.statementTimeoutMs ?? STATEMENT_TIMEOUT_MS);
  const transactionLimits = { statementMs, idleMs: Math.min(IDLE_TRANSACTION_TIMEOUT_MS, statementMs) };
  const transactionTimeoutMs = allowsLongTransaction
    ? LONG_TRANSACTION_TIMEOUT_MS
    : (options.statementTimeoutMs ?? TRANSACTION_TIMEOUT_MS);
  const { schema } = config;
  const serverAddresses = serverUrls(config.url).map((url) => parsePostgresAddress({ url }));
  const readPassword = config.password === undefined ? () => null : secretReader(config.password, clock);
  const serverNames = serverAddresses.map(({ host, port }) => `${host}:${port}`).join(",");
  const name = `${serverNames}/${serverAddresses[0]?.database}, schema ${schema}`;
  let isMigrated = false;

  /** Opens a session. Reads password and CA for each session, so that a replaced password or CA needs no restart. */
  async function connectToPrimary(signal: AbortSignal, listenerOptions: PostgresListenerOptions = {}) {
    const session = await openPrimarySession(
      {
        addresses: serverAddresses,
        password: readPassword(),
        ca: config.ca_file === undefined ? undefined : readCertificateFile(config.ca_file, "ca_file"),
        connectTimeoutMs: CONNECT_TIMEOUT_MS,
        wording: STATE_DATABASE_ERROR_WORDING,
        ...listenerOptions,
      },
      signal,
    );
    // The first session needs a longer timeout: it may create the schema, or wait for a member that creates it.
    try {
      return await cutSessionAfterTimeout(session, isMigrated ? CONNECT_TIMEOUT_MS : MIGRATION_TIMEOUT_MS, async () => {
        await session.query(
          `set search_path = ${quoteSqlName(schema)}, pg_temp; set statement_timeout = ${statementMs}`,
        );
        await prepareSchema(session, schema, migrate);
        isMigrated = true;
        return session;
      });
    } catch (error) {
      session.cut(error);
      throw toStateDatabaseError(error, session.address);
    }
  }

  const connectionPool = createPostgresPool({
    connections: Math.max(1, connections - 1),
    clock,
    connect: connectToPrimary,
  });
  const notifications = createPostgresNotifications(options, schema, connectToPrimary);

  function useSession<T>(work: (session: PostgresSession) => Promise<T>, limitMs = transactionTimeoutMs): Promise<T> {
    return connectionPool.useSession(limitMs, async (session) => {
      try {
        return await work(session);
      } catch (error) {
        const isReplicaError = isPostgresError(error) && error.code === "25006";
        if (!isReplicaError) throw toStateDatabaseError(error, session.address);
        session.cut(error);
        if (serverAddresses.length === 1) throw toStateDatabaseError(error, session.address);
        throw new Retryable(`The server of ${name} has become a replica; the next one is looked for.`);
      }
    });
  }

  const firstSession = await connectToPrimary(new AbortController().signal);
  await firstSession.end();

  return {
    name,
    table: (table) => `${quoteSqlName(schema)}.${quoteSqlName(table)}`,
    query: (text, values, timeoutMs) =>
      timeoutMs === undefined
        ? useSession((session) => session.query(text, values))
        : useSession(
            (session) => runTransaction(session, { statementMs: timeoutMs }, () => session.query(text, values)),
            timeoutMs + TRANSACTION_TIMEOUT_MS,
          ),
    transact: (statements) =>
      useSession((session) => runStatementsInTransaction(session, transactionLimits, statements)),
    transaction: (work) =>
      useSession((session) =>
        runTransaction(session, allowsLongTransaction ? LONG_TRANSACTION_LIMITS : transactionLimits, () =>
          work(session),
        ),
      ),
    onNotified: notifications.listen,
    notify: (topic) => ({ text: "select pg_notify($1, $2)", values: [schema, topic], name: "notify" }),
    describe: () =>
      useSession(async (session) => {
        const { rows } = await session.query(
          `select (select coalesce(sum(pg_total_relation_size(oid)), 0)::double precision from pg_class
             where relnamespace = $1::regnamespace and relkind = 'r'),
           current_setting('server_version'), current_setting('synchronous_commit'),
           current_setting('data_checksums') = 'on', pg_is_in_recovery()`,
          [quoteSqlName(schema)],
        );
        const [bytes, version, synchronousCommit, dataChecksums, isReplica] = rows[0] ?? [];
        const { host, port } = session.address;
        return {
          bytes: Number(bytes),
          schemaVersion: SCHEMA_VERSION,
          server: `${host}:${port}, PostgreSQL ${version}`,
          synchronousCommit: String(synchronousCommit),
          dataChecksums: dataChecksums === true,
          isReplica: isReplica === true,
        };
      }),
    async close() {
      await Promise.all([notifications.close(), connectionPool.close()]);
    },
  };
}

const STATE_DATABASE_ERROR_WORDING: PostgresErrorWording = {
  addressOption: "url",
  permissionsToGrant: "create on the database, or make it the owner of the schema",
  rejectionText: "does not take what the state is made of",
  changedTablesHint:
    "Somebody has changed the tables of the state: restore a backup, or let state.postgres.schema name another.",
  timeoutHint: "If that stays so, look for what else its disk is doing, and into pg_locks there.",
};

function toStateDatabaseError(error: unknown, address: PostgresAddress): Failure | FencedError | DocumentKeyConflict {
  if (error instanceof FencedError || error instanceof DocumentKeyConflict) return error;
  if (isPostgresError(error)) {
    const { code, detail = "" } = error;
    if (code === "PLF01") return new FencedError(detail, { cause: error });
    if (code === "PLF02") return unknownSourceError(detail);
    if (code === "PLC01") {
      const [setName = "", key = ""] = JSON.parse(detail) as string[];
      return new DocumentKeyConflict(setName, decodeKeyFromPostgres(key));
    }
  }
  return sqlErrorToFailure(error, address, STATE_DATABASE_ERROR_WORDING);
}

export function unknownSourceError(source: string): ConfigError {
  return new ConfigError(`The state in the database has no source ${source}.`, {
    hint: "Check the name, or start a worker with it once.",
  });
}

const LISTENER_CHECK_INTERVAL_MS = 30_000;
const LISTENER_REPLY_TIMEOUT_MS = 10_000;
const RECONNECT_BACKOFF = { firstMs: 200, maxMs: 5_000 };

/** Listens to a PostgreSQL channel whose payload is a topic. Calls all listeners after a lost connection. */
function createPostgresNotifications(
  { clock, log }: StateDatabaseOptions,
  channel: string,
  connect: (signal: AbortSignal, options: PostgresListenerOptions) => Promise<PostgresSession>,
) {
  const listeners = new Map<string, Set<() => void>>();
  const closeController = new AbortController();
  const connectionLostWakeup = createWakeup();
  let session: PostgresSession | null = null;
  let listeningLoop: Promise<void> | null = null;
  let isDisconnected = false;

  function callTopicListeners(topic: string): void {
    for (const listener of [...(listeners.get(topic) ?? [])]) listener();
  }

  async function connectAndListen(): Promise<PostgresSession> {
    const newSession = await connect(closeController.signal, {
      onNotification: (notification) => {
        if (notification.channel === channel) callTopicListeners(notification.payload);
      },
      onConnectionLost: connectionLostWakeup.wakeUp,
    });
    await newSession.query(`listen ${quoteSqlName(channel)}`);
    return newSession;
  }

  async function listenOrCheckConnection(): Promise<number> {
    if (session === null || session.lostReason() !== null) {
      session = await connectAndListen();
      if (isDisconnected) log.info("Listening for changes of other processes again.");
      isDisconnected = false;
    } else {
      const checkedSession = session;
      await cutSessionAfterTimeout(checkedSession, LISTENER_REPLY_TIMEOUT_MS, () => checkedSession.query("select 1"));
    }
    for (const topic of [...listeners.keys()]) callTopicListeners(topic);
    return LISTENER_CHECK_INTERVAL_MS;
  }

  function startListening(): void {
    listeningLoop ??= runLoop({
      clock,
      signal: closeController.signal,
      wakeup: connectionLostWakeup,
      step: listenOrCheckConnection,
      onFault(error) {
        if (!isDisconnected)
          log.warn({ err: error }, "Listening for changes of other processes failed; Plenum connects again.");
        isDisconnected = true;
      },
      backoff: RECONNECT_BACKOFF,
    });
  }

  return {
    listen(topic: string, listener: () => void): () => void {
      const topicListeners = listeners.get(topic) ?? new Set();
      listeners.set(topic, topicListeners.add(listener));
      startListening();
      return () => void topicListeners.delete(listener);
    },
    async close(): Promise<void> {
      closeController.abort(WAIT_ENDED_EARLY);
      session?.cut(WAIT_ENDED_EARLY);
      await listeningLoop;
    },
  };
}
