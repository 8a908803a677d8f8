import type { StateDatabase } from "../postgres/state-database.ts";
import type { Holder, Reached, Sharer } from "./share.ts";
import type { Reason } from "./status.ts";

/**
 * Contents of the tables at one moment, read by one statement so that members and sources match. Times are the
 * database's, UTC.
 */
export interface View {
  readonly members: readonly MemberRow[];
  readonly sources: readonly SourceRow[];
}

export interface MemberRow {
  readonly name: string;
  readonly incarnation: string;
  readonly host: string;
  readonly version: string;
  readonly page: string;
  readonly startedAt: string;
  readonly seenAt: string;
  /** Milliseconds since its last renewal by the database's wall clock, which may have been set since: for people only. */
  readonly unheardMs: number;
  readonly isDraining: boolean;
  readonly isLeaving: boolean;
  /** Null while it takes part. A session that is gone stays gone: it can renew nothing. */
  readonly gone: "left" | "lost" | null;
  readonly unable: readonly string[];
  readonly reach: Reached;
  readonly digest: string;
}

export interface SourceRow {
  readonly name: string;
  readonly epoch: number;
  /** Holder as it registered itself; it may be gone. */
  readonly holder: string | null;
  readonly incarnation: string | null;
  /** Last holder before it was released; null while it is held or before the first holder. */
  readonly givenBy: string | null;
  readonly since: string | null;
  /** Reason of the current ownership, or of the last release. */
  readonly reason: Reason | null;
}

/** Members that left are listed for this long; draining members longer. */
export const FORGOTTEN = `gone is not null and seen_at < clock_timestamp() - case when draining then interval '7 days' else interval '1 day' end`;

/** In ISO 8601, UTC, with milliseconds. */
export const utc = (column: string) => `to_char(${column} at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

const UNHEARD_MS = "extract(epoch from clock_timestamp() - seen_at) * 1000";

/** Reads these sources, or all known ones (null). */
export async function look(database: StateDatabase, sources: readonly string[] | null): Promise<View> {
  const member = `'name', name, 'incarnation', incarnation, 'host', host, 'version', version, 'page', page,
    'startedAt', ${utc("started_at")}, 'seenAt', ${utc("seen_at")}, 'unheardMs', ${UNHEARD_MS}, 'isDraining', draining,
    'isLeaving', leaving, 'gone', gone, 'unable', unable::json, 'reach', reach::json, 'digest', digest`;
  const source = `'name', name, 'epoch', epoch, 'holder', holder, 'incarnation', incarnation, 'givenBy', given_by,
    'since', ${utc("held_since")}, 'reason', reason`;
  const { rows } = await database.query(
    `select
       (select json_agg(json_build_object(${member})) from ${database.table("member")} where not (${FORGOTTEN}))::text,
       (select json_agg(json_build_object(${source})) from ${database.table("source")}
         where $1::text[] is null or name = any ($1))::text`,
    [sources],
  );
  const [members, found] = (rows[0] ?? []).map((cell) => JSON.parse(String(cell ?? "[]")));
  return { members: inOrder(members as MemberRow[]), sources: inOrder(found as SourceRow[]) };
}

function inOrder<T extends { readonly name: string }>(rows: readonly T[]): readonly T[] {
  return rows.toSorted((a, b) => (a.name < b.name ? -1 : 1));
}

/** The member that holds it, if that one still takes part. */
export function holderOf(source: SourceRow, { members }: View): MemberRow | null {
  const holder = members.find(({ name }) => name === source.holder);
  return holder?.gone === null && holder.incarnation === source.incarnation ? holder : null;
}

export function sharersOf({ members }: View): readonly Sharer[] {
  return members
    .filter(({ gone }) => gone === null)
    .map(({ name, isDraining, isLeaving, unable, reach }) => ({
      ...{ name, takes: !isDraining && !isLeaving, unable, reach },
    }));
}

export function holdersOf(view: View): readonly Holder[] {
  return view.sources.map((source) => [source.name, holderOf(source, view)?.name ?? null]);
}
