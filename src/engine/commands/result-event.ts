import type { TagValue } from "../../core/model/building.ts";
import type { CommandOutcome } from "../../core/model/command-facts.ts";
import { type Event, makeEvent, sourceUri } from "../../core/model/event.ts";
import type { Command, Finish, Reason } from "./command.ts";

export function acceptedEvent(command: Command, waitMs: number, time: string): Event<"command-accepted"> {
  const { correlation, expiresAt, forMs, id: commandId, needsSecond, replyTo, source, siteId, tagId, value } = command;
  return makeEvent({
    type: "command-accepted",
    source: sourceUri(source),
    subject: `site/${siteId}/tag/${tagId}`,
    time,
    siteId,
    facts: [commandId],
    data: {
      ...{ commandId, tagId, requested: value, waitMs: Math.round(waitMs) },
      ...{ expiresAt, forMs, needsSecond, correlation, replyTo },
    },
  });
}

export function resultEvent(command: Command, finish: Finish, time: string): Event<"command-result"> {
  const { correlation, id: commandId, replyTo, siteId, source, tagId, value: requested } = command;
  const { before = null, message, outcome, readBack = null, reason, rehearsal = false } = finish;
  return makeEvent({
    type: "command-result",
    source: sourceUri(source),
    subject: `site/${siteId}/tag/${tagId}`,
    time,
    siteId,
    facts: [commandId],
    data: {
      ...{ commandId, tagId, outcome, reason, message, requested, before, readBack, rehearsal },
      ...{ correlation, replyTo },
    },
  });
}

export interface MessageResult {
  readonly commandId: string;
  readonly source: string | null;
  readonly siteId: number | null;
  readonly tagId: string | null;
  readonly requested: TagValue;
  readonly outcome: CommandOutcome;
  readonly reason: Reason;
  readonly message: string;
  readonly by: string;
  readonly replyTo: string | null;
  readonly correlation: string | null;
  readonly receivedAtMs: number;
}

/** `auditHash` makes the event's id unique, because one command id may be refused several times. */
export function messageEvent(result: MessageResult, time: string, auditHash: string): Event<"command-result"> {
  const { commandId, correlation, message, outcome, reason, replyTo, requested, siteId, source, tagId } = result;
  return makeEvent({
    type: "command-result",
    source: source === null ? "/plenum" : sourceUri(source),
    subject: tagId === null ? "commands" : `site/${siteId ?? "-"}/tag/${tagId}`,
    time,
    siteId,
    facts: [commandId, auditHash],
    data: {
      ...{ commandId, tagId, outcome, reason, message, requested, before: null, readBack: null, rehearsal: false },
      ...{ correlation, replyTo },
    },
  });
}
