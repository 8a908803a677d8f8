import { hostname } from "node:os";
import { ConfigError } from "../../core/errors/errors.ts";
import { isLoopbackHost } from "../../core/http/loopback.ts";
import { durabilityWarnings, type StateDatabase, type StateDatabaseDescription } from "../postgres/state-database.ts";
import type { FleetMemberRow, FleetTables, TakeoverReason } from "./fleet-tables.ts";
import { FLEET_TOPIC, findHolder, readFleetRows, utcTextSql } from "./fleet-tables.ts";
import { FLEET_LEASE_TIMING } from "./lease-timing.ts";

/** Status of a fleet as the status page and the command line show it. Times are in UTC, by the database's clock. */
export interface FleetStatus extends ReturnType<typeof buildFleetStatus> {
  /** Name of the member that reports the status; null if the command line reads it from the database. */
  readonly self: string | null;
  readonly takeovers: Awaited<ReturnType<typeof readTakeovers>>;
  readonly database: (StateDatabaseDescription & { readonly name: string; readonly doubts: readonly string[] }) | null;
  readonly trouble: string | null;
}

export interface MemberStatus
  extends Pick<
    FleetMemberRow,
    "name" | "host" | "version" | "page" | "startedAt" | "seenAt" | "isDraining" | "unable" | "digest"
  > {
  /** `draining`: takes no source. `leaving`: hands over its sources to stop. `lost`: did not renew its lease in time. */
  readonly state: "alive" | "draining" | "leaving" | "left" | "lost";
  readonly sources: number;
  readonly unreached: readonly string[];
}

const MAX_SHOWN_TAKEOVERS = 100;

/** Reads the status of a fleet. `sources` null: all sources that ever existed. */
export async function readFleetStatus(
  database: StateDatabase,
  self: string | null = null,
  sources: readonly string[] | null = null,
): Promise<FleetStatus> {
  const [view, takeovers, description] = await Promise.all([
    readFleetRows(database, sources),
    readTakeovers(database),
    database.describe(),
  ]);
  const { name } = database;
  return {
    ...{ self, ...buildFleetStatus(view), takeovers },
    database: { name, ...description, doubts: durabilityWarnings(description) },
    trouble: null,
  };
}

export function buildFleetStatus(view: FleetTables) {
  const sources = view.sources.map((row) => {
    const { name: source, epoch, since, reason } = row;
    const holder = findHolder(row, view)?.name ?? null;
    return { source, holder, epoch, since: holder === null ? null : since, reason: holder === null ? null : reason };
  });
  const members = view.members.map((member): MemberStatus => {
    const { name, host, version, startedAt, seenAt, isDraining, unable, digest, reach } = member;
    return {
      ...{ name, state: memberState(member), host, version, page: memberUrl(member, hostname()), startedAt, seenAt },
      ...{ isDraining, sources: sources.filter(({ holder }) => holder === name).length, unable },
      ...{ unreached: Object.keys(reach).filter((source) => reach[source] === false), digest },
    };
  });
  return { members, sources };
}

/** Returns the URL of a member's page that the machine `ownHost` can open; empty if there is none. */
export function memberUrl({ host, page }: Pick<FleetMemberRow, "host" | "page">, ownHost: string): string {
  if (page === "") return "";
  const pageUrl = new URL(page);
  if (isLoopbackHost(pageUrl.hostname)) return host === ownHost ? page : "";
  return ["0.0.0.0", "[::]"].includes(pageUrl.hostname) ? `http://${host}:${pageUrl.port}` : page;
}

function memberState({ gone, unheardMs, isLeaving, isDraining }: FleetMemberRow): MemberStatus["state"] {
  if (gone !== null) return gone;
  // After a step of the database's clock, a live member is shown as lost until its next renewal, seconds later.
  if (Math.abs(unheardMs) >= FLEET_LEASE_TIMING.ttlMs) return "lost";
  if (isLeaving) return "leaving";
  return isDraining ? "draining" : "alive";
}

async function readTakeovers(database: StateDatabase) {
  const { rows } = await database.query(
    `select source, from_member, to_member, epoch, ${utcTextSql("at")}, reason from ${database.table("takeover")}
     order by id desc limit ${MAX_SHOWN_TAKEOVERS}`,
  );
  return rows.map(([source, from, to, epoch, at, reason]) => ({
    source: String(source),
    from: from === null ? null : String(from),
    to: String(to),
    epoch: Number(epoch),
    at: String(at),
    reason: reason as TakeoverReason,
  }));
}

/** Sets whether a member must hand over all its sources, also after a restart. Throws `ConfigError` for an unknown name. */
export async function setDraining(database: StateDatabase, name: string, isDraining: boolean): Promise<void> {
  const text = `update ${database.table("member")} set draining = $2::boolean where name = $1 returning 1`;
  const [updateResult] = await database.transact([
    { text, values: [name, String(isDraining)] },
    database.notify(FLEET_TOPIC),
  ]);
  if ((updateResult?.rows.length ?? 0) > 0) return;
  const { members } = await readFleetRows(database, []);
  throw new ConfigError(`The fleet has no member with the name ${name}.`, {
    hint:
      members.length === 0
        ? "The fleet has no members; start one first."
        : `Use one of: ${members.map((member) => member.name).join(", ")}.`,
  });
}

export function describeSourceHolder(
  source: string,
  { members, self, sources }: Pick<FleetStatus, "members" | "self" | "sources">,
): { readonly message: string; readonly holder: { readonly name: string; readonly page: string } | null } {
  const holderName = sources.find((each) => each.source === source)?.holder;
  const member = members.find((each) => each.name === holderName);
  if (member === undefined)
    return { message: `No member of the fleet holds the source ${source} just now.`, holder: null };
  if (member.name === self)
    return { message: `The source ${source} is being started by this member, ${self}.`, holder: null };
  const { host, page } = member;
  return {
    message: `The source ${source} is held by the member ${member.name} of the fleet, on ${host}${page === "" ? "" : ` (${page})`}: ask there.`,
    holder: { name: member.name, page },
  };
}
