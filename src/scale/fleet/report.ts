import { hostname } from "node:os";
import { ConfigError } from "../../core/errors/errors.ts";
import { isLoopback } from "../../core/http/loopback.ts";
import { durabilityWarnings, type StateDatabase } from "../postgres/state-database.ts";
import { FLEET } from "./membership.ts";
import type { FleetStatus, MemberState, MemberStatus, Reason, SourceOwnership, Takeover } from "./status.ts";
import { TIMING } from "./timing.ts";
import { holderOf, look, type MemberRow, utc, type View } from "./view.ts";

/** So many changes of holder are shown. */
const SHOWN_TAKEOVERS = 100;

/** The fleet as its tables say, for a member or for one who is none (`self` null, and all sources that were ever known). */
export async function readFleet(
  database: StateDatabase,
  self: string | null = null,
  sources: readonly string[] | null = null,
): Promise<FleetStatus> {
  const [view, takeovers, description] = await Promise.all([
    look(database, sources),
    readTakeovers(database),
    database.describe(),
  ]);
  return {
    self,
    ...shown(view),
    takeovers,
    database: { name: database.name, ...description, doubts: durabilityWarnings(description) },
    trouble: null,
  };
}

export function shown(view: View): Pick<FleetStatus, "members" | "sources"> {
  const sources = view.sources.map((source): SourceOwnership => {
    const holder = holderOf(source, view)?.name ?? null;
    const isHeld = holder !== null;
    return {
      source: source.name,
      holder,
      epoch: source.epoch,
      since: isHeld ? source.since : null,
      reason: isHeld ? source.reason : null,
    };
  });
  const members = view.members.map(
    (member): MemberStatus => ({
      name: member.name,
      state: stateOf(member),
      host: member.host,
      version: member.version,
      page: pageOf(member, hostname()),
      startedAt: member.startedAt,
      seenAt: member.seenAt,
      isDraining: member.isDraining,
      sources: sources.filter(({ holder }) => holder === member.name).length,
      unable: member.unable,
      unreached: Object.keys(member.reach).filter((source) => member.reach[source] === false),
      digest: member.digest,
    }),
  );
  return { members, sources };
}

/**
 * A page that listens on loopback is opened on its own machine alone, and one that listens on all addresses
 * (`http://0.0.0.0:9850`) by the machine's name.
 */
export function pageOf({ host, page }: Pick<MemberRow, "host" | "page">, here: string): string {
  if (page === "") return "";
  const address = new URL(page);
  if (isLoopback(address.hostname)) return host === here ? page : "";
  if (["0.0.0.0", "[::]"].includes(address.hostname)) return `http://${host}:${address.port}`;
  return page;
}

function stateOf({ gone, unheardMs, isLeaving, isDraining }: MemberRow): MemberState {
  if (gone !== null) return gone;
  // No member has declared it gone yet. After a step of the database's clock a live member renews within seconds.
  if (Math.abs(unheardMs) >= TIMING.ttlMs) return "lost";
  if (isLeaving) return "leaving";
  return isDraining ? "draining" : "alive";
}

async function readTakeovers(database: StateDatabase): Promise<readonly Takeover[]> {
  const { rows } = await database.query(
    `select source, from_member, to_member, epoch, ${utc("at")}, reason from ${database.table("takeover")}
     order by id desc limit ${SHOWN_TAKEOVERS}`,
  );
  return rows.map(([source, from, to, epoch, at, reason]) => ({
    source: String(source),
    from: from === null ? null : String(from),
    to: String(to),
    epoch: Number(epoch),
    at: String(at),
    reason: reason as Reason,
  }));
}

/**
 * Has a member hand over all it holds, or take part again. It holds for the name, so also after a restart, and for one
 * that is stopped just now. Throws a `ConfigError` where the fleet does not know the name.
 */
export async function setDraining(database: StateDatabase, name: string, isDraining: boolean): Promise<void> {
  const [changed] = await database.transact([
    {
      text: `update ${database.table("member")} set draining = $2::boolean where name = $1 returning 1`,
      values: [name, String(isDraining)],
    },
    database.notify(FLEET),
  ]);
  if ((changed?.rows.length ?? 0) > 0) return;
  const { members } = await look(database, []);
  const known = members.map((member) => member.name).join(", ");
  throw new ConfigError(`The fleet has no member with the name ${name}.`, {
    hint: members.length === 0 ? "The fleet has no members; start one first." : `Use one of: ${known}.`,
  });
}
