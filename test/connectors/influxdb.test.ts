import { writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { InfluxConfig } from "#connectors/influxdb/config.ts";
import { createInfluxSink } from "#connectors/influxdb/sink.ts";
import { type EventLines, storeLines, type WriteOutcome } from "#connectors/influxdb/write-lines-to-server.ts";
import type { AnyEvent } from "#src/core/model/event.ts";
import { expectFailure, secretFile, startStubInTest } from "../receivers/receiver-helpers.ts";
import { sampleEvent, valueEvent } from "../sample-events.ts";
import { describeSink } from "../suites/sink-suite.ts";
import { closeAfterTest } from "../test-resources.ts";
import { clockAt, contextFor, never } from "./context.ts";
import { type ParsedPoint, parseLines } from "./line-protocol.ts";
import { reply, type SeenRequest, type StubResponse, type StubServer, startStub } from "./stub-server.ts";

describeSink("influxdb", {
  async make() {
    const stub = await startStub();
    return {
      sink: createSink(stub),
      received: async () =>
        stub.seen.flatMap(({ body }) => parseLines(body.toString())).map((point) => ({ identity: pointId(point) })),
      breakServer: () => stub.stop(),
      repairServer: () => stub.start(),
      async stall() {
        stub.respond = () => null;
      },
      dispose: () => stub.stop(),
    };
  },
  identity(event) {
    const anyEvent = event as AnyEvent;
    const ms = Date.parse(event.time);
    if (anyEvent.type === "tag-value") return `tag-value ${anyEvent.data.tag.id} ${ms}`;
    return "alarm" in anyEvent.data ? `${anyEvent.type} ${anyEvent.data.alarm.id} ${ms}` : anyEvent.id;
  },
});

function pointId({ measurement, tags, timeMs }: ParsedPoint): string {
  if (measurement === "tag_value") return `tag-value ${tags.tag_id} ${timeMs}`;
  return measurement === "alarm_event" ? `${tags.type} ${tags.alarm_id} ${timeMs}` : measurement;
}

const V1 = { api: "v1", bucket: undefined, database: "d" };

describe("requests of the InfluxDB sink", () => {
  test.each([
    { status: 200, body: "<!doctype html><title>Log in</title>" },
    { status: 400, body: 'unsupported path requested: "/x"' },
  ])("the probe rejects the response %j, which does not come from an InfluxDB server", async (answer) => {
    const stub = await startStubInTest(() => answer);
    await expectFailure(createSink(stub).probe?.(never()), { message: /./ });
  });

  test.each(["", "ok", "{}", '{"status":"success"}'])(
    "accepts a successful response with the body %j",
    async (body) => {
      const stub = await startStubInTest(() => ({ status: 200, body }));
      expect(await createSink(stub).write([valueEvent(1)], never())).toEqual({ rejected: [] });
    },
  );

  test("sends a batch as one compressed request to the configured API", async () => {
    const stub = await startStubInTest();
    const batch = Array.from({ length: 500 }, (_, n) => valueEvent(n));
    await createSink(stub, { org: "a b", bucket: "c&d" }).write(batch, never());
    await createSink(stub, { ...V1, retention_policy: "r" }).write(batch, never());
    await createSink(stub, { gzip: false }).write(batch, never());
    expect(stub.seen.map(({ method, url }) => `${method} ${url}`)).toEqual([
      "POST /api/v2/write?org=a+b&bucket=c%26d&precision=ns",
      "POST /write?db=d&precision=ns&rp=r",
      "POST /api/v2/write?org=&bucket=lake&precision=ns",
    ]);
    expect(stub.seen.map(({ headers }) => headers["content-encoding"])).toEqual(["gzip", "gzip", undefined]);
    expect(stub.seen.map(({ body }) => parseLines(body.toString()).length)).toEqual([500, 500, 500]);
  });

  test("sends the token, or user name and password, and reads the secrets again at each open", async () => {
    const stub = await startStubInTest();
    const token = secretFile("first");
    const sink = createSink(stub, { token });
    await sink.write([valueEvent(1)], never());
    writeFileSync(token.file, "second\n");
    await sink.open(never());
    await sink.write([valueEvent(1)], never());
    const basicLogin = { username: "ann", password: secretFile("pass:word") };
    await createSink(stub, { ...V1, ...basicLogin }).write([valueEvent(1)], never());
    expect(stub.seen.map(({ headers }) => headers.authorization)).toEqual([
      "Token first",
      "Token second",
      `Basic ${Buffer.from("ann:pass:word").toString("base64")}`,
    ]);
  });

  test.each<[StubResponse, object]>([
    [{ status: 301, headers: { location: "http://127.0.0.1:1" } }, { kind: "config" }],
    [reply(401, '{"code":"unauthorized"}'), { kind: "config", reason: "unauthenticated" }],
    [{ status: 403 }, { kind: "config", reason: "forbidden" }],
    [{ status: 404 }, { kind: "config", field: "bucket", hint: expect.stringContaining("influx bucket create") }],
    [reply(429, undefined, { "retry-after": "3" }), { kind: "throttled", retryAfterMs: 3_000, scope: "allowance" }],
    [{ status: 503 }, { kind: "throttled", retryAfterMs: null, scope: "everything" }],
    [
      reply(503, undefined, { "retry-after": "Sat, 21 Nov 2026 13:02:00 GMT", date: "Sat, 21 Nov 2026 13:00:00 GMT" }),
      { kind: "throttled", retryAfterMs: 120_000 },
    ],
    [{ status: 500, body: '{"error":"engine is closed"}' }, { message: expect.stringContaining("engine is closed") }],
    [{ status: 200, body: "<!doctype html><title>Log in</title>" }, { kind: "retryable" }],
    [{ status: 201, body: "\n <html>" }, { kind: "retryable" }],
    [reply(200, '{"error":"timeout"}'), { kind: "retryable", message: expect.stringContaining("timeout") }],
    [
      reply(
        400,
        'remoteAddr: "10.0.0.7:50696"; requestURI: /x/api/v2/write?bucket=b; unsupported path requested: "/x"',
      ),
      { kind: "config", field: "url", message: expect.not.stringContaining("requestURI") },
    ],
  ])("the response %j settles no event of the batch", async (answer, expected) => {
    const stub = await startStubInTest(() => answer);
    const sink = createSink(stub);
    await expect(sink.write([valueEvent(1), valueEvent(2)], never())).rejects.toMatchObject(expected);
    expect(stub.seen).toHaveLength(1);
  });

  test.each([
    ['organization name \\"nowhere\\" not found', "org", "influx org list"],
    ['bucket \\"lake\\" not found', "bucket", "influx bucket create --name lake"],
  ])("the error for a 404 response with %s names the missing organization or bucket", async (words, field, hint) => {
    const stub = await startStubInTest(() => ({ status: 404, body: `{"code":"not found","message":"${words}"}` }));
    const sink = createSink(stub);
    for (const attempt of [() => sink.write([valueEvent(1)], never()), () => sink.probe?.(never())]) {
      const message: unknown = expect.stringContaining(JSON.parse(`"${words}"`) as string);
      await expectFailure(attempt(), { kind: "config", field, message, hint: new RegExp(hint) });
    }
  });

  test.each([
    [422, "failure writing points to database: partial write: points beyond retention policy dropped=2"],
    [422, "partial write: dropped 2 points outside retention policy of duration 1h0m0s - oldest dropped=2"],
  ])(
    "a %i response with %s, caused by settings of the server, makes no event a dead letter",
    async (status, message) => {
      const stub = await startStubInTest(() => ({
        status,
        body: JSON.stringify({ code: "unprocessable entity", message }),
      }));
      const batch = [1, 2, 3].map((n) => valueEvent(n));
      expect(await createSink(stub).write(batch, never())).toEqual({ rejected: [] });
      expect(stub.seen, "no search for a faulty point").toHaveLength(1);
    },
  );

  test("reads the retention of an InfluxDB 2 bucket, and returns null for a write-only token", async () => {
    const stub = await startStubInTest();
    const sink = createSink(stub);
    const bucket = (everySeconds: number) => ({
      status: 200,
      body: JSON.stringify({ buckets: [{ name: "lake", retentionRules: [{ type: "expire", everySeconds }] }] }),
    });
    stub.respond = () => bucket(2_592_000);
    expect(await sink.retentionMs?.(never())).toBe(30 * 86_400_000);
    stub.respond = () => bucket(0);
    expect(await sink.retentionMs?.(never())).toBe(Number.POSITIVE_INFINITY);
    stub.respond = () => ({ status: 200, body: '{"buckets":[]}' });
    expect(await sink.retentionMs?.(never())).toBeNull();
    stub.respond = () => ({ status: 401, body: '{"code":"unauthorized"}' });
    expect(await sink.retentionMs?.(never())).toBeNull();
    expect(stub.seen[0]).toMatchObject({ method: "GET", url: expect.stringContaining("name=lake") as string });
  });

  test("with create_database, a missing right to create fails the probe, and writes to an existing database succeed", async () => {
    const stub = await startStubInTest();
    let databaseExists = false;
    const refusalText = "error authorizing query: ann not authorized to execute statement, requires admin privilege";
    stub.respond = ({ url }) => {
      if (url.startsWith("/query")) return { status: 403, body: JSON.stringify({ error: refusalText }) };
      return databaseExists ? { status: 204 } : { status: 404, body: '{"error":"database not found"}' };
    };
    const sink = createSink(stub, { ...V1, create_database: true });
    const message = /requires admin privilege/;
    await expectFailure(sink.probe?.(never()), { kind: "config", field: "create_database", message });
    databaseExists = true;
    await sink.probe?.(never());
    await sink.open(never());
    expect(await sink.write([valueEvent(1)], never())).toEqual({ rejected: [] });
  });

  test("a request to a server that never responds fails after the time limit", async () => {
    const stub = await startStubInTest(() => null);
    const message = `${stub.url} could not be reached: no answer in time (TimeoutError).`;
    const sink = createSink(stub, { timeout: "200ms" });
    await expectFailure(sink.write([valueEvent(1)], never()), { kind: "retryable", message });
  });

  test("a batch that is too large is halved until the server accepts it", async () => {
    const stub = await startStubInTest();
    const storedPoints = storing(stub, (points) => (points.length > 300 ? { status: 413 } : null));
    const batch = Array.from({ length: 1_000 }, (_, n) => valueEvent(n));
    expect(await createSink(stub).write(batch, never())).toEqual({ rejected: [] });
    expect(storedPoints().length).toBe(1_000);
  });

  test("rejects one invalid point of 5,000 when the server refuses every request with that point", async () => {
    const stub = await startStubInTest();
    const poison = Date.parse(valueEvent(3_456).time);
    const storedPoints = storing(stub, (points) =>
      points.some(({ timeMs }) => timeMs === poison)
        ? reply(400, '{"code":"invalid","message":"bad line"}', { "content-type": "application/json" })
        : null,
    );
    const batch = Array.from({ length: 5_000 }, (_, n) => valueEvent(n));
    const receipt = await createSink(stub).write(batch, never());
    expect(receipt).toEqual({ rejected: [{ index: 3_456, reason: "bad line" }] });
    expect(new Set(storedPoints().map(({ timeMs }) => timeMs)).size).toBe(4_999);
    expect(stub.seen.length).toBeLessThan(30);
  });

  test("treats a 201 response with an error text as a partial failure", async () => {
    const stub = await startStubInTest();
    const poison = Date.parse(valueEvent(2).time);
    storing(stub, (points) =>
      points.some(({ timeMs }) => timeMs === poison)
        ? { status: 201, body: '{"error":"partial write of line protocol occurred"}' }
        : { status: 201 },
    );
    const batch = [1, 2, 3].map((n) => valueEvent(n));
    const receipt = await createSink(stub).write(batch, never());
    expect(receipt.rejected).toEqual([{ index: 1, reason: "partial write of line protocol occurred" }]);
  });

  test("an abort during the search for an invalid point settles the points that are already stored", async () => {
    const stub = await startStubInTest();
    const stop = new AbortController();
    stub.respond = ({ body }) => {
      const points = parseLines(body.toString()).length;
      if (points === 4) return { status: 400, body: "bad" };
      if (points === 2 && stub.seen.length === 1) return { status: 204 };
      stop.abort(new Error("stop"));
      return null;
    };
    const batch = [1, 2, 3, 4].map((n) => valueEvent(n));
    const receipt = await createSink(stub).write(batch, stop.signal);
    expect(receipt).toEqual({ rejected: [], retry: { from: 2, error: new Error("stop") } });
  });

  test("rejects an event without a readable time and stores the other events", async () => {
    const stub = await startStubInTest();
    const batch = [valueEvent(1), { ...valueEvent(2), time: "yesterday" }, valueEvent(3)];
    expect(await createSink(stub).write(batch, never())).toEqual({
      rejected: [{ index: 1, reason: '"yesterday" is not a time.' }],
    });
    expect(parseLines(stub.seen[0]?.body.toString() ?? "")).toHaveLength(2);
  });

  test("the probe sends a request to the write endpoint without a point", async () => {
    const stub = await startStubInTest();
    const sink = createSink(stub);
    await sink.probe?.(never());
    stub.respond = () => ({ status: 400, body: '{"message":"no points"}' });
    await sink.probe?.(never());
    stub.respond = () => ({ status: 404 });
    await expect(sink.probe?.(never())).rejects.toMatchObject({ kind: "config", field: "bucket" });
    for (const { url, body } of stub.seen) {
      expect(url).toContain("/api/v2/write?");
      expect(body).toHaveLength(0);
    }
  });

  test.each([
    [{ api: "v2" }, "bucket"],
    [{ api: "v1" }, "database"],
    [{ bucket: "b", database: "d" }, "database"],
    [{ bucket: "b", create_database: true }, "create_database"],
    [{ bucket: "b", username: "ann" }, "username"],
    [{ bucket: "b", url: "http://ann:secret@127.0.0.1" }, "url"],
    [{ bucket: "b", url: "http://127.0.0.1/?u=ann&p=secret" }, "url"],
    [{ bucket: "b", url: "http://127.0.0.1/api/v2" }, "url"],
    [{ bucket: "b", tags: { time: "x" } }, "tags.time"],
  ])("the configuration %j is refused because of %s", (options, path) => {
    const result = InfluxConfig.safeParse({ url: "http://127.0.0.1:8086", ...options });
    expect(result.error?.issues.map((issue) => issue.path.join("."))).toContain(path);
  });
});

describe("an InfluxDB token or password over plain HTTP", () => {
  const findIssues = (options: object) =>
    InfluxConfig.safeParse({ bucket: "b", ...options }).error?.issues.map(({ path, message }) => [
      path.join("."),
      message,
    ]);
  const TOKEN = { token: { env: "T" } };
  const PASSWORD = { api: "v1", bucket: undefined, database: "d", username: "u", password: { env: "P" } };

  test.each(["http://influx.example:8086", "http://10.0.0.7:8086", "http://127.0.0.1.example", "http://[fd00::1]"])(
    "refuses a token or password for %s unless allow_plain_http is set",
    (url) => {
      for (const credentials of [TOKEN, PASSWORD]) {
        const sentence = "A token or password needs https://; set allow_plain_http: true to send it readable anyway.";
        expect(findIssues({ url, ...credentials })).toEqual([["url", sentence]]);
        expect(findIssues({ url, ...credentials, allow_plain_http: true })).toBeUndefined();
      }
      expect(findIssues({ url })).toBeUndefined();
    },
  );

  test.each(["http://localhost:8086", "http://127.0.0.1", "http://[::1]:8086", "https://influx.example"])(
    "accepts a token for %s",
    (url) => {
      expect(findIssues({ url, ...TOKEN })).toBeUndefined();
    },
  );
});

describe("long history in reused line buffers of the InfluxDB sink", () => {
  const MINUTES_5 = 300_000;
  const days = Array.from({ length: 60 }, (_, day) => {
    const sample = sampleEvent("tag-history", {}, day);
    const points = Array.from({ length: 288 }, (_, n) => ({
      time: new Date(Date.UTC(2026, 0, 1 + day) + n * MINUTES_5).toISOString(),
      value: n % 50 === 0 ? null : day * 1_000 + n / 8,
    }));
    return { ...sample, data: { ...sample.data, points } };
  });
  const sentPoints = days.flatMap(({ data: { points } }) =>
    points.map(({ time, value }) => ({ ms: Date.parse(time), value })),
  );

  test.each([
    ["compressed requests", true],
    ["uncompressed requests", false],
  ])("stores each point unchanged, also when the server accepts only small requests: %s", async (_, gzip) => {
    const stub = await startStubInTest();
    const storedValues = new Map<number, unknown>();
    stub.respond = ({ body }) => {
      const points = parseLines(body.toString());
      if (points.length > 2_000) return { status: 413 };
      for (const { timeMs, fields } of points) storedValues.set(timeMs, fields.value ?? null);
      return { status: 204 };
    };
    const sink = closeAfterTest(createSink(stub, { gzip }));
    for (const dayBatch of [days.slice(0, 41), days.slice(41)])
      expect(await sink.write(dayBatch, never())).toEqual({ rejected: [] });
    expect([...storedValues].map(([ms, value]) => ({ ms, value })).sort((a, b) => a.ms - b.ms)).toEqual(sentPoints);
  });
});

describe("the receipt of the InfluxDB sink after a failure", () => {
  const stored: WriteOutcome = { kind: "stored", droppedPoints: null };
  const failedVerdict: WriteOutcome = { kind: "failed", error: new Error("away") };
  const poison: WriteOutcome = { kind: "poison", reason: "bad", refusesAllLines: false };

  test("settles all events before a failure and leaves all later events for a retry", async () => {
    let requests = 0;
    const receipt = await storeLines(oneEach(12_000), async () => {
      requests += 1;
      return requests === 3 ? failedVerdict : stored;
    });
    expect(receipt).toEqual({ rejected: [], retry: { from: 10_000, error: new Error("away") } });
  });

  test("does not reject an event that will be sent again after a failed request", async () => {
    const sixLines = [0, 0, 1, 1, 2, 2].map((eventIndex) => ({ eventIndex, text: `${eventIndex}` }));
    const receipt = await storeLines(sixLines, async (part) => {
      const eventIndexes = new Set(part.map(({ eventIndex }) => eventIndex));
      if (eventIndexes.size > 1) return poison;
      if (eventIndexes.has(1)) return failedVerdict;
      return eventIndexes.has(0) ? poison : stored;
    });
    expect(receipt).toEqual({ rejected: [{ index: 0, reason: "bad" }], retry: { from: 1, error: new Error("away") } });
  });

  test("retries an event when one of its requests has an invalid point and its next request fails", async () => {
    const manyLines = Array.from({ length: 6_000 }, (_, n) => ({ eventIndex: n === 0 ? 0 : 1, text: `${n}` }));
    const receipt = await storeLines(manyLines, async (part) => {
      if (part.length === 1_000) return failedVerdict;
      return part.some(({ eventIndex }) => eventIndex === 1) ? poison : stored;
    });
    expect(receipt).toEqual({ rejected: [], retry: { from: 1, error: new Error("away") } });
  });

  test("sends one request when the server reports that all lines are invalid", async () => {
    let requests = 0;
    const receipt = await storeLines(oneEach(3_000), async () => {
      requests += 1;
      return { kind: "poison", reason: "partial write: dropped=3000", refusesAllLines: true };
    });
    expect(requests).toBe(1);
    expect(receipt.rejected).toHaveLength(3_000);
  });

  test("splits a long search for invalid points into several writes, each of which settles events", async () => {
    let firstUnsettled = 0;
    let writes = 0;
    while (firstUnsettled < 1_000) {
      let requests = 0;
      const { rejected, retry } = await storeLines(oneEach(1_000 - firstUnsettled), async () => {
        requests += 1;
        return poison;
      });
      expect(requests).toBeLessThanOrEqual(200);
      const settledCount = retry?.from ?? 1_000 - firstUnsettled;
      expect(rejected).toHaveLength(settledCount);
      expect(settledCount).toBeGreaterThan(0);
      firstUnsettled += settledCount;
      writes += 1;
    }
    expect(writes).toBeLessThan(20);
  });

  test("rejects a single event with many invalid points once", async () => {
    const manyLines = Array.from({ length: 11_000 }, (_, n) => ({ eventIndex: 0, text: `${n}` }));
    const receipt = await storeLines(manyLines, async (part) =>
      part.some(({ text }) => text === "7000") ? poison : stored,
    );
    expect(receipt).toEqual({ rejected: [{ index: 0, reason: "bad" }] });
  });

  test("rejects a single point that is too large and stores the other points", async () => {
    const storedTexts: string[] = [];
    const threeLines = ["0", "x".repeat(100), "2"].map((text, eventIndex) => ({ eventIndex, text }));
    const receipt = await storeLines(threeLines, async (part) => {
      if (part.reduce((sum, { text }) => sum + text.length, 0) > 50) return { kind: "too-large" };
      storedTexts.push(...part.map(({ text }) => String(text)));
      return stored;
    });
    expect(receipt.rejected.map(({ index }) => index)).toEqual([1]);
    expect(storedTexts).toEqual(["0", "2"]);
  });
});

function oneEach(count: number): readonly EventLines[] {
  return Array.from({ length: count }, (_, eventIndex) => ({ eventIndex, text: `line ${eventIndex}` }));
}

function storing(stub: StubServer, refuse: (points: readonly ParsedPoint[]) => StubResponse | null) {
  const storedPoints: ParsedPoint[] = [];
  stub.respond = ({ body }: SeenRequest) => {
    const points = parseLines(body.toString());
    const refusal = refuse(points);
    if (refusal === null || refusal.status < 300) storedPoints.push(...points);
    return refusal ?? { status: 204 };
  };
  return () => storedPoints;
}

function createSink(stub: StubServer, options: Record<string, unknown> = {}) {
  const config = InfluxConfig.parse({ url: stub.url, bucket: "lake", ...options });
  return closeAfterTest(createInfluxSink(config, contextFor("lake", clockAt("2026-11-21T12:00:00Z"))));
}
