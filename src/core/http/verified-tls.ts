import { ConfigError } from "../errors/errors.ts";

/**
 * TLS options of every connection: certificates are verified, TLS 1.2 or newer. Without them, Node.js would follow
 * NODE_TLS_REJECT_UNAUTHORIZED and `--tls-min-v1.0` in NODE_OPTIONS.
 */
export const VERIFIED_TLS = { rejectUnauthorized: true, minVersion: "TLSv1.2" } as const;

/** Options of Node.js that write keys or what is encrypted by them where others may read it. */
const TELLS_KEYS = /^--(tls[-_]keylog|trace[-_]tls)\b/;

/**
 * Throws `ConfigError` when the environment disables certificate checks or logs TLS keys. Plenum would verify anyway, but
 * such a setting is a mistake that must be visible. Called before the first request.
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
