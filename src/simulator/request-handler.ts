import type { AccessToken, AccessTokens } from "./access-tokens.ts";
import { toUtc } from "./build-response-records.ts";
import type { ApiCall, Endpoint, SimulatedServiceContext } from "./endpoints/endpoint.ts";
import { createQueryParameterReader } from "./endpoints/endpoint.ts";
import { alarms, gateways, hosts, listVisibleSites, sites, systems, tags } from "./endpoints/paginated-lists.ts";
import { history, read, write } from "./endpoints/tags.ts";
import type { ApiEndpointName, Fault, FaultableRequest, FaultPlan } from "./fault-plan.ts";
import { applyFaultToReply, proxyFaultReply, serviceFaultReply } from "./fault-replies.ts";
import type { SimulatorOptions } from "./options.ts";
import { createRateLimiter, type LimitVerdict } from "./rate-limiters.ts";
import {
  errorReply,
  forbiddenReply,
  htmlReply,
  jsonReply,
  notFoundReply,
  type ServiceReply,
  type ServiceRequest,
  tooManyRequestsReply,
} from "./reply-bodies.ts";
import type { LoggedRequest } from "./request-log.ts";

// Handles a request: proxy faults, token, rate limit, service faults, permissions, endpoint, reply faults.

const ownUserEndpoint: Endpoint = {
  name: "me",
  method: "GET",
  path: "/api/v1/me",
  needsNoSite: true,
  respond(call: ApiCall) {
    const { name, abilities, expiresAtMs, user } = call.token;
    const token = { name, abilities, expires_at: toUtc(expiresAtMs), sites: listVisibleSites(call) };
    return jsonReply(200, { data: { user, token } });
  },
};

const API_ENDPOINTS = [sites, alarms, tags, read, write, history, ownUserEndpoint, gateways, hosts, systems];
const HEALTH_CHECK_PATH = "/api/v1/healthcheck";
const HEALTH_CHECK_HEADERS = {
  "x-ratelimit-limit": "60",
  "x-ratelimit-remaining": "59",
  "x-content-type-options": "nosniff",
  "x-frame-options": "DENY",
  "strict-transport-security": "max-age=31536000; includeSubDomains",
};
const HEALTH_CHECK_HTTP_STATUS = { healthy: 200, failing_500: 500, failing_503: 503, unhealthy_200: 200 } as const;

interface ApiRequestProgress {
  endpoint: ApiEndpointName | null;
  tokenName: string | null;
  limit: LoggedRequest["limit"];
}

export function createRequestHandler(context: SimulatedServiceContext, tokens: AccessTokens, faultPlan: FaultPlan) {
  const { options, log } = context;
  const { key, list_endpoints, retry_after, scope, tag_endpoints } = options.limits;
  const countTagRequest = createRateLimiter(tag_endpoints);
  const countListRequest = list_endpoints && createRateLimiter(list_endpoints);
  const endpointByPath = new Map(API_ENDPOINTS.map((endpoint) => [endpoint.path, endpoint]));
  let health = options.health;

  function handleRequest(request: ServiceRequest): ServiceReply {
    const requestNumber = log.nextRequestNumber();
    const path = request.path.replace(/(.)\/$/, "$1");
    const endpoint = endpointByPath.get(path);
    const endpointName = path === HEALTH_CHECK_PATH ? "healthcheck" : (endpoint?.name ?? null);
    const progress: ApiRequestProgress = { endpoint: endpointName, tokenName: null, limit: "none" };
    const faults = faultPlan.faultsFor(() => describeRequest(context, request, endpointName), request.receivedAtMs);

    let reply =
      firstReply(faults, proxyFaultReply) ?? respond({ ...request, path }, requestNumber, endpoint, faults, progress);
    for (const fault of faults) reply = applyFaultToReply(reply, fault, context.world);
    const errorStatus = FIRST_ERROR_STATUS_PATTERN.exec(reply.body.slice(0, 40))?.[1];
    log.addRequest({
      ...{ number: requestNumber, atMs: request.receivedAtMs, method: request.method, path: request.path, ...progress },
      query: request.query.toString(),
      httpStatus: reply.status,
      errorStatus: errorStatus === undefined ? null : Number(errorStatus),
      faults: faults.map((fault) => fault.kind),
    });
    const dateHeader = new Date(request.receivedAtMs + options.clock_skew_s * 1000).toUTCString();
    return { ...reply, headers: { date: dateHeader, ...reply.headers } };
  }

  function respond(
    request: ServiceRequest,
    number: number,
    endpoint: Endpoint | undefined,
    faults: readonly Fault[],
    progress: ApiRequestProgress,
  ): ServiceReply {
    const nowMs = request.receivedAtMs;
    const findServiceFaultReply = () => firstReply(faults, (fault) => serviceFaultReply(fault, retry_after));
    const acceptsJson = /application\/json|\*\/\*/.test(request.headers.accept ?? "");
    if (options.without_accept === "redirect" && !acceptsJson)
      return htmlReply(302, "Redirecting", { location: "/login" });
    if (progress.endpoint === "healthcheck") return findServiceFaultReply() ?? healthCheckReply(health, nowMs);
    if (endpoint === undefined) return notFoundReply();
    if (endpoint.method !== request.method) return errorReply(405, "The method is not supported for this route.");

    const token = tokens.authenticate(request.headers.authorization, nowMs);
    if (token === undefined) return errorReply(401, "Unauthenticated.");
    progress.tokenName = token.name;

    const limitVerdict = countRequest(endpoint, token, nowMs);
    if (endpoint.limited && limitVerdict !== undefined) progress.limit = limitVerdict.allowed ? "allowed" : "refused";
    const executeEndpoint = () =>
      mayTokenUseEndpoint(token, endpoint)
        ? endpoint.respond({ context, request, query: createQueryParameterReader(request.query), token, nowMs, number })
        : forbiddenReply(options.forbidden);
    const reply =
      limitVerdict?.allowed === false
        ? tooManyRequestsReply(limitVerdict.retryAfterS, retry_after)
        : (findServiceFaultReply() ?? executeEndpoint());
    return addLimitHeaders(reply, endpoint, limitVerdict);
  }

  function countRequest(endpoint: Endpoint, token: AccessToken, nowMs: number): LimitVerdict | undefined {
    const rateLimitKey = key === "user" ? `user ${token.user.id}` : `token ${token.tokenText}`;
    if (!endpoint.limited) return countListRequest?.(rateLimitKey, nowMs);
    return countTagRequest(scope === "shared" ? rateLimitKey : `${rateLimitKey} ${endpoint.name}`, nowMs);
  }

  function addLimitHeaders(reply: ServiceReply, endpoint: Endpoint, verdict: LimitVerdict | undefined): ServiceReply {
    if (verdict === undefined || !options.limits.headers) return reply;
    const { limit } = (endpoint.limited ? tag_endpoints : list_endpoints) ?? { limit: 0 };
    const headers = { "x-ratelimit-limit": String(limit), "x-ratelimit-remaining": String(verdict.remainingCount) };
    return { ...reply, headers: { ...reply.headers, ...headers } };
  }

  return {
    handle: handleRequest,
    setHealth(value: SimulatorOptions["health"]): void {
      health = value;
    },
  };
}

function healthCheckReply(health: SimulatorOptions["health"], nowMs: number): ServiceReply {
  const status = health === "healthy" ? "healthy" : "unhealthy";
  return jsonReply(HEALTH_CHECK_HTTP_STATUS[health], { status, timestamp: toUtc(nowMs) }, HEALTH_CHECK_HEADERS);
}

function mayTokenUseEndpoint(token: AccessToken, { ability, permission, needsNoSite }: Endpoint): boolean {
  if (ability !== undefined && !token.abilities.includes("*") && !token.abilities.includes(ability)) return false;
  if (permission !== undefined && !token.permissions.includes(permission)) return false;
  return needsNoSite === true || token.sites === "all" || token.sites.length > 0;
}

function firstReply(faults: readonly Fault[], replyOf: (fault: Fault) => ServiceReply | undefined) {
  return faults
    .values()
    .map(replyOf)
    .find((reply) => reply !== undefined);
}

function describeRequest(
  { world }: SimulatedServiceContext,
  { body = "", method, query }: ServiceRequest,
  endpoint: ApiEndpointName | null,
): FaultableRequest {
  const tagIdMatches = method === "POST" ? [...body.matchAll(/"tag_id"\s*:\s*"([^"]*)"/g)] : [];
  const requestedTagIds = [...(query.get("tags") ?? "").split(","), ...tagIdMatches.map((match) => match[1] ?? "")];
  const tagIds = new Set(requestedTagIds.filter((id) => id !== ""));
  const siteIds = new Set([...tagIds].flatMap((id) => world.tags.get(id)?.site.id ?? []));
  const siteId = query.get("site_id");
  if (siteId !== null) siteIds.add(Number(siteId));
  return { endpoint, method, tagIds, siteIds, page: Number(query.get("page") ?? "1") };
}

const FIRST_ERROR_STATUS_PATTERN = /^\{"errors":\[\{"status":(\d+)/;
