import { hash } from "node:crypto";
import { createTransport } from "nodemailer";
import { z } from "zod";
import type { ConnectorContext } from "../../src/core/connector.ts";
import { connectionFailure } from "../../src/core/http/connection-problem.ts";
import { VERIFIED_TLS } from "../../src/core/http/verified-tls.ts";
import { readCertificateFile, secretReader } from "../../src/core/runtime/secret.ts";
import { abortAfter, rejectOnAbort } from "../../src/core/runtime/waiting.ts";
import { cutText, toOneLine } from "../shared/receiver/message-texts.ts";
import type { AlarmReceiver, IncidentMessage, IncidentReference } from "../shared/receiver/receiver-interface.ts";
import type { EmailConfig } from "./config.ts";
import { buildIncidentMail } from "./incident-mail.ts";
import { describeMailServer, mapMailError } from "./mail-failures.ts";

/** Fraction of the timeout after which a server without a connection or a greeting counts as silent. */
const SMTP_GREETING_TIMEOUT_SHARE = 0.8;

const FirstMailReference = z.object({ title: z.string() });

/** Creates the e-mail receiver. A mail counts as sent when the server responds 250 to its content. */
export function createEmailReceiver(config: EmailConfig, { clock, log }: ConnectorContext): AlarmReceiver {
  const port = config.port ?? (config.security === "tls" ? 465 : 587);
  const serverInfo = describeMailServer(config.host, port);
  const readPassword = config.password === undefined ? null : secretReader(config.password, clock);
  const refusedRecipients = new Set<string>();
  let lastMailStartMs = Number.NEGATIVE_INFINITY;

  function createMailTransport() {
    const auth =
      readPassword === null ? {} : { auth: { user: config.user, pass: readPassword().reveal() }, forceAuth: true };
    const ca = config.ca_file === undefined ? {} : { ca: readCertificateFile(config.ca_file, "ca_file") };
    return createTransport({
      host: config.host.replace(/^\[|\]$/g, ""),
      port,
      secure: config.security === "tls",
      requireTLS: config.security === "starttls",
      ignoreTLS: config.security === "none",
      ...auth,
      tls: { ...VERIFIED_TLS, ...ca },
      connectionTimeout: config.timeout * SMTP_GREETING_TIMEOUT_SHARE,
      greetingTimeout: config.timeout * SMTP_GREETING_TIMEOUT_SHARE,
      socketTimeout: config.timeout,
      dnsTimeout: config.timeout,
      disableFileAccess: true,
      disableUrlAccess: true,
    });
  }

  /** Limits the total time of an SMTP action. A server that sends single bytes would never reach the socket timeout. */
  async function runWithTimeLimit<T>(signal: AbortSignal, runAction: (timeout: AbortSignal) => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    lastMailStartMs = clock.monotonic();
    using timeLimit = abortAfter(signal, config.timeout);
    const limitSignal = timeLimit.signal;
    try {
      return await rejectOnAbort(runAction(limitSignal), limitSignal);
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      throw limitSignal.aborted ? connectionFailure(limitSignal.reason, serverInfo) : mapMailError(error, serverInfo);
    }
  }

  async function sendMail(incident: IncidentMessage, title: string, signal: AbortSignal): Promise<IncidentReference> {
    const mail = buildIncidentMail(incident, title, config, clock.now());
    const sendMailWithinLimit = (timeout: AbortSignal) => createMailTransport().sendMail({ ...mail, signal: timeout });
    const { accepted, rejected, rejectedErrors } = await runWithTimeLimit(signal, sendMailWithinLimit);
    for (const { recipient = "", response = "" } of rejectedErrors ?? []) {
      if (refusedRecipients.has(recipient)) continue;
      refusedRecipients.add(recipient);
      const recipientCounts = { accepted: accepted.length, rejected: rejected.length };
      const message = "the mail server refused a recipient; only the others got the mail";
      log.warn({ recipient, response: cutText(toOneLine(response), 300), ...recipientCounts }, message);
    }
    return { ref: { title }, ticket: null, link: null };
  }

  function sendFollowUpMail(incident: IncidentMessage, { ref }: IncidentReference, signal: AbortSignal) {
    return sendMail(incident, FirstMailReference.safeParse(ref).data?.title ?? incident.text.title, signal);
  }

  const isMailConfiguredForChange = ({ change, priority }: IncidentMessage) =>
    config.tell.some(
      ({ changes, priorities }) =>
        changes.some((configuredChange) => configuredChange === change) &&
        (priorities.length === 0 || priorities.includes(priority)),
    );

  return {
    repeatedOpenEffect: "another",
    serverId: hash("sha256", JSON.stringify([config.host, port, config.to, config.cc])),
    progressMs: () => lastMailStartMs,

    open: (incident, signal) => sendMail(incident, incident.text.title, signal),

    update: async (incident, reference, signal) =>
      isMailConfiguredForChange(incident) ? sendFollowUpMail(incident, reference, signal) : reference,
    close: sendFollowUpMail,

    async probe(signal) {
      await runWithTimeLimit(signal, () => createMailTransport().verify());
    },

    dispose: async () => undefined,
  };
}
