import type { Context, MiddlewareHandler } from "hono";
import { every } from "hono/combine";
import { PAGE_HEADERS } from "../../core/http/page-headers.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { StatusConfig } from "./config.ts";
import type { Credentials, Role } from "./credentials.ts";
import { passwordCheck } from "./password-check.ts";

/** Asked for each request: the passwords may change while the page is served. */
export interface Guard {
  readonly config: Pick<StatusConfig, "behind_tls_proxy" | "host" | "trusted_proxy">;
  readonly credentials: Credentials | null;
  readonly clock: Pick<Clock, "monotonic" | "sleep">;
}

export const securityHeaders: MiddlewareHandler = async (context, next) => {
  await next();
  for (const [name, value] of Object.entries(PAGE_HEADERS)) context.header(name, value);
  // Answers are of the moment; only an asset says otherwise.
  if (context.res.headers.get("cache-control") === null) context.header("cache-control", "no-store");
};

/** By whose password a request came. */
const roles = new WeakMap<Context, Role>();

/** Whom a request that the guard let through comes from; null where no password is asked for. */
export function roleIn(context: Context): Role | null {
  return roles.get(context) ?? null;
}

/** Emergency stop of writing. The only change that needs no password where none is configured: it harms no building. */
export const STOP = "/api/writes/stop";

/** Changes that need a password, and the command that does the same for the owner of the state folder. */
const COMMANDS: readonly (readonly [path: string, command: string])[] = [
  ["/api/silences", "plenum silence"],
  ["/api/sink/retry", "plenum outbox resend"],
  ["/api/write", "plenum write"],
];

/** True where no password is configured, so that the page may change nothing but stop writing. */
export function needsPassword(context: Context): boolean {
  return roleIn(context) === null;
}

/**
 * Why a visitor may not make a change, as a sentence; null where they may. Without a password every user and program of this
 * machine can reach the page, and only the owner of the state folder may operate the worker.
 */
function closedTo(role: Role | null, path: string): string | null {
  if (role === "operator" || (role === null && path === STOP)) return null;
  if (role !== null) return VIEWER;
  const [, command] = COMMANDS.find(([prefix]) => path.startsWith(prefix)) ?? [];
  const way = command === undefined ? "" : `, or run \`${command}\` as the user of the worker`;
  return `This needs a password. Set status.password${way}.`;
}

/** Why a visitor may not write to the building from the page; null where they may. */
export function writesClosedTo(role: Role | null): string | null {
  return closedTo(role, "/api/write");
}

const VIEWER = "A viewer may look, and change nothing.";

/**
 * Decides who may look and who may change something. A right password opens what its role may do. Where none is
 * configured, requests to our own names may look and stop writing.
 */
export function guard(options: Guard): MiddlewareHandler {
  const fromHere = knownHosts(options.config.host);
  const admit = (context: Context, role: Role) => void roles.set(context, role);
  const checked = passwordCheck({ ...options, stop: STOP, admit });
  return every(
    (context, next) =>
      options.credentials === null ? fromHere(context, next) : checked(options.credentials)(context, next),
    byRole,
  );
}

const byRole: MiddlewareHandler = async (context, next) => {
  const message = refusalOf(roleIn(context), context.req.method, context.req.path);
  return message === null ? next() : context.json({ message }, 403);
};

function refusalOf(role: Role | null, method: string, path: string): string | null {
  if (role === "scraper") return path === "/metrics" ? null : "The metrics token opens /metrics only.";
  return method === "GET" || method === "HEAD" ? null : closedTo(role, path);
}

/**
 * Allows changes only from our own page. A form or script of another site can send neither this header nor a matching origin without
 * a CORS preflight request, which is never granted.
 */
export const sameOriginOnly: MiddlewareHandler = async (context, next) => {
  const origin = context.req.header("origin");
  const site = context.req.header("sec-fetch-site");
  const foreign =
    (origin !== undefined && URL.parse(origin)?.host !== context.req.header("host")) ||
    (site !== undefined && site !== "same-origin");
  if (foreign || context.req.header("x-plenum") !== "status-page") {
    return context.json({ message: "Only the status page itself may ask for this." }, 403);
  }
  return next();
};

/**
 * Lets through requests to the names that we serve under, so that a page from elsewhere whose name suddenly points here
 * (DNS rebinding) learns nothing.
 */
export function knownHosts(own: string): MiddlewareHandler {
  const known = new Set(["localhost", "127.0.0.1", "[::1]", own.includes(":") ? `[${own}]` : own]);
  return async (context, next) => {
    const name = (context.req.header("host") ?? "").replace(/:\d+$/, "").toLowerCase();
    return known.has(name) ? next() : context.text("Unknown host name.\n", 403);
  };
}
