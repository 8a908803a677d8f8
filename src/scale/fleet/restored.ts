import { durationText } from "../../core/values/duration.ts";
import type { StateDatabase } from "../postgres/state-database.ts";
import { TIMING } from "./timing.ts";

/** The database is not the one that the members used last; states how far it lies back. */
export interface Restored {
  /** When a member was last heard of, as the database says; null where none ever was. ISO 8601, UTC. */
  readonly lastHeardAt: string | null;
  /** One sentence for a person. */
  readonly message: string;
}

const KEY = "place";

/** Identity of the server, its timeline and the table; a restored backup differs. */
const PLACE = `select concat_ws(' ', (pg_control_system()).system_identifier,
  left(pg_walfile_name(pg_current_wal_lsn()), 8), to_regclass($1)::oid)`;

/**
 * Checks that the database is the one that the members used last, before this one joins; null when it is. A restore from a backup or a
 * failover makes it another one.
 *
 * While no other member runs, every sink then starts a new sequence, because receivers have seen the next numbers with other events.
 * Running members went through the change and know what they have sent. A complete disk that was set back cannot be detected.
 */
export async function detectRestore(database: StateDatabase): Promise<Restored | null> {
  const { table } = database;
  return database.work(async (session) => {
    // Members come one after the other: only the first notices.
    await session.query(`select digest from ${table("meta")} for update`);
    const { rows: here } = await session.query(PLACE, [table("source")]);
    const place = JSON.stringify(String(here[0]?.[0] ?? ""));
    const { rows: known } = await session.query(`select body from ${table("fleet_document")} where key = $1`, [KEY]);
    const before = known[0]?.[0];
    if (before === place) return null;
    await session.query(
      `insert into ${table("fleet_document")} (key, body) values ($1, $2)
       on conflict (key) do update set body = excluded.body`,
      [KEY, place],
    );
    if (before === undefined) return null;
    const { rows } = await session.query(
      `select to_char(max(seen_at) at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
         extract(epoch from clock_timestamp() - max(seen_at))::double precision,
         coalesce(bool_or(gone is null and abs(extract(epoch from clock_timestamp() - seen_at)) < $1::int), false)
       from ${table("member")}`,
      [String(TIMING.ttlMs / 1_000)],
    );
    const [lastHeardAt = null, seconds = null, isAnybodyThere] = rows[0] ?? [];
    if (isAnybodyThere === true) return null;
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
