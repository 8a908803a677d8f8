import type { TagValue } from "./building.ts";

/** A command passed the gate and is in the journal; its one `command-result` follows. */
export interface CommandAccepted {
  /** The id that the requester chose, or the one that was made for it. */
  readonly commandId: string;
  /** The tag to be written. */
  readonly tagId: string;
  /** The value to be written. */
  readonly requested: TagValue;
  /** Longest expected wait for the quota, in milliseconds, when the command was accepted. */
  readonly waitMs: number;
  /** Requests that all writes of the message need at most: to read values before, to write and to read back. */
  readonly messageRequests: number;
  /** Seconds until the last tag of the message is read back, as expected when the command was accepted. */
  readonly messageSeconds: number;
  /** The command is not sent after this time, UTC. */
  readonly expiresAt: string;
  /** After this time the old value is put back, in milliseconds; null for a write that stays. */
  readonly forMs: number | null;
  /** True when a second person must approve the command before `expiresAt`. */
  readonly needsSecond: boolean;
  /** Opaque text of the requester (MQTT 5 correlation data, base64), echoed; null where there is none. */
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
  /** The id that the requester chose, or the one that was made for it. */
  readonly commandId: string;
  /** The tag; null where the message named none. */
  readonly tagId: string | null;
  /** Outcome of the command; docs/commands.md explains each. */
  readonly outcome: CommandOutcome;
  /** Machine-readable reason, e.g. `out-of-range`; null when confirmed. */
  readonly reason: string | null;
  /** Explanation for people. */
  readonly message: string;
  /** The value that was to be written. */
  readonly requested: TagValue;
  /** Value of the tag before the write; null when it was not read. */
  readonly before: TagValue;
  /** Value of the tag when it was read back; null when it was not. */
  readonly readBack: TagValue;
  /** True in rehearsal mode: everything but the write was done. */
  readonly rehearsal: boolean;
  /** Opaque text of the requester (MQTT 5 correlation data, base64), echoed. */
  readonly correlation: string | null;
  /** Additional response topic of the requester (MQTT 5). */
  readonly replyTo: string | null;
}

/**
 * Length of the audit log, emitted with each write and once an hour. Keep one to detect a log that was emptied, cut or
 * rewritten: `plenum audit verify --expect <records>:<head>`.
 */
export interface AuditHead {
  /** Number of records in the audit log. */
  readonly records: number;
  /** Hash of the last record, which depends on all records before: SHA-256, hexadecimal. */
  readonly head: string;
}

/** A value that was written for a time is still in force, because the old one could not be put back. */
export interface CommandNotRestored {
  /** The command that wrote the value for a time. */
  readonly commandId: string;
  /** The tag that still has the timed value. */
  readonly tagId: string;
  /** Last known value of the tag; null when unknown. */
  readonly inForce: TagValue;
  /** Time of the timed write, UTC. */
  readonly since: string;
  /** The old value, which should hold again since `dueAt`. */
  readonly wanted: TagValue;
  /** Time at which the old value should have been put back, UTC. */
  readonly dueAt: string;
  /** Machine-readable reason of the last try, as in a `command-result`. */
  readonly reason: string;
  /** Explanation for people. */
  readonly message: string;
}
