import { createHash, createHmac, randomBytes, timingSafeEqual } from "node:crypto";
import type { Context, MiddlewareHandler } from "hono";
import { bodyLimit } from "hono/body-limit";
import { every } from "hono/combine";
import { getCookie, setCookie } from "hono/cookie";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Secret } from "../../core/runtime/log.ts";
import { type ProcessEnv, readSecret } from "../../core/runtime/secret.ts";
import { sleepFor } from "../../core/runtime/waiting.ts";
import { clientOfAddress, delayedConnections, normalizeIp } from "./connection-limits.ts";
import type { StatusConfig } from "./status-config.ts";

/** An operator may do everything, a viewer only looks, and a scraper gets nothing but the metrics. */
export type VisitorRole = "operator" | "viewer" | "scraper";

export type PageCredentials = NonNullable<ReturnType<typeof readPageCredentials>>;

const MIN_PASSWORD_LENGTH = 12;

/** Reads the passwords of the page; null if none is configured. Throws `ConfigError` for a short password. */
export function readPageCredentials(config: StatusConfig, environment?: ProcessEnv) {
  function readPassword(option: "password" | "viewer_password" | "metrics_token"): Secret | null {
    const secretReference = config[option];
    if (secretReference === undefined) return null;
    const secret = readSecret(secretReference, environment);
    if (secret.reveal().length >= MIN_PASSWORD_LENGTH) return secret;
    throw new ConfigError(`status.${option} is shorter than ${MIN_PASSWORD_LENGTH} characters.`, {
      field: `status.${option}`,
      hint: "Make one with: openssl rand -base64 18",
    });
  }
  const operator = readPassword("password");
  return operator && { operator, viewer: readPassword("viewer_password"), scraper: readPassword("metrics_token") };
}

/** Returns the role of a visitor; null for wrong credentials. Compares in constant time. */
function authorizedRole(authorization: string, { operator, viewer, scraper }: PageCredentials): VisitorRole | null {
  const [, scheme = "", credential = ""] = /^(Basic|Bearer) +([\x21-\x7e]+)$/i.exec(authorization) ?? [];
  const basicAuthHeader = (user: string, password: Secret) =>
    `basic ${Buffer.from(`${user}:${password.reveal()}`).toString("base64")}`;
  const expectedHeaders: readonly (readonly [VisitorRole, string | null])[] = [
    ["operator", basicAuthHeader("plenum", operator)],
    ["viewer", viewer && basicAuthHeader("viewer", viewer)],
    ["scraper", scraper && `bearer ${scraper.reveal()}`],
  ];
  const matchingHeaders = expectedHeaders.filter(
    ([, header]) => isSameSecret(`${scheme.toLowerCase()} ${credential}`, header ?? "") && header !== null,
  );
  return matchingHeaders[0]?.[0] ?? null;
}

export function isSameSecret(given: string, expected: string): boolean {
  const sha256Digest = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(sha256Digest(given), sha256Digest(expected));
}

const FREE_PASSWORD_GUESSES = 5;
/** A wrong password stops counting after this time, so an address may try 5 passwords at once, then 2 a minute. */
const GUESS_FORGET_MS = 30_000;
/** Maximum number of counted wrong passwords, so that an address is not delayed for hours after an attack. */
const MAX_COUNTED_GUESSES = 10;
/** Delay for each further wrong password. The maximum delay is below the 5 s for which the page waits. */
const GUESS_DELAY_STEP_MS = 1_000;
const MAX_GUESS_DELAY_MS = 4_000;
/** Beyond this number of addresses, the address with the fewest wrong passwords is removed first. */
const MAX_GUESSING_ADDRESSES = 1_000;

/** Counts wrong passwords per address. Right ones do not reset the count, or a viewer could guess without limit. */
export function createGuessCounter(clock: Pick<Clock, "monotonic">) {
  /** By address: monotonic time at which its wrong passwords are forgotten. */
  const expiryByAddress = new Map<string, number>();
  function removeExpiredGuesses(nowMs: number): void {
    for (const [address, atMs] of expiryByAddress) if (atMs <= nowMs) expiryByAddress.delete(address);
    if (expiryByAddress.size < MAX_GUESSING_ADDRESSES) return;
    const [leastGuessed] = [...expiryByAddress].toSorted(([, a], [, b]) => a - b);
    if (leastGuessed !== undefined) expiryByAddress.delete(leastGuessed[0]);
  }

  function waitMs(address: string): number {
    const guessTimeLeftMs = (expiryByAddress.get(address) ?? 0) - clock.monotonic();
    return Math.max(0, guessTimeLeftMs - (FREE_PASSWORD_GUESSES - 1) * GUESS_FORGET_MS);
  }
  return {
    /** Milliseconds until the address may send another password. */
    waitMs,
    /** Milliseconds by which to delay the check of a password: 0, then 1,000 to 4,000. */
    delayMs: (address: string) =>
      Math.min(MAX_GUESS_DELAY_MS, Math.ceil(waitMs(address) / GUESS_FORGET_MS) * GUESS_DELAY_STEP_MS),
    countWrongGuess(address: string): void {
      const nowMs = clock.monotonic();
      if (!expiryByAddress.has(address) && expiryByAddress.size >= MAX_GUESSING_ADDRESSES) removeExpiredGuesses(nowMs);
      const nextForgottenAtMs = Math.max(nowMs, expiryByAddress.get(address) ?? 0) + GUESS_FORGET_MS;
      expiryByAddress.set(address, Math.min(nextForgottenAtMs, nowMs + MAX_COUNTED_GUESSES * GUESS_FORGET_MS));
    },
    countedAddresses: () => expiryByAddress.size,
  };
}

export interface PageGuardOptions {
  readonly config: Pick<StatusConfig, "behind_tls_proxy" | "host" | "trusted_proxy">;
  readonly credentials: PageCredentials | null;
  readonly clock: Pick<Clock, "monotonic" | "sleep">;
}

const roleByRequest = new WeakMap<Context, VisitorRole>();

export const roleOfRequest = (context: Context): VisitorRole | null => roleByRequest.get(context) ?? null;

/** Path of the request that stops all tag writes, the only change that is allowed while no password is configured. */
export const STOP_WRITES_PATH = "/api/writes/stop";

/** Checks who may use the page; without a configured password, everybody may view it and stop tag writes. */
export function guardPage(options: PageGuardOptions): MiddlewareHandler {
  const checkHostName = allowKnownHosts(options.config.host);
  const checkPassword = createPasswordCheck(options);
  return every(
    (context, next) =>
      options.credentials === null ? checkHostName(context, next) : checkPassword(options.credentials)(context, next),
    allowByRole,
  );
}

const allowByRole: MiddlewareHandler = async (context, next) => {
  const { method, path } = context.req;
  const role = roleOfRequest(context);
  const isReadRequest = method === "GET" || method === "HEAD";
  const scraperRefusal = path === "/metrics" ? null : "The metrics token opens /metrics only.";
  const message = role === "scraper" ? scraperRefusal : isReadRequest ? null : refusalForPost(role, path);
  return message === null ? next() : context.json({ message }, 403);
};

/** Paths of changes that need a password, with the command that makes the same change without one. */
const COMMAND_BY_PATH: readonly (readonly [path: string, command: string])[] = [
  ["/api/silences", "plenum silence"],
  ["/api/sink/retry", "plenum outbox resend"],
  ["/api/write", "plenum write"],
];

/** Reason why a visitor may not send a POST request to a path; null if the visitor may. */
export function refusalForPost(role: VisitorRole | null, path: string): string | null {
  if (role === "operator" || (role === null && path === STOP_WRITES_PATH)) return null;
  if (role !== null) return "A viewer may look, and change nothing.";
  const [, command] = COMMAND_BY_PATH.find(([prefix]) => path.startsWith(prefix)) ?? [];
  const commandHint = command === undefined ? "" : `, or run \`${command}\` as the user of the worker`;
  return `This needs a password. Set status.password${commandHint}.`;
}

const PASSWORD_COOKIE_NAME = "plenum-known";

/**
 * Slows password guessing without blocking users. After five wrong passwords of an address, checks of further passwords
 * wait 1 s to 4 s, one at a time per connection. A browser with the cookie of an earlier right password never waits.
 */
function createPasswordCheck({ clock, config }: PageGuardOptions): (credentials: PageCredentials) => MiddlewareHandler {
  const passwordGuesses = createGuessCounter(clock);
  const hmacKey = randomBytes(32);
  return (credentials) => async (context, next) => {
    const authorization = context.req.header("authorization");
    if (authorization === undefined) return respondUnauthorized(context);
    const address = visitorAddress(context, config.trusted_proxy?.address);
    const guesser = context.req.path === STOP_WRITES_PATH ? `${address}, stop` : address;
    const passwordProof = createHmac("sha256", hmacKey).update(authorization).digest("hex");
    const hasPasswordProof = isSameSecret(getCookie(context, PASSWORD_COOKIE_NAME) ?? "", passwordProof);
    const delayMs = hasPasswordProof ? 0 : passwordGuesses.delayMs(guesser);
    if (delayMs > 0) {
      const connection = socketOfRequest(context);
      if (delayedConnections.has(connection)) {
        const message = "This connection sent a password that is still being checked. Wait for its response.\n";
        return context.text(message, 429, { "retry-after": "4" });
      }
      delayedConnections.add(connection);
      const isStillConnected = await sleepFor(clock, delayMs, context.req.raw.signal);
      delayedConnections.delete(connection);
      if (!isStillConnected) return respondUnauthorized(context);
    }
    const role = authorizedRole(authorization, credentials);
    if (role === null) {
      passwordGuesses.countWrongGuess(guesser);
      return respondUnauthorized(context);
    }
    const cookieOptions = { path: "/", httpOnly: true, sameSite: "Strict", secure: config.behind_tls_proxy } as const;
    if (!hasPasswordProof) setCookie(context, PASSWORD_COOKIE_NAME, passwordProof, cookieOptions);
    roleByRequest.set(context, role);
    return next();
  };
}

function respondUnauthorized(context: Context): Response {
  return context.text("The user name is plenum; the password is the configured one.\n", 401, {
    "www-authenticate": 'Basic realm="Plenum", charset="UTF-8"',
  });
}

/** Admits only requests to this server's host names, so that another website cannot read it by DNS rebinding. */
export function allowKnownHosts(ownHost: string): MiddlewareHandler {
  const knownHostNames = new Set(["localhost", "127.0.0.1", "[::1]", ownHost.includes(":") ? `[${ownHost}]` : ownHost]);
  return async (context, next) => {
    const hostName = (context.req.header("host") ?? "").replace(/:\d+$/, "").toLowerCase();
    return knownHostNames.has(hostName) ? next() : context.text("Unknown host name.\n", 403);
  };
}

/** Allows changes only from Plenum's own page: the server never grants the CORS preflight of another website. */
export const sameOriginOnly: MiddlewareHandler = async (context, next) => {
  const origin = context.req.header("origin");
  const fetchSite = context.req.header("sec-fetch-site");
  const isCrossOrigin =
    (origin !== undefined && URL.parse(origin)?.host !== context.req.header("host")) ||
    (fetchSite !== undefined && fetchSite !== "same-origin");
  if (!isCrossOrigin && context.req.header("x-plenum") === "status-page") return next();
  return context.json({ message: "Only the status page itself may send this request." }, 403);
};

/** The page may not use inline code or other origins, and may not be shown in a frame. */
const PAGE_SECURITY_HEADERS: Readonly<Record<string, string>> = {
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  "cross-origin-resource-policy": "same-origin",
  "cross-origin-opener-policy": "same-origin",
};

export const securityHeaders: MiddlewareHandler = async (context, next) => {
  await next();
  for (const [name, value] of Object.entries(PAGE_SECURITY_HEADERS)) context.header(name, value);
  if (context.res.headers.get("cache-control") === null) context.header("cache-control", "no-store");
};

export function acceptJsonFromOwnPage(maxSize: number, tooLongMessage: string): MiddlewareHandler {
  const onError = (context: Context) => context.json({ message: tooLongMessage }, 413);
  return every(sameOriginOnly, bodyLimit({ maxSize, onError }), async (context: Context, next: () => Promise<void>) => {
    if (/^application\/json\b/i.test(context.req.header("content-type") ?? "")) return next();
    return context.json({ message: "Send the request as JSON." }, 415);
  });
}

const socketOfRequest = (context: Context): { readonly remoteAddress?: string } => context.env?.incoming?.socket ?? {};

/** Name of the user that the trusted proxy sends; null without a proxy or a name. */
export function proxyUserName(context: Context, { trusted_proxy: proxy }: Pick<StatusConfig, "trusted_proxy">) {
  if (proxy?.user_header === undefined || !isFromProxy(context, proxy.address)) return null;
  const name = context.req.header(proxy.user_header)?.trim() ?? "";
  return /^[^\p{C}\p{Z}](?:[^\p{C}]{0,98}[^\p{C}\p{Z}])?$/u.test(name) ? `${name} via proxy` : null;
}

export function visitorName(context: Context, config: Pick<StatusConfig, "trusted_proxy">): string {
  return proxyUserName(context, config) ?? "the status page";
}

/** Returns the visitor's address. The proxy adds it last to its header; clients can forge the addresses before it. */
function visitorAddress(context: Context, proxyAddress: string | undefined): string {
  const forwardedFor = context.req.header("x-forwarded-for")?.split(",").at(-1)?.trim() ?? "";
  return clientOfAddress(
    (isFromProxy(context, proxyAddress) && forwardedFor) || (socketOfRequest(context).remoteAddress ?? ""),
  );
}

function isFromProxy(context: Context, proxyAddress: string | undefined): boolean {
  return (
    proxyAddress !== undefined &&
    normalizeIp(socketOfRequest(context).remoteAddress ?? "") === normalizeIp(proxyAddress)
  );
}
