import { createHash } from "node:crypto";
import { z } from "zod";
import type { TagScalar } from "../building.ts";
import type { Arrival } from "../connector.ts";
import type { Refusal } from "./command.ts";

/**
 * What a command message says. Two forms:
 * - a bare value on a tag's own topic: `21.5`, `true`;
 * - JSON: `{"id": "…", "value": 21.5}`, or for up to 20 tags at once `{"id": "…", "writes": [{"tag": "10001",
 *   "value": 21.5}, …]}`, each with optional `issued_at` (ISO 8601 with offset), `ttl_s` and `expect`.
 */
export interface Request {
  /** Unique per tag: the sender's id, followed by the tag id where one message holds several. */
  readonly id: string;
  readonly source: string | null;
  readonly tagId: string;
  readonly value: TagScalar;
  readonly issuedAtMs: number | null;
  readonly ttlMs: number | null;
  /** Write only if the tag still holds this. */
  readonly expect: TagScalar | null;
}

export interface Refused {
  readonly reason: Refusal;
  readonly message: string;
  /** The id that the message claims, where it could be read. */
  readonly id: string | null;
}

const Scalar = z.union([z.number(), z.boolean()], { error: "value must be a number, true or false" });
const Shared = {
  id: z.string().min(1).max(128).optional(),
  source: z.string().max(128).optional(),
  issued_at: z.iso
    .datetime({ offset: true, error: "issued_at must be ISO 8601 with an offset or Z" })
    .optional(),
  ttl_s: z.number().positive().optional(),
};
const Single = z.strictObject({
  ...Shared,
  tag: z.string().min(1).max(128).optional(),
  value: Scalar,
  expect: Scalar.optional(),
});
const Group = z.strictObject({
  ...Shared,
  writes: z
    .array(z.strictObject({ tag: z.string().min(1).max(128), value: Scalar, expect: Scalar.optional() }))
    .min(1)
    .max(20),
});

export type Parsed = { readonly requests: readonly Request[] } | { readonly refused: Refused };

export function parsePayload(arrival: Arrival, bareValues: boolean): Parsed {
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(arrival.payload).trim();
  } catch {
    return refuse("unreadable", "The message is not UTF-8 text.");
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return refuse("unreadable", "The message is neither a bare value nor JSON.");
  }
  if (typeof value !== "object" || value === null) return bare(value, arrival, bareValues);
  return fromJson(value, arrival);
}

function bare(value: unknown, arrival: Arrival, allowed: boolean): Parsed {
  const scalar = Scalar.safeParse(value);
  if (!scalar.success) return refuse("invalid", "A bare value must be a number, true or false.");
  if (!allowed)
    return refuse("invalid", "Bare values are switched off (commands.bare_values); send JSON with an id.");
  if (arrival.tagId === null) return refuse("invalid", "A bare value needs the topic of its tag.");
  if (arrival.duplicate) {
    return refuse(
      "duplicate",
      "A repeated delivery of a bare value cannot be told from a new one; send an id.",
    );
  }
  const id = arrival.properties.id ?? arrival.correlation ?? arrivalId(arrival);
  return { requests: [request(id, arrival.source, arrival.tagId, scalar.data, null, null, null)] };
}

function fromJson(value: object, arrival: Arrival): Parsed {
  const claimed = "id" in value && typeof value.id === "string" ? value.id.slice(0, 128) : null;
  if (looksLikeOurs(value, claimed, arrival)) {
    return refuse("loop", "This is a message that Plenum itself published; it is not a command.", claimed);
  }
  const isGroup = "writes" in value;
  const parsed = isGroup ? Group.safeParse(value) : Single.safeParse(value);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const where = issue?.path.length ? `${issue.path.join(".")}: ` : "";
    return refuse("invalid", `${where}${issue?.message ?? "not a command"}.`, claimed);
  }
  const body = parsed.data;
  const id = body.id ?? arrival.properties.id ?? arrival.correlation;
  if (id === null || id === undefined) return refuse("invalid", "A command needs an id.", null);
  const source = body.source ?? arrival.source;
  const issuedAtMs = body.issued_at === undefined ? null : Date.parse(body.issued_at);
  const ttlMs = body.ttl_s === undefined ? null : body.ttl_s * 1000;
  if ("writes" in body) {
    const tags = new Set(body.writes.map((write) => write.tag));
    if (tags.size < body.writes.length) return refuse("invalid", "A tag is named twice in one command.", id);
    return {
      requests: body.writes.map((w) =>
        request(`${id}/${w.tag}`, source, w.tag, w.value, issuedAtMs, ttlMs, w.expect ?? null),
      ),
    };
  }
  const tagId = body.tag ?? arrival.tagId;
  if (tagId === null) return refuse("invalid", "The command names no tag.", id);
  if (arrival.tagId !== null && tagId !== arrival.tagId) {
    return refuse("invalid", "The command names another tag than its topic.", id);
  }
  return { requests: [request(id, source, tagId, body.value, issuedAtMs, ttlMs, body.expect ?? null)] };
}

function request(
  id: string,
  source: string | null,
  tagId: string,
  value: TagScalar,
  issuedAtMs: number | null,
  ttlMs: number | null,
  expect: TagScalar | null,
): Request {
  return { id, source, tagId, value, issuedAtMs, ttlMs, expect };
}

/** Our own events and state messages carry marks that no command has; a bridge may feed them back to us. */
function looksLikeOurs(value: object, id: string | null, arrival: Arrival): boolean {
  if ("specversion" in value || "quality" in value) return true;
  if (id !== null && /^(tag|alarm|command|site|gateway|host|system)-[a-z-]+\.[\w-]{22}$/.test(id))
    return true;
  return "plenum-event-id" in arrival.properties;
}

function arrivalId(arrival: Arrival): string {
  const digest = createHash("sha256")
    .update(`${arrival.via}\n${arrival.topic}\n${arrival.receivedAtMs}\n`)
    .update(arrival.payload)
    .digest("base64url");
  return `bare-${digest.slice(0, 22)}`;
}

function refuse(reason: Refusal, message: string, id: string | null = null): Parsed {
  return { refused: { reason, message, id } };
}
