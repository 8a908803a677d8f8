import type { Context, MiddlewareHandler } from "hono";
import type { Clock } from "../clock.ts";
import { PAGE_HEADERS } from "../page-headers.ts";
import type { StatusConfig } from "./config.ts";
import { type Credentials, type Role, roleOf } from "./credentials.ts";
import { createGuesses } from "./guesses.ts";
import { visitorOf } from "./visitor.ts";

/** Asked for each request: the passwords may change while the page is served. */
export interface Guard {
  readonly config: Pick<StatusConfig, "host" | "trusted_proxy">;
  readonly credentials: Credentials | null;
  readonly clock: Pick<Clock, "monotonic">;
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

/**
 * Why somebody may not write to the building from the page; null where they may. Without a password everybody on this
 * machine could, while `plenum write` is for who owns the state folder.
 */
export function writesClosedTo(role: Role | null): string | null {
  if (role === "operator") return null;
  if (role === null)
    return "Writing from the page needs a password (status.password); `plenum write` does not.";
  return VIEWER;
}

const VIEWER = "A viewer may look, and change nothing.";

/**
 * Who may look: with a password whoever knows it, otherwise only requests to the names that we serve under, so that
 * a page from elsewhere whose name suddenly points here (DNS rebinding) learns nothing.
 */
export function guard(options: Guard): MiddlewareHandler {
  const anybody = knownHosts(options.config.host);
  const whoKnows = passwordOnly(options);
  return (context, next) => {
    const { credentials } = options;
    return credentials === null ? anybody(context, next) : whoKnows(credentials)(context, next);
  };
}

/**
 * For what changes something: only our own page may ask for it. A form or a script of another site can send neither
 * this header nor a matching origin without asking first, and nobody here answers such a question.
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

function knownHosts(own: string): MiddlewareHandler {
  const known = new Set(["localhost", "127.0.0.1", "[::1]", own.includes(":") ? `[${own}]` : own]);
  return async (context, next) => {
    const name = (context.req.header("host") ?? "").replace(/:\d+$/, "").toLowerCase();
    return known.has(name) ? next() : context.text("Unknown host name.\n", 403);
  };
}

function passwordOnly({ config, clock }: Guard): (credentials: Credentials) => MiddlewareHandler {
  const guesses = createGuesses(clock);
  return (credentials) => async (context, next) => {
    const given = context.req.header("authorization");
    if (given !== undefined) {
      const visitor = visitorOf(context, config.trusted_proxy?.address);
      const waitMs = guesses.waitMs(visitor);
      if (waitMs > 0) {
        context.header("retry-after", String(Math.ceil(waitMs / 1_000)));
        return context.text("Too many wrong passwords from this address; wait a little.\n", 429);
      }
      const role = roleOf(given, credentials);
      if (role !== null) {
        roles.set(context, role);
        const message = refusalOf(role, context.req.method, context.req.path);
        return message === null ? next() : context.json({ message }, 403);
      }
      guesses.wrong(visitor);
    }
    context.header("www-authenticate", 'Basic realm="Plenum", charset="UTF-8"');
    return context.text("The user name is plenum; the password is the configured one.\n", 401);
  };
}

/** What somebody of a role may not do, as a sentence; null where they may. */
function refusalOf(role: Role, method: string, path: string): string | null {
  if (role === "scraper") return path === "/metrics" ? null : "The metrics token opens /metrics only.";
  const changes = method !== "GET" && method !== "HEAD";
  return role === "viewer" && changes ? VIEWER : null;
}
