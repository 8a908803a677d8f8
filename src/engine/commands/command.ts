import type { TagScalar, TagValue } from "../../core/model/building.ts";
import type { CommandOutcome } from "../../core/model/command-event-data.ts";

export interface Command {
  readonly id: string;
  readonly source: string;
  readonly siteId: number;
  readonly tagId: string;
  readonly value: TagScalar;
  readonly expect: TagScalar | null;
  /** Time after which the old value is put back; null for a permanent write. */
  readonly forMs: number | null;
  readonly needsSecond: boolean;
  readonly via: string;
  /** User name that the sender states without proof; commands stored by older versions have none. */
  readonly user?: string | null;
  /** Sender: connector instance and topic, or the operator on the command line. */
  readonly by: string;
  readonly receivedAt: string;
  readonly expiresAt: string;
  readonly replyTo: string | null;
  readonly correlation: string | null;
}

/** After a crash, the tag of a command in state `sending` is read back; the command is not sent again. */
export type WriteCommandState = "accepted" | "sending" | CommandOutcome;

/** Reasons for refusing a command, in the order of the checks. Checks from `value-unknown` on run before sending. */
export const COMMAND_REFUSAL_REASONS = [
  "too-large",
  "unreadable",
  "loop",
  "invalid",
  "disabled",
  "killed",
  "not-armed",
  "unapproved",
  "audit-full",
  "duplicate",
  "clock-skew",
  "expired",
  "retained",
  "not-allowed",
  "locked",
  "unknown-tag",
  "wrong-unit",
  "no-ability",
  "wrong-type",
  "out-of-range",
  "not-restorable",
  "flood",
  "value-unknown",
  "unexpected-value",
  "step-too-large",
  "too-soon",
  "too-many",
  "outside-hours",
  "gateway-offline",
] as const;
export type CommandRefusal = (typeof COMMAND_REFUSAL_REASONS)[number];

export const COMMAND_ENDING_REASONS = [
  "not-seconded",
  "wrong-second",
  "already-set",
  "rehearsal",
  "throttled",
  "refused-by-service",
  "mismatch",
  "unreadable-device",
  "in-doubt",
  "superseded",
  "scene-refused",
  "rules-changed",
  "stopped",
  "stop",
] as const;
export type CommandEndingReason = CommandRefusal | (typeof COMMAND_ENDING_REASONS)[number];

export interface CommandEnd {
  readonly outcome: CommandOutcome;
  readonly reason: CommandEndingReason | null;
  readonly message: string;
  readonly before?: TagValue;
  readonly readBack?: TagValue;
  readonly rehearsal?: boolean;
  readonly senderMessage?: string;
}

export function tagKey({ source, tagId }: { readonly source: string; readonly tagId: string }): string {
  return `${source}/${tagId}`;
}
