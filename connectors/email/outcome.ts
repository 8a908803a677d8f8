import { ConfigError, type Failure, meaningOf, Rejected, Retryable, Throttled } from "../../src/core/errors/errors.ts";
import { failureOfConnection, type Server } from "../../src/core/http/connection-problem.ts";
import { oneLine } from "../shared/receiver/text.ts";

/** Greylisting accepts a mail that is sent again some minutes later, usually five. In milliseconds. */
const GREYLISTED_MS = 5 * 60_000;
/** Wait after 421: the server has too many connections or restarts. In milliseconds. */
const CLOSING_MS = 60_000;

/** Error of nodemailer. Its message may quote the mail, so it is never shown. */
interface MailError {
  readonly code?: string;
  /** The code of the system or of TLS, where `code` is a word of nodemailer's. */
  readonly originalCode?: string;
  readonly command?: string;
  readonly response?: string;
  readonly responseCode?: number;
  readonly timeoutType?: string;
}

/** The mail server in the terms of src/core/http/connection-problem.ts. */
export function mailServer(host: string, port: number): Server {
  return {
    name: `The mail server at ${host}:${port}`,
    failed: "could not be reached",
    addressOption: "host",
    authorityOption: "ca_file",
    secureScheme: "security: tls",
    plainScheme: "security: starttls",
  };
}

/**
 * Maps a rejected mail to a failure.
 *
 * | response                                   | failure                                             |
 * | ------------------------------------------ | --------------------------------------------------- |
 * | login refused or required                  | `ConfigError`                                       |
 * | certificate, no STARTTLS, no mail server   | `ConfigError`                                       |
 * | 4xx, e.g. greylisting                      | `Throttled`; the server did not accept the mail     |
 * | 5xx to the sender                          | `ConfigError`, because every mail would fail        |
 * | 5xx to all recipients, or to the content   | `Rejected`                                          |
 * | none                                       | `Retryable`; the server may have accepted the mail  |
 */
export function failureOfMail(error: unknown, end: Server): Failure {
  const known = meaningOf(error);
  if (known === error) return known;
  const { code = "", originalCode, command = "", responseCode = 0, timeoutType } = error as MailError;
  const said = serverTextOf(error as MailError);
  if (responseCode === 421) {
    return new Throttled(`${end.name} closes the connection.${said}`, CLOSING_MS, { scope: "allowance" });
  }
  if (responseCode >= 400 && responseCode < 500) {
    return new Throttled(`${end.name} takes the mail later.${said}`, GREYLISTED_MS, { scope: "allowance" });
  }
  if (code === "EAUTH" || [530, 534, 535, 538].includes(responseCode)) {
    return new ConfigError(`${end.name} does not accept who we are.${said}`, {
      reason: "unauthenticated",
      field: "password",
      hint: "Check user and password, and whether it takes any at this port.",
    });
  }
  if (responseCode >= 500) return refusal(command, code, said, end);
  if (originalCode !== undefined) {
    return failureOfConnection(Object.assign(new Error(messageOf(error)), { code: originalCode }), end);
  }
  if (code === "EPROTOCOL") {
    return new ConfigError(`${end.name} does not answer as a mail server does.${said}`, {
      field: "host",
      hint: "Check host and port.",
    });
  }
  if (timeoutType === "GREETING_TIMEOUT") {
    return new Retryable(`${end.name} could not be reached: it says nothing.`, {
      hint: "If that stays so, check the port: one for TLS from the start, such as 465, needs security: tls.",
    });
  }
  return failureOfConnection(Object.assign(new Error(messageOf(error)), { code: CONNECTION[code] ?? code }), end);
}

function refusal(command: string, code: string, said: string, end: Server): Failure {
  if (code === "ETLS") {
    return new ConfigError(`${end.name} does not change to TLS.${said}`, {
      field: "security",
      hint: "Check the port, or ask whoever runs it to offer STARTTLS; security: tls is for ports such as 465.",
    });
  }
  const isTooLarge = /^ It said: 552|\b5\.3\.4\b/.test(said);
  if (command === "MAIL FROM" && !isTooLarge) {
    return new ConfigError(`${end.name} does not accept the sender.${said}`, {
      field: "from",
      hint: "Check from, and what this user may send.",
    });
  }
  if (command === "RCPT TO") return new Rejected(`${end.name} accepts none of the recipients.${said}`);
  if (command === "DATA" || command === "MAIL FROM") {
    return new Rejected(`${end.name} does not take this mail.${said}`);
  }
  return new ConfigError(`${end.name} does not talk to us.${said}`, {
    field: "host",
    hint: "Ask whoever runs it to let this machine send mail.",
  });
}

/** Error codes of nodemailer and the matching system codes. */
const CONNECTION: Readonly<Record<string, string>> = { ECONNECTION: "ECONNRESET" };

/** Response text of the server. */
function serverTextOf({ response }: MailError): string {
  const words = oneLine(response ?? "");
  return words === "" ? "" : ` It said: ${words.slice(0, 300)}`;
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : "";
}
