import { createHash, randomBytes } from "node:crypto";
import { hostname } from "node:os";
import type { Config } from "../../app/config/config.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { VERSION } from "../../core/runtime/version.ts";
import type { StateDatabase } from "../postgres/state-database.ts";
import type { MemberCandidate, ServiceReachBySource, SourceHolder } from "./assign-sources.ts";
import type { MemberHeartbeat } from "./lease-timing.ts";

/**
 * Session of a fleet member; the session's row is the lease for all the member's sources. If the row is not renewed for
 * the lease duration, another member declares the session gone and may take its sources. Renewing and declaring lock
 * the same row, so the clocks of members do not matter.
 */
export interface MemberSession {
  readonly name: string;
  /** Id of the session, which is new at each registration of the member. */
  readonly incarnation: string;
}

export const FLEET_TOPIC = "fleet";

const MAX_STORED_TAKEOVERS = 1_000;

export type FleetTables = Awaited<ReturnType<typeof readFleetRows>>;

export interface FleetMemberRow {
  readonly name: string;
  readonly incarnation: string;
  readonly host: string;
  readonly version: string;
  readonly page: string;
  readonly startedAt: string;
  readonly seenAt: string;
  /** Time since the member's last lease renewal, for display only, because the database's clock may have been set. */
  readonly unheardMs: number;
  readonly isDraining: boolean;
  readonly isLeaving: boolean;
  /** How the session ended; null while the member is registered. An ended session cannot renew its lease. */
  readonly gone: "left" | "lost" | null;
  readonly unable: readonly string[];
  readonly reach: ServiceReachBySource;
  readonly digest: string;
}

export interface FleetSourceRow {
  readonly name: string;
  readonly epoch: number;
  /** Member that took the source last and has not released it, even if the member is gone. */
  readonly holder: string | null;
  readonly incarnation: string | null;
  /** Member that released the source last; null while a member holds the source. */
  readonly givenBy: string | null;
  readonly since: string | null;
  readonly reason: TakeoverReason | null;
}

/** Reason of a takeover. `joined`: a member had too few sources. `left`: the previous holder stopped. */
export type TakeoverReason =
  | "first"
  | "joined"
  | "left"
  | "drained"
  | "lease-ran-out"
  | "could-not-start"
  | "unreachable";

const IS_EXPIRED_MEMBER_SQL = `gone is not null and seen_at < clock_timestamp() - case when draining then interval '7 days' else interval '1 day' end`;

export const utcTextSql = (column: string) => `to_char(${column} at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

/** Reads all members and the given sources (null: all) in one statement, so that members and sources match. */
export async function readFleetRows(database: StateDatabase, sources: readonly string[] | null) {
  const memberRowJsonSql = `'name', name, 'incarnation', incarnation, 'host', host, 'version', version, 'page', page,
    'startedAt', ${utcTextSql("started_at")}, 'seenAt', ${utcTextSql("seen_at")},
    'unheardMs', extract(epoch from clock_timestamp() - seen_at) * 1000, 'isDraining', draining,
    'isLeaving', leaving, 'gone', gone, 'unable', unable::json, 'reach', reach::json, 'digest', digest`;
  const sourceRowJsonSql = `'name', name, 'epoch', epoch, 'holder', holder, 'incarnation', incarnation, 'givenBy', given_by,
    'since', ${utcTextSql("held_since")}, 'reason', reason`;
  const { rows } = await database.query(
    `select
       (select json_agg(json_build_object(${memberRowJsonSql})) from ${database.table("member")} where not (${IS_EXPIRED_MEMBER_SQL}))::text,
       (select json_agg(json_build_object(${sourceRowJsonSql})) from ${database.table("source")}
         where $1::text[] is null or name = any ($1))::text`,
    [sources],
  );
  const [members, sourceRows] = (rows[0] ?? []).map((cell) => JSON.parse(String(cell ?? "[]")));
  return {
    members: sortRowsByName(members as FleetMemberRow[]),
    sources: sortRowsByName(sourceRows as FleetSourceRow[]),
  };
}

function sortRowsByName<T extends { readonly name: string }>(rows: readonly T[]): readonly T[] {
  return rows.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

/** Returns the registered holder of a source; null without a holder or when the holder is gone. */
export function findHolder(source: FleetSourceRow, { members }: FleetTables): FleetMemberRow | null {
  const holderRow = members.find(({ name }) => name === source.holder);
  return holderRow?.gone === null && holderRow.incarnation === source.incarnation ? holderRow : null;
}

export function listMemberCandidates({ members }: FleetTables): readonly MemberCandidate[] {
  return members
    .filter(({ gone }) => gone === null)
    .map(({ name, isDraining, isLeaving, unable, reach }) => ({
      ...{ name, acceptsSources: !isDraining && !isLeaving, unable, reach },
    }));
}

export function listSourceHolders(view: FleetTables): readonly SourceHolder[] {
  return view.sources.map((source) => [source.name, findHolder(source, view)?.name ?? null]);
}

/** Digest of the options that all members share: 16 hexadecimal digits, independent of the order of keys. */
export function digestSharedConfig({ sources, sinks, commands, state }: Config): string {
  const { max_bytes, max_age, replay_window, plots } = state;
  const sharedOptions = { sources, sinks, commands, state: { max_bytes, max_age, replay_window, plots } };
  return createHash("sha256").update(JSON.stringify(sharedOptions, toCanonicalJson)).digest("hex").slice(0, 16);
}

/** `JSON.stringify` replacer: sorts the keys of each object, and writes numbers that JSON does not have as text. */
function toCanonicalJson(_key: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) return String(value);
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

/** Member that prevents a registration: it has the same name, or another configuration. */
export interface JoinBlocker extends MemberHeartbeat {
  readonly host: string;
  readonly digest: string;
}

/** Registers a member, unless other members block it. A blocker may have crashed: the caller checks its heartbeats. */
export async function registerMember(
  database: StateDatabase,
  own: { readonly name: string; readonly sources: readonly string[]; readonly digest: string; readonly page: string },
): Promise<MemberSession | { readonly beats: readonly MemberHeartbeat[]; readonly blockers: readonly JoinBlocker[] }> {
  const { name, sources, digest, page } = own;
  const memberTable = database.table("member");
  const sessionId = randomBytes(8).toString("hex");
  return database.transaction(async (session) => {
    // The lock makes members register one after the other, so that two different configurations cannot both be first.
    await session.query(`select digest from ${database.table("meta")} for update`);
    const { rows } = await session.query(
      `select name, incarnation, renewals::text, host, digest from ${memberTable} where gone is null order by name`,
    );
    const heartbeats = rows.map((row): JoinBlocker => {
      const [memberName = "", incarnation = "", renewals = "", host = "", memberDigest = ""] = row.map(String);
      return { name: memberName, incarnation, renewals: Number(renewals), host, digest: memberDigest };
    });
    const joinBlockers = heartbeats.filter((other) => other.name === name || other.digest !== digest);
    if (joinBlockers.length > 0) return { beats: heartbeats, blockers: joinBlockers };
    await session.query(
      `insert into ${memberTable} as it
         (name, incarnation, host, version, page, started_at, seen_at, draining, leaving, gone, unable, digest)
       values ($1, $2, $3, $4, $5, clock_timestamp(), clock_timestamp(), false, false, null, '[]', $6)
       on conflict (name) do update set incarnation = excluded.incarnation, host = excluded.host,
         version = excluded.version, page = excluded.page, started_at = excluded.started_at,
         seen_at = excluded.seen_at, renewals = 0, leaving = false, gone = null, unable = '[]', reach = '{}',
         digest = excluded.digest`,
      [name, sessionId, hostname(), VERSION, page, digest],
    );
    await session.query(`update ${database.table("meta")} set digest = $1`, [digest]);
    await session.query(
      `insert into ${database.table("source")} (name) select unnest($1::text[]) on conflict (name) do nothing`,
      [sources],
    );
    await session.query(`delete from ${memberTable} where ${IS_EXPIRED_MEMBER_SQL}`);
    const { text, values } = database.notify(FLEET_TOPIC);
    await session.query(text, values);
    return { name, incarnation: sessionId };
  });
}

export function registrationError(blocker: JoinBlocker, name: string): ConfigError {
  if (blocker.name === name)
    return new ConfigError(`Another member with the name ${name} runs in this fleet already, on ${blocker.host}.`, {
      hint: "Give each member a name of its own, or stop the other one.",
    });
  return new ConfigError(
    `The fleet runs with another configuration than this member: that of ${blocker.name} on ${blocker.host} differs in sources, sinks, commands or the bounds of the state.`,
    { hint: "Start this member with the same file, or stop all members before any is started with a new one." },
  );
}

/** Returns false if this session was declared gone; other members may then hold its sources. */
export async function renewMemberLease(database: StateDatabase, me: MemberSession, pageUrl: string): Promise<boolean> {
  const { rows } = await database.query(
    `update ${database.table("member")} set renewals = renewals + 1, seen_at = clock_timestamp(), page = $3
     where name = $1 and incarnation = $2 and gone is null returning 1`,
    [me.name, me.incarnation, pageUrl],
  );
  return rows.length > 0;
}

export async function readHeartbeats(database: StateDatabase, me: MemberSession): Promise<readonly MemberHeartbeat[]> {
  const { rows } = await database.query(
    `select name, incarnation, renewals::text from ${database.table("member")} where gone is null and name <> $1`,
    [me.name],
  );
  return rows.map(([name, incarnation, renewals]) => ({
    ...{ name: String(name), incarnation: String(incarnation), renewals: Number(renewals) },
  }));
}

/** Declares silent members gone, except members that have renewed their lease since the given heartbeat. */
export async function declareMembersGone(database: StateDatabase, silentMembers: readonly MemberHeartbeat[]) {
  const text = `update ${database.table("member")} as it set gone = 'lost', leaving = false
    from unnest($1::text[], $2::bigint[]) as silent (incarnation, renewals)
    where it.incarnation = silent.incarnation and it.renewals = silent.renewals and it.gone is null`;
  const values = [
    silentMembers.map(({ incarnation }) => incarnation),
    silentMembers.map(({ renewals }) => String(renewals)),
  ];
  await database.transact([{ text, values }, database.notify(FLEET_TOPIC)]);
}

export function announceMemberLeaving(database: StateDatabase, me: MemberSession): Promise<void> {
  return updateMember(database, me, "leaving = true");
}

export function leaveFleet(database: StateDatabase, me: MemberSession): Promise<void> {
  return updateMember(database, me, "gone = 'left', leaving = false, seen_at = clock_timestamp()");
}

export function reportFailedStarts(database: StateDatabase, me: MemberSession, sources: readonly string[]) {
  return updateMember(database, me, "unable = $3", JSON.stringify(sources));
}

export function reportReach(database: StateDatabase, me: MemberSession, reach: ServiceReachBySource): Promise<void> {
  return updateMember(database, me, "reach = $3", JSON.stringify(reach));
}

async function updateMember(database: StateDatabase, me: MemberSession, setSql: string, ...values: readonly string[]) {
  const text = `update ${database.table("member")} set ${setSql} where name = $1 and incarnation = $2 and gone is null`;
  await database.transact([{ text, values: [me.name, me.incarnation, ...values] }, database.notify(FLEET_TOPIC)]);
}

/** Takes free sources and returns them, except locked rows and rows that another member has changed (epoch). */
export async function takeFreeSources(database: StateDatabase, me: MemberSession, freeRows: readonly FleetSourceRow[]) {
  const [sourceTable, takeover] = [database.table("source"), database.table("takeover")];
  const text = `
    with free as (
      select name, epoch, holder, given_by, reason from ${sourceTable}
      where (name, epoch) in (select * from unnest($1::text[], $2::bigint[]))
      for update skip locked
    ), taken as (
      update ${sourceTable} as it set epoch = free.epoch + 1, holder = $3, incarnation = $4, given_by = null,
        held_since = clock_timestamp(),
        reason = case when free.holder is not null then 'lease-ran-out' else coalesce(free.reason, 'first') end
      from free where it.name = free.name
      returning it.name, it.epoch, coalesce(free.holder, free.given_by) as from_member, it.reason
    ), noted as (
      insert into ${takeover} (source, from_member, to_member, epoch, at, reason)
      select name, from_member, $3, epoch, clock_timestamp(), reason from taken
    )
    select name, epoch, from_member, reason from taken order by name`;
  const arrayParameters = [freeRows.map(({ name }) => name), freeRows.map(({ epoch }) => String(epoch))];
  const [takeResult] = await database.transact([
    { text, values: [...arrayParameters, me.name, me.incarnation] },
    { text: `delete from ${takeover} where id <= (select max(id) from ${takeover}) - ${MAX_STORED_TAKEOVERS}` },
    database.notify(FLEET_TOPIC),
  ]);
  return (takeResult?.rows ?? []).map(([name, epoch, from, reason]) => ({
    source: String(name),
    epoch: Number(epoch),
    from: from === null || from === undefined ? null : String(from),
    reason: reason as TakeoverReason,
  }));
}

/** Releases sources, except sources that another member has taken meanwhile. */
export async function releaseSources(
  database: StateDatabase,
  incarnation: string,
  releasedSources: readonly { readonly source: string; readonly epoch: number; readonly reason: TakeoverReason }[],
): Promise<void> {
  const text = `update ${database.table("source")} as it set given_by = holder, holder = null, incarnation = null,
      held_since = null, reason = given.reason
    from unnest($1::text[], $2::bigint[], $3::text[]) as given (source, epoch, reason)
    where it.name = given.source and it.epoch = given.epoch and it.incarnation = $4`;
  const arrayParameters = [
    releasedSources.map(({ source }) => source),
    releasedSources.map(({ epoch }) => String(epoch)),
    releasedSources.map(({ reason }) => reason),
  ];
  await database.transact([{ text, values: [...arrayParameters, incarnation] }, database.notify(FLEET_TOPIC)]);
}
