import type { TagValue } from "../../core/model/building.ts";
import type { CommandOutcome } from "../../core/model/command-facts.ts";
import { type Event, makeEvent, sourceUri } from "../../core/model/event.ts";
import type { Command, Finish, Reason } from "./command.ts";

/** Event of a command that passed the gate, with its longest wait for the quota; its result follows. */
export function acceptedEvent(command: Command, waitMs: number, time: string): Event<"command-accepted"> {
  const { correlation, expiresAt, forMs, id, needsSecond, replyTo, source, siteId, tagId, value } = command;
  return makeEvent({
    type: "command-accepted",
    source: sourceUri(source),
    subject: `site/${siteId}/tag/${tagId}`,
    time,
    siteId,
    facts: [id],
    data: {
      commandId: id,
      tagId,
      requested: value,
      waitMs: Math.round(waitMs),
      expiresAt,
      forMs,
      needsSecond,
      correlation,
      replyTo,
    },
  });
}

/** Creates the `command-result` event of an ended or rejected command. */
export function resultEvent(command: Command, finish: Finish, time: string): Event<"command-result"> {
  return makeEvent({
    type: "command-result",
    source: sourceUri(command.source),
    subject: `site/${command.siteId}/tag/${command.tagId}`,
    time,
    siteId: command.siteId,
    facts: [command.id],
    data: {
      commandId: command.id,
      tagId: command.tagId,
      outcome: finish.outcome,
      reason: finish.reason,
      message: finish.message,
      requested: command.value,
      before: finish.before ?? null,
      readBack: finish.readBack ?? null,
      rehearsal: finish.rehearsal ?? false,
      correlation: command.correlation,
      replyTo: command.replyTo,
    },
  });
}

/** Something that never became a command, or is about none. */
export interface Warning {
  readonly commandId: string;
  /** Null when the message named no source that exists. */
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

/** `mark` tells apart notices of the same words: an id may be refused more than once. */
export function warningEvent(notice: Warning, time: string, mark: string): Event<"command-result"> {
  const { commandId, tagId, outcome, reason, message, requested, correlation, replyTo } = notice;
  return makeEvent({
    type: "command-result",
    source: notice.source === null ? "/plenum" : sourceUri(notice.source),
    subject: tagId === null ? "commands" : `site/${notice.siteId ?? "-"}/tag/${tagId}`,
    time,
    siteId: notice.siteId,
    facts: [commandId, mark],
    data: {
      commandId,
      tagId,
      outcome,
      reason,
      message,
      requested,
      before: null,
      readBack: null,
      rehearsal: false,
      correlation,
      replyTo,
    },
  });
}
