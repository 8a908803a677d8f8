import { createHash, timingSafeEqual } from "node:crypto";
import type { MiddlewareHandler } from "hono";
import type { Clock } from "../clock.ts";
import type { Secret } from "../log.ts";
import type { StatusConfig } from "./config.ts";
import type { Credentials } from "./credentials.ts";
import { createGuesses } from "./guesses.ts";
import { visitorOf } from "./visitor.ts";

export interface Guard {
  readonly config: Pick<StatusConfig, "host" | "trusted_proxy">;
  readonly credentials: Credentials | null;
  readonly clock: Pick<Clock, "monotonic">;
}

/**
 * Who may look: with a password whoever knows it, otherwise only requests to the names that we serve under, so that
 * a page from elsewhere whose name suddenly points here (DNS rebinding) learns nothing.
 */
export function guard(options: Guard): MiddlewareHandler {
  const { config, credentials } = options;
  return credentials === null ? knownHosts(config.host) : passwordOnly({ ...options, credentials });
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

function passwordOnly({
  credentials,
  config,
  clock,
}: Guard & { credentials: Credentials }): MiddlewareHandler {
  const guesses = createGuesses(clock);
  return async (context, next) => {
    const given = context.req.header("authorization");
    if (given !== undefined) {
      const visitor = visitorOf(context, config.trusted_proxy?.address);
      const waitMs = guesses.waitMs(visitor);
      if (waitMs > 0) {
        context.header("retry-after", String(Math.ceil(waitMs / 1_000)));
        return context.text("Too many wrong passwords from this address; wait a little.\n", 429);
      }
      if (passes(given, credentials.password)) return next();
      guesses.wrong(visitor);
    }
    context.header("www-authenticate", 'Basic realm="Plenum", charset="UTF-8"');
    return context.text("The user name is plenum; the password is the configured one.\n", 401);
  };
}

function passes(authorization: string, password: Secret): boolean {
  const given = /^Basic ([A-Za-z0-9+/=]+)$/i.exec(authorization)?.[1] ?? "";
  const digest = (text: string) => createHash("sha256").update(text).digest();
  const wanted = Buffer.from(`plenum:${password.reveal()}`).toString("base64");
  return timingSafeEqual(digest(given), digest(wanted));
}
