import type { Fault } from "./fault-plan.ts";
import type { RetryAfterOptions } from "./options.ts";
import {
  type ConnectionFaults,
  errorReply,
  htmlReply,
  jsonReply,
  notFoundReply,
  type ServiceReply,
  tooManyRequestsReply,
  UNEXPECTED_ERROR_MESSAGE,
} from "./reply-bodies.ts";
import type { SimulatedSites } from "./simulated-sites.ts";

const API_ERROR_MESSAGES: Readonly<Record<number, string>> = {
  401: "Unauthenticated.",
  403: "This action is unauthorized.",
  404: "The requested resource could not be found.",
  429: "Too many requests.",
  503: "Service Unavailable",
  504: "Historical data could not be retrieved.",
};

/** Returns the reply of a proxy that does not pass the request on to the service. */
export function proxyFaultReply(fault: Fault): ServiceReply | undefined {
  switch (fault.kind) {
    case "maintenance":
      return buildMaintenanceReply(fault);
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

/** Returns the reply of a service that counts the request and then fails. */
export function serviceFaultReply(fault: Fault, retryAfter: RetryAfterOptions): ServiceReply | undefined {
  if (fault.kind === "throttled") return tooManyRequestsReply(fault.retry_after_s, retryAfter);
  if (fault.kind === "error" && fault.effect === "none") return buildPlannedErrorReply(fault);
  return undefined;
}

/** Applies a fault to a finished reply. A fault for another kind of reply changes nothing. */
export function applyFaultToReply(reply: ServiceReply, fault: Fault, world: SimulatedSites): ServiceReply {
  switch (fault.kind) {
    case "error":
      return fault.effect === "applied" ? buildPlannedErrorReply(fault) : reply;
    case "html":
      return fault.effect === "applied" ? htmlReply(fault.status, fault.title) : reply;
    case "null_values":
      return setReplyValuesToNull(reply, (id) => fault.tags?.includes(id) ?? true);
    case "gateway_offline":
      return setGatewaysOffline(reply, new Set(fault.gateways), world);
    case "errors_and_data":
      return changeReplyBody(reply, (body) => ({
        ...body,
        errors: [{ status: fault.status, message: defaultErrorMessage(fault.status), meta: [] }],
      }));
    case "hostile_links":
      return changeReplyBody(reply, (body) =>
        "links" in body ? { ...body, links: { ...copyAsJsonObject(body.links), next: fault.next } } : body,
      );
    case "shrunken_list":
      return changeReplyBody(reply, (body) => removeListedRecords(body, fault.keep));
    case "failing_record":
      return reply.body.includes(`"id":${JSON.stringify(fault.id)},`)
        ? errorReply(500, UNEXPECTED_ERROR_MESSAGE)
        : reply;
    case "malformed":
      return { ...reply, body: fault.body };
    case "slow":
      return addConnectionFaults(reply, { delayMs: fault.delay_ms + (reply.transport?.delayMs ?? 0) });
    case "drip":
      return addConnectionFaults(reply, { dripBytes: fault.bytes, dripEveryMs: fault.every_ms });
    case "cut":
      return addConnectionFaults(reply, { cutAfterBytes: fault.after_bytes });
    case "reset":
      return addConnectionFaults(reply, { reset: true });
    default:
      return reply;
  }
}

function buildMaintenanceReply(fault: Extract<Fault, { kind: "maintenance" }>): ServiceReply {
  const headers: Record<string, string> =
    fault.retry_after === undefined ? {} : { "retry-after": String(fault.retry_after) };
  const message = "Service Unavailable";
  if (fault.body === "html") return htmlReply(fault.status, message, headers);
  if (fault.body === "empty") return { status: fault.status, headers, body: "" };
  return jsonReply(fault.status, { errors: [{ status: 503, message, meta: [] }] }, headers);
}

function buildMissingRouteReply(body: "json" | "html" | "inside"): ServiceReply {
  if (body === "html") return htmlReply(404, "Not Found");
  if (body === "inside") return notFoundReply();
  return jsonReply(404, { message: "The route could not be found." });
}

function buildPlannedErrorReply({ status, message, real_status }: Extract<Fault, { kind: "error" }>): ServiceReply {
  return errorReply(status, message ?? defaultErrorMessage(status), real_status ? status : 200);
}

const defaultErrorMessage = (status: number): string => API_ERROR_MESSAGES[status] ?? UNEXPECTED_ERROR_MESSAGE;

function addConnectionFaults(reply: ServiceReply, transport: ConnectionFaults): ServiceReply {
  return { ...reply, transport: { ...reply.transport, ...transport } };
}

type ReplyJsonBody = Record<string, unknown>;

function copyAsJsonObject(value: unknown): ReplyJsonBody {
  return typeof value === "object" && value !== null ? { ...value } : {};
}

function changeReplyBody(reply: ServiceReply, edit: (body: ReplyJsonBody) => ReplyJsonBody): ServiceReply {
  if (reply.headers["content-type"]?.startsWith("application/json") !== true || reply.body === "") return reply;
  return { ...reply, body: JSON.stringify(edit(copyAsJsonObject(JSON.parse(reply.body)))) };
}

function changeReplyRecords(reply: ServiceReply, edit: (row: ReplyJsonBody) => ReplyJsonBody): ServiceReply {
  return changeReplyBody(reply, (body) =>
    Array.isArray(body.data) ? { ...body, data: body.data.map((row) => edit(copyAsJsonObject(row))) } : body,
  );
}

function setReplyValuesToNull(reply: ServiceReply, isAffected: (tagId: string) => boolean): ServiceReply {
  return changeReplyRecords(reply, (row) =>
    row.type === "tags" && "value" in row && isAffected(String(row.id)) ? { ...row, value: null } : row,
  );
}

function setGatewaysOffline(reply: ServiceReply, offlineIds: ReadonlySet<string>, world: SimulatedSites): ServiceReply {
  const isTagBehindOfflineGateway = (tagId: string) => offlineIds.has(String(world.tags.get(tagId)?.gatewayId));
  return changeReplyRecords(setReplyValuesToNull(reply, isTagBehindOfflineGateway), (row) => {
    const isOfflineGateway = row.type === "gateways" && offlineIds.has(String(row.id));
    return isOfflineGateway ? { ...row, attributes: { ...copyAsJsonObject(row.attributes), online: false } } : row;
  });
}

function removeListedRecords(body: ReplyJsonBody, keptFraction: number): ReplyJsonBody {
  const meta = copyAsJsonObject(body.meta);
  if (!Array.isArray(body.data) || typeof meta.total !== "number" || typeof meta.per_page !== "number") return body;
  const keptRecordCount = Math.floor(meta.total * keptFraction);
  const lastPageNumber = Math.max(1, Math.ceil(keptRecordCount / meta.per_page));
  const page = Number(meta.current_page);
  const start = (page - 1) * meta.per_page;
  const data = body.data.slice(0, Math.max(0, keptRecordCount - start));
  const listedRecordRange = data.length === 0 ? { from: null, to: null } : { from: start + 1, to: start + data.length };
  const pageLinks = copyAsJsonObject(body.links);
  return {
    ...body,
    data,
    links: {
      ...pageLinks,
      next: page < lastPageNumber ? pageLinks.next : null,
      last: String(pageLinks.last).replace(/([?&]page=)\d+/, `$1${lastPageNumber}`),
    },
    meta: { ...meta, total: keptRecordCount, last_page: lastPageNumber, ...listedRecordRange },
  };
}
