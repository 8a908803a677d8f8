import type { CommandMessage } from "../../core/connector.ts";
import type { TagScalar } from "../../core/model/building.ts";

interface CommandInput {
  readonly id: string;
  readonly source: string | null;
  readonly value: TagScalar;
  readonly user: string | null;
  readonly receivedAtMs: number;
  readonly sentFrom?: "command line" | "status page";
}

export function toOperatorCommand(
  fields: CommandInput & {
    readonly tagId: string;
    readonly forSeconds: number | null;
    readonly expect?: TagScalar | null;
    readonly ttlSeconds: number | null;
  },
): CommandMessage {
  const { expect = null, forSeconds, id, tagId, ttlSeconds, value } = fields;
  const commandBody = {
    id,
    value,
    ...(expect === null ? {} : { expect }),
    ...(forSeconds === null ? {} : { for_s: forSeconds }),
    ...(ttlSeconds === null ? {} : { ttl_s: ttlSeconds }),
  };
  return { ...toMessage(fields, commandBody), tagId };
}

export function toOperatorApproval(fields: CommandInput): CommandMessage {
  return { ...toMessage(fields, { second: fields.id, value: fields.value }), purpose: "second" };
}

function toMessage(
  { sentFrom = "command line", receivedAtMs, source, user }: CommandInput,
  content: object,
): CommandMessage {
  return {
    via: "operator",
    topic: sentFrom,
    tagId: null,
    source,
    payload: new TextEncoder().encode(JSON.stringify(content)),
    retained: false,
    duplicate: false,
    expirySeconds: null,
    replyTo: null,
    correlation: null,
    properties: user === null ? {} : { user },
    receivedAtMs,
  };
}
