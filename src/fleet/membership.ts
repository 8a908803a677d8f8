import { randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { ConfigError } from "../errors.ts";
import type { Answer } from "../postgres/session.ts";
import type { StateDatabase } from "../store/postgres/state-database.ts";
import { VERSION } from "../version.ts";
import { FORGOTTEN, utc } from "./view.ts";

/**
 * A member's own row. Its lease is the lease of all that it holds: one row is renewed, however many sources there are.
 *
 * Who did not renew in time is declared gone by whoever notices (`bury`), and only what a gone incarnation held may be
 * taken. A renewal and a burial wait for each other at the row, and a gone incarnation can renew nothing; so, whatever
 * the clocks say, a member that was told "renewed" has not been taken for dead before.
 */
export interface Myself {
  readonly name: string;
  /** Another one at each registration: what a former process of the same name does is not ours. */
  readonly incarnation: string;
}

/** What others are told by: who came, went, took or gave back. */
export const FLEET = "fleet";

/** Another process with this name was heard of in time. */
export interface Occupied {
  readonly incarnation: string;
  readonly host: string;
  readonly seenAt: string;
}

export interface Registration {
  readonly name: string;
  readonly sources: readonly string[];
  readonly digest: string;
  readonly page: string;
  readonly ttlMs: number;
}

/** Answers who has the name, where somebody has. Throws a `ConfigError` where others run another configuration. */
export async function register(
  database: StateDatabase,
  { name, sources, digest, page, ttlMs }: Registration,
): Promise<Myself | Occupied> {
  const member = database.table("member");
  const incarnation = randomBytes(8).toString("hex");
  return database.work(async (session) => {
    // One after the other, so that of two that come at once with different configurations one sees the other.
    await session.query(`select digest from ${database.table("meta")} for update`);
    await session.query(buryText(database));
    const others = await session.query(
      `select name, incarnation, host, digest, ${utc("seen_at")} from ${member} where gone is null order by name`,
    );
    const [namesake] = texts(others).filter(([other]) => other === name);
    if (namesake !== undefined) {
      const [, its = "", host = "", , seenAt = ""] = namesake;
      return { incarnation: its, host, seenAt };
    }
    const [stranger] = texts(others).filter(([, , , other]) => other !== digest);
    if (stranger !== undefined) throw anotherConfiguration(stranger[0] ?? "", stranger[2] ?? "");
    await session.query(
      `insert into ${member} as it
         (name, incarnation, host, version, page, started_at, seen_at, lease_until, draining, leaving, gone, unable, digest)
       values ($1, $2, $3, $4, $5, clock_timestamp(), clock_timestamp(), ${until("$6")}, false, false, null, '[]', $7)
       on conflict (name) do update set incarnation = excluded.incarnation, host = excluded.host,
         version = excluded.version, page = excluded.page, started_at = excluded.started_at,
         seen_at = excluded.seen_at, lease_until = excluded.lease_until, leaving = false, gone = null, unable = '[]',
         digest = excluded.digest`,
      [name, incarnation, hostname(), VERSION, page, String(ttlMs), digest],
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
export async function renew(
  database: StateDatabase,
  me: Myself,
  ttlMs: number,
  page: string,
): Promise<boolean> {
  const { rows } = await database.query(
    `update ${database.table("member")} set lease_until = ${until("$3")}, seen_at = clock_timestamp(), page = $4
     where name = $1 and incarnation = $2 and gone is null returning 1`,
    [me.name, me.incarnation, String(ttlMs), page],
  );
  return rows.length > 0;
}

/** Whoever did not renew in time is gone from now on, and what it held may be taken. */
export async function bury(database: StateDatabase): Promise<void> {
  await database.transact([{ text: buryText(database) }, database.notify(FLEET)]);
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
export async function tellUnable(
  database: StateDatabase,
  me: Myself,
  sources: readonly string[],
): Promise<void> {
  await change(database, me, "unable = $3", JSON.stringify(sources));
}

async function change(
  database: StateDatabase,
  me: Myself,
  what: string,
  ...values: readonly string[]
): Promise<void> {
  const text = `update ${database.table("member")} set ${what} where name = $1 and incarnation = $2 and gone is null`;
  await database.transact([{ text, values: [me.name, me.incarnation, ...values] }, database.notify(FLEET)]);
}

function buryText(database: StateDatabase): string {
  return `update ${database.table("member")} set gone = 'lost', leaving = false
    where gone is null and lease_until <= clock_timestamp()`;
}

const until = (ms: string) => `clock_timestamp() + ${ms}::int * interval '1 millisecond'`;

function texts({ rows }: Answer): readonly (readonly string[])[] {
  return rows.map((row) => row.map(String));
}

function anotherConfiguration(member: string, host: string): ConfigError {
  return new ConfigError(
    `The fleet runs with another configuration than this member: that of ${member} on ${host} differs in sources, sinks, commands or the bounds of the state.`,
    {
      hint: "Start this member with the same file, or stop all members before any is started with a new one.",
    },
  );
}

/** A name that somebody else has. */
export function nameTaken(name: string, { host }: Occupied): ConfigError {
  return new ConfigError(`Another member with the name ${name} runs in this fleet already, on ${host}.`, {
    hint: "Give each member a name of its own, or stop the other one.",
  });
}
