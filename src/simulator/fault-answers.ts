import { errorReply, notFoundReply, tooManyReply } from "./envelope.ts";
import { htmlReply, jsonReply, type SimReply, type Transport } from "./exchange.ts";
import type { Fault } from "./fault-options.ts";
import type { RetryAfter } from "./limit-options.ts";
import type { World } from "./world.ts";

const ERROR_MESSAGES: Readonly<Record<number, string>> = {
  401: "Unauthenticated.",
  403: "This action is unauthorized.",
  404: "The requested resource could not be found.",
  429: "Too many requests.",
  503: "Service Unavailable",
  504: "Historical data could not be retrieved.",
};

/** Something in front of the service answers: no token is looked at, nothing is counted, nothing happens. */
export function answerInFront(fault: Fault): SimReply | undefined {
  switch (fault.kind) {
    case "maintenance":
      return maintenance(fault);
    case "html":
      return fault.effect === "none" ? htmlReply(fault.status, fault.title) : undefined;
    case "redirect":
      return htmlReply(fault.status, "Redirecting", { location: fault.location });
    case "raw":
      return { status: fault.status, headers: fault.headers, body: fault.body };
    case "missing_route":
      return missingRoute(fault.body);
    case "reset":
      return fault.effect === "none"
        ? { status: 200, headers: {}, body: "", transport: { reset: true } }
        : undefined;
    default:
      return undefined;
  }
}

/** The service itself fails, after it has counted the request and before it does anything. */
export function answerInstead(fault: Fault, retryAfter: RetryAfter): SimReply | undefined {
  if (fault.kind === "throttled") return tooManyReply(fault.retry_after_s, retryAfter);
  if (fault.kind === "error" && fault.effect === "none") return failure(fault);
  return undefined;
}

/** The answer is made; this is what comes back of it. Without `links`, say, a fault of links changes nothing. */
export function spoiled(reply: SimReply, fault: Fault, world: World): SimReply {
  switch (fault.kind) {
    case "error":
      return fault.effect === "applied" ? failure(fault) : reply;
    case "html":
      return fault.effect === "applied" ? htmlReply(fault.status, fault.title) : reply;
    case "null_values":
      return withNullValues(reply, (id) => fault.tags?.includes(id) ?? true);
    case "gateway_offline":
      return withGatewaysOffline(reply, new Set(fault.gateways), world);
    case "errors_and_data":
      return edited(reply, (body) => ({
        ...body,
        errors: [{ status: fault.status, message: messageOf(fault.status), meta: [] }],
      }));
    case "hostile_links":
      return edited(reply, (body) =>
        "links" in body ? { ...body, links: { ...asObject(body.links), next: fault.next } } : body,
      );
    case "shrunken_list":
      return edited(reply, (body) => shrunken(body, fault.keep));
    case "malformed":
      return { ...reply, body: fault.body };
    case "slow":
      return onTheWire(reply, { delayMs: fault.delay_ms + (reply.transport?.delayMs ?? 0) });
    case "drip":
      return onTheWire(reply, { dripBytes: fault.bytes, dripEveryMs: fault.every_ms });
    case "cut":
      return onTheWire(reply, { cutAfterBytes: fault.after_bytes });
    case "reset":
      return onTheWire(reply, { reset: true });
    default:
      return reply;
  }
}

function maintenance(fault: Extract<Fault, { kind: "maintenance" }>): SimReply {
  const headers: Record<string, string> =
    fault.retry_after === undefined ? {} : { "retry-after": String(fault.retry_after) };
  switch (fault.body) {
    case "json":
      return jsonReply(
        fault.status,
        { errors: [{ status: 503, message: "Service Unavailable", meta: [] }] },
        headers,
      );
    case "html":
      return htmlReply(fault.status, "Service Unavailable", headers);
    case "empty":
      return { status: fault.status, headers, body: "" };
  }
}

function missingRoute(body: "json" | "html" | "inside"): SimReply {
  switch (body) {
    case "json":
      return jsonReply(404, { message: "The route could not be found." });
    case "html":
      return htmlReply(404, "Not Found");
    case "inside":
      return notFoundReply();
  }
}

/** What a list would say if it had so much less: records, links and counts agree with each other. */
function shrunken(body: Body, keep: number): Body {
  const meta = asObject(body.meta);
  if (!Array.isArray(body.data) || typeof meta.total !== "number" || typeof meta.per_page !== "number")
    return body;
  const total = Math.floor(meta.total * keep);
  const lastPage = Math.max(1, Math.ceil(total / meta.per_page));
  const page = Number(meta.current_page);
  const before = (page - 1) * meta.per_page;
  const data = body.data.slice(0, Math.max(0, total - before));
  const links = asObject(body.links);
  return {
    ...body,
    data,
    links: {
      ...links,
      next: page < lastPage ? links.next : null,
      last: String(links.last).replace(/([?&]page=)\d+/, `$1${lastPage}`),
    },
    meta: {
      ...meta,
      total,
      last_page: lastPage,
      from: data.length === 0 ? null : before + 1,
      to: data.length === 0 ? null : before + data.length,
    },
  };
}

function failure(fault: Extract<Fault, { kind: "error" }>): SimReply {
  return errorReply(
    fault.status,
    fault.message ?? messageOf(fault.status),
    fault.real_status ? fault.status : 200,
  );
}

function messageOf(status: number): string {
  return ERROR_MESSAGES[status] ?? "An unexpected error occurred. Please try again later.";
}

function onTheWire(reply: SimReply, transport: Transport): SimReply {
  return { ...reply, transport: { ...reply.transport, ...transport } };
}

type Body = Record<string, unknown>;

function asObject(value: unknown): Body {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

function edited(reply: SimReply, edit: (body: Body) => Body): SimReply {
  if (reply.headers["content-type"]?.startsWith("application/json") !== true || reply.body === "")
    return reply;
  return { ...reply, body: JSON.stringify(edit(asObject(JSON.parse(reply.body)))) };
}

function withNullValues(reply: SimReply, hit: (tagId: string) => boolean): SimReply {
  return edited(reply, (body) => ({
    ...body,
    ...(Array.isArray(body.data) ? { data: body.data.map((row) => nulled(asObject(row), hit)) } : {}),
  }));
}

function nulled(row: Body, hit: (tagId: string) => boolean): Body {
  return row.type === "tags" && "value" in row && hit(String(row.id)) ? { ...row, value: null } : row;
}

function withGatewaysOffline(reply: SimReply, offline: ReadonlySet<string>, world: World): SimReply {
  const behind = (tagId: string) => offline.has(String(world.tags.get(tagId)?.gatewayId));
  return edited(withNullValues(reply, behind), (body) => {
    if (!Array.isArray(body.data)) return body;
    const data = body.data.map(asObject).map((row) => {
      const isOffline = row.type === "gateways" && offline.has(String(row.id));
      return isOffline ? { ...row, attributes: { ...asObject(row.attributes), online: false } } : row;
    });
    return { ...body, data };
  });
}
