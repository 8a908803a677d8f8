import type { TagScalar } from "../building.ts";
import type { CommandOutcome } from "../event.ts";

/** A command that passed the gate: one value for one tag. */
export interface Command {
  readonly id: string;
  readonly source: string;
  readonly siteId: number;
  readonly tagId: string;
  readonly value: TagScalar;
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

/** Why the gate refuses, in the order of its checks. The first failing check answers. */
export const REFUSALS = [
  "disabled",
  "killed",
  "too-large",
  "unreadable",
  "invalid",
  "duplicate",
  "expired",
  "clock-skew",
  "retained",
  "loop",
  "not-allowed",
  "wrong-type",
  "out-of-range",
  "value-unknown",
  "step-too-large",
  "too-soon",
  "too-many",
  "outside-hours",
  "gateway-offline",
  "not-recorded",
] as const;
export type Refusal = (typeof REFUSALS)[number];
