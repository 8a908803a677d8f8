import type { ServerInstance } from "../../src/core/connector.ts";
import type { Server } from "../../src/core/postgres/server.ts";
import type { Session } from "../../src/core/postgres/session.ts";
import type { Log } from "../../src/core/runtime/log.ts";

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
export async function lifeOf(session: Session, before: string | null): Promise<ServerInstance> {
  const { rows } = await session.query(
    `select substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8),
  (extract(epoch from pg_postmaster_start_time()) * 1000)::bigint::text,
  current_setting('synchronous_commit') = 'off' or current_setting('fsync') = 'off'`,
  );
  const [timeline, startedAt, forgets] = rows[0] ?? [];
  const life = forgets === true ? `${timeline} ${startedAt}` : String(timeline);
  return { life, isNew: before !== null && before !== life };
}
