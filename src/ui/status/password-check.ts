import { createHmac, randomBytes } from "node:crypto";
import type { Context, MiddlewareHandler } from "hono";
import { getCookie, setCookie } from "hono/cookie";
import type { Clock } from "../../core/runtime/clock.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import type { StatusConfig } from "./config.ts";
import { delayedConnections } from "./connections.ts";
import { type Credentials, isEqual, type Role, roleOf } from "./credentials.ts";
import { createGuesses } from "./guesses.ts";
import { socketOf, visitorOf } from "./visitor.ts";

export interface PasswordCheck {
  readonly config: Pick<StatusConfig, "behind_tls_proxy" | "trusted_proxy">;
  readonly clock: Pick<Clock, "monotonic" | "sleep">;
  /** Path of the emergency stop: wrong passwords elsewhere never delay it. */
  readonly stop: string;
  /** Notes the role of a request whose password is right. */
  readonly admit: (context: Context, role: Role) => void;
}

const COOKIE = "plenum-known";

/**
 * Lets requests with a right password through, and keeps guessing slow without locking anybody out.
 *
 * Five wrong passwords of an address are checked at once. After them, each password from this address is checked 1 s to
 * 4 s after it arrived, one at a time for each connection. So a right one is accepted after 4 s at most, whatever else the
 * address sends, and 32 connections try 8 passwords a second at most.
 *
 * A browser that has sent a right password has a cookie that proves it, and does not wait. The cookie opens nothing
 * without that same password.
 */
export function passwordCheck(options: PasswordCheck): (credentials: Credentials) => MiddlewareHandler {
  const { admit, clock, config, stop } = options;
  const guesses = createGuesses(clock);
  const key = randomBytes(32);
  const proofOf = (authorization: string) => createHmac("sha256", key).update(authorization).digest("hex");

  return (credentials) => async (context, next) => {
    const given = context.req.header("authorization");
    if (given === undefined) return refuse(context);
    const address = visitorOf(context, config.trusted_proxy?.address);
    const visitor = context.req.path === stop ? `${address}, stop` : address;
    const proof = proofOf(given);
    const isKnown = isEqual(getCookie(context, COOKIE) ?? "", proof);
    const delayMs = isKnown ? 0 : guesses.delayMs(visitor);
    if (delayMs > 0) {
      const connection = socketOf(context);
      if (delayedConnections.has(connection)) return refuseSecond(context);
      delayedConnections.add(connection);
      const isThere = await sleepFor(clock, delayMs, context.req.raw.signal);
      delayedConnections.delete(connection);
      if (!isThere) return refuse(context);
    }
    const role = roleOf(given, credentials);
    if (role === null) {
      guesses.wrong(visitor);
      return refuse(context);
    }
    if (!isKnown)
      setCookie(context, COOKIE, proof, {
        path: "/",
        httpOnly: true,
        sameSite: "Strict",
        secure: config.behind_tls_proxy,
      });
    admit(context, role);
    return next();
  };
}

function refuse(context: Context): Response {
  context.header("www-authenticate", 'Basic realm="Plenum", charset="UTF-8"');
  return context.text("The user name is plenum; the password is the configured one.\n", 401);
}

function refuseSecond(context: Context): Response {
  context.header("retry-after", "4");
  return context.text("This connection sent a password that is still being checked. Wait for its response.\n", 429);
}
