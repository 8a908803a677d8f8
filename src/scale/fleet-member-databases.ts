import type { Clock } from "../core/runtime/clock.ts";
import type { Log } from "../core/runtime/log.ts";
import { formatSeconds } from "../core/values/duration.ts";
import type { PostgresState } from "../engine/store/state-config.ts";
import { utcTextSql } from "./fleet/fleet-tables.ts";
import { FLEET_LEASE_TIMING } from "./fleet/lease-timing.ts";
import { openStateDatabase } from "./postgres/open-state-database.ts";
import type { StateDatabase } from "./postgres/state-database.ts";

/** Number of urgent connections: two for statements, one for the fleet's status, one for notifications. */
const URGENT_POOL_SIZE = 4;
/** Limits urgent statements, so that a failed lease renewal can be repeated while the lease is valid (8 s). */
const URGENT_STATEMENT_TIMEOUT_MS = 3_000;

/** Opens two connection pools, so that 300 busy sources do not delay lease renewals. Throws as `openStateDatabase`. */
export async function openMemberDatabases(options: {
  readonly config: PostgresState;
  readonly clock: Clock;
  readonly log: Log;
}) {
  const urgentDatabase = await openStateDatabase({
    ...{ ...options, migrate: true, connections: URGENT_POOL_SIZE, statementTimeoutMs: URGENT_STATEMENT_TIMEOUT_MS },
  });
  try {
    // Add the connection that is reserved for listening to notifications.
    const connectionCount = options.config.connections + 1;
    const database = await openStateDatabase({ ...options, migrate: false, connections: connectionCount });
    return {
      database: { ...database, onNotified: urgentDatabase.onNotified },
      /** Pool for leases, kill switch and guards, which the load of the sources does not delay. */
      urgent: urgentDatabase,
      async close(): Promise<void> {
        await Promise.all([database.close(), urgentDatabase.close()]);
      },
    };
  } catch (error) {
    await urgentDatabase.close();
    throw error;
  }
}

export type MemberDatabases = Awaited<ReturnType<typeof openMemberDatabases>>;

const SERVER_IDENTITY_KEY = "place";

/** SQL for the identity of the server, its timeline and the table; a restored backup has another identity. */
const SERVER_IDENTITY_SQL = `select concat_ws(' ', (pg_control_system()).system_identifier,
  left(pg_walfile_name(pg_current_wal_lsn()), 8), to_regclass($1)::oid)`;

/**
 * Detects a restored backup or a failover before this member joins. If no other member runs, each sink's sequence
 * numbers start again in a new epoch, because receivers may know the next numbers. Cannot detect a restored disk image.
 */
export async function detectBackupRestore({ table, transaction }: StateDatabase) {
  return transaction(async (session) => {
    // This lock makes members start one after the other, so that only the first member handles a restore.
    await session.query(`select digest from ${table("meta")} for update`);
    const { rows: currentIdentityRows } = await session.query(SERVER_IDENTITY_SQL, [table("source")]);
    const serverIdentity = JSON.stringify(String(currentIdentityRows[0]?.[0] ?? ""));
    const { rows: storedIdentityRows } = await session.query(
      `select body from ${table("fleet_document")} where key = $1`,
      [SERVER_IDENTITY_KEY],
    );
    const storedIdentity = storedIdentityRows[0]?.[0];
    if (storedIdentity === serverIdentity) return null;
    await session.query(
      `insert into ${table("fleet_document")} (key, body) values ($1, $2)
       on conflict (key) do update set body = excluded.body`,
      [SERVER_IDENTITY_KEY, serverIdentity],
    );
    if (storedIdentity === undefined) return null;
    const { rows } = await session.query(
      `select ${utcTextSql("max(seen_at)")},
         extract(epoch from clock_timestamp() - max(seen_at))::double precision,
         coalesce(bool_or(gone is null and abs(extract(epoch from clock_timestamp() - seen_at)) < $1::int), false)
       from ${table("member")}`,
      [String(FLEET_LEASE_TIMING.ttlMs / 1_000)],
    );
    const [lastHeardAt = null, backupAgeSeconds = null, hasRunningMember] = rows[0] ?? [];
    if (hasRunningMember === true) return null;
    await session.query(
      `update ${table("sink")} set counted = 0, epoch = left(replace(gen_random_uuid()::text, '-', ''), 16)`,
    );
    const backupAgeText =
      backupAgeSeconds === null
        ? "no member was heard of in it"
        : `it lies back ${formatSeconds(Math.max(0, Number(backupAgeSeconds)))}: a member was heard of last at ${lastHeardAt}`;
    return {
      lastHeardAt: lastHeardAt === null ? null : String(lastHeardAt),
      message: `The database is not the one that the members used last (a backup was restored, or another server took over), and ${backupAgeText}. Receivers may get events again, with the same ids, and their sequence numbers start again.`,
    };
  });
}
