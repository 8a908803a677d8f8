import { createHash } from "node:crypto";
import { addAbortListener } from "node:events";
import type { ConnectorContext, ServerInstance, Sink } from "../../src/core/connector.ts";
import { sqlErrorToFailure } from "../../src/core/postgres/error-meaning.ts";
import { refuseUnsuitableServer } from "../../src/core/postgres/primary-server.ts";
import { parsePostgresAddress } from "../../src/core/postgres/server-address.ts";
import { openPostgresSession, type PostgresSession } from "../../src/core/postgres/session.ts";
import type { Log } from "../../src/core/runtime/log.ts";
import { readCertificateFile, secretReader } from "../../src/core/runtime/secret.ts";
import { LAKE_TABLES } from "../shared/lake/tables.ts";
import type { PostgresConfig } from "./config.ts";
import { checkTablePrivileges, prepareTables } from "./create-tables.ts";
import { writeBatch } from "./write-batch.ts";

/** Sink that accepts an event when the transaction with its rows has committed. */
export function createPostgresSink(config: PostgresConfig, context: ConnectorContext): Sink {
  const address = parsePostgresAddress(config);
  const tableSettings = { schema: config.schema, timescale: config.timescale };
  const requirements = { tables: LAKE_TABLES, target: tableSettings, create: config.create, timeoutMs: config.timeout };
  const readPassword = config.password === undefined ? () => null : secretReader(config.password, context.clock);
  const insertStatements = new Map<string, string>();
  let currentSession: PostgresSession | null = null;

  /** Reads password and CA file for each connection, so replaced files need no restart. */
  async function connectToPostgres(signal: AbortSignal): Promise<PostgresSession> {
    const ca = config.ca_file === undefined ? undefined : readCertificateFile(config.ca_file, "ca_file");
    const options = { address, password: readPassword(), ca, connectTimeoutMs: config.connect_timeout };
    return openPostgresSession(options, signal);
  }

  async function endOnAbort<T>(session: PostgresSession, signal: AbortSignal, operation: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    using _abortListener = addAbortListener(signal, () => session.cut(signal.reason));
    return await operation();
  }

  async function mapSqlErrors<T>(signal: AbortSignal, operation: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    try {
      return await operation();
    } catch (error) {
      throw signal.aborted ? signal.reason : sqlErrorToFailure(error, address);
    }
  }

  async function prepareSession(signal: AbortSignal): Promise<PostgresSession> {
    if (currentSession !== null && currentSession.lostReason() === null) return currentSession;
    await closeSession();
    const newSession = await connectToPostgres(signal);
    try {
      await endOnAbort(newSession, signal, async () => {
        warnOfCrashDataLoss(await refuseUnsuitableServer(newSession), context.log);
        await prepareTables(newSession, requirements, context.log);
      });
    } catch (error) {
      newSession.cut(error);
      throw error;
    }
    currentSession = newSession;
    return newSession;
  }

  async function closeSession(): Promise<void> {
    const session = currentSession;
    currentSession = null;
    await session?.end();
  }

  return {
    maxBatch: 5_000,
    toleratesRepeats: true,
    serverId: createHash("sha256")
      .update(JSON.stringify([address, tableSettings.schema]))
      .digest("hex"),
    async open(signal) {
      await mapSqlErrors(signal, () => prepareSession(signal));
    },
    async write(batch, signal, _acceptEvents, batchInfo) {
      const offeredEvents = batch.map((event, n) => ({
        event,
        position: batchInfo?.positions[n] ?? 0,
        committedAt: batchInfo?.committedAt[n] ?? "",
      }));
      return mapSqlErrors(signal, async () => {
        const session = await prepareSession(signal);
        const recheckTables = () => prepareTables(session, requirements, context.log);
        const options = { session, target: tableSettings, timeoutMs: config.timeout, insertStatements, recheckTables };
        return endOnAbort(session, signal, () => writeBatch(offeredEvents, options));
      });
    },
    close: closeSession,
    async probe(signal) {
      await mapSqlErrors(signal, async () => {
        const probeSession = await connectToPostgres(signal);
        try {
          await endOnAbort(probeSession, signal, async () => {
            warnOfCrashDataLoss(await refuseUnsuitableServer(probeSession), context.log);
            await checkTablePrivileges(probeSession, requirements);
          });
        } finally {
          await probeSession.end();
        }
      });
    },
    async detectRestart(previousId, signal) {
      const session = currentSession;
      if (session === null) return null;
      try {
        return await endOnAbort(session, signal, () => readServerInstance(session, previousId));
      } catch (error) {
        if (signal.aborted) throw signal.reason;
        context.log.debug({ err: error }, "the database server does not say which of its lives this is");
        return null;
      }
    },
  };
}

function warnOfCrashDataLoss(
  { synchronousCommit, fsync }: Awaited<ReturnType<typeof refuseUnsuitableServer>>,
  log: Log,
): void {
  if (synchronousCommit !== "off" && fsync !== "off") return;
  log.warn(
    { synchronous_commit: synchronousCommit, fsync },
    "the database server answers before what it took is on its disk; what it loses in a crash is sent again only within replay_after_restart",
  );
}

/** Identifies the server: a promoted replica (new timeline) or a restart without synced commits may lack commits. */
async function readServerInstance(session: PostgresSession, previousId: string | null): Promise<ServerInstance> {
  const { rows } = await session.query(
    `select substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
  (extract(epoch from pg_postmaster_start_time()) * 1000)::bigint::text,
  current_setting('synchronous_commit') = 'off' or current_setting('fsync') = 'off'`,
  );
  const [timeline, startedAt, losesCommitsInCrash] = rows[0] ?? [];
  const serverInstanceId = losesCommitsInCrash === true ? `${timeline} ${startedAt}` : String(timeline);
  return { instanceId: serverInstanceId, isNew: previousId !== null && previousId !== serverInstanceId };
}
