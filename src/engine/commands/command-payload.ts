import { createHash } from "node:crypto";
import { z } from "zod";
import type { CommandMessage } from "../../core/connector.ts";
import type { TagScalar } from "../../core/model/building.ts";
import { EVENT_KINDS } from "../../core/model/event.ts";
import type { CommandRefusal } from "./command.ts";

/**
 * Parsed command message. Its forms:
 * - a bare value on a tag's own topic: `21.5`, `true`;
 * - JSON: `{"id": "…", "value": 21.5}`, or for up to 20 tags at once `{"id": "…", "writes": [{"tag": "10001",
 *   "value": 21.5}, …]}`, each with optional `issued_at` (ISO 8601 with offset), `ttl_s`, `for_s` and `expect`;
 * - the kill switch: `{"stop": true}`. It can be thrown this way and not released;
 * - on a separate topic, the approval of a second person: `{"second": "<id of the command>", "value": 21.5}`.
 */
export interface Request {
  /** Unique per tag: the sender's id, followed by the tag id where one message holds several. */
  readonly id: string;
  readonly source: string | null;
  readonly tagId: string;
  readonly value: TagScalar;
  readonly issuedAtMs: number | null;
  readonly ttlMs: number | null;
  readonly forMs: number | null;
  readonly expect: TagScalar | null;
}

export interface SecondApproval {
  readonly id: string;
  readonly value: TagScalar;
}

export type ParsedPayload =
  | { readonly requests: readonly Request[] }
  | { readonly second: SecondApproval }
  | { readonly stop: { readonly id: string } }
  | { readonly refused: { readonly reason: CommandRefusal; readonly message: string; readonly id: string | null } };

/** Ids become keys of the store, which holds only Unicode text. */
const IdText = z
  .string()
  .regex(/^\P{Cc}{1,128}$/u, "must have 1 to 128 characters and no control characters")
  .refine((text) => text.isWellFormed(), "is no valid text");
const WriteValue = z.union([z.number(), z.boolean()], { error: "value must be a number, true or false" });
const SharedFields = {
  id: IdText.optional(),
  source: IdText.optional(),
  issued_at: z.iso.datetime({ offset: true, error: "issued_at must be ISO 8601 with an offset or Z" }).optional(),
  ttl_s: z.number().positive().optional(),
  for_s: z.number().positive().optional(),
};
const TagWriteItem = z.strictObject({ tag: IdText, value: WriteValue, expect: WriteValue.optional() });
const SingleWrite = z.strictObject({ ...SharedFields, ...TagWriteItem.shape, tag: IdText.optional() });
const WriteGroup = z.strictObject({ ...SharedFields, writes: z.array(TagWriteItem).min(1).max(20) });
const SecondMessage = z.strictObject({ second: z.string().min(1).max(300), value: WriteValue });
const StopMessage = z.strictObject({ id: IdText.optional(), stop: z.literal(true) });

const LOOP_MESSAGE = "This is a message that Plenum itself published; it is not a command.";

export function parsePayload(arrival: CommandMessage, bareValues: boolean): ParsedPayload {
  let messageText: string;
  try {
    messageText = new TextDecoder("utf-8", { fatal: true }).decode(arrival.payload).trim();
  } catch {
    return refuse("unreadable", "The message is not UTF-8 text.");
  }
  let value: unknown;
  try {
    value = JSON.parse(messageText);
  } catch {
    return refuse("unreadable", "The message is neither a bare value nor JSON.");
  }
  if (typeof value !== "object" || value === null) return parseBareValue(value, arrival, bareValues);
  return fromJson(value, arrival);
}

function parseBareValue(value: unknown, arrival: CommandMessage, allowed: boolean): ParsedPayload {
  if (isOwnMessage(arrival)) return refuse("loop", LOOP_MESSAGE);
  const parsedScalar = WriteValue.safeParse(value);
  if (!parsedScalar.success) return refuse("invalid", "A bare value must be a number, true or false.");
  if (!allowed) return refuse("invalid", "Bare values are switched off (commands.bare_values); send JSON with an id.");
  if (arrival.tagId === null) return refuse("invalid", "A bare value needs the topic of its tag.");
  const id = givenId(arrival);
  if (id === null && arrival.duplicate)
    return refuse("duplicate", "A repeated delivery of a bare value cannot be told from a new one; send an id.");
  const { source, tagId } = arrival;
  const defaultFields = { issuedAtMs: null, ttlMs: null, forMs: null, expect: null };
  return { requests: [{ id: id ?? arrivalId(arrival), source, tagId, value: parsedScalar.data, ...defaultFields }] };
}

function fromJson(value: object, arrival: CommandMessage): ParsedPayload {
  const id = claimedId(value) ?? givenId(arrival);
  const refuseMessage = (message: string) => refuse("invalid", message, id);
  if (isOwnMessage(arrival) || isPlenumMessage(value, id)) return refuse("loop", LOOP_MESSAGE, id);
  if ("stop" in value) {
    if (!StopMessage.safeParse(value).success) return refuseMessage('To stop all writing, send {"stop": true}.');
    return { stop: { id: id ?? arrivalId(arrival) } };
  }
  if (arrival.purpose === "second") {
    const secondMessage = SecondMessage.safeParse(value);
    if (secondMessage.success) return { second: { id: secondMessage.data.second, value: secondMessage.data.value } };
    return refuseMessage('Here goes {"second": "<id of a command>", "value": …} only.');
  }
  const parsed = "writes" in value ? WriteGroup.safeParse(value) : SingleWrite.safeParse(value);
  if (!parsed.success) return refuseMessage(firstIssue(parsed.error));
  const body = parsed.data;
  if (id === null) return refuse("invalid", "A command needs an id.");
  const sharedFields = {
    source: body.source ?? arrival.source,
    issuedAtMs: body.issued_at === undefined ? null : Date.parse(body.issued_at),
    ttlMs: body.ttl_s === undefined ? null : body.ttl_s * 1000,
    forMs: body.for_s === undefined ? null : body.for_s * 1000,
  };
  if (arrival.source !== null && sharedFields.source !== arrival.source)
    return refuseMessage("The command names another source than its topic.");
  if (!("writes" in body)) {
    const { tag: tagId = arrival.tagId, value: wanted, expect = null } = body;
    if (tagId === null) return refuseMessage("The command names no tag.");
    if (arrival.tagId !== null && tagId !== arrival.tagId)
      return refuseMessage("The command names another tag than its topic.");
    return { requests: [{ id, tagId, value: wanted, expect, ...sharedFields }] };
  }
  if (arrival.tagId !== null) return refuseMessage("Send a command for several tags to the topic that names no tag.");
  if (new Set(body.writes.map((write) => write.tag)).size < body.writes.length)
    return refuseMessage("A tag is named twice in one command.");
  const requests = body.writes.map(({ tag, value: wanted, expect = null }) => {
    return { id: `${id}/${tag}`, tagId: tag, value: wanted, expect, ...sharedFields };
  });
  return { requests };
}

function firstIssue(error: z.ZodError): string {
  const [issue] = error.issues;
  const issuePath = issue?.path.length ? `${issue.path.join(".")}: ` : "";
  return `${issuePath}${issue?.message ?? "not a command"}.`.slice(0, 300);
}

function claimedId(value: object): string | null {
  const id = "id" in value ? IdText.safeParse(value.id) : null;
  return id?.success === true ? id.data : null;
}

function givenId(arrival: CommandMessage): string | null {
  const id = IdText.safeParse(arrival.properties.id ?? arrival.correlation);
  return id.success ? id.data : null;
}

/** True for a message that Plenum published over MQTT 5. */
function isOwnMessage(arrival: CommandMessage): boolean {
  return "plenum-event-id" in arrival.properties;
}

function isPlenumMessage(value: object, id: string | null): boolean {
  if ("specversion" in value || "ts" in value || "quality" in value) return true;
  return id !== null && /\.[\w-]{22}$/.test(id) && (EVENT_KINDS as readonly string[]).includes(id.slice(0, -23));
}

function arrivalId(arrival: CommandMessage): string {
  const digest = createHash("sha256")
    .update(`${arrival.via}\n${arrival.topic}\n${arrival.receivedAtMs}\n`)
    .update(arrival.payload)
    .digest("base64url");
  return `bare-${digest.slice(0, 22)}`;
}

function refuse(reason: CommandRefusal, message: string, id: string | null = null): ParsedPayload {
  return { refused: { reason, message, id } };
}
