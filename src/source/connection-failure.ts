import { ConfigError, type Failure, Malformed, meaningOf, Retryable } from "../errors.ts";

/**
 * The far end closed a kept-alive socket just as a request left on it. The request was not answered; a GET may go
 * again at once, on a new connection. A POST may not: nobody knows whether it was read.
 */
export class StaleSocket extends Retryable {}

/** What certificates can be wrong about, by the code of OpenSSL or Node.js, and what a person does about it. */
const CERTIFICATES: Readonly<Record<string, readonly [string, string]>> = {
  CERT_HAS_EXPIRED: ["has expired", "The service has to renew it. Also check the clock of this machine."],
  CERT_NOT_YET_VALID: ["is not valid yet", "Check the clock of this machine."],
  CERT_REVOKED: ["has been revoked", "The service has to replace it."],
  ERR_TLS_CERT_ALTNAME_INVALID: ["is for another name", "Check base_url."],
  DEPTH_ZERO_SELF_SIGNED_CERT: ["is signed by itself", privateAuthority()],
  SELF_SIGNED_CERT_IN_CHAIN: ["comes from an unknown authority", privateAuthority()],
  UNABLE_TO_GET_ISSUER_CERT: ["comes from an unknown authority", privateAuthority()],
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: ["comes from an unknown authority", privateAuthority()],
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: ["comes from an unknown authority", privateAuthority()],
  CERT_UNTRUSTED: ["is not trusted", privateAuthority()],
  CERT_SIGNATURE_FAILURE: ["is not signed correctly", "Somebody may be in between."],
};

function privateAuthority(): string {
  return "If the service has a private authority, give its certificate as ca_file; otherwise somebody may be in between.";
}

/** Short words for the usual troubles of a network; any other is told by its code. */
const TROUBLES: Readonly<Record<string, string>> = {
  ENOTFOUND: "its name is not known",
  EAI_AGAIN: "its name could not be looked up",
  ECONNREFUSED: "it refuses the connection",
  ECONNRESET: "it broke the connection",
  EPIPE: "it broke the connection",
  EHOSTUNREACH: "there is no way to it",
  ENETUNREACH: "there is no way to it",
  ETIMEDOUT: "it does not answer",
  UND_ERR_CONNECT_TIMEOUT: "no connection in time",
  UND_ERR_HEADERS_TIMEOUT: "no answer in time",
  UND_ERR_BODY_TIMEOUT: "the answer stopped",
  UND_ERR_SOCKET: "it broke the connection",
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: "the answer was cut",
  UND_ERR_DESTROYED: "the connection was closed here",
  UND_ERR_CLOSED: "the connection was closed here",
};

/** Gives what a socket, TLS or HTTP library threw its meaning. Its own text stays out: it may quote the request. */
export function connectionFailure(error: unknown, origin: string): Failure {
  const known = meaningOf(error);
  if (known === error) return known;
  const code = codeOf(error);
  const certificate = CERTIFICATES[code];
  if (certificate !== undefined) {
    const [fault, hint] = certificate;
    return new ConfigError(`The certificate of ${origin} ${fault} (${code}).`, { hint });
  }
  if (code === "EPROTO" || code.startsWith("ERR_SSL_") || code.startsWith("ERR_TLS_")) {
    return new ConfigError(`${origin} does not speak TLS as it should (${code}).`, {
      hint: "Check base_url: https needs TLS 1.2 or newer.",
    });
  }
  if (code === "HTTPParserError" || code.startsWith("HPE_") || code === "UND_ERR_HEADERS_OVERFLOW") {
    return new Malformed(`What ${origin} answered is not valid HTTP (${code}).`, "");
  }
  return new Retryable(`${origin} could not be asked: ${TROUBLES[code] ?? "trouble"} (${code}).`);
}

function codeOf(error: unknown): string {
  for (let at: unknown = error; at instanceof Error; at = at.cause) {
    const { code } = at as { code?: unknown };
    if (typeof code === "string") return code;
  }
  return error instanceof Error ? error.name : "unknown error";
}
