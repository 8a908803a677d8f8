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
  /** Address of its status page; empty where whoever asks cannot open it, because it listens on another machine's loopback. */
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
  /** Null while nobody holds it. */
  readonly holder: string | null;
  readonly epoch: number;
  /** Since when it is held; null while nobody holds it. */
  readonly since: string | null;
  /** Why it came to its holder; null while nobody holds it. */
  readonly reason: Reason | null;
}

/**
 * Why a source changed its holder. `first`: nobody ever held it. `joined`: a member has less than its share. `left`: its
 * holder stopped. `drained`: an operator wanted it. `lease-ran-out`: its holder was not heard of in time.
 * `could-not-start`: its holder could not begin with it. `unreachable`: its holder did not reach its service, and another
 * member did.
 */
export type Reason =
  | "first"
  | "joined"
  | "left"
  | "drained"
  | "lease-ran-out"
  | "could-not-start"
  | "unreachable";

export interface Takeover {
  readonly source: string;
  /** Null where nobody ever held it. */
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
  /** What a person should know of it, a sentence each; empty when it keeps what it promises. */
  readonly doubts: readonly string[];
  readonly isReplica: boolean;
}
