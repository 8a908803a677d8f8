import { ConfigError } from "../errors/errors.ts";

/**
 * What every connection of ours that speaks TLS says for itself, so that no setting of the surroundings decides it:
 * whoever answers shows a certificate for the name that we meant, in TLS 1.2 or newer. Node.js would otherwise take
 * the first from NODE_TLS_REJECT_UNAUTHORIZED and the second from `--tls-min-v1.0` in NODE_OPTIONS.
 */
export const VERIFIED_TLS = { rejectUnauthorized: true, minVersion: "TLSv1.2" } as const;

/** Options of Node.js that write keys or what is encrypted by them where others may read it. */
const TELLS_KEYS = /^--(tls[-_]keylog|trace[-_]tls)\b/;

/**
 * Throws `ConfigError` where the surroundings ask Node.js not to check certificates, or to tell the keys of its
 * connections. Ours would be checked all the same, but whoever has set it believes something else, and what is left
 * over from a search for a fault must not stay unseen. Called before anything is sent.
 */
export function refuseUnverifiedTls(
  environment: Readonly<Record<string, string | undefined>> = process.env,
  nodeOptions: readonly string[] = process.execArgv,
): void {
  if (environment.NODE_TLS_REJECT_UNAUTHORIZED === "0") {
    throw new ConfigError(
      "The environment variable NODE_TLS_REJECT_UNAUTHORIZED is 0, which asks for connections to anybody, whatever the certificate.",
      { hint: "Take the variable away; a private authority is named by ca_file." },
    );
  }
  const telling = [...nodeOptions, ...(environment.NODE_OPTIONS ?? "").split(/[\s"]+/)].find((option) =>
    TELLS_KEYS.test(option),
  );
  if (telling !== undefined) {
    throw new ConfigError(
      `The option ${telling.split("=")[0]} of Node.js gives away what is said over encrypted connections.`,
      { hint: "Take it out of NODE_OPTIONS, or of the command line." },
    );
  }
}
