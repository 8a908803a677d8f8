import type { TagValue } from "./building.ts";

/** A command passed all checks and was stored; exactly one `command-result` follows. */
export interface CommandAccepted {
  /** Id of the command, chosen by the requester or made by Plenum. */
  readonly commandId: string;
  /** The tag to be written. */
  readonly tagId: string;
  /** The value to be written. */
  readonly requested: TagValue;
  /** Longest expected wait for the quota, in milliseconds, when the command was accepted. */
  readonly waitMs: number;
  /** Maximum number of requests for all writes of the message: to read old values, to write, and to read back. */
  readonly messageRequests: number;
  /** Seconds until the last tag of the message is read back, as expected when the command was accepted. */
  readonly messageSeconds: number;
  /** The command is not sent after this time, UTC. */
  readonly expiresAt: string;
  /** Milliseconds until the old value is put back; null for a permanent write. */
  readonly forMs: number | null;
  /** True when a second person must approve the command before `expiresAt`. */
  readonly needsSecond: boolean;
  /** The requester's MQTT 5 correlation data (base64), returned unchanged; null without such data. */
  readonly correlation: string | null;
  /** Additional response topic of the requester (MQTT 5); null without one. */
  readonly replyTo: string | null;
}

export const COMMAND_OUTCOMES = [
  "confirmed",
  "accepted-unverified",
  "mismatch",
  "rejected",
  "expired",
  "superseded",
  "duplicate",
  "unknown",
] as const;
export type CommandOutcome = (typeof COMMAND_OUTCOMES)[number];

export interface CommandResult {
  /** Id of the command, chosen by the requester or made by Plenum. */
  readonly commandId: string;
  /** Id of the tag; null if the message named no tag. */
  readonly tagId: string | null;
  /** Outcome of the command; docs/commands.md explains each. */
  readonly outcome: CommandOutcome;
  /** Machine-readable reason, e.g. `out-of-range`; null when confirmed. */
  readonly reason: string | null;
  /** Explanation for people. */
  readonly message: string;
  /** The value that the command should write. */
  readonly requested: TagValue;
  /** Value of the tag before the write; null if the tag was not read. */
  readonly before: TagValue;
  /** Value of the tag that was read after the write; null if the tag was not read. */
  readonly readBack: TagValue;
  /** True in rehearsal mode, in which Plenum does everything except the write. */
  readonly rehearsal: boolean;
  /** The requester's MQTT 5 correlation data (base64), returned unchanged. */
  readonly correlation: string | null;
  /** Additional response topic of the requester (MQTT 5). */
  readonly replyTo: string | null;
}

/**
 * Length of the audit log, emitted with each write and once an hour. Keep one event to detect a log that was cut or
 * rewritten: `plenum audit verify --expect <records>:<head>`.
 */
export interface AuditHead {
  /** Number of records in the audit log. */
  readonly records: number;
  /** Hash of the last record, which depends on all records before: SHA-256, hexadecimal. */
  readonly head: string;
}

/** A tag still has the value of a temporary write, because Plenum could not put the old value back. */
export interface CommandNotRestored {
  /** Id of the command that wrote the temporary value. */
  readonly commandId: string;
  /** Id of the tag that still has the temporary value. */
  readonly tagId: string;
  /** Last known value of the tag; null when unknown. */
  readonly inForce: TagValue;
  /** Time at which the temporary value was written, UTC. */
  readonly since: string;
  /** The old value, which the tag should have had again at `dueAt`. */
  readonly wanted: TagValue;
  /** Time at which the old value should have been put back, UTC. */
  readonly dueAt: string;
  /** Machine-readable reason of the last failed attempt, as in a `command-result`. */
  readonly reason: string;
  /** Explanation for people. */
  readonly message: string;
}
