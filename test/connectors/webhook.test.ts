import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { inspect } from "node:util";
import { Webhook } from "standardwebhooks";
import { describe, expect, test } from "vitest";
import { WebhookConfig } from "#connectors/webhook/config.ts";
import { createWebhookSink } from "#connectors/webhook/sink.ts";
import { toCloudEvent } from "#src/core/model/event.ts";
import type { Clock } from "#src/core/runtime/clock.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { catchFailure, expectFailure, secretFile, startStubInTest } from "../receivers/receiver-helpers.ts";
import { AWKWARD_TEXTS, sampleEvent, sampleOfEveryKind, valueEvent } from "../sample-events.ts";
import { describeSink } from "../suites/sink-suite.ts";
import { closeAfterTest } from "../test-resources.ts";
import { clockAt, contextFor, never, offerWith } from "./context.ts";
import { reply, type SeenRequest, type StubResponse, startStub } from "./stub-server.ts";

const LOOPBACK = { allow_networks: ["127.0.0.0/8"] };

describeSink("webhook", {
  async make() {
    const stub = await startStub();
    const sink = createSink({ url: `${stub.url}/hook?tenant=1`, secrets: [signingKey().ref], ...LOOPBACK });
    return {
      sink,
      received: async () =>
        stub.seen.map(({ headers, body }) => ({
          identity: headers["webhook-id"] ?? "",
          event: JSON.parse(body.toString()) as unknown,
        })),
      breakServer: () => stub.stop(),
      repairServer: () => stub.start(),
      async stall() {
        stub.respond = () => null;
      },
      dispose: () => stub.stop(),
    };
  },
});

test("the webhook sink accepts each event after its own 2xx response and before it sends the next event", async () => {
  const stub = await startStubInTest();
  const sink = createSink({ url: `${stub.url}/hook`, unsigned: true, ...LOOPBACK });
  const acceptedCounts: [accepted: number, sent: number][] = [];
  stub.respond = () => ({ status: stub.seen.length < 3 ? 200 : 500 });
  const batch = Array.from({ length: 5 }, (_, n) => valueEvent(n));
  const receipt = await sink.write(batch, never(), (count) => acceptedCounts.push([count, stub.seen.length]));
  expect(acceptedCounts).toEqual([
    [1, 1],
    [2, 2],
    [3, 3],
  ]);
  expect(receipt).toMatchObject({ rejected: [], retry: { from: 3 } });
});

test.each(["cloudevents", "standard"])(
  "the webhook sink sends the sequence number of an event in headers, and in a body of the format %s",
  async (format) => {
    const stub = await startStubInTest();
    const sink = createSink({ url: `${stub.url}/hook`, unsigned: true, format, ...LOOPBACK });
    const sequences = [{ epoch: "0123456789abcdef", number: 4_711 }, null];
    await sink.write([valueEvent(1), valueEvent(2)], never(), undefined, offerWith(sequences));
    const [first, second] = stub.seen;
    expect(first?.headers).toMatchObject({
      "plenum-sequence": "0000000000004711",
      "plenum-sequence-epoch": "0123456789abcdef",
    });
    expect(JSON.parse(first?.body.toString() ?? "")).toMatchObject({
      id: valueEvent(1).id,
      sequence: "0000000000004711",
      sequenceepoch: "0123456789abcdef",
    });
    expect(Object.keys(second?.headers ?? {}).filter((name) => name.startsWith("plenum-"))).toEqual([]);
    expect(JSON.parse(second?.body.toString() ?? "")).not.toHaveProperty("sequence");
  },
);

const NOON = "Sat, 21 Nov 2026 12:00:00 GMT";

describe("the signature of a webhook request", () => {
  test("is verified by the official Standard Webhooks library for 1,000 payloads", async () => {
    const { stub, sink, keys } = await signed();
    const events = Array.from({ length: 1_000 }, (_, n) => {
      const awkwardText = AWKWARD_TEXTS[n % AWKWARD_TEXTS.length] ?? "";
      return sampleEvent("source-unavailable", { data: { reason: `${awkwardText.slice(0, 200)} ${n}`, since: "" } }, n);
    });
    for (let from = 0; from < events.length; from += 20)
      expect(await sink.write(events.slice(from, from + 20), never())).toEqual({ rejected: [] });
    const verifier = new Webhook(keys[0]?.text ?? "");
    expect(stub.seen).toHaveLength(1_000);
    stub.seen.forEach(({ body, headers }, n) => {
      const event = events[n];
      if (event === undefined) throw new Error("too many");
      expect(verifier.verify(body, { ...headers })).toEqual(JSON.parse(JSON.stringify(toCloudEvent(event))));
    });
  });

  test("is invalid after a change of any bit of body, id or time", async () => {
    const { stub, sink, keys } = await signed();
    await sink.write([sampleEvent("gateway-offline")], never());
    const verifier = new Webhook(keys[0]?.text ?? "");
    const [seen] = stub.seen;
    if (seen === undefined) throw new Error("nothing was sent");
    const { body, headers } = seen;
    for (let bit = 0; bit < body.length * 8; bit += 1) {
      const altered = Buffer.from(body);
      altered[bit >> 3] = (altered[bit >> 3] ?? 0) ^ (1 << (bit & 7));
      expect(() => verifier.verify(altered, { ...headers }), `bit ${bit}`).toThrow();
    }
    expect(() => verifier.verify(body, { ...headers, "webhook-id": `${headers["webhook-id"]}x` })).toThrow();
    const laterSeconds = String(Number(headers["webhook-timestamp"]) + 1);
    expect(() => verifier.verify(body, { ...headers, "webhook-timestamp": laterSeconds })).toThrow();
  });

  test("is valid for the old and the new key during a key change, without a restart", async () => {
    const { stub, sink, keys } = await signed({}, 2);
    await sink.write([valueEvent(1)], never());
    const firstRequest = stub.seen[0];
    for (const { text } of keys) expect(() => verify(text, firstRequest)).not.toThrow();
    const newKey = `whsec_${randomBytes(32).toString("base64")}`;
    writeFileSync(keys[0]?.ref.file ?? "", newKey);
    await sink.open(never());
    await sink.write([valueEvent(2)], never());
    expect(() => verify(newKey, stub.seen[1])).not.toThrow();
    expect(() => verify(keys[0]?.text ?? "", stub.seen[1])).toThrow();
  });

  test("a retry has the same id and body, the time of the new attempt and a new signature", async () => {
    const clock = clockAt("2026-11-21T12:00:00Z");
    const { stub, sink } = await signed({}, 1, clock);
    stub.respond = () => ({ status: 500 });
    await expect(sink.write([valueEvent(1)], never())).rejects.toMatchObject({ kind: "rejected" });
    stub.respond = () => ({ status: 200 });
    clock.set("2026-11-21T12:05:00Z");
    await sink.write([valueEvent(1)], never());
    const [first, second] = stub.seen;
    expect(second?.headers["webhook-id"]).toBe(first?.headers["webhook-id"]);
    expect(second?.body).toEqual(first?.body);
    expect(Number(second?.headers["webhook-timestamp"]) - Number(first?.headers["webhook-timestamp"])).toBe(300);
    expect(second?.headers["webhook-signature"]).not.toBe(first?.headers["webhook-signature"]);
  });

  test.each(["whsec_c2hvcnQ=", "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0", "whsec_not base64!", "wrong"])(
    "the secret %s is refused without appearing in the error",
    async (text) => {
      const error = await catchFailure(
        createSink({ url: "https://example.com/", secrets: [secretFile(text)] }).open(never()),
      );
      expect(error).toMatchObject({ kind: "config", field: "secrets" });
      expect(String(error)).not.toContain(text.slice(6) || text);
    },
  );

  test("is omitted only with unsigned: true", () => {
    const url = "https://example.com/";
    expect(WebhookConfig.safeParse({ url }).success).toBe(false);
    expect(WebhookConfig.safeParse({ url, unsigned: true }).success).toBe(true);
    expect(WebhookConfig.safeParse({ url, unsigned: true, secrets: [{ env: "KEY" }] }).success).toBe(false);
  });
});

describe("requests and responses of the webhook sink", () => {
  test("the format standard sends type, timestamp and data of every event kind", async () => {
    const { stub, sink } = await signed({ format: "standard" });
    for (const event of sampleOfEveryKind()) await sink.write([event], never());
    sampleOfEveryKind().forEach((event, n) => {
      expect(stub.seen[n]?.headers["content-type"]).toBe("application/json; charset=utf-8");
      expect(JSON.parse(stub.seen[n]?.body.toString() ?? "")).toMatchObject({
        type: event.type,
        timestamp: event.time,
        data: JSON.parse(JSON.stringify(event.data)) as object,
        id: event.id,
        subject: event.subject,
      });
    });
  });

  test.each(["Authorization", "X-Api-Key", "Ocp-Apim-Subscription-Key", "cookie", "X-Auth-Token", "X-Other"])(
    "the configuration refuses a plain-text secret in the header %s",
    (name) => {
      const parse = (value: unknown) =>
        WebhookConfig.safeParse({ url: "https://example.com/", unsigned: true, headers: { [name]: value } });
      const parseResult = parse("Bearer abcdefgh");
      expect(parseResult.error?.issues).toMatchObject([
        { path: ["headers", name], message: expect.stringContaining("{file: path} or {env: NAME}") },
      ]);
      expect(JSON.stringify(parseResult.error)).not.toContain("abcdefgh");
      expect(parse({ env: "WEBHOOK_SECRET" }).success).toBe(true);
      expect(parse("").success).toBe(true);
    },
  );

  test.each(["X-Tenant", "Idempotency-Key", "X-Author", "X-Keyboard"])(
    "the configuration accepts the plain-text header %s",
    (name) => {
      const headers = { [name]: "north" };
      expect(WebhookConfig.safeParse({ url: "https://example.com/", unsigned: true, headers }).success).toBe(true);
    },
  );

  test("configured headers are sent, also from secrets, and reserved headers are refused", async () => {
    const { stub, sink } = await signed({ headers: { "X-Tenant": "north", Authorization: secretFile("Bearer abc") } });
    await sink.write([valueEvent(1)], never());
    expect(stub.seen[0]?.headers).toMatchObject({ "x-tenant": "north", authorization: "Bearer abc" });
    for (const headerName of ["webhook-id", "Content-Type", "Host", "Transfer-Encoding", "a b", "x\r\ny"]) {
      const config = { url: "https://example.com/", unsigned: true, headers: { [headerName]: "x" } };
      expect(WebhookConfig.safeParse(config).success, headerName).toBe(false);
    }
  });

  test.each<[StubResponse, object]>([
    [{ status: 301, headers: { location: "http://127.0.0.1:1/" } }, { kind: "config" }],
    [{ status: 400 }, { kind: "rejected" }],
    [{ status: 401 }, { kind: "config", reason: "unauthenticated" }],
    [{ status: 403 }, { kind: "config", reason: "forbidden" }],
    [{ status: 410 }, { kind: "config", reason: "gone" }],
    [{ status: 413 }, { kind: "rejected" }],
    [reply(429, undefined, { "retry-after": "7" }), { kind: "throttled", retryAfterMs: 7_000, scope: "allowance" }],
    [
      reply(503, undefined, { "retry-after": "Sat, 21 Nov 2026 12:01:00 GMT", date: NOON }),
      { kind: "throttled", retryAfterMs: 60_000, scope: "everything" },
    ],
    [reply(503, undefined, { "retry-after": "soon" }), { kind: "throttled", retryAfterMs: null }],
    [{ status: 503, headers: { "retry-after": "Fri, 20 Nov 2026 12:01:00 GMT", date: NOON } }, { retryAfterMs: null }],
    [{ status: 500, body: "secret details" }, { kind: "rejected" }],
  ])("maps the response %j to a kind of failure", async (answer, expected) => {
    const { stub, sink } = await signed({}, 1, clockAt("2026-11-21T12:00:00Z"));
    stub.respond = () => answer;
    const error = await catchFailure(sink.write([valueEvent(1)], never()));
    expect(error).toMatchObject(expected);
    expect(String(error)).toContain(`answered ${answer.status}`);
    expect(String(error)).not.toContain("secret details");
    expect(stub.seen).toHaveLength(1);
  });

  test("a successful response with an endless body is accepted after a limited number of bytes", async () => {
    const { stub, sink } = await signed();
    let sentBytes = 0;
    stub.respond = (_seen, response) => {
      response.writeHead(200);
      const sendMore = () => {
        while (!response.destroyed && sentBytes < 1e9) {
          sentBytes += 65_536;
          if (!response.write(Buffer.alloc(65_536))) return void response.once("drain", sendMore);
        }
      };
      sendMore();
      return null;
    };
    expect(await sink.write([valueEvent(1)], never())).toEqual({ rejected: [] });
    expect(sentBytes).toBeLessThan(64 * 1024 * 1024);
  });

  test("a request fails after the time limit when the receiver never responds", async () => {
    const { stub, sink } = await signed({ timeout: "200ms" });
    stub.respond = () => null;
    const message = `${stub.url} could not be reached: no answer in time (TimeoutError).`;
    await expectFailure(sink.write([valueEvent(1)], never()), { kind: "retryable", message });
  });

  test("events without a response are left for a retry when a batch is aborted", async () => {
    const { stub, sink } = await signed();
    const stop = new AbortController();
    stub.respond = ({ headers }) => {
      if (headers["webhook-id"] === valueEvent(1).id) return { status: 204 };
      stop.abort(new Error("stop"));
      return null;
    };
    const receipt = await sink.write([valueEvent(1), valueEvent(2)], stop.signal);
    expect(receipt).toMatchObject({ rejected: [], retry: { from: 1, error: { message: "stop" } } });
  });

  test.each([null, 301, 401, 500])("the error for %s contains neither secret nor URL path", async (status) => {
    const { stub, sink, keys } = await signed({ headers: { "x-key": secretFile("canary-header") }, timeout: "200ms" });
    stub.respond = () => (status === null ? null : { status });
    const error = await catchFailure(sink.write([valueEvent(1)], never()));
    const errorText = inspect(error, { depth: 9, showHidden: true });
    for (const secret of ["canary-header", keys[0]?.text ?? "", "/hook"]) expect(errorText).not.toContain(secret);
  });

  test("the probe opens a connection and sends no request", async () => {
    const { stub, sink } = await signed();
    await sink.probe?.(never());
    expect(stub.connections).toBe(1);
    expect(stub.seen).toHaveLength(0);
    await stub.stop();
    await expectFailure(sink.probe?.(never()), { kind: "retryable" });
  });
});

function verify(secret: string, seen: SeenRequest | undefined): unknown {
  if (seen === undefined) throw new Error("nothing was sent");
  return new Webhook(secret).verify(seen.body, { ...seen.headers });
}

async function signed(options: Record<string, unknown> = {}, count = 1, clock: Clock = systemClock) {
  const stub = await startStubInTest();
  const keys = Array.from({ length: count }, signingKey);
  const config = { url: `${stub.url}/hook`, secrets: keys.map(({ ref }) => ref), ...LOOPBACK, ...options };
  return { stub, sink: createSink(config, clock), keys };
}

function createSink(config: Record<string, unknown>, clock: Clock = systemClock) {
  return closeAfterTest(createWebhookSink(WebhookConfig.parse(config), contextFor("hook", clock)));
}

function signingKey() {
  const keyText = `whsec_${randomBytes(32).toString("base64")}`;
  return { text: keyText, ref: secretFile(keyText) };
}
