import { ConfigError } from "../errors.ts";
import type { Secret } from "../log.ts";
import { readSecret } from "../secret.ts";
import type { StatusConfig } from "./config.ts";

/** Fewest characters of a password: five guesses and then two a minute find nothing of this length. */
const LEAST_LENGTH = 12;

/** What opens the status page, as it was at the start; null where nothing is asked for. */
export interface Credentials {
  readonly password: Secret;
}

/** Throws `ConfigError` where a password is missing or too short. */
export function readCredentials(
  { password }: StatusConfig,
  environment?: Readonly<Record<string, string | undefined>>,
): Credentials | null {
  if (password === undefined) return null;
  return { password: longEnough(readSecret(password, environment), "status.password") };
}

function longEnough(secret: Secret, option: string): Secret {
  if (secret.reveal().length >= LEAST_LENGTH) return secret;
  throw new ConfigError(`${option} is shorter than ${LEAST_LENGTH} characters.`, {
    field: option,
    hint: "Make one with: openssl rand -base64 18",
  });
}
