import { createHash, timingSafeEqual } from "node:crypto";
import { ConfigError } from "../../core/errors/errors.ts";
import type { Secret } from "../../core/runtime/log.ts";
import { readSecret, type SecretRef } from "../../core/runtime/secret.ts";
import type { StatusConfig } from "./config.ts";

/** Fewest characters of a password: too long for a few guesses a second. */
const LEAST_LENGTH = 12;

/**
 * Who somebody is by what they know: an operator may do all that the page offers, a viewer looks, and a scraper gets the
 * metrics and nothing else.
 */
export type Role = "operator" | "viewer" | "scraper";

/** Credentials of the status page, as read at the start. */
export interface Credentials {
  readonly operator: Secret;
  readonly viewer: Secret | null;
  readonly scraper: Secret | null;
}

/** Null where nothing is asked for. Throws `ConfigError` where a password is missing or too short. */
export function readCredentials(
  config: StatusConfig,
  environment?: Readonly<Record<string, string | undefined>>,
): Credentials | null {
  const read = (option: "password" | "viewer_password" | "metrics_token", ref: SecretRef) =>
    longEnough(readSecret(ref, environment), `status.${option}`);
  const { password, viewer_password, metrics_token } = config;
  if (password === undefined) return null;
  return {
    operator: read("password", password),
    viewer: viewer_password === undefined ? null : read("viewer_password", viewer_password),
    scraper: metrics_token === undefined ? null : read("metrics_token", metrics_token),
  };
}

function longEnough(secret: Secret, option: string): Secret {
  if (secret.reveal().length >= LEAST_LENGTH) return secret;
  throw new ConfigError(`${option} is shorter than ${LEAST_LENGTH} characters.`, {
    field: option,
    hint: "Make one with: openssl rand -base64 18",
  });
}

/** Role of an Authorization header; null for none. Takes constant time. */
export function roleOf(authorization: string, credentials: Credentials): Role | null {
  const [, scheme = "", given = ""] = /^(Basic|Bearer) +([\x21-\x7e]+)$/i.exec(authorization) ?? [];
  const said = `${scheme.toLowerCase()} ${given}`;
  const { operator, viewer, scraper } = credentials;
  const roles: readonly (readonly [Role, string | null])[] = [
    ["operator", basic("plenum", operator)],
    ["viewer", viewer && basic("viewer", viewer)],
    ["scraper", scraper && `bearer ${scraper.reveal()}`],
  ];
  const shown = roles.filter(([, wanted]) => isEqual(said, wanted ?? "") && wanted !== null);
  return shown[0]?.[0] ?? null;
}

function basic(user: string, password: Secret): string {
  return `basic ${Buffer.from(`${user}:${password.reveal()}`).toString("base64")}`;
}

export function isEqual(given: string, wanted: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(given), digest(wanted));
}
