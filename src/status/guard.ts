import { createHash, timingSafeEqual } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import type { Context, MiddlewareHandler } from "hono";
import type { Secret } from "../log.ts";

/** Wrong passwords that are answered at once; each further one waits its turn, one in a second. */
const FREE_GUESSES = 5;
const GUESS_EVERY_MS = 1_000;
/** Guesses that may wait at a time; more are turned away. */
const MOST_WAITING = 20;

/**
 * Who may look: with a password whoever knows it, otherwise only requests to the names that we serve under, so that
 * a page from elsewhere whose name suddenly points here (DNS rebinding) learns nothing.
 */
export function guard(options: {
  readonly host: string;
  readonly password: Secret | null;
}): MiddlewareHandler {
  const { password } = options;
  return password === null ? knownHosts(options.host) : passwordOnly(password);
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

function passwordOnly(password: Secret): MiddlewareHandler {
  let wrong = 0;
  let waiting = 0;
  let turn = Promise.resolve();

  async function slowDown(): Promise<boolean> {
    wrong += 1;
    if (wrong <= FREE_GUESSES) return true;
    if (waiting >= MOST_WAITING) return false;
    waiting += 1;
    turn = turn.then(() => pause(GUESS_EVERY_MS, undefined, { ref: false }));
    await turn;
    waiting -= 1;
    return true;
  }

  return async (context, next) => {
    if (passes(context, password)) {
      wrong = 0;
      return next();
    }
    const asked = context.req.header("authorization") !== undefined;
    if (asked && !(await slowDown())) return context.text("Too many wrong passwords.\n", 429);
    context.header("www-authenticate", 'Basic realm="Plenum", charset="UTF-8"');
    return context.text("The user name is plenum; the password is the configured one.\n", 401);
  };
}

function passes(context: Context, password: Secret): boolean {
  const given = /^Basic ([A-Za-z0-9+/=]+)$/i.exec(context.req.header("authorization") ?? "")?.[1] ?? "";
  const digest = (text: string) => createHash("sha256").update(text).digest();
  const wanted = Buffer.from(`plenum:${password.reveal()}`).toString("base64");
  return timingSafeEqual(digest(given), digest(wanted));
}
