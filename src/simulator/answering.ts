import { HEALTH_PATH, healthReply } from "./endpoints/account.ts";
import { ENDPOINTS } from "./endpoints/catalog.ts";
import type { Endpoint, Scene } from "./endpoints/endpoint.ts";
import { errorReply, forbiddenReply, notFoundReply, tooManyReply } from "./envelope.ts";
import { htmlReply, type SimReply, type SimRequest } from "./exchange.ts";
import { answerInFront, answerInstead, spoiled } from "./fault-answers.ts";
import type { EndpointName, Fault } from "./fault-options.ts";
import type { FaultPlan, Subject } from "./faults.ts";
import { createLimiter, type Verdict } from "./limiters.ts";
import type { SimulatorOptions } from "./options.ts";
import { readQuery } from "./query.ts";
import type { Token, Tokens } from "./tokens.ts";
import type { RequestLog, SeenRequest } from "./truth.ts";

export interface Service {
  readonly handle: (request: SimRequest) => SimReply;
  readonly setHealth: (health: SimulatorOptions["health"]) => void;
}

interface Progress {
  endpoint: EndpointName | null;
  token: Token | undefined;
  limit: SeenRequest["limit"];
}

/** What every request passes through: faults in front, token, limit, rights, the endpoint, faults on the way out. */
export function createService(scene: Scene, tokens: Tokens, faults: FaultPlan, log: RequestLog): Service {
  const { options } = scene;
  const tagLimiter = createLimiter(options.limits.tag_endpoints);
  const listLimiter = options.limits.list_endpoints && createLimiter(options.limits.list_endpoints);
  const byPath = new Map(ENDPOINTS.map((endpoint) => [endpoint.path, endpoint]));
  let health = options.health;

  function handle(request: SimRequest): SimReply {
    const number = log.next();
    const path = request.path.replace(/(.)\/$/, "$1");
    const endpoint = byPath.get(path);
    const name = path === HEALTH_PATH ? "healthcheck" : (endpoint?.name ?? null);
    const progress: Progress = { endpoint: name, token: undefined, limit: "none" };
    const hits = faults.hits(() => subjectOf(scene, request, name), request.receivedAtMs);

    const inFront = firstAnswer(hits, answerInFront);
    const reply = spoiledBy(hits, inFront ?? answer({ ...request, path }, number, endpoint, hits, progress));
    log.add(seen(request, number, progress, reply, hits));
    return dated(reply, request.receivedAtMs);
  }

  function dated(reply: SimReply, nowMs: number): SimReply {
    const date = new Date(nowMs + options.clock_skew_s * 1000).toUTCString();
    return { ...reply, headers: { date, ...reply.headers } };
  }

  function spoiledBy(hits: readonly Fault[], reply: SimReply): SimReply {
    return hits.reduce((current, fault) => spoiled(current, fault, scene.world), reply);
  }

  function answer(
    request: SimRequest,
    number: number,
    endpoint: Endpoint | undefined,
    hits: readonly Fault[],
    progress: Progress,
  ): SimReply {
    const nowMs = request.receivedAtMs;
    const acceptsJson = /application\/json|\*\/\*/.test(request.headers.accept ?? "");
    if (options.without_accept === "redirect" && !acceptsJson)
      return htmlReply(302, "Redirecting", { location: "/login" });
    if (progress.endpoint === "healthcheck") {
      return (
        firstAnswer(hits, (fault) => answerInstead(fault, options.limits.retry_after)) ??
        healthReply(health, nowMs)
      );
    }
    if (endpoint === undefined) return notFoundReply();
    if (endpoint.method !== request.method)
      return errorReply(405, "The method is not supported for this route.");

    const token = tokens.authenticate(request.headers.authorization, nowMs);
    if (token === undefined) return errorReply(401, "Unauthenticated.");
    progress.token = token;

    const verdict = count(endpoint, token, nowMs);
    if (endpoint.limited && verdict !== undefined) progress.limit = verdict.allowed ? "allowed" : "refused";
    const reply =
      verdict?.allowed === false
        ? tooManyReply(verdict.retryAfterS, options.limits.retry_after)
        : (firstAnswer(hits, (fault) => answerInstead(fault, options.limits.retry_after)) ??
          (mayUse(token, endpoint)
            ? endpoint.answer({ scene, request, query: readQuery(request.query), token, nowMs, number })
            : forbiddenReply(options.forbidden)));
    return withLimitHeaders(reply, endpoint, verdict);
  }

  function count(endpoint: Endpoint, token: Token, nowMs: number): Verdict | undefined {
    const { key, scope } = options.limits;
    const who = key === "user" ? `user ${token.user.id}` : `token ${token.text}`;
    if (!endpoint.limited) return listLimiter?.hit(who, nowMs);
    return tagLimiter.hit(scope === "shared" ? who : `${who} ${endpoint.name}`, nowMs);
  }

  function withLimitHeaders(reply: SimReply, endpoint: Endpoint, verdict: Verdict | undefined): SimReply {
    if (verdict === undefined || !options.limits.headers) return reply;
    const setting = endpoint.limited ? options.limits.tag_endpoints : options.limits.list_endpoints;
    const headers = {
      "x-ratelimit-limit": String(setting?.limit ?? 0),
      "x-ratelimit-remaining": String(verdict.remaining),
    };
    return { ...reply, headers: { ...reply.headers, ...headers } };
  }

  return {
    handle,
    setHealth(to) {
      health = to;
    },
  };
}

function mayUse(token: Token, endpoint: Endpoint): boolean {
  if (endpoint.ability !== undefined && !hasAbility(token, endpoint.ability)) return false;
  if (endpoint.permission !== undefined && !token.permissions.includes(endpoint.permission)) return false;
  return !endpoint.scoped || token.sites === "all" || token.sites.length > 0;
}

function hasAbility({ abilities }: Token, ability: string): boolean {
  return abilities.includes("*") || abilities.includes(ability);
}

function firstAnswer(
  hits: readonly Fault[],
  answer: (fault: Fault) => SimReply | undefined,
): SimReply | undefined {
  for (const fault of hits) {
    const reply = answer(fault);
    if (reply !== undefined) return reply;
  }
  return undefined;
}

function subjectOf({ world }: Scene, request: SimRequest, endpoint: EndpointName | null): Subject {
  const inBody =
    request.method === "POST" ? [...(request.body ?? "").matchAll(/"tag_id"\s*:\s*"([^"]*)"/g)] : [];
  const tagIds = new Set([
    ...(request.query.get("tags") ?? "").split(","),
    ...inBody.map((match) => match[1] ?? ""),
  ]);
  tagIds.delete("");
  const siteIds = new Set<number>();
  const siteId = request.query.get("site_id");
  if (siteId !== null) siteIds.add(Number(siteId));
  for (const id of tagIds) {
    const site = world.tags.get(id)?.site;
    if (site !== undefined) siteIds.add(site.id);
  }
  return {
    endpoint,
    method: request.method,
    tagIds,
    siteIds,
    page: Number(request.query.get("page") ?? "1"),
  };
}

const FIRST_ERROR = /^\{"errors":\[\{"status":(\d+)/;

function seen(
  request: SimRequest,
  number: number,
  progress: Progress,
  reply: SimReply,
  hits: readonly Fault[],
): SeenRequest {
  const errorStatus = FIRST_ERROR.exec(reply.body.slice(0, 40))?.[1];
  return {
    number,
    atMs: request.receivedAtMs,
    method: request.method,
    path: request.path,
    query: request.query.toString(),
    endpoint: progress.endpoint,
    tokenName: progress.token?.name ?? null,
    httpStatus: reply.status,
    errorStatus: errorStatus === undefined ? null : Number(errorStatus),
    limit: progress.limit,
    faults: hits.map((fault) => fault.kind),
  };
}
