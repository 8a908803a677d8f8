import { writeFileSync } from "node:fs";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { inspect } from "node:util";
import type { SMTPServerOptions } from "smtp-server";
import { describe, expect, onTestFinished, test } from "vitest";
import type { IncidentReference } from "#connectors/shared/receiver/receiver-interface.ts";
import { errorText } from "#src/core/errors/errors.ts";
import { certificateFor } from "../connectors/certificate.ts";
import { clockAt, never } from "../connectors/context.ts";
import { freePort } from "../real-servers.ts";
import { ALARM } from "../sample-events.ts";
import { disposeAfterTest, stopAfterTest } from "../test-resources.ts";
import { startMailServerStub } from "./mail-server-stub.ts";
import { catchFailure, expectFailure, loggedContext, secretFile } from "./receiver-helpers.ts";
import { createReceiver } from "./receivers.ts";
import { alarmMessage, endMessage } from "./sent-samples.ts";

const NOW = "2026-11-02T07:00:00.000Z";

async function startReceiver(options: object = {}, server: SMTPServerOptions = {}) {
  const mailServer = stopAfterTest(await startMailServerStub(server));
  return { mailServer, ...createMailReceiver({ ...mailServer.config, ...options }) };
}

function createMailReceiver(options: object) {
  const lines: string[] = [];
  const context = loggedContext("mail", lines, clockAt(NOW));
  return { lines, receiver: disposeAfterTest(createReceiver("email", { config: {} }, context, options)) };
}

describe("email: sent mails", () => {
  test("sends an alarm and its end as two mails of one thread", async () => {
    const options = { from: "Plenum, north <plenum@example.com>", cc: ["chief@example.com"] };
    const { receiver, mailServer } = await startReceiver({ ...options, subject_prefix: "[Buildings]" });
    const message = alarmMessage({ link: "https://plenum.example.com/?a=1&b=2" });
    const firstReference = await receiver.open(message, never());
    const reference = JSON.parse(JSON.stringify(firstReference)) as IncidentReference;
    expect(await receiver.close(endMessage({ key: message.key }), reference, never())).toEqual(firstReference);
    const [opening, ending] = mailServer.mails;
    expect(opening?.recipients).toEqual(["operations@example.com", "chief@example.com"]);
    expect(opening?.mail).toMatchObject({
      from: { name: "Plenum, north", address: "plenum@example.com" },
      to: [{ address: "operations@example.com" }],
      cc: [{ address: "chief@example.com" }],
      subject: "[Buildings] Active: Supply temperature low, Kvarnholmen 4",
      inReplyTo: `<${message.key}@example.com>`,
      references: `<${message.key}@example.com>`,
      date: NOW,
    });
    expect(opening?.mail.text?.trim()).toBe(
      [
        "Active: Supply temperature low, Kvarnholmen 4",
        "",
        "Site: Kvarnholmen 4",
        "Priority: A",
        "Since: 2026-11-02 07:15:00 +01:00",
        "Description: Supply temperature below 20 °C for 10 minutes",
        "Value: value: 18.4",
        "",
        "Open in Plenum: https://plenum.example.com/?a=1&b=2",
      ].join("\n"),
    );
    expect(opening?.mail.html).toContain('<a href="https://plenum.example.com/?a=1&amp;b=2">Open in Plenum</a>');
    expect(readHeaders(opening)).toMatchObject({
      "auto-submitted": "auto-generated",
      "x-auto-response-suppress": "All",
      "x-priority": "1 (Highest)",
    });
    expect(readHeaders(opening)).not.toHaveProperty("x-mailer");
    expect(ending?.mail).toMatchObject({
      subject: "[Buildings] Resolved: Supply temperature low, Kvarnholmen 4",
      references: `<${message.key}@example.com>`,
    });
    expect(readHeaders(ending)).not.toHaveProperty("x-priority");
    expect(ending?.mail.text).toContain("Lasted: 5 min");
    expect(ending?.mail.messageId).not.toBe(opening?.mail.messageId);
    expect(mailServer.incidents()).toMatchObject([{ key: message.key, isOpen: false, texts: [{}, {}] }]);
  });

  test("keeps the first title in all subjects of a thread", async () => {
    const { receiver, mailServer } = await startReceiver();
    const gateway = { id: "7", displayName: "Basement gateway" };
    const counting = (active: number, change: "raised" | "resolved") => ({
      ...{ kind: "gateway" as const, key: "g", alarm: null, gateway, change },
      members: { total: 9, active, shown: [] },
    });
    const reference = await receiver.open(alarmMessage(counting(1, "raised")), never());
    await receiver.close(endMessage(counting(0, "resolved")), reference, never());
    expect(mailServer.mails.map(({ mail }) => mail.subject)).toEqual([
      "Active: Gateway Basement gateway is offline: 1 of 9 alarms active",
      "Resolved: Gateway Basement gateway is offline: 1 of 9 alarms active",
    ]);
    expect(mailServer.mails[1]?.mail.text).toContain("0 of 9 alarms active");
    expect(mailServer.incidents()).toHaveLength(1);
  });

  test("derives the message id from incident and event", async () => {
    const { receiver, mailServer } = await startReceiver();
    for (const changes of [{}, {}, { key: "another" }, { changeId: "event-3" }])
      await receiver.open(alarmMessage(changes), never());
    const ids = mailServer.mails.map(({ mail }) => mail.messageId);
    expect(ids[0]).toMatch(/^<[0-9a-f]{32}@example\.com>$/);
    expect(ids[1]).toBe(ids[0]);
    expect(new Set(ids).size).toBe(3);
  });

  test("while an alarm is open, mails only acknowledgements of priority A, or the changes in the option tell", async () => {
    const { receiver, mailServer } = await startReceiver();
    const reference = await receiver.open(alarmMessage(), never());
    const recovering = alarmMessage({ change: "recovering", status: "recovering" });
    expect(await receiver.update(recovering, reference, never())).toBe(reference);
    await receiver.update(alarmMessage({ change: "acknowledged", priority: "B" }), reference, never());
    expect(mailServer.mails).toHaveLength(1);
    const alarm = { acknowledged: true, acknowledgedBy: "Ann Nilsson", acknowledgedMessage: "On my way" };
    await receiver.update(alarmMessage({ change: "acknowledged", status: "acknowledged" }, alarm), reference, never());
    expect(mailServer.mails[1]?.mail.subject).toBe("Acknowledged: Supply temperature low, Kvarnholmen 4");
    expect(mailServer.mails[1]?.mail.text).toContain("Acknowledged by: Ann Nilsson\nMessage: On my way");
    const otherReceiver = createMailReceiver({ ...mailServer.config, tell: [{ changes: ["vanished"] }] }).receiver;
    await otherReceiver.update(alarmMessage({ change: "acknowledged" }), reference, never());
    await otherReceiver.update(alarmMessage({ change: "vanished", status: "unknown" }), reference, never());
    expect(mailServer.mails[2]?.mail.subject).toBe("State unknown: Supply temperature low, Kvarnholmen 4");
    expect(mailServer.mails).toHaveLength(3);
  });
});

describe("email: hostile and long texts", () => {
  const hostile = "x\r\nBcc: evil@example.com\r\n\r\n<img src=http://evil.example/x> \u202eexe\u0000\u001b[31m";

  test("adds no header, markup or external resource from hostile names", async () => {
    const { receiver, mailServer } = await startReceiver();
    const trigger = { ...ALARM.trigger, displayName: hostile, description: `${hostile}\nsecond line` };
    const message = alarmMessage({}, { trigger, site: { id: 1, displayName: hostile }, description: hostile });
    await receiver.open(message, never());
    const [taken] = mailServer.mails;
    expect(taken?.recipients).toEqual(["operations@example.com"]);
    expect(Object.keys(readHeaders(taken))).not.toContain("bcc");
    expect(taken?.mail.subject).toMatch(/^Active: x Bcc: evil@example\.com <img src=http:\/\/evil\.example\/x> exe/);
    expect(taken?.mail.html).not.toMatch(/<img|<script/);
    expect(`${taken?.mail.html}${taken?.mail.text}`.replaceAll("\n", "")).not.toMatch(/\p{Cc}|\u202e/u);
    expect(taken?.mail.html).toContain("&lt;img src=http://evil.example/x&gt;");
    expect(taken?.mail.html).toContain("<br>second line");
    expect(taken?.mail.attachments).toEqual([]);
  });

  test("cuts long texts between characters", async () => {
    const { receiver, mailServer } = await startReceiver();
    const familyEmoji = "👨‍👩‍👧".repeat(2_000);
    const trigger = { ...ALARM.trigger, displayName: familyEmoji, description: familyEmoji };
    await receiver.open(alarmMessage({}, { trigger, description: "" }), never());
    const { subject = "", text = "" } = mailServer.mails[0]?.mail ?? {};
    expect(subject.length).toBeLessThanOrEqual(160);
    expect(subject).toMatch(/^Active: (👨‍👩‍👧)+…$/u);
    expect(text.split("\n").find((line) => line.startsWith("Description"))).toMatch(/^Description: (👨‍👩‍👧)+…$/u);
    expect(text.length).toBeLessThan(13_000);
  });
});

describe("email: replies of the mail server", () => {
  test.each([
    ["connect", "554 5.7.1 Blocked", { kind: "config", field: "host" }, "does not talk to us"],
    ["connect", "421 4.3.2 Too many", { kind: "throttled", retryAfterMs: 60_000, scope: "allowance" }, "closes"],
    ["from", "553 5.7.1 Not yours", { kind: "config", field: "from" }, "does not accept the sender"],
    ["from", "552 5.3.4 Too large", { kind: "rejected" }, "does not take this mail"],
    ["to", "550 5.1.1 No such user", { kind: "rejected" }, "accepts none of the recipients"],
    ["to", "450 4.2.0 Greylisted", { kind: "throttled", retryAfterMs: 300_000, scope: "allowance" }, "4.2.0 Grey"],
    ["data", "552 5.2.2 Mailbox full", { kind: "rejected" }, "5.2.2 Mailbox full"],
  ])("reports the matching error when the SMTP step %s gets the reply %s", async (step, reply, expected, words) => {
    const { receiver, mailServer } = await startReceiver();
    mailServer.refuse = (at) => (at === step ? reply : undefined);
    const text = await expectFailure(receiver.open(alarmMessage(), never()), expected, words);
    expect(text).toMatch(/^The mail server at 127\.0\.0\.1:\d+ /);
    expect(mailServer.mails).toEqual([]);
  });

  test("sends to the accepted recipients and logs each rejected recipient once", async () => {
    const { receiver, mailServer, lines } = await startReceiver({ to: ["a@example.com", "gone@example.com"] });
    mailServer.refuse = (step, about) => (step === "to" && about.startsWith("gone") ? "550 5.1.1 Gone" : undefined);
    await receiver.open(alarmMessage(), never());
    await receiver.open(alarmMessage({ key: "another" }), never());
    expect(mailServer.mails.map(({ recipients }) => recipients)).toEqual([["a@example.com"], ["a@example.com"]]);
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      { level: 40, recipient: "gone@example.com", response: "550 5.1.1 Gone", accepted: 1, rejected: 1 },
    ]);
  });
});

const NO_MAIL_SERVER = "does not answer as a mail server";

describe("email: an endpoint that is no mail server", () => {
  async function rawServer(speak: (socket: Socket) => void): Promise<object> {
    const sockets = new Set<Socket>();
    const server = createServer((socket) => {
      sockets.add(socket);
      socket.on("error", () => undefined);
      speak(socket);
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    onTestFinished(() => {
      for (const socket of sockets) socket.destroy();
      server.close();
    });
    const { port } = server.address() as AddressInfo;
    const addresses = { from: "plenum@example.com", to: ["operations@example.com"] };
    return { host: "127.0.0.1", port, security: "none", timeout: "1s", ...addresses };
  }

  const http = "HTTP/1.1 400 Bad Request\r\n\r\n";
  test.each<[string, (socket: Socket) => void, object, string]>([
    ["speaks HTTP", (socket) => socket.end(http), { kind: "config", field: "host" }, NO_MAIL_SERVER],
    ["closes the connection", (socket) => socket.destroy(), { kind: "retryable" }, "it broke the connection"],
    ["sends nothing", () => undefined, { kind: "retryable" }, "security: tls"],
  ])("reports an error when the endpoint %s instead of greeting", async (_what, speak, expected, wantedText) => {
    const { receiver } = createMailReceiver(await rawServer(speak));
    const text = await expectFailure(receiver.open(alarmMessage(), never()), expected, wantedText);
    expect(text.length).toBeLessThan(700);
  });

  test("is retried when it refuses the connection", async () => {
    const options = { from: "plenum@example.com", to: ["operations@example.com"], security: "none" };
    const { receiver } = createMailReceiver({ ...options, host: "127.0.0.1", port: await freePort() });
    const failure = { kind: "retryable", message: /it refuses the connection/ };
    await expectFailure(receiver.open(alarmMessage(), never()), failure);
  });

  test("causes a failure after the configured timeout when it sends one character at a time", async () => {
    const letters: ReturnType<typeof setInterval>[] = [];
    onTestFinished(() => letters.forEach(clearInterval));
    const options = await rawServer((socket) => {
      socket.write("220 localhost\r\n");
      letters.push(setInterval(() => socket.write("2"), 20));
    });
    const { receiver } = createMailReceiver(options);
    for (const call of [receiver.open(alarmMessage(), never()), receiver.probe(never())])
      await expectFailure(call, { kind: "retryable" }, "no answer in time");
  });

  test("does not delay an aborted call, which rejects with the signal's reason", async () => {
    const connection = Promise.withResolvers<void>();
    const { receiver } = createMailReceiver({ ...(await rawServer(() => connection.resolve())), timeout: "60s" });
    for (const call of [
      (signal: AbortSignal) => receiver.open(alarmMessage(), signal),
      (signal: AbortSignal) => receiver.probe(signal),
    ]) {
      const controller = new AbortController();
      const pendingCall = catchFailure(call(controller.signal));
      await connection.promise;
      controller.abort(new Error("stopping"));
      expect(String(await pendingCall)).toContain("stopping");
    }
  });
});

describe("email: TLS and authentication", () => {
  const ownCertificate = certificateFor("localhost");
  const otherCertificate = certificateFor("mail.elsewhere.example");
  const tlsServer = { disabledCommands: [], authOptional: false, key: ownCertificate.key, cert: ownCertificate.cert };
  const tlsOptions = { host: "localhost", security: "starttls", ca_file: ownCertificate.path };

  test("logs in after STARTTLS and repeats no secret", async () => {
    const password = secretFile("correct horse battery");
    const { receiver, mailServer, lines } = await startReceiver({ ...tlsOptions, user: "plenum", password }, tlsServer);
    await receiver.open(alarmMessage(), never());
    expect(mailServer.mails).toMatchObject([{ isSecure: true, user: "plenum" }]);
    mailServer.refuse = (step) =>
      step === "auth" ? `535 5.7.8 No: AHBsZW51bQBjb3JyZWN0IGhvcnNlIGJhdHRlcnk= correct horse battery` : undefined;
    const error = await catchFailure(receiver.open(alarmMessage(), never()));
    expect(error).toMatchObject({ kind: "config", reason: "unauthenticated" });
    expect(errorText(error)).toContain("535 5.7.8 No");
    const all = inspect(error, { depth: 9 }) + lines.join("");
    expect(all).not.toContain("correct horse battery");
    expect(all).not.toContain("Y29ycmVjdCBob3JzZSBiYXR0ZXJ5");
    expect(all).not.toContain("AHBsZW51bQBjb3JyZWN0IGhvcnNlIGJhdHRlcnk");
    mailServer.refuse = () => undefined;
    writeFileSync(password.file, "another one");
    await receiver.open(alarmMessage(), never());
    expect(mailServer.mails).toHaveLength(2);
  });

  test("uses TLS from the start with security: tls", async () => {
    const server = { ...tlsServer, authOptional: true, secure: true };
    const { receiver, mailServer } = await startReceiver({ ...tlsOptions, security: "tls" }, server);
    await receiver.open(alarmMessage(), never());
    expect(mailServer.mails).toMatchObject([{ isSecure: true }]);
  });

  test.each<[string, object, SMTPServerOptions, object, string]>([
    [
      "a server with a self-signed certificate",
      { host: "localhost", security: "starttls", ca_file: undefined },
      tlsServer,
      { kind: "config", field: "ca_file" },
      "is signed by itself",
    ],
    [
      "a server with a certificate for another name",
      { ...tlsOptions, ca_file: otherCertificate.path },
      { ...tlsServer, key: otherCertificate.key, cert: otherCertificate.cert },
      { kind: "config", field: "host" },
      "is for another name",
    ],
    [
      "a server without STARTTLS",
      tlsOptions,
      { disabledCommands: ["STARTTLS"] },
      { kind: "config", field: "security" },
      "does not change to TLS",
    ],
    [
      "a server with STARTTLS when TLS from the start is configured",
      { ...tlsOptions, security: "tls" },
      tlsServer,
      { kind: "config", field: "host" },
      "does not speak TLS",
    ],
    [
      "a server with TLS 1.1",
      tlsOptions,
      { ...tlsServer, maxVersion: "TLSv1.1", minVersion: "TLSv1", ciphers: "DEFAULT@SECLEVEL=0" },
      { kind: "config" },
      "TLS",
    ],
  ])("sends no mail to %s", async (_what, options, server, expected, wantedText) => {
    const { receiver, mailServer } = await startReceiver({ timeout: "5s", ...options }, server);
    for (const call of [receiver.open(alarmMessage(), never()), receiver.probe(never())])
      await expectFailure(call, expected, wantedText);
    expect(mailServer.mails).toEqual([]);
  });

  test("checks the certificate even if NODE_TLS_REJECT_UNAUTHORIZED is 0", async () => {
    process.env.NODE_TLS_REJECT_UNAUTHORIZED = "0";
    onTestFinished(() => {
      delete process.env.NODE_TLS_REJECT_UNAUTHORIZED;
    });
    const { receiver } = await startReceiver({ host: "localhost", security: "starttls" }, tlsServer);
    await expectFailure(receiver.open(alarmMessage(), never()), { kind: "config", field: "ca_file" });
  });

  test("the connection check uses TLS and logs in, and sends no mail", async () => {
    const login = { user: "plenum", password: secretFile("correct horse battery") };
    const { receiver, mailServer } = await startReceiver({ ...tlsOptions, ...login }, tlsServer);
    await receiver.probe(never());
    expect(mailServer.sessions).toBe(1);
    expect(mailServer.requests()).toBe(0);
    mailServer.refuse = (step) => (step === "auth" ? "535 5.7.8 No" : undefined);
    await expectFailure(receiver.probe(never()), { kind: "config", reason: "unauthenticated" });
  });
});

const readHeaders = (taken?: { readonly mail: { readonly headers: readonly { key: string; value: string }[] } }) =>
  Object.fromEntries((taken?.mail.headers ?? []).map(({ key, value }) => [key, value]));
