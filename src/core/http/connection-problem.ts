import { once } from "node:events";
import type { Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import { asFailure, ConfigError, type Failure, Malformed, Retryable } from "../errors/errors.ts";
import { findMachineFailure } from "../errors/local-machine-failure.ts";
import { VERIFIED_TLS } from "./verified-tls.ts";

/** Texts for messages about failed connections to a server. */
export interface ServerInfo {
  /** Name in messages, without credentials, e.g. `https://service.example` or `The broker at mqtt.example:8883`. */
  readonly name: string;
  readonly failureText: "could not be asked" | "could not be reached";
  readonly addressOption: string;
  readonly caOption: string;
  readonly secureSetting: string;
  readonly plaintextSetting: string;
}

export const HTTP_SCHEMES = { secureSetting: "https://", plaintextSetting: "http://" } as const;

/** Description of a fault and a hint, in which `{address}` and `{authority}` stand for names of options. */
type FaultAndHint = readonly [fault: string, hint: string];

const PRIVATE_CA_HINT =
  "If it has a private authority, give its certificate as {authority}; otherwise somebody may be in between.";

const CERTIFICATE_FAULTS: Readonly<Record<string, FaultAndHint>> = {
  CERT_HAS_EXPIRED: ["has expired", "It has to be renewed there. Also check the clock of this machine."],
  CERT_NOT_YET_VALID: ["is not valid yet", "Check the clocks of both machines."],
  CERT_REVOKED: ["has been revoked", "It has to be replaced there."],
  CERT_REJECTED: ["is not meant for this use", "It has to be replaced there."],
  INVALID_PURPOSE: ["is not meant for this use", "It has to be replaced there."],
  ERR_TLS_CERT_ALTNAME_INVALID: ["is for another name", "Check {address}."],
  HOSTNAME_MISMATCH: ["is for another name", "Check {address}."],
  DEPTH_ZERO_SELF_SIGNED_CERT: ["is signed by itself", PRIVATE_CA_HINT],
  CERT_SIGNATURE_FAILURE: ["is not signed correctly", "Somebody may be in between."],
  CERT_UNTRUSTED: ["is not trusted", PRIVATE_CA_HINT],
};

/** Error codes for a certificate chain that cannot be verified, except the codes in `CERTIFICATE_FAULTS`. */
const CERTIFICATE_CHAIN_CODE = /^(CERT_|CRL_|UNABLE_TO_|SELF_SIGNED_CERT_IN_CHAIN|INVALID_CA|PATH_LENGTH_EXCEEDED)/;
const UNKNOWN_CA_FAULT: FaultAndHint = ["comes from an unknown authority", PRIVATE_CA_HINT];
const TLS_ERROR_CODE = /^(EPROTO$|ERR_SSL_|ERR_TLS_|ERR_OSSL_)/;
/** Handshake errors of a restarting server or a bad line; another attempt may succeed. */
const TRANSIENT_TLS_ERROR =
  /INTERNAL_ERROR|BAD_RECORD_MAC|UNEXPECTED_EOF|CLOSE_NOTIFY|USER_CANCEL|HANDSHAKE_TIMEOUT|internal error|bad record mac/;
/** Error of Node.js about a response that is not TLS: its code or, with EPROTO, its message. */
const RESPONSE_WITHOUT_TLS_ERROR =
  /WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST|wrong version number|packet length too long/;
const CLIENT_CERTIFICATE_ERROR =
  /CERTIFICATE_REQUIRED|ALERT_(BAD_CERTIFICATE|UNKNOWN_CA|CERTIFICATE_)|certificate required/;

const TRANSIENT_CONNECTION_FAULTS: Readonly<Record<string, string>> = {
  ENOTFOUND: "its name is not known",
  EAI_AGAIN: "its name could not be looked up",
  ECONNREFUSED: "it refuses the connection",
  ECONNRESET: "it broke the connection",
  EPIPE: "it broke the connection",
  EHOSTUNREACH: "there is no way to it",
  ENETUNREACH: "there is no way to it",
  ENETDOWN: "there is no way to it",
  ETIMEDOUT: "it does not answer",
  TimeoutError: "no answer in time",
  RequestTimedOutError: "no answer in time",
  UND_ERR_CONNECT_TIMEOUT: "no connection in time",
  UND_ERR_HEADERS_TIMEOUT: "no answer in time",
  UND_ERR_BODY_TIMEOUT: "the answer stopped",
  UND_ERR_SOCKET: "it broke the connection",
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: "the answer was cut",
  UND_ERR_DESTROYED: "the connection was closed here",
  UND_ERR_CLOSED: "the connection was closed here",
};

const PERSISTENT_CONNECTION_HINTS: Readonly<Record<string, string>> = {
  ENOTFOUND: "If that stays so, check {address}.",
  ECONNREFUSED: "If that stays so, check whether it is running, and the port in {address}.",
};

/** Classifies an error of a socket, TLS or HTTP library. Omits the library's text, which may quote the request. */
export function connectionFailure(error: unknown, server: ServerInfo): Failure {
  const knownFailure = asFailure(error);
  if (knownFailure === error) return knownFailure;
  const { name, failureText, addressOption } = server;
  const code = findErrorCode(error);
  const certificateFault = findCertificateFault(code);
  if (certificateFault !== null) {
    const [fault, hint] = certificateFault;
    return new ConfigError(`The certificate of ${name.replace(/^The /, "the ")} ${fault} (${code}).`, {
      field: hint === PRIVATE_CA_HINT ? server.caOption : addressOption,
      hint: fillOptionNamesInHint(hint, server),
    });
  }
  const machineFailure = findMachineFailure(code, `${name} ${failureText}`);
  if (machineFailure !== null) return machineFailure;
  if (TLS_ERROR_CODE.test(code)) return tlsErrorToFailure(error, code, server);
  if (isInvalidHttpErrorCode(code)) return new Malformed(`What ${name} answered is not valid HTTP (${code}).`, "");
  if (error instanceof Error && error.message.includes("before secure TLS connection was established")) {
    return new Retryable(`${name} ${failureText}: it broke the connection before TLS was agreed on (${code}).`, {
      hint: `If that stays so, check that the port in ${addressOption} is one for ${server.secureSetting}.`,
    });
  }
  const persistentFaultHint = PERSISTENT_CONNECTION_HINTS[code];
  return new Retryable(`${name} ${failureText}: ${TRANSIENT_CONNECTION_FAULTS[code] ?? "trouble"} (${code}).`, {
    ...(persistentFaultHint === undefined ? {} : { hint: fillOptionNamesInHint(persistentFaultHint, server) }),
  });
}

function tlsErrorToFailure(error: unknown, code: string, server: ServerInfo): Failure {
  const { name, failureText, addressOption: field } = server;
  const errorDetails = `${code} ${error instanceof Error ? error.message : ""}`;
  if (TRANSIENT_TLS_ERROR.test(errorDetails)) return new Retryable(`${name} ${failureText}: TLS broke off (${code}).`);
  if (RESPONSE_WITHOUT_TLS_ERROR.test(errorDetails)) return tlsUnsupportedError(server, code);
  if (CLIENT_CERTIFICATE_ERROR.test(errorDetails)) {
    return new ConfigError(`${name} wants a certificate of ours, or another one (${code}).`, {
      field,
      hint: "Ask its administrator which certificate it accepts.",
    });
  }
  return new ConfigError(`${name} does not speak TLS as it should (${code}).`, {
    field,
    hint: `Check ${field}: ${server.secureSetting} needs TLS 1.2 or newer.`,
  });
}

export function tlsUnsupportedError(server: ServerInfo, code: string): ConfigError {
  return new ConfigError(`${server.name} does not speak TLS (${code}).`, {
    field: server.addressOption,
    hint: `Check ${server.addressOption}: another port, or ${server.plaintextSetting} where that is safe.`,
  });
}

/** Response of a proxy to CONNECT, without its text, which may quote the password. */
export interface ProxyTunnelResponse {
  readonly status: number;
  readonly authSchemes: string;
  readonly hasExtraBytes: boolean;
}

/** Returns a proxy's refusal as failure, never as `unauthenticated` or `forbidden`: these are about the API token. */
export function proxyTunnelFailure(
  { status, authSchemes, hasExtraBytes }: ProxyTunnelResponse,
  { name }: ServerInfo,
  authority: string,
  hasPassword: boolean,
): Failure | null {
  if (status >= 200 && status < 300)
    return hasExtraBytes ? new Malformed(`${name} says more than it was asked for.`, "") : null;
  if (status === 407) {
    const proxyAllowsBasicLogin = authSchemes === "" || /(^|,)\s*basic\b/i.test(authSchemes);
    const hint = hasPassword ? "Check proxy.username and proxy.password." : "Give proxy.username and proxy.password.";
    return new ConfigError(`${name} does not accept who we are (407).`, {
      field: "proxy",
      hint: proxyAllowsBasicLogin
        ? hint
        : "Let it accept Basic from this machine, or no password: Plenum speaks neither NTLM nor Kerberos.",
    });
  }
  if (status >= 500 || status === 408 || status === 429) {
    return new Retryable(`${name} could not connect us to ${authority} (${status}).`, {
      hint: "If that stays so, ask the administrator of the proxy.",
    });
  }
  return new ConfigError(`${name} refuses to connect us to ${authority} (${status}).`, {
    field: "proxy",
    hint: "Ask the administrator of the proxy to allow CONNECT there, and check proxy.url.",
  });
}

/** After a server ended a plain HTTP connection without a response: returns an error if the server needs TLS. */
export async function detectTlsPort(
  error: unknown,
  url: URL,
  server: ServerInfo,
  connectTls: (signal: AbortSignal) => Promise<unknown>,
  signal: AbortSignal,
): Promise<ConfigError | null> {
  if (url.protocol !== "http:" || !isNoResponseError(error)) return null;
  const doesServerSpeakTls = await serverSpeaksTls((timeout) => connectTls(AbortSignal.any([timeout, signal])));
  return doesServerSpeakTls ? needsTlsError(server) : null;
}

export function needsTlsError(server: ServerInfo): ConfigError {
  return new ConfigError(`${server.name} speaks TLS, and was talked to without.`, {
    field: server.addressOption,
    hint: `Write ${server.secureSetting} in ${server.addressOption}, or another port.`,
  });
}

/** True if a response body is the complaint of nginx, Go or Apache about plain HTTP at an HTTPS port. */
export function asksForTls(body: string): boolean {
  return /plain HTTP request was sent to HTTPS port|HTTP request to an HTTPS server|speaking plain HTTP to an SSL/i.test(
    body,
  );
}

/** True if the server ended an open connection without a valid HTTP response. */
export function isNoResponseError(error: unknown): boolean {
  const code = findErrorCode(error);
  return ["ECONNRESET", "EPIPE", "UND_ERR_SOCKET"].includes(code) || isInvalidHttpErrorCode(code);
}

/** True if the server speaks TLS, even with an invalid certificate. */
export async function serverSpeaksTls(connect: (signal: AbortSignal) => Promise<unknown>): Promise<boolean> {
  try {
    await connect(AbortSignal.timeout(TLS_PROBE_TIMEOUT_MS));
    return true;
  } catch (error) {
    return findCertificateFault(findErrorCode(error)) !== null;
  }
}

const TLS_PROBE_TIMEOUT_MS = 3_000;

/** Makes a TLS handshake with an address, through the proxy if one is configured, and closes the connection. */
export async function probeTlsHandshake(
  address: { readonly host: string; readonly port: number },
  signal: AbortSignal,
  tunnel: Socket | null = null,
): Promise<void> {
  signal.throwIfAborted();
  const host = address.host.replace(/^\[|\]$/g, "");
  const tlsSocket = connectTls({ ...VERIFIED_TLS, host, port: address.port, ...(tunnel && { socket: tunnel }) });
  // An error after the connection has ended would otherwise be unhandled.
  tlsSocket.on("error", () => undefined);
  try {
    await once(tlsSocket, "secureConnect", { signal });
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  } finally {
    tlsSocket.destroy();
  }
}

function findCertificateFault(code: string): FaultAndHint | null {
  return CERTIFICATE_FAULTS[code] ?? (CERTIFICATE_CHAIN_CODE.test(code) ? UNKNOWN_CA_FAULT : null);
}

function isInvalidHttpErrorCode(code: string): boolean {
  return code === "HTTPParserError" || code.startsWith("HPE_") || code === "UND_ERR_HEADERS_OVERFLOW";
}

function fillOptionNamesInHint(hint: string, { addressOption, caOption }: ServerInfo): string {
  return hint.replace("{address}", addressOption).replace("{authority}", caOption);
}

function findErrorCode(error: unknown): string {
  for (let currentError: unknown = error; currentError instanceof Error; currentError = currentError.cause) {
    const { code } = currentError as { code?: unknown };
    if (typeof code === "string") return code;
  }
  return error instanceof Error ? error.name : "unknown error";
}
