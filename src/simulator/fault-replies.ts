import type { Fault } from "./fault-plan.ts";
import type { RetryAfter } from "./options.ts";
import {
  errorReply,
  htmlReply,
  jsonReply,
  notFoundReply,
  type SimReply,
  type Transport,
  tooManyReply,
  UNEXPECTED_ERROR,
} from "./reply-bodies.ts";
import type { World } from "./simulated-sites.ts";

const ERROR_MESSAGES: Readonly<Record<number, string>> = {
  401: "Unauthenticated.",
  403: "This action is unauthorized.",
  404: "The requested resource could not be found.",
  429: "Too many requests.",
  503: "Service Unavailable",
  504: "Historical data could not be retrieved.",
};

/** Returns the reply of a proxy in front of the service: no token is checked, no request counted, no write applied. */
export function replyOfProxy(fault: Fault): SimReply | undefined {
  switch (fault.kind) {
    case "maintenance":
      return maintenanceReply(fault);
    case "html":
      return fault.effect === "none" ? htmlReply(fault.status, fault.title) : undefined;
    case "redirect":
      return htmlReply(fault.status, "Redirecting", { location: fault.location });
    case "raw":
      return { status: fault.status, headers: fault.headers, body: fault.body };
    case "missing_route":
      return buildMissingRouteReply(fault.body);
    case "reset":
      return fault.effect === "none" ? { status: 200, headers: {}, body: "", transport: { reset: true } } : undefined;
    default:
      return undefined;
  }
}

/** Returns the reply of a service that fails after it counted the request and before it executes it. */
export function replyOfFailingService(fault: Fault, retryAfter: RetryAfter): SimReply | undefined {
  if (fault.kind === "throttled") return tooManyReply(fault.retry_after_s, retryAfter);
  if (fault.kind === "error" && fault.effect === "none") return buildPlannedErrorReply(fault);
  return undefined;
}

/** Changes a finished reply. A fault that does not fit the reply, such as one of links without `links`, does nothing. */
export function applyFault(reply: SimReply, fault: Fault, world: World): SimReply {
  switch (fault.kind) {
    case "error":
      return fault.effect === "applied" ? buildPlannedErrorReply(fault) : reply;
    case "html":
      return fault.effect === "applied" ? htmlReply(fault.status, fault.title) : reply;
    case "null_values":
      return withNullValues(reply, (id) => fault.tags?.includes(id) ?? true);
    case "gateway_offline":
      return withGatewaysOffline(reply, new Set(fault.gateways), world);
    case "errors_and_data":
      return withBody(reply, (body) => ({
        ...body,
        errors: [{ status: fault.status, message: errorMessage(fault.status), meta: [] }],
      }));
    case "hostile_links":
      return withBody(reply, (body) =>
        "links" in body ? { ...body, links: { ...asObject(body.links), next: fault.next } } : body,
      );
    case "shrunken_list":
      return withBody(reply, (body) => shrinkList(body, fault.keep));
    case "malformed":
      return { ...reply, body: fault.body };
    case "slow":
      return withTransport(reply, { delayMs: fault.delay_ms + (reply.transport?.delayMs ?? 0) });
    case "drip":
      return withTransport(reply, { dripBytes: fault.bytes, dripEveryMs: fault.every_ms });
    case "cut":
      return withTransport(reply, { cutAfterBytes: fault.after_bytes });
    case "reset":
      return withTransport(reply, { reset: true });
    default:
      return reply;
  }
}

function maintenanceReply(fault: Extract<Fault, { kind: "maintenance" }>): SimReply {
  const headers: Record<string, string> =
    fault.retry_after === undefined ? {} : { "retry-after": String(fault.retry_after) };
  const message = "Service Unavailable";
  if (fault.body === "html") return htmlReply(fault.status, message, headers);
  if (fault.body === "empty") return { status: fault.status, headers, body: "" };
  return jsonReply(fault.status, { errors: [{ status: 503, message, meta: [] }] }, headers);
}

function buildMissingRouteReply(body: "json" | "html" | "inside"): SimReply {
  if (body === "html") return htmlReply(404, "Not Found");
  if (body === "inside") return notFoundReply();
  return jsonReply(404, { message: "The route could not be found." });
}

function buildPlannedErrorReply({ status, message, real_status }: Extract<Fault, { kind: "error" }>): SimReply {
  return errorReply(status, message ?? errorMessage(status), real_status ? status : 200);
}

const errorMessage = (status: number): string => ERROR_MESSAGES[status] ?? UNEXPECTED_ERROR;

function withTransport(reply: SimReply, transport: Transport): SimReply {
  return { ...reply, transport: { ...reply.transport, ...transport } };
}

type ReplyBody = Record<string, unknown>;

function asObject(value: unknown): ReplyBody {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

function withBody(reply: SimReply, edit: (body: ReplyBody) => ReplyBody): SimReply {
  if (reply.headers["content-type"]?.startsWith("application/json") !== true || reply.body === "") return reply;
  return { ...reply, body: JSON.stringify(edit(asObject(JSON.parse(reply.body)))) };
}

function withRows(reply: SimReply, edit: (row: ReplyBody) => ReplyBody): SimReply {
  return withBody(reply, (body) =>
    Array.isArray(body.data) ? { ...body, data: body.data.map((row) => edit(asObject(row))) } : body,
  );
}

function withNullValues(reply: SimReply, isHit: (tagId: string) => boolean): SimReply {
  return withRows(reply, (row) =>
    row.type === "tags" && "value" in row && isHit(String(row.id)) ? { ...row, value: null } : row,
  );
}

function withGatewaysOffline(reply: SimReply, offline: ReadonlySet<string>, world: World): SimReply {
  const isTagBehindOfflineGateway = (tagId: string) => offline.has(String(world.tags.get(tagId)?.gatewayId));
  return withRows(withNullValues(reply, isTagBehindOfflineGateway), (row) => {
    const isOfflineGateway = row.type === "gateways" && offline.has(String(row.id));
    return isOfflineGateway ? { ...row, attributes: { ...asObject(row.attributes), online: false } } : row;
  });
}

function shrinkList(body: ReplyBody, keep: number): ReplyBody {
  const meta = asObject(body.meta);
  if (!Array.isArray(body.data) || typeof meta.total !== "number" || typeof meta.per_page !== "number") return body;
  const keptRecordCount = Math.floor(meta.total * keep);
  const lastPageNumber = Math.max(1, Math.ceil(keptRecordCount / meta.per_page));
  const page = Number(meta.current_page);
  const start = (page - 1) * meta.per_page;
  const data = body.data.slice(0, Math.max(0, keptRecordCount - start));
  const recordRange = data.length === 0 ? { from: null, to: null } : { from: start + 1, to: start + data.length };
  const links = asObject(body.links);
  return {
    ...body,
    data,
    links: {
      ...links,
      next: page < lastPageNumber ? links.next : null,
      last: String(links.last).replace(/([?&]page=)\d+/, `$1${lastPageNumber}`),
    },
    meta: { ...meta, total: keptRecordCount, last_page: lastPageNumber, ...recordRange },
  };
}
