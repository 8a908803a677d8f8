import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { ConfigError } from "../../core/errors/errors.ts";
import type { QueryResult } from "../../core/postgres/session.ts";
import { VERSION } from "../../core/runtime/version.ts";
import type { StateDatabase } from "../postgres/state-database.ts";
import type { Heartbeat } from "./heartbeats.ts";
import type { Reached } from "./share.ts";
import { FORGOTTEN } from "./view.ts";

/**
 * A member's own row. Its lease covers all its sources: one row is renewed, however many there are.
 *
 * An observer that measures no renewal for the lease duration (`heartbeats`) declares the member gone (`bury`), and only sources of a
 * gone session may be taken. A renewal and a burial lock the same row, a burial names the renewal that it saw last, and a gone session
 * cannot renew. So, whatever the clocks show, a member with a successful renewal was not taken for dead before it.
 */
export interface Myself {
  readonly name: string;
  /** Another one at each registration: what a former process of the same name does is not ours. */
  readonly incarnation: string;
}

/** Channel for notifications: a member arrived, left, took or released a source. */
export const FLEET = "fleet";

/** A member that takes part, and with which a new one cannot: it has its name, or another configuration. */
export interface Blocker extends Heartbeat {
  readonly host: string;
  readonly digest: string;
}

/** Members that take part; those among them that block a registration, which was not made then. */
export interface Blocked {
  readonly beats: readonly Heartbeat[];
  readonly blockers: readonly Blocker[];
}

export interface Registration {
  readonly name: string;
  readonly sources: readonly string[];
  readonly digest: string;
  readonly page: string;
}

/**
 * Registers, unless a member has the name or another configuration. Such a member may have been killed a moment ago:
 * the caller observes whether it still renews.
 */
export async function register(
  database: StateDatabase,
  { name, sources, digest, page }: Registration,
): Promise<Myself | Blocked> {
  const member = database.table("member");
  const incarnation = randomBytes(8).toString("hex");
  return database.work(async (session) => {
    // One after the other, so that of two that come at once with different configurations one sees the other.
    await session.query(`select digest from ${database.table("meta")} for update`);
    const others = await session.query(
      `select name, incarnation, renewals::text, host, digest from ${member} where gone is null order by name`,
    );
    const present = texts(others).map(
      ([other = "", its = "", renewals = "", host = "", run = ""]): Blocker => ({
        ...{ name: other, incarnation: its, renewals: Number(renewals), host, digest: run },
      }),
    );
    const blockers = present.filter((other) => other.name === name || other.digest !== digest);
    if (blockers.length > 0) return { beats: present, blockers };
    await session.query(
      `insert into ${member} as it
         (name, incarnation, host, version, page, started_at, seen_at, draining, leaving, gone, unable, digest)
       values ($1, $2, $3, $4, $5, clock_timestamp(), clock_timestamp(), false, false, null, '[]', $6)
       on conflict (name) do update set incarnation = excluded.incarnation, host = excluded.host,
         version = excluded.version, page = excluded.page, started_at = excluded.started_at,
         seen_at = excluded.seen_at, renewals = 0, leaving = false, gone = null, unable = '[]', reach = '{}',
         digest = excluded.digest`,
      [name, incarnation, hostname(), VERSION, page, digest],
    );
    await session.query(`update ${database.table("meta")} set digest = $1`, [digest]);
    await session.query(
      `insert into ${database.table("source")} (name) select unnest($1::text[]) on conflict (name) do nothing`,
      [sources],
    );
    await session.query(`delete from ${member} where ${FORGOTTEN}`);
    const told = database.notify(FLEET);
    await session.query(told.text, told.values);
    return { name, incarnation };
  });
}

/** False when this incarnation was taken for dead: whatever it held may be somebody else's. */
export async function renew(database: StateDatabase, me: Myself, page: string): Promise<boolean> {
  const { rows } = await database.query(
    `update ${database.table("member")} set renewals = renewals + 1, seen_at = clock_timestamp(), page = $3
     where name = $1 and incarnation = $2 and gone is null returning 1`,
    [me.name, me.incarnation, page],
  );
  return rows.length > 0;
}

/** The other members that take part. */
export async function readHeartbeats(database: StateDatabase, me: Myself): Promise<readonly Heartbeat[]> {
  const answer = await database.query(
    `select name, incarnation, renewals::text from ${database.table("member")} where gone is null and name <> $1`,
    [me.name],
  );
  return texts(answer).map(([name = "", incarnation = "", renewals = ""]) => ({
    ...{ name, incarnation, renewals: Number(renewals) },
  }));
}

/** Declares members gone that have not renewed since: from now on others may take what they held. */
export async function bury(database: StateDatabase, silent: readonly Heartbeat[]): Promise<void> {
  const text = `update ${database.table("member")} as it set gone = 'lost', leaving = false
    from unnest($1::text[], $2::bigint[]) as silent (incarnation, renewals)
    where it.incarnation = silent.incarnation and it.renewals = silent.renewals and it.gone is null`;
  const columns = [silent.map(({ incarnation }) => incarnation), silent.map(({ renewals }) => String(renewals))];
  await database.transact([{ text, values: columns }, database.notify(FLEET)]);
}

/** It takes nothing any more, and gives back what it holds. */
export async function announceLeaving(database: StateDatabase, me: Myself): Promise<void> {
  await change(database, me, "leaving = true");
}

/** It holds nothing any more. */
export async function leave(database: StateDatabase, me: Myself): Promise<void> {
  await change(database, me, "gone = 'left', leaving = false, seen_at = clock_timestamp()");
}

/** Which sources it leaves to others for a while. */
export async function reportFailedStart(
  database: StateDatabase,
  me: Myself,
  sources: readonly string[],
): Promise<void> {
  await change(database, me, "unable = $3", JSON.stringify(sources));
}

/** Which services it reaches and which not, by source. */
export async function reportReach(database: StateDatabase, me: Myself, reach: Reached): Promise<void> {
  await change(database, me, "reach = $3", JSON.stringify(reach));
}

async function change(database: StateDatabase, me: Myself, what: string, ...values: readonly string[]): Promise<void> {
  const text = `update ${database.table("member")} set ${what} where name = $1 and incarnation = $2 and gone is null`;
  await database.transact([{ text, values: [me.name, me.incarnation, ...values] }, database.notify(FLEET)]);
}

function texts({ rows }: QueryResult): readonly (readonly string[])[] {
  return rows.map((row) => row.map(String));
}

/** Why a member that runs keeps another one out. */
export function refusalBy(blocker: Blocker, name: string): ConfigError {
  const { host } = blocker;
  if (blocker.name === name) {
    return new ConfigError(`Another member with the name ${name} runs in this fleet already, on ${host}.`, {
      hint: "Give each member a name of its own, or stop the other one.",
    });
  }
  return new ConfigError(
    `The fleet runs with another configuration than this member: that of ${blocker.name} on ${host} differs in sources, sinks, commands or the bounds of the state.`,
    {
      hint: "Start this member with the same file, or stop all members before any is started with a new one.",
    },
  );
}
