import { ConfigError } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { Secret } from "../../core/runtime/log.ts";
import { cachedSecret, type SecretRef } from "../../core/runtime/secret.ts";

/**
 * The access token as it is now. It is read again for every request, which is seldom and cheap, so a new token in
 * the file works at once, without a restart. Throws `ConfigError` with what to do when there is none that may be
 * used, and `LocalFailure` while it is exchanged (`cachedSecret`); no message repeats what was found.
 */
export function createToken(
  from: SecretRef,
  clock: Pick<Clock, "monotonic">,
  environment: Readonly<Record<string, string | undefined>> = process.env,
): () => Secret {
  const secret = cachedSecret(from, clock, environment);
  const place = "file" in from ? `the file ${from.file}` : `the environment variable ${from.env}`;
  return () => {
    const token = secret()
      .reveal()
      .replace(/^\uFEFF/, "")
      .trim();
    if (token === "")
      throw new ConfigError(`There is no access token in ${place}.`, { hint: "Put it there." });
    // It becomes part of a header, so it may hold visible ASCII only.
    if (!/^[\x21-\x7e]+$/.test(token)) {
      throw new ConfigError(`What is in ${place} is not an access token.`, {
        hint: "Put the token there and nothing else: one line, no spaces, no quotes.",
      });
    }
    return new Secret(token);
  };
}
