import type { TagScalar, TagValue } from "../../core/model/building.ts";
import type { CommandOutcome } from "../../core/model/command-facts.ts";

/** A command that passed the gate: one value for one tag. */
export interface Command {
  readonly id: string;
  readonly source: string;
  readonly siteId: number;
  readonly tagId: string;
  readonly value: TagScalar;
  /** Write only if the tag still holds this. */
  readonly expect: TagScalar | null;
  /** After this time, milliseconds, the old value is put back; null for a write that stays. */
  readonly forMs: number | null;
  /** True when it may leave only after a second person has agreed. */
  readonly needsSecond: boolean;
  /** The connector instance that it came through, or `operator`. */
  readonly via: string;
  /** Who asked: the connector instance and topic, or the operator on the command line. */
  readonly by: string;
  readonly receivedAt: string;
  /** After this time it is not sent any more, UTC. */
  readonly expiresAt: string;
  readonly replyTo: string | null;
  readonly correlation: string | null;
}

/**
 * The life of a command. `sending` is on disk before the request leaves; a command found in that state after a
 * crash was perhaps written, so it is read back and never sent again.
 */
export type CommandState = "accepted" | "sending" | CommandOutcome;

/**
 * Why the gate refuses, in the order of its checks; the first that fails answers. `value-unknown` and what follows
 * it is judged again at the moment of sending.
 */
export const REFUSALS = [
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
export type CommandRefusal = (typeof REFUSALS)[number];

/** Reasons of a result in addition to the rejections. */
export const ENDINGS = [
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
export type Reason = CommandRefusal | (typeof ENDINGS)[number];

/** Result of a finished command. */
export interface Finish {
  readonly outcome: CommandOutcome;
  /** Null when confirmed without anything to add. */
  readonly reason: Reason | null;
  readonly message: string;
  readonly before?: TagValue;
  readonly readBack?: TagValue;
  readonly rehearsal?: boolean;
  /** The service's response to the write, for the audit log. */
  readonly answer?: string;
}

/** A tag of a source, as the key of maps and documents. */
export function tagKey({ source, tagId }: { readonly source: string; readonly tagId: string }): string {
  return `${source}/${tagId}`;
}
