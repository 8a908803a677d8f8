import type { Query } from "../../core/postgres/session.ts";
import type { StateDatabase } from "../postgres/state-database.ts";
import { FLEET, type Myself } from "./membership.ts";
import type { Reason } from "./status.ts";
import type { SourceRow } from "./view.ts";

/** So many changes of holder are remembered. */
const MOST_TAKEOVERS = 1_000;

export interface Taken {
  readonly source: string;
  readonly epoch: number;
  readonly from: string | null;
  readonly reason: Reason;
}

/**
 * Takes free sources and returns those it got. Each take names the epoch at which the source was free: a quicker member has changed
 * the epoch. Rows that a transaction locks are left for the next look.
 */
export async function take(
  database: StateDatabase,
  me: Myself,
  wanted: readonly Pick<SourceRow, "name" | "epoch">[],
): Promise<readonly Taken[]> {
  const [source, takeover] = [database.table("source"), database.table("takeover")];
  const text = `
    with free as (
      select name, epoch, holder, given_by, reason from ${source}
      where (name, epoch) in (select * from unnest($1::text[], $2::bigint[]))
      for update skip locked
    ), taken as (
      update ${source} as it set epoch = free.epoch + 1, holder = $3, incarnation = $4, given_by = null,
        held_since = clock_timestamp(),
        reason = case when free.holder is not null then 'lease-ran-out' else coalesce(free.reason, 'first') end
      from free where it.name = free.name
      returning it.name, it.epoch, coalesce(free.holder, free.given_by) as from_member, it.reason
    ), noted as (
      insert into ${takeover} (source, from_member, to_member, epoch, at, reason)
      select name, from_member, $3, epoch, clock_timestamp(), reason from taken
    )
    select name, epoch, from_member, reason from taken order by name`;
  const names = wanted.map(({ name }) => name);
  const epochs = wanted.map(({ epoch }) => String(epoch));
  const [taken] = await database.transact([
    { text, values: [names, epochs, me.name, me.incarnation] },
    { text: `delete from ${takeover} where id <= (select max(id) from ${takeover}) - ${MOST_TAKEOVERS}` },
    database.notify(FLEET),
  ]);
  return (taken?.rows ?? []).map(([name, epoch, from, reason]) => ({
    source: String(name),
    epoch: Number(epoch),
    from: from === null || from === undefined ? null : String(from),
    reason: reason as Reason,
  }));
}

export interface GivenBack {
  readonly source: string;
  readonly epoch: number;
  readonly reason: Reason;
}

/** Releases sources. Those that another member has taken meanwhile do not change. */
export async function giveBack(
  database: StateDatabase,
  { incarnation }: Pick<Myself, "incarnation">,
  given: readonly GivenBack[],
): Promise<void> {
  const text = `update ${database.table("source")} as it set given_by = holder, holder = null, incarnation = null,
      held_since = null, reason = given.reason
    from unnest($1::text[], $2::bigint[], $3::text[]) as given (source, epoch, reason)
    where it.name = given.source and it.epoch = given.epoch and it.incarnation = $4`;
  const columns = [
    given.map(({ source }) => source),
    given.map(({ epoch }) => String(epoch)),
    given.map(({ reason }) => reason),
  ];
  const asked: Query = { text, values: [...columns, incarnation] };
  await database.transact([asked, database.notify(FLEET)]);
}
