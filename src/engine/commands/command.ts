import type { TagScalar, TagValue } from "../../core/model/building.ts";
import type { CommandOutcome } from "../../core/model/command-event-data.ts";

export interface Command {
  readonly id: string;
  readonly source: string;
  readonly siteId: number;
  readonly tagId: string;
  readonly value: TagScalar;
  readonly expect: TagScalar | null;
  /** After this time the old value is put back; null for a write that stays. */
  readonly forMs: number | null;
  readonly needsSecond: boolean;
  readonly via: string;
  /** Connector instance and topic, or the operator on the command line. */
  readonly by: string;
  readonly receivedAt: string;
  /** The command is not sent after this time, UTC. */
  readonly expiresAt: string;
  readonly replyTo: string | null;
  readonly correlation: string | null;
}

/** After a crash, a command in state `sending` may have been written: it is read back and never sent again. */
export type CommandState = "accepted" | "sending" | CommandOutcome;

/** Reasons of rejections in the order of the checks. From `value-unknown` on they are checked again before sending. */
export const COMMAND_REFUSALS = [
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
export type CommandRefusal = (typeof COMMAND_REFUSALS)[number];

export const COMMAND_ENDINGS = [
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
  "rules-changed",
  "stopped",
  "stop",
] as const;
export type CommandReason = CommandRefusal | (typeof COMMAND_ENDINGS)[number];

export interface CommandEnd {
  readonly outcome: CommandOutcome;
  readonly reason: CommandReason | null;
  readonly message: string;
  readonly before?: TagValue;
  readonly readBack?: TagValue;
  readonly rehearsal?: boolean;
  readonly answer?: string;
}

export function tagKey({ source, tagId }: { readonly source: string; readonly tagId: string }): string {
  return `${source}/${tagId}`;
}
