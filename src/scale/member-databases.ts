import type { Clock } from "../core/runtime/clock.ts";
import type { Log } from "../core/runtime/log.ts";
import { durationText } from "../core/values/duration.ts";
import type { PostgresState } from "../engine/store/config.ts";
import { utcTextSql } from "./fleet/tables.ts";
import { TIMING } from "./fleet/timing.ts";
import { openStateDatabase } from "./postgres/open.ts";
import type { StateDatabase } from "./postgres/state-database.ts";

/** Two at work, one for the fleet's status, and one that listens for notifications. */
const URGENT_CONNECTIONS = 4;
/** A lease is renewed every 3 s and trusted for 8 s, so a renewal can be repeated. */
const URGENT_LIMIT_MS = 3_000;

/** Opens two pools: 300 busy sources must not delay lease renewals. Throws as `openStateDatabase`. */
export async function openMemberDatabases(options: {
  readonly config: PostgresState;
  readonly clock: Clock;
  readonly log: Log;
}) {
  const urgent = await openStateDatabase({
    ...{ ...options, migrate: true, connections: URGENT_CONNECTIONS, limitMs: URGENT_LIMIT_MS },
  });
  try {
    // One connection is reserved for listening.
    const connections = options.config.connections + 1;
    const database = await openStateDatabase({ ...options, migrate: false, connections });
    return {
      /** For the states of the sources. */
      database: { ...database, onNotified: urgent.onNotified },
      /** The same tables for leases, kill switch and guards, which no load of the sources delays. */
      urgent,
      async close(): Promise<void> {
        await Promise.all([database.close(), urgent.close()]);
      },
    };
  } catch (error) {
    await urgent.close();
    throw error;
  }
}

export type MemberDatabases = Awaited<ReturnType<typeof openMemberDatabases>>;

/** Result of a detected restore. */
export interface DetectedRestore {
  readonly lastHeardAt: string | null;
  readonly message: string;
}

const IDENTITY_KEY = "place";

/** Identity of the server, its timeline and the table; a restored backup differs. */
const IDENTITY_SQL = `select concat_ws(' ', (pg_control_system()).system_identifier,
  left(pg_walfile_name(pg_current_wal_lsn()), 8), to_regclass($1)::oid)`;

/**
 * Detects a restored backup or a failover before this member joins. While no other member runs, every sink then starts a new
 * sequence, because receivers have seen the next numbers with other events. A disk that was set back cannot be detected.
 */
export async function detectRestore({ table, work }: StateDatabase): Promise<DetectedRestore | null> {
  return work(async (session) => {
    // The lock makes members start one after the other: only the first notices the change.
    await session.query(`select digest from ${table("meta")} for update`);
    const { rows: here } = await session.query(IDENTITY_SQL, [table("source")]);
    const place = JSON.stringify(String(here[0]?.[0] ?? ""));
    const { rows: stored } = await session.query(`select body from ${table("fleet_document")} where key = $1`, [
      IDENTITY_KEY,
    ]);
    const before = stored[0]?.[0];
    if (before === place) return null;
    await session.query(
      `insert into ${table("fleet_document")} (key, body) values ($1, $2)
       on conflict (key) do update set body = excluded.body`,
      [IDENTITY_KEY, place],
    );
    if (before === undefined) return null;
    const { rows } = await session.query(
      `select ${utcTextSql("max(seen_at)")},
         extract(epoch from clock_timestamp() - max(seen_at))::double precision,
         coalesce(bool_or(gone is null and abs(extract(epoch from clock_timestamp() - seen_at)) < $1::int), false)
       from ${table("member")}`,
      [String(TIMING.ttlMs / 1_000)],
    );
    const [lastHeardAt = null, seconds = null, hasRunningMember] = rows[0] ?? [];
    if (hasRunningMember === true) return null;
    await session.query(
      `update ${table("sink")} set counted = 0, epoch = left(replace(gen_random_uuid()::text, '-', ''), 16)`,
    );
    const back =
      seconds === null
        ? "no member was heard of in it"
        : `it lies back ${durationText(Math.max(0, Number(seconds)))}: a member was heard of last at ${lastHeardAt}`;
    return {
      lastHeardAt: lastHeardAt === null ? null : String(lastHeardAt),
      message: `The database is not the one that the members used last (a backup was restored, or another server took over), and ${back}. Receivers may get once more what they have, with the same ids, and are counted anew.`,
    };
  });
}
