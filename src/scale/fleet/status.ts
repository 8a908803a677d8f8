/** A fleet as a person sees it. Times are the database's, ISO 8601 in UTC. */
export interface FleetStatus {
  /** Name of the member that answers; null where none does (the command line). */
  readonly self: string | null;
  readonly members: readonly MemberStatus[];
  readonly sources: readonly SourceOwnership[];
  /** The newest first. */
  readonly takeovers: readonly Takeover[];
  /** Null while it cannot be asked. */
  readonly database: DatabaseStatus | null;
  /** One sentence while the database cannot be asked: all else is what was known last. */
  readonly trouble: string | null;
}

/**
 * `alive`: renews its leases. `draining`: does so, and takes no source. `leaving`: hands over because it stops. `left`:
 * has said goodbye. `lost`: was not heard of in time.
 */
export type MemberState = "alive" | "draining" | "leaving" | "left" | "lost";

export interface MemberStatus {
  readonly name: string;
  readonly state: MemberState;
  readonly host: string;
  readonly version: string;
  /** Address of its status page; empty when it listens on another machine's loopback. */
  readonly page: string;
  readonly startedAt: string;
  /** When it was last heard of. */
  readonly seenAt: string;
  /** Taken out of the sharing by an operator; stays so over restarts. */
  readonly isDraining: boolean;
  /** How many sources it holds. */
  readonly sources: number;
  /** Sources that it could not start, and leaves to others for a while. */
  readonly unable: readonly string[];
  /** Sources whose service it does not reach. */
  readonly unreached: readonly string[];
  readonly digest: string;
}

export interface SourceOwnership {
  readonly source: string;
  /** Null without a holder. */
  readonly holder: string | null;
  readonly epoch: number;
  /** Start of the current ownership; null without a holder. */
  readonly since: string | null;
  /** Reason of the last take-over; null without a holder. */
  readonly reason: Reason | null;
}

/**
 * Reason of a take-over. `first`: the source had no holder before. `joined`: a member had less than its share. `left`: its holder
 * stopped. `drained`: an operator requested it. `lease-ran-out`: its holder did not renew in time. `could-not-start`: its holder could
 * not start it. `unreachable`: its holder did not reach the service, and another member did.
 */
export type Reason = "first" | "joined" | "left" | "drained" | "lease-ran-out" | "could-not-start" | "unreachable";

export interface Takeover {
  readonly source: string;
  /** Null when the source had no holder before. */
  readonly from: string | null;
  readonly to: string;
  readonly epoch: number;
  readonly at: string;
  readonly reason: Reason;
}

export interface DatabaseStatus {
  /** For people: server, database and schema, never a password. */
  readonly name: string;
  readonly server: string;
  readonly schemaVersion: number;
  readonly bytes: number;
  readonly synchronousCommit: string;
  readonly dataChecksums: boolean;
  /** Warnings about durability, one sentence each; empty when there are none. */
  readonly doubts: readonly string[];
  readonly isReplica: boolean;
}
