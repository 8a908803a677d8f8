import { ConfigError, Retryable } from "../errors/errors.ts";
import { type PostgresErrorWording, sqlErrorToFailure } from "./error-meaning.ts";
import { formatPostgresAddress, type PostgresAddress } from "./server-address.ts";
import { openPostgresSession, type PostgresSession, type PostgresSessionOptions } from "./session.ts";

export interface PrimaryServerOptions extends Omit<PostgresSessionOptions, "address"> {
  readonly addresses: readonly PostgresAddress[];
  readonly wording: PostgresErrorWording;
}

/** Connects to the first server that accepts writes. Throws `ConfigError` if no server may become primary soon. */
export async function openPrimarySession(options: PrimaryServerOptions, signal: AbortSignal): Promise<PostgresSession> {
  const { addresses, wording } = options;
  const failures: Error[] = [];
  for (const address of addresses) {
    let session: PostgresSession | undefined;
    try {
      session = await openPostgresSession({ ...options, address }, signal);
      await refuseUnsuitableServer(session);
      return session;
    } catch (error) {
      session?.cut(error);
      signal.throwIfAborted();
      failures.push(sqlErrorToFailure(error, address, wording));
    }
  }
  const transientFailure = failures.find((failure) => failure instanceof Retryable);
  const permanentFailure = failures.find(
    (failure) => !(failure instanceof Retryable || failure instanceof ReadOnlyServerError),
  );
  const [firstFailure] = failures;
  if (addresses.length === 1 && firstFailure !== undefined) throw firstFailure;
  if (permanentFailure !== undefined && transientFailure === undefined) throw permanentFailure;
  const serverNames = addresses.map(formatPostgresAddress).join(" and ");
  throw new Retryable(`None of the database servers at ${serverNames} takes writes at the moment.`, {
    hint: transientFailure?.message ?? "All of them are replicas; it goes on when one becomes the primary.",
  });
}

class ReadOnlyServerError extends ConfigError {}

/** Throws `ConfigError` for a read-only server, and for a database whose encoding cannot store every text. */
export async function refuseUnsuitableServer(session: PostgresSession) {
  const { rows } = await session.query(
    `select current_setting('synchronous_commit'), current_setting('fsync'), pg_is_in_recovery(),
  current_setting('transaction_read_only'), current_setting('server_encoding')`,
  );
  const [synchronousCommit, fsync, isReplica, readOnly, encoding] = rows[0] ?? [];
  if (isReplica === true) {
    throw new ReadOnlyServerError("The database server is a replica, which only lets us read.", {
      field: "host",
      hint: "Write the address of the primary.",
    });
  }
  if (readOnly === "on") {
    throw new ReadOnlyServerError("The database only lets us read (default_transaction_read_only).", {
      field: "database",
      hint: "Set it to off for the role or the database.",
    });
  }
  if (encoding !== "UTF8") {
    throw new ConfigError(`The database keeps texts as ${encoding}, in which not every name can be written.`, {
      field: "database",
      hint: "Create one with encoding 'UTF8'.",
    });
  }
  return { synchronousCommit: String(synchronousCommit), fsync: String(fsync) };
}
