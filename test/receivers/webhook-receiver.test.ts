import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { inspect } from "node:util";
import { describe, expect, test } from "vitest";
import type { AlarmReceiver, IncidentReference } from "#connectors/shared/receiver/receiver-interface.ts";
import { errorText } from "#src/core/errors/errors.ts";
import { contextFor, never } from "../connectors/context.ts";
import { reply, type StubResponse } from "../connectors/stub-server.ts";
import { disposeAfterTest, stopAfterTest } from "../test-resources.ts";
import { catchFailure, expectFailure, secretFile, startStubInTest } from "./receiver-helpers.ts";
import type { ReceiverServer } from "./receiver-server.ts";
import { createReceiver } from "./receivers.ts";
import { alarmMessage, endMessage } from "./sent-samples.ts";
import { startSlackWebhookStub } from "./webhook-stubs.ts";

const LOOPBACK = { allow_networks: ["127.0.0.0/8"] };
const NO_REFERENCE: IncidentReference = { ref: null, ticket: null, link: null };

function createTestReceiver(config: object): AlarmReceiver {
  return disposeAfterTest(createReceiver("webhook", { config: {} }, contextFor("pager"), config));
}

async function startServer(start: () => Promise<ReceiverServer>) {
  const server = stopAfterTest(await start());
  return { server, receiver: createTestReceiver(server.config) };
}

describe("the webhook format slack", () => {
  test("sends a message when an alarm begins, when its state becomes unknown, and when it ends", async () => {
    const { server, receiver } = await startServer(startSlackWebhookStub);
    expect(receiver.repeatedOpenEffect).toBe("another");
    const reference = await receiver.open(alarmMessage(), never());
    await receiver.update(alarmMessage({ change: "acknowledged" }), reference, never());
    await receiver.update(alarmMessage({ change: "vanished", status: "unknown" }), reference, never());
    await receiver.close(endMessage(), reference, never());
    expect(server.incidents().map(({ texts }) => texts[0])).toEqual([
      "Active: Supply temperature low, Kvarnholmen 4",
      "State unknown: Supply temperature low, Kvarnholmen 4",
      "Resolved: Supply temperature low, Kvarnholmen 4",
    ]);
  });

  test("uses a changed address without a restart", async () => {
    const firstServer = await startServer(startSlackWebhookStub);
    const secondServer = await startServer(startSlackWebhookStub);
    const readAddress = ({ config }: ReceiverServer) =>
      readFileSync((config as { readonly url: { readonly file: string } }).url.file, "utf8");
    const url = secretFile(readAddress(firstServer.server));
    const receiver = createTestReceiver({ format: "slack", url, ...LOOPBACK });
    const { serverId: before } = receiver;
    await receiver.open(alarmMessage(), never());
    writeFileSync(url.file, readAddress(secondServer.server));
    await receiver.close(endMessage(), NO_REFERENCE, never());
    expect([firstServer.server.incidents().length, secondServer.server.incidents().length]).toEqual([1, 1]);
    expect(receiver.serverId).not.toBe(before);
  });

  test.each<[StubResponse, object]>([
    [{ status: 200, body: "no_text" }, { kind: "rejected" }],
    [{ status: 200, body: "<html>sign in</html>" }, { kind: "retryable" }],
    [{ status: 425 }, { kind: "retryable" }],
    [reply(200, "ratelimited"), { kind: "throttled", scope: "allowance" }],
    [reply(200, "invalid_token"), { kind: "config", field: "url" }],
    [reply(410, "channel_is_archived"), { kind: "config", reason: "settings" }],
    [
      reply(503, undefined, { "retry-after": "Sat, 21 Nov 2026 13:00:30 GMT", date: "Sat, 21 Nov 2026 13:00:00 GMT" }),
      { kind: "throttled", retryAfterMs: 30_000 },
    ],
    [{ status: 200, body: `ok${"x".repeat(5_000_000)}` }, { kind: "rejected" }],
  ])("maps the response %j to the matching failure kind", async (answer, expected) => {
    const stub = await startStubInTest(() => answer);
    const url = secretFile(`${stub.url}/services/T0/B0/abcdefghijklmnop`);
    const receiver = createTestReceiver({ format: "slack", url, ...LOOPBACK });
    await expectFailure(receiver.open(alarmMessage(), never()), expected);
    expect(stub.seen).toHaveLength(1);
  });
});

const RESPONSES: Readonly<Record<string, readonly [confirmation: StubResponse, failure: StubResponse, kind: string]>> =
  {
    pagerduty: [reply(202, '{"status":"success","dedup_key":"x"}'), reply(202, '{"status":"failure"}'), "rejected"],
    jsm: [reply(202, '{"result":"x","requestId":"r"}'), reply(422, '{"message":"Key format is not valid!"}'), "config"],
    "servicenow-event": [
      reply(200, '{"result":{"x":"1 events"}}'),
      reply(200, "<html>Your instance is hibernating</html>"),
      "retryable",
    ],
    incidentio: [reply(202, '{"status":"success","deduplication_key":"x"}'), reply(200, "<html>"), "retryable"],
    "splunk-oncall": [
      reply(200, '{"result":"success"}'),
      reply(200, '{"result":"failure","messages":["bad route"]}'),
      "rejected",
    ],
    ntfy: [reply(200, '{"id":"abc"}'), reply(200, "<html>"), "retryable"],
    teams: [
      reply(202, ""),
      reply(200, "failed with error: endpoint returned HTTP error 429 with ContextId x"),
      "throttled",
    ],
    googlechat: [reply(200, '{"name":"spaces/A/messages/B"}'), reply(200, "{}"), "rejected"],
    mattermost: [reply(200, "ok"), reply(200, "<html>"), "retryable"],
    discord: [reply(200, '{"id":"4711"}'), reply(204, ""), "rejected"],
  };

function createConfig(format: string, address: string) {
  const needsKey = ["pagerduty", "jsm", "incidentio"].includes(format);
  return {
    format,
    url: secretFile(address),
    ...(needsKey ? { key: secretFile(`key-${randomBytes(12).toString("hex")}`) } : {}),
    ...LOOPBACK,
  };
}

describe.each(Object.entries(RESPONSES))("the webhook format %s", (format, [confirmation, failure, kind]) => {
  test("accepts a confirming response, and reports a failure that a response with status 2xx contains", async () => {
    const stub = await startStubInTest(() => confirmation);
    const receiver = createTestReceiver(createConfig(format, `${stub.url}/in/topic`));
    const reference = await receiver.open(alarmMessage(), never());
    expect(await receiver.close(endMessage(), reference, never())).toEqual(reference);
    expect(stub.seen).toHaveLength(2);
    stub.respond = () => failure;
    await expectFailure(receiver.open(alarmMessage(), never()), { kind });
  });

  test.each([
    [401, "config"],
    [429, "throttled"],
    [500, "retryable"],
  ])("reports the status %i as %s and repeats no secret", async (status, kind) => {
    const path = `/in/${randomBytes(16).toString("hex")}`;
    const stub = await startStubInTest(({ headers, body }) => ({
      status,
      headers: { "retry-after": "7" },
      body: `you sent ${path} ${headers.authorization} ${body.toString()}`,
    }));
    const config = createConfig(format, `${stub.url}${path}`);
    const error = await catchFailure(createTestReceiver(config).open(alarmMessage(), never()));
    expect(error).toMatchObject({ kind });
    const errorDump = `${errorText(error)} ${inspect(error, { depth: 9, showHidden: true })}`;
    expect(errorDump).toContain(`${stub.url} answered ${status}`);
    expect(errorDump).not.toContain(path.slice(4));
    expect(errorDump).not.toMatch(/key-[0-9a-f]{24}/);
  });
});

test("alertmanager accepts every 2xx response and sends secret headers", async () => {
  const stub = await startStubInTest(() => ({ status: 200, body: "whatever" }));
  const receiver = createTestReceiver({
    format: "alertmanager",
    url: `${stub.url}/api/v1/alerts?x=1`,
    headers: { Authorization: secretFile("Bearer of-a-bridge") },
    ...LOOPBACK,
  });
  await receiver.open(alarmMessage(), never());
  expect(stub.seen[0]).toMatchObject({
    method: "POST",
    url: "/api/v1/alerts?x=1",
    headers: { authorization: "Bearer of-a-bridge", "content-type": "application/json; charset=utf-8" },
  });
});

test("the webhook format discord edits the message and reports a deleted message as gone", async () => {
  const stub = await startStubInTest(({ method }) => reply(200, method === "GET" ? '{"id":"1"}' : '{"id":"4711"}'));
  const receiver = createTestReceiver(createConfig("discord", `${stub.url}/api/webhooks/1/t?thread_id=5`));
  await receiver.probe(never());
  const reference = await receiver.open(alarmMessage(), never());
  expect(reference).toEqual({ ref: { id: "4711" }, ticket: null, link: null });
  expect(await receiver.update(alarmMessage({ change: "acknowledged" }), reference, never())).toEqual(reference);
  expect(stub.seen.map(({ method, url }) => `${method} ${url}`)).toEqual([
    "GET /api/webhooks/1/t?thread_id=5",
    "POST /api/webhooks/1/t?thread_id=5&wait=true",
    "PATCH /api/webhooks/1/t/messages/4711?thread_id=5",
  ]);
  stub.respond = () => reply(404, '{"code":10008,"message":"Unknown Message"}');
  expect(await receiver.close(endMessage(), reference, never())).toBe("gone");
  stub.respond = () => reply(404, '{"code":10015,"message":"Unknown Webhook"}');
  await expectFailure(receiver.close(endMessage(), reference, never()), { kind: "config" });
  await expectFailure(receiver.probe(never()), { kind: "config" });
});

describe("a webhook receiver of any format", () => {
  test("connects and posts nothing when probed", async () => {
    const stub = await startStubInTest();
    const receiver = createTestReceiver(createConfig("slack", `${stub.url}/x`));
    await receiver.probe(never());
    expect([stub.connections, stub.seen.length]).toEqual([1, 0]);
    await stub.stop();
    await expectFailure(receiver.probe(never()), { kind: "retryable" });
  });

  test.each(["not an address", "ftp://example.com/", "https://me:word@example.com/x"])(
    "rejects the secret address %j without repeating it",
    async (text) => {
      const receiver = createTestReceiver(createConfig("slack", text));
      const shown = await expectFailure(receiver.open(alarmMessage(), never()), { kind: "config", field: "url" });
      expect(shown).not.toContain(text);
    },
  );

  test("rejects a secret address without TLS through a proxy", async () => {
    const proxy = { url: "http://127.0.0.1:3128" };
    const receiver = createTestReceiver({ ...createConfig("slack", "http://127.0.0.1:1/x"), proxy });
    await expectFailure(receiver.open(alarmMessage(), never()), { kind: "config", field: "url" });
  });
});
