import { ConfigError } from "../errors/errors.ts";

/** TLS options that override NODE_TLS_REJECT_UNAUTHORIZED and the option `--tls-min-v1.0` of Node.js. */
export const VERIFIED_TLS = { rejectUnauthorized: true, minVersion: "TLSv1.2" } as const;
const TLS_KEY_LOGGING_OPTION = /^--(tls[-_]keylog|trace[-_]tls)\b/;

/** Throws `ConfigError` when the environment disables certificate checks or logs TLS keys. */
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
  const tlsKeyLoggingOption = [...nodeOptions, ...(environment.NODE_OPTIONS ?? "").split(/[\s"]+/)].find((option) =>
    TLS_KEY_LOGGING_OPTION.test(option),
  );
  if (tlsKeyLoggingOption !== undefined) {
    throw new ConfigError(
      `The option ${tlsKeyLoggingOption.split("=")[0]} of Node.js gives away what is said over encrypted connections.`,
      { hint: "Take it out of NODE_OPTIONS, or of the command line." },
    );
  }
}
