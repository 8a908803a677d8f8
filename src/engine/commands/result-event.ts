import type { TagValue } from "../../core/model/building.ts";
import type { CommandOutcome } from "../../core/model/command-event-data.ts";
import { type Event, makeEvent, sourceUri } from "../../core/model/event.ts";
import type { Command, CommandEnd, CommandEndingReason } from "./command.ts";
import type { MessageCost } from "./request-cost-of-message.ts";

/** `index` is the position of the command in its message. */
export function buildAcceptedEvent(
  command: Command,
  { requestCount, totalSeconds, waitsMs }: MessageCost,
  index: number,
  time: string,
): Event<"command-accepted"> {
  const { correlation, expiresAt, forMs, id: commandId, needsSecond, replyTo, tagId, value } = command;
  const commandFields = { commandId, tagId, requested: value, waitMs: Math.round(waitsMs[index] ?? 0) };
  const messageFields = { messageRequests: requestCount, messageSeconds: totalSeconds };
  const data = { ...commandFields, ...messageFields, expiresAt, forMs, needsSecond, correlation, replyTo };
  return makeEvent({ type: "command-accepted", ...resultSubject(command), time, facts: [commandId], data });
}

export function buildCommandResultEvent(command: Command, ending: CommandEnd, time: string): Event<"command-result"> {
  const { correlation, id: commandId, replyTo, tagId, value: requested } = command;
  const { before = null, message, outcome, readBack = null, reason, rehearsal = false } = ending;
  const result = { commandId, tagId, outcome, reason, message, requested, before, readBack, rehearsal };
  const data = { ...result, correlation, replyTo };
  return makeEvent({ type: "command-result", ...resultSubject(command), time, facts: [commandId], data });
}

export interface MessageResult {
  readonly commandId: string;
  readonly source: string | null;
  readonly siteId: number | null;
  readonly tagId: string | null;
  readonly requested: TagValue;
  readonly outcome: CommandOutcome;
  readonly reason: CommandEndingReason;
  readonly message: string;
  readonly by: string;
  readonly replyTo: string | null;
  readonly correlation: string | null;
  readonly receivedAtMs: number;
}

/** Refused messages may repeat a command id; `auditHash` makes the ids of their events unique. */
export function buildResultEvent(result: MessageResult, time: string, auditHash: string): Event<"command-result"> {
  const { commandId, correlation, message, outcome, reason, replyTo, requested, tagId } = result;
  const values = { requested, before: null, readBack: null, rehearsal: false };
  const data = { commandId, tagId, outcome, reason, message, ...values, correlation, replyTo };
  return makeEvent({ type: "command-result", ...resultSubject(result), time, facts: [commandId, auditHash], data });
}

function resultSubject({ source, siteId, tagId }: Pick<MessageResult, "source" | "siteId" | "tagId">) {
  return {
    source: source === null ? "/plenum" : sourceUri(source),
    subject: tagId === null ? "commands" : `site/${siteId ?? "-"}/tag/${tagId}`,
    siteId,
  };
}
