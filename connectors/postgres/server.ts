import type { Life } from "../../src/connector.ts";
import { ConfigError } from "../../src/errors.ts";
import type { Log } from "../../src/log.ts";
import type { Session } from "./session.ts";

/** What a server says of itself. */
export interface Server {
  /** `off` where a commit returns before it is on the disk. */
  readonly synchronousCommit: string;
  readonly fsync: string;
}

/** Throws ConfigError where the database cannot take our tables, whatever is in it. */
export async function refuseUnfit(session: Session): Promise<Server> {
  const { rows } = await session.query(
    `select current_setting('synchronous_commit'), current_setting('fsync'), pg_is_in_recovery(),
  current_setting('transaction_read_only'), current_setting('server_encoding')`,
  );
  const [synchronousCommit, fsync, isReplica, readOnly, encoding] = rows[0] ?? [];
  if (isReplica === true) {
    throw new ConfigError("The database server is a replica, which only lets us read.", {
      field: "host",
      hint: "Write the address of the primary.",
    });
  }
  if (readOnly === "on") {
    throw new ConfigError("The database only lets us read (default_transaction_read_only).", {
      field: "database",
      hint: "Set it to off for the role or the database.",
    });
  }
  if (encoding !== "UTF8") {
    throw new ConfigError(
      `The database keeps texts as ${encoding}, in which not every name can be written.`,
      {
        field: "database",
        hint: "Create one with encoding 'UTF8'.",
      },
    );
  }
  return { synchronousCommit: String(synchronousCommit), fsync: String(fsync) };
}

/** A commit that is not on the disk may be lost with the server, and then events that were accepted. */
export function warnOfLoss({ synchronousCommit, fsync }: Server, log: Log): void {
  if (synchronousCommit !== "off" && fsync !== "off") return;
  log.warn(
    { synchronous_commit: synchronousCommit, fsync },
    "the database server answers before what it took is on its disk; what it loses in a crash is sent again only within replay_after_restart",
  );
}

/**
 * Another timeline is a replica that was promoted, and may not have got the last commits; where commits are not on the
 * disk, each start of the server may have lost some. A plain restart otherwise loses nothing.
 */
export async function lifeOf(session: Session, before: string | null): Promise<Life> {
  const { rows } = await session.query(
    `select substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
  (extract(epoch from pg_postmaster_start_time()) * 1000)::bigint::text,
  current_setting('synchronous_commit') = 'off' or current_setting('fsync') = 'off'`,
  );
  const [timeline, startedAt, forgets] = rows[0] ?? [];
  const life = forgets === true ? `${timeline} ${startedAt}` : String(timeline);
  return { life, isNew: before !== null && before !== life };
}
