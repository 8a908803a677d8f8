import { ConfigError } from "../errors/errors.ts";
import type { Session } from "./session.ts";

/** Version and settings of a server. */
export interface Server {
  /** `off` where a commit returns before it is on the disk. */
  readonly synchronousCommit: string;
  readonly fsync: string;
}

/** The server does not let us write: a replica, or a database that is set so. */
export class ReadOnly extends ConfigError {}

/** Throws ConfigError where the database cannot take our tables, whatever is in it. */
export async function refuseUnfit(session: Session): Promise<Server> {
  const { rows } = await session.query(
    `select current_setting('synchronous_commit'), current_setting('fsync'), pg_is_in_recovery(),
  current_setting('transaction_read_only'), current_setting('server_encoding')`,
  );
  const [synchronousCommit, fsync, isReplica, readOnly, encoding] = rows[0] ?? [];
  if (isReplica === true) {
    throw new ReadOnly("The database server is a replica, which only lets us read.", {
      field: "host",
      hint: "Write the address of the primary.",
    });
  }
  if (readOnly === "on") {
    throw new ReadOnly("The database only lets us read (default_transaction_read_only).", {
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
