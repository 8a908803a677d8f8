import { createHash } from "node:crypto";
import { z } from "zod";
import type { CommandMessage } from "../../core/connector.ts";
import type { TagScalar } from "../../core/model/building.ts";
import { EVENT_KINDS } from "../../core/model/event.ts";
import type { CommandRefusal } from "./command.ts";

/**
 * Parsed command message: a value on a tag's own topic (`21.5`), or JSON:
 * - `{"id": "…", "value": 21.5}`, or for up to 200 tags `{"id": "…", "writes": [{"tag": "10001", "value": 21.5}, …]}`;
 * - `{"stop": true}`, which stops all writing; a message cannot allow it again;
 * - on a separate topic, the approval of a second person: `{"second": "<id of the command>", "value": 21.5}`.
 */
export interface TagWriteRequest {
  /** Command id from the sender. A message that writes several tags gets one id per tag, which ends in the tag id. */
  readonly id: string;
  readonly source: string | null;
  readonly tagId: string;
  readonly value: TagScalar;
  readonly issuedAtMs: number | null;
  readonly ttlMs: number | null;
  readonly forMs: number | null;
  readonly expect: TagScalar | null;
  /** True for a message that is only a value; the tag's entry must permit such messages by `plain: true`. */
  readonly isPlain?: true;
}

export interface SecondPersonApproval {
  readonly id: string;
  readonly value: TagScalar;
}

export type ParsedCommandPayload =
  | { readonly messageId: string; readonly requests: readonly TagWriteRequest[] }
  | { readonly second: SecondPersonApproval }
  | { readonly stop: { readonly id: string } }
  | { readonly refused: { readonly reason: CommandRefusal; readonly message: string; readonly id: string | null } };

const MAX_WRITES_PER_MESSAGE = 200;

const IdSchema = z
  .string()
  .regex(/^\P{Cc}{1,128}$/u, "must have 1 to 128 characters and no control characters")
  .refine((text) => text.isWellFormed(), "is no valid text");
const ValueSchema = z.union([z.number(), z.boolean()], { error: "value must be a number, true or false" });
const SharedCommandFields = {
  id: IdSchema.optional(),
  source: IdSchema.optional(),
  issued_at: z.iso.datetime({ offset: true, error: "issued_at must be ISO 8601 with an offset or Z" }).optional(),
  ttl_s: z.number().positive().optional(),
  for_s: z.number().positive().optional(),
};
const TagWriteSchema = z.strictObject({ tag: IdSchema, value: ValueSchema, expect: ValueSchema.optional() });
const SingleWriteSchema = z.strictObject({ ...SharedCommandFields, ...TagWriteSchema.shape, tag: IdSchema.optional() });
const GroupWriteSchema = z.strictObject({
  ...SharedCommandFields,
  writes: z.array(TagWriteSchema).min(1).max(MAX_WRITES_PER_MESSAGE),
});
const SecondApprovalSchema = z.strictObject({ second: z.string().min(1).max(300), value: ValueSchema });
const StopWritingSchema = z.strictObject({ id: IdSchema.optional(), stop: z.literal(true) });

const OWN_MESSAGE_REFUSAL_TEXT = "This is a message that Plenum itself published; it is not a command.";

export type FindKnownId = (idPrefix: string) => string | undefined;

export function parseCommandPayload(arrival: CommandMessage, findKnownId: FindKnownId): ParsedCommandPayload {
  let messageText: string;
  try {
    messageText = new TextDecoder("utf-8", { fatal: true }).decode(arrival.payload).trim();
  } catch {
    return refuse("unreadable", "The message is not UTF-8 text.");
  }
  let parsedJson: unknown;
  try {
    parsedJson = JSON.parse(messageText);
  } catch {
    return refuse("unreadable", "The message is neither a bare value nor JSON.");
  }
  if (typeof parsedJson !== "object" || parsedJson === null) return parseBareTagValue(parsedJson, arrival, findKnownId);
  return parseJsonCommand(parsedJson, arrival, findKnownId);
}

function parseBareTagValue(value: unknown, arrival: CommandMessage, findKnownId: FindKnownId): ParsedCommandPayload {
  if (isPublishedByPlenum(arrival)) return refuse("loop", OWN_MESSAGE_REFUSAL_TEXT);
  const parsedTagValue = ValueSchema.safeParse(value);
  if (!parsedTagValue.success) return refuse("invalid", "A bare value must be a number, true or false.");
  if (arrival.tagId === null) return refuse("invalid", "A bare value needs the topic of its tag.");
  const id = commandIdInProperties(arrival) ?? makeCommandId(arrival, findKnownId);
  const { source, tagId } = arrival;
  const defaultFields = { issuedAtMs: null, ttlMs: null, forMs: null, expect: null, isPlain: true } as const;
  return { messageId: id, requests: [{ id, source, tagId, value: parsedTagValue.data, ...defaultFields }] };
}

function parseJsonCommand(value: object, arrival: CommandMessage, findKnownId: FindKnownId): ParsedCommandPayload {
  const id = commandIdInBody(value) ?? commandIdInProperties(arrival);
  const refuseMessage = (message: string) => refuse("invalid", message, id);
  if (isPublishedByPlenum(arrival) || isPlenumEventBody(value, id)) return refuse("loop", OWN_MESSAGE_REFUSAL_TEXT, id);
  if ("stop" in value) {
    if (!StopWritingSchema.safeParse(value).success) return refuseMessage('To stop all writing, send {"stop": true}.');
    return { stop: { id: id ?? makeCommandId(arrival, findKnownId) } };
  }
  if (arrival.purpose === "second") {
    const approval = SecondApprovalSchema.safeParse(value);
    if (approval.success) return { second: { id: approval.data.second, value: approval.data.value } };
    return refuseMessage('Here goes {"second": "<id of a command>", "value": …} only.');
  }
  const parsedCommand = "writes" in value ? GroupWriteSchema.safeParse(value) : SingleWriteSchema.safeParse(value);
  if (!parsedCommand.success) return refuseMessage(formatFirstIssue(parsedCommand.error));
  const commandBody = parsedCommand.data;
  if (id === null) return refuse("invalid", "A command needs an id.");
  const sharedRequestFields = {
    source: commandBody.source ?? arrival.source,
    issuedAtMs: commandBody.issued_at === undefined ? null : Date.parse(commandBody.issued_at),
    ttlMs: commandBody.ttl_s === undefined ? null : commandBody.ttl_s * 1000,
    forMs: commandBody.for_s === undefined ? null : commandBody.for_s * 1000,
  };
  if (arrival.source !== null && sharedRequestFields.source !== arrival.source)
    return refuseMessage("The command names another source than its topic.");
  if (!("writes" in commandBody)) {
    const { tag: tagId = arrival.tagId, value: requestedValue, expect = null } = commandBody;
    if (tagId === null) return refuseMessage("The command names no tag.");
    if (arrival.tagId !== null && tagId !== arrival.tagId)
      return refuseMessage("The command names another tag than its topic.");
    return { messageId: id, requests: [{ id, tagId, value: requestedValue, expect, ...sharedRequestFields }] };
  }
  if (arrival.tagId !== null) return refuseMessage("Send a command for several tags to the topic that names no tag.");
  if (new Set(commandBody.writes.map((write) => write.tag)).size < commandBody.writes.length)
    return refuseMessage("A tag is named twice in one command.");
  const requests = commandBody.writes.map(({ tag, value: requestedValue, expect = null }) => {
    return { id: `${id}/${tag}`, tagId: tag, value: requestedValue, expect, ...sharedRequestFields };
  });
  return { messageId: id, requests };
}

function formatFirstIssue(error: z.ZodError): string {
  const [issue] = error.issues;
  const issuePath = issue?.path.length ? `${issue.path.join(".")}: ` : "";
  return `${issuePath}${issue?.message ?? "not a command"}.`.slice(0, 300);
}

function commandIdInBody(value: object): string | null {
  const id = "id" in value ? IdSchema.safeParse(value.id) : null;
  return id?.success === true ? id.data : null;
}

function commandIdInProperties(arrival: CommandMessage): string | null {
  const id = IdSchema.safeParse(arrival.properties.id ?? arrival.correlation);
  return id.success ? id.data : null;
}

function isPublishedByPlenum(arrival: CommandMessage): boolean {
  return "plenum-event-id" in arrival.properties;
}

function isPlenumEventBody(value: object, id: string | null): boolean {
  if ("specversion" in value || "ts" in value || "quality" in value) return true;
  return id !== null && /\.[\w-]{22}$/.test(id) && (EVENT_KINDS as readonly string[]).includes(id.slice(0, -23));
}

/** Makes an id for a message without one. A message that the broker delivers again (DUP) keeps its first id. */
function makeCommandId(arrival: CommandMessage, findKnownId: FindKnownId): string {
  const digest = createHash("sha256").update(`${arrival.via}\n${arrival.topic}\n`).update(arrival.payload);
  const idPrefix = `bare-${digest.digest("base64url").slice(0, 22)}-`;
  const newId = `${idPrefix}${arrival.receivedAtMs.toString(36)}`;
  return arrival.duplicate ? (findKnownId(idPrefix) ?? newId) : newId;
}

function refuse(reason: CommandRefusal, message: string, id: string | null = null): ParsedCommandPayload {
  return { refused: { reason, message, id } };
}
