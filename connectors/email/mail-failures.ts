import { asFailure, ConfigError, type Failure, Rejected, Retryable, Throttled } from "../../src/core/errors/errors.ts";
import { connectionFailure, type ServerInfo } from "../../src/core/http/connection-problem.ts";
import { toOneLine } from "../shared/receiver/message-texts.ts";

/** Retry delay for greylisting, which accepts a mail when it is sent again, usually after five minutes. */
const GREYLISTING_RETRY_MS = 5 * 60_000;
const CLOSED_CONNECTION_RETRY_MS = 60_000;

/** Error of nodemailer. Never show its message, which may quote the mail. */
interface NodemailerError {
  readonly code?: string;
  readonly originalCode?: string;
  readonly command?: string;
  readonly response?: string;
  readonly responseCode?: number;
  readonly timeoutType?: string;
}

export function describeMailServer(host: string, port: number): ServerInfo {
  return {
    name: `The mail server at ${host}:${port}`,
    failureText: "could not be reached",
    addressOption: "host",
    caOption: "ca_file",
    secureSetting: "security: tls",
    plaintextSetting: "security: starttls",
  };
}

/** Maps a rejected mail to a failure. A rejected sender is a `ConfigError`, because every mail would fail. */
export function mapMailError(error: unknown, server: ServerInfo): Failure {
  const knownFailure = asFailure(error);
  if (knownFailure === error) return knownFailure;
  const { code = "", originalCode, command = "", responseCode = 0, timeoutType } = error as NodemailerError;
  const serverText = formatMailServerText(error as NodemailerError);
  const createThrottled = (message: string, retryMs: number) =>
    new Throttled(`${server.name} ${message}.${serverText}`, retryMs, { scope: "allowance" });
  if (responseCode === 421) return createThrottled("closes the connection", CLOSED_CONNECTION_RETRY_MS);
  if (responseCode >= 400 && responseCode < 500) return createThrottled("takes the mail later", GREYLISTING_RETRY_MS);
  if (code === "EAUTH" || [530, 534, 535, 538].includes(responseCode)) {
    return new ConfigError(`${server.name} does not accept who we are.${serverText}`, {
      reason: "unauthenticated",
      field: "password",
      hint: "Check user and password, and whether it takes any at this port.",
    });
  }
  if (responseCode >= 500) return mapPermanentMailError(command, code, serverText, server);
  const message = error instanceof Error ? error.message : "";
  const mapConnectionError = (systemCode: string) =>
    connectionFailure(Object.assign(new Error(message), { code: systemCode }), server);
  if (originalCode !== undefined) return mapConnectionError(originalCode);
  if (code === "EPROTOCOL") {
    return new ConfigError(`${server.name} does not answer as a mail server does.${serverText}`, {
      field: "host",
      hint: "Check host and port.",
    });
  }
  if (timeoutType === "GREETING_TIMEOUT") {
    const hint = "If that stays so, check the port: one for TLS from the start, such as 465, needs security: tls.";
    return new Retryable(`${server.name} could not be reached: it says nothing.`, { hint });
  }
  return mapConnectionError(code === "ECONNECTION" ? "ECONNRESET" : code);
}

function mapPermanentMailError(command: string, code: string, serverText: string, server: ServerInfo): Failure {
  if (code === "ETLS") {
    const hint = "Check the port, or ask its administrator to offer STARTTLS; security: tls is for ports such as 465.";
    return new ConfigError(`${server.name} does not change to TLS.${serverText}`, { field: "security", hint });
  }
  const isMailTooLarge = /^ It said: 552|\b5\.3\.4\b/.test(serverText);
  if (command === "MAIL FROM" && !isMailTooLarge) {
    const hint = "Check from, and what this user may send.";
    return new ConfigError(`${server.name} does not accept the sender.${serverText}`, { field: "from", hint });
  }
  if (command === "RCPT TO") return new Rejected(`${server.name} accepts none of the recipients.${serverText}`);
  if (command === "DATA" || command === "MAIL FROM")
    return new Rejected(`${server.name} does not take this mail.${serverText}`);
  const hint = "Ask its administrator to let this machine send mail.";
  return new ConfigError(`${server.name} does not talk to us.${serverText}`, { field: "host", hint });
}

function formatMailServerText({ response }: NodemailerError): string {
  const responseText = toOneLine(response ?? "");
  return responseText === "" ? "" : ` It said: ${responseText.slice(0, 300)}`;
}
