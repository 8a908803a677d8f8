import { setImmediate as eventLoop } from "node:timers/promises";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { describe, expect, test, vi } from "vitest";
import type { AnyEvent } from "#src/core/model/event.ts";
import { Secret } from "#src/core/runtime/log.ts";
import { addSilence, getSilences, type Silence, startSilence } from "#src/engine/silence/alarm-silences.ts";
import { createGuessCounter, readPageCredentials } from "#src/ui/status/access-control.ts";
import type { AlarmList } from "#src/ui/status/alarm-api-responses.ts";
import type { Readiness } from "#src/ui/status/health.ts";
import type { SilenceRow } from "#src/ui/status/silence-routes.ts";
import { StatusConfig } from "#src/ui/status/status-config.ts";
import { createStatusServer, PAGE_FILES, statusRoutes } from "#src/ui/status/status-server.ts";
import { ALARM, valueEvent } from "../sample-events.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import {
  basic,
  FROM_PAGE,
  fillSource,
  JSON_TYPE,
  LOCALHOST,
  NOW,
  serverOptions,
  statusBuilding,
} from "./status-building.ts";

const PAGE = Object.keys(PAGE_FILES);
const DATA = ["/api/status", "/api/alarms", "/api/tags", "/api/events", "/metrics"];
const SILENCES = "/api/silences";
const READ_PATHS = [...PAGE, ...DATA, SILENCES];
const OPEN_PATHS = ["/healthz", "/readyz"];
const PASSWORD = new Secret("correct horse");
const OPERATOR = { authorization: basic("plenum:correct horse") };

const SILENCE: Silence = {
  ...{ id: "5f1e0c3a", source: null, site: null, priorities: null, name: null, alarm: null },
  ...{ from: NOW, to: "2026-11-21T11:00:00.000Z", reason: "Repair", madeBy: "cli", isTold: false },
};

async function startRoutes(more: Parameters<typeof serverOptions>[1] = {}) {
  const building = await statusBuilding();
  const options = serverOptions(building, more);
  const app = statusRoutes(options);
  const get = (path: string, headers: Readonly<Record<string, string>> = LOCALHOST) => app.request(path, { headers });
  return { ...building, options, app, get };
}

describe("the emergency stop", () => {
  test.each<[string, string, Readonly<Record<string, string>>, number]>([
    ["comes from the page", "stop", FROM_PAGE, 200],
    ["would resume writes", "resume", FROM_PAGE, 403],
    ["lacks the header of the page", "stop", { ...LOCALHOST, origin: FROM_PAGE.origin }, 403],
    ["comes from another site", "stop", { ...FROM_PAGE, origin: "https://evil.example" }, 403],
    ["has a cross-site header", "stop", { ...FROM_PAGE, "sec-fetch-site": "cross-site" }, 403],
    ["has a foreign host name", "stop", { ...FROM_PAGE, host: "evil.example" }, 403],
  ])("is accepted only from the status page; the request %s", async (_, action, headers, status) => {
    const stopWrites = vi.fn();
    const { app } = await startRoutes({ stopWrites });
    expect((await app.request(`/api/writes/${action}`, { method: "POST", headers })).status).toBe(status);
    expect(stopWrites).toHaveBeenCalledTimes(status === 200 ? 1 : 0);
  });

  test("is answered with 409 when tag writes are not configured", async () => {
    const { app } = await startRoutes();
    expect((await app.request("/api/writes/stop", { method: "POST", headers: FROM_PAGE })).status).toBe(409);
  });
});

describe("the silences of the status page", () => {
  const REQUEST = { source: "north", site: 1, minutes: 240, reason: "The boiler is exchanged" };
  async function silencing() {
    const { app, clock, get, store } = await startRoutes({ password: PASSWORD });
    await fillSource(store, "north", { siteName: "Skolen", tagNames: [], alarms: [{}, {}] });
    const begin = async (body: unknown, headers: Readonly<Record<string, string>> = {}) => {
      const text = typeof body === "string" ? body : JSON.stringify(body);
      const request = { method: "POST", headers: { ...FROM_PAGE, ...OPERATOR, ...JSON_TYPE, ...headers }, body: text };
      const response = await app.request(SILENCES, request);
      return { status: response.status, ...((await response.json()) as { message?: string; id?: string }) };
    };
    const end = async (id: string, headers: Readonly<Record<string, string>> = { ...FROM_PAGE, ...OPERATOR }) =>
      (await app.request(`${SILENCES}/${id}/end`, { method: "POST", headers })).status;
    const getAsOperator = (path: string) => get(path, { ...LOCALHOST, ...OPERATOR });
    const rows = async () => (await (await getAsOperator(SILENCES)).json()) as readonly SilenceRow[];
    const alarms = async () => ((await (await getAsOperator("/api/alarms")).json()) as AlarmList).rows;
    return { app, begin, end, get: getAsOperator, rows, alarms, store, clock };
  }

  test("cover the alarms of a site until the silence is ended", async () => {
    const { begin, end, rows, alarms, store } = await silencing();
    const { id = "", status } = await begin(REQUEST);
    expect(status).toBe(201);
    const silenced = { to: "2026-11-21T14:00:00.000Z", reason: REQUEST.reason, madeBy: "the status page" };
    expect(await rows()).toEqual([
      { id, ...silenced, from: NOW, alarms: "alarms of site Skolen of source north", isActive: true },
    ]);
    expect((await alarms()).map((row) => row.silenced)).toEqual([silenced, silenced]);
    const storedSilence = { source: "north", site: 1, alarm: null, priorities: null, name: null, isTold: false };
    expect(await getSilences(store)).toMatchObject([storedSilence]);
    expect([await end(id), await end(id)]).toEqual([200, 404]);
    expect(await rows()).toEqual([]);
    expect((await alarms()).map((row) => row.silenced)).toEqual([null, null]);
  });

  test("can last 60, 240 or 1440 minutes", async () => {
    const { begin, store } = await silencing();
    for (const minutes of [60, 240, 1_440]) expect(await begin({ ...REQUEST, minutes })).toMatchObject({ status: 201 });
    const lasting = (await getSilences(store)).map(({ from, to }) => (Date.parse(to) - Date.parse(from)) / 60_000);
    expect(lasting.toSorted((a, b) => a - b)).toEqual([60, 240, 1_440]);
  });

  test("cover a single alarm until the silence expires", async () => {
    const { begin, rows, alarms, clock } = await silencing();
    const { site: _, ...requests } = REQUEST;
    expect((await begin({ ...requests, alarm: "500002", minutes: 60, reason: "  Known  " })).status).toBe(201);
    expect(await rows()).toMatchObject([
      { alarms: `alarm ${ALARM.trigger.displayName}, Skolen of source north`, reason: "Known" },
    ]);
    const silenced = async () => (await alarms()).filter((row) => row.silenced !== null).map(({ alarm }) => alarm.id);
    expect(await silenced()).toEqual(["500002"]);
    await clock.advance(3_600_000);
    expect([await rows(), await silenced()]).toEqual([[], []]);
  });

  test("are listed before they start, and an alarm shows its longest active silence", async () => {
    const { rows, alarms, store } = await silencing();
    const addTimed = (id: string, from: string, to: string) =>
      addSilence(store, { ...SILENCE, id, from: `2026-11-21T${from}:00.000Z`, to: `2026-11-21T${to}:00.000Z` });
    await addTimed("s1", "09:00", "11:00");
    await addTimed("s2", "09:30", "12:00");
    await addTimed("s3", "11:00", "20:00");
    await addTimed("s4", "08:00", "10:00");
    expect((await rows()).map(({ id, isActive, alarms }) => [id, isActive, alarms])).toEqual([
      ["s1", true, "all alarms"],
      ["s2", true, "all alarms"],
      ["s3", false, "all alarms"],
    ]);
    expect((await alarms())[0]?.silenced?.to).toBe("2026-11-21T12:00:00.000Z");
  });

  test("are listed for a site if they may cover one of its alarms", async () => {
    const { get, store } = await silencing();
    const addSilenceWith = (id: string, parts: Partial<Silence>) => addSilence(store, { ...SILENCE, id, ...parts });
    await addSilenceWith("everywhere", {});
    await addSilenceWith("here", { source: "north", site: 1 });
    await addSilenceWith("one-here", { source: "north", alarm: "500001" });
    await addSilenceWith("another-source", { source: "south" });
    await addSilenceWith("another-site", { source: "north", site: 2 });
    await addSilenceWith("another-alarm", { source: "north", alarm: "500009" });
    const listedIds = async (query: string) => {
      const rows = (await (await get(`${SILENCES}?${query}`)).json()) as readonly SilenceRow[];
      return rows.map(({ id }) => id).toSorted();
    };
    expect(await listedIds("source=north&site=1")).toEqual(["everywhere", "here", "one-here"]);
    expect(await listedIds("source=north&site=2")).toEqual(["another-site", "everywhere"]);
    expect(await listedIds("")).toHaveLength(6);
    expect((await get(`${SILENCES}?site=x`)).status).toBe(400);
  });

  test.each<[string, number, unknown, string]>([
    ["invalid JSON", 400, "{", "Send one JSON object."],
    ["no source", 400, { ...REQUEST, source: undefined }, "Say the source of the alarm or the site."],
    ["neither alarm nor site", 400, { ...REQUEST, site: undefined }, "Say either an alarm or a site."],
    ["both alarm and site", 400, { ...REQUEST, alarm: "500001" }, "Say either an alarm or a site."],
    ["a site id that is a text", 400, { ...REQUEST, site: "1" }, "A site's id is a whole number."],
    ["an alarm id that is a number", 400, { ...REQUEST, alarm: 7, site: undefined }, "An alarm's id is a text."],
    ["an unsupported duration", 400, { ...REQUEST, minutes: 525_600 }, "Choose 60, 240 or 1440 minutes."],
    ["no reason", 400, { ...REQUEST, reason: undefined }, "Say why."],
    ["an overlong source name", 400, { ...REQUEST, source: "n".repeat(201) }, "There is no such source."],
    ["a blank reason", 400, { ...REQUEST, reason: "  " }, "Say why."],
    ["a long reason", 400, { ...REQUEST, reason: "x".repeat(501) }, "Say why in 500 characters at most."],
    ["an unknown field", 400, { ...REQUEST, by: "root" }, "The request has an unknown field."],
    ["an unknown site", 404, { ...REQUEST, site: 2 }, "There is no such site."],
    ["an unknown alarm", 404, { ...REQUEST, site: undefined, alarm: "1" }, "There is no such active alarm (any more)."],
    ["an overlong body", 413, { ...REQUEST, more: "x".repeat(9_000) }, "That is too long for a silence."],
  ])("are rejected with a message for %s", async (_, status, body, message) => {
    const { begin, store } = await silencing();
    expect(await begin(body)).toEqual({ status, message });
    expect(await getSilences(store)).toEqual([]);
  });

  test.each<[string, Readonly<Record<string, string>>]>([
    ["without the header of the page", { "x-plenum": "" }],
    ["from another site", { origin: "https://evil.example" }],
    ["with a cross-site header of the browser", { "sec-fetch-site": "cross-site" }],
  ])("are neither started nor ended by requests %s", async (_, headers) => {
    const { app, end, store, rows } = await silencing();
    await addSilence(store, SILENCE);
    const request = { method: "POST", headers: { ...FROM_PAGE, ...OPERATOR, ...JSON_TYPE, ...headers } };
    expect((await app.request(SILENCES, { ...request, body: JSON.stringify(REQUEST) })).status).toBe(403);
    expect(await end(SILENCE.id, { ...FROM_PAGE, ...OPERATOR, ...headers })).toBe(403);
    expect(await rows()).toHaveLength(1);
  });

  test("are not accepted with the content types of HTML forms", async () => {
    const { begin } = await silencing();
    for (const type of ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
      expect((await begin(REQUEST, { "content-type": type })).status, type).toBe(415);
  });

  test("are limited to 1,000, also with concurrent requests", async () => {
    const { begin, store, rows } = await silencing();
    const all = Array.from({ length: 998 }, (_, n) => [`s${n}`, { ...SILENCE, id: `s${n}` }] as const);
    await store.commit({ documents: [{ set: "silence", put: all }] });
    const responses = await Promise.all(Array.from({ length: 5 }, () => begin(REQUEST)));
    expect(responses.map(({ status }) => status).toSorted()).toEqual([201, 201, 409, 409, 409]);
    expect(responses.find(({ status }) => status === 409)?.message).toBe(
      "There are 1,000 silences, as many as there can be; end some first.",
    );
    expect(await rows()).toHaveLength(1_000);
  });
});

describe("a status page without a password", () => {
  test.each([
    [SILENCES, "plenum silence"],
    [`${SILENCES}/${SILENCE.id}/end`, "plenum silence"],
    ["/api/sink/retry", "plenum outbox resend"],
    ["/api/write", "plenum write"],
  ])("rejects POST %s and names the command %s instead", async (path, command) => {
    const { app, store } = await startRoutes();
    await addSilence(store, SILENCE);
    const body = JSON.stringify({ source: "north", site: 1, minutes: 60, reason: "Repair", name: "lake" });
    const headers = { ...FROM_PAGE, ...JSON_TYPE };
    const response = await app.request(path, { method: "POST", headers, body });
    const message = `This needs a password. Set status.password, or run \`${command}\` as the user of the worker.`;
    expect([response.status, await response.json()]).toEqual([403, { message }]);
    expect(await getSilences(store)).toEqual([SILENCE]);
  });

  test("rejects every change except the emergency stop", async () => {
    const { app } = await startRoutes({ stopWrites: () => undefined });
    for (const method of ["POST", "PUT", "DELETE", "PATCH"]) {
      for (const path of ["/api/writes/resume", "/api/anything", ...PAGE])
        expect((await app.request(path, { method, headers: FROM_PAGE })).status, `${method} ${path}`).toBe(403);
    }
    expect((await app.request("/api/writes/stop", { method: "POST", headers: FROM_PAGE })).status).toBe(200);
  });
});

describe("the roles of visitors", () => {
  const OPERATOR = basic("plenum:correct horse");
  const VIEWER = basic("viewer:battery staple");
  const SCRAPER = "Bearer metrics-token-1";
  const config = { trusted_proxy: { address: "192.0.2.9", user_header: "X-Forwarded-User" } };
  async function visited() {
    const stopped: string[] = [];
    const { app, store } = await startRoutes({
      config,
      password: new Secret("correct horse"),
      viewer: new Secret("battery staple"),
      scraper: new Secret("metrics-token-1"),
      stopWrites: (by) => void stopped.push(by),
    });
    const body = JSON.stringify({ source: "north", site: 1, minutes: 60, reason: "Repair" });
    const request = async (
      method: string,
      path: string,
      authorization: string,
      more = {},
      remoteAddress = "192.0.2.9",
    ) => {
      const headers = { ...FROM_PAGE, ...JSON_TYPE, authorization, ...more };
      const request = { method, headers, ...(method === "POST" && { body }) };
      return (await app.request(path, request, { incoming: { socket: { remoteAddress } } })).status;
    };
    return { store, request, stopped };
  }

  test("open only the routes of their role", async () => {
    const { request, stopped } = await visited();
    for (const path of READ_PATHS) {
      const scraped = path === "/metrics" ? 200 : 403;
      expect(await request("GET", path, OPERATOR), path).toBe(200);
      expect(await request("GET", path, VIEWER), path).toBe(200);
      expect(await request("GET", path, SCRAPER), path).toBe(scraped);
    }
    expect(await request("POST", "/api/writes/stop", VIEWER)).toBe(403);
    expect(await request("POST", "/api/writes/stop", SCRAPER)).toBe(403);
    expect(stopped).toEqual([]);
    expect(await request("POST", "/api/writes/stop", OPERATOR)).toBe(200);
    expect(stopped).toEqual(["the status page"]);
  });

  test("let only an operator start and end silences, recorded with the user name from the proxy", async () => {
    const { request, store } = await visited();
    await fillSource(store, "north", { tagNames: [], alarms: [{}] });
    for (const role of [VIEWER, SCRAPER]) expect(await request("POST", SILENCES, role)).toBe(403);
    expect(await getSilences(store)).toEqual([]);
    expect(await request("POST", SILENCES, OPERATOR, { "x-forwarded-user": "ola" })).toBe(201);
    const [madeSilence] = await getSilences(store);
    expect(madeSilence?.madeBy).toBe("ola via proxy");
    const end = `${SILENCES}/${madeSilence?.id}/end`;
    for (const role of [VIEWER, SCRAPER]) expect(await request("POST", end, role)).toBe(403);
    await startSilence(store, madeSilence as Silence, NOW);
    expect(await request("POST", end, OPERATOR)).toBe(200);
    expect(await getSilences(store)).toEqual([]);
    const latestEvents = (await store.outbox.latest(10)).map(({ event }) => event as AnyEvent);
    expect(latestEvents[0]).toMatchObject({ type: "silence-ended", data: { by: "the status page" } });
  });

  test.each([
    basic("viewer:correct horse"),
    basic("plenum:battery staple"),
    "Bearer correct horse",
    "Bearer battery staple",
    basic("plenum:metrics-token-1"),
  ])("do not accept a secret of another role: %s", async (authorization) => {
    const { request } = await visited();
    expect(await request("GET", "/metrics", authorization)).toBe(401);
  });

  test("do not accept a secret of a role that is not configured", async () => {
    const { get } = await startRoutes({ password: new Secret("correct horse") });
    for (const authorization of ["Bearer ", "Bearer null", "Bearer", basic("viewer:null"), ""])
      expect((await get("/metrics", { ...LOCALHOST, authorization })).status, authorization).toBe(401);
  });

  test("use the name of a visitor only from the trusted proxy", async () => {
    const { request, stopped } = await visited();
    const stopAs = (name: string, from: string) =>
      request("POST", "/api/writes/stop", OPERATOR, { "x-forwarded-user": name }, from);
    await stopAs("ola", "::ffff:192.0.2.9");
    await stopAs("ola", "192.0.2.10");
    await stopAs("x".repeat(101), "192.0.2.9");
    expect(await request("POST", "/api/writes/stop", "", { "x-forwarded-user": "ola" })).toBe(401);
    expect(stopped).toEqual(["ola via proxy", "the status page", "the status page"]);
  });

  test("require an operator's password if a viewer or a scraper is configured", () => {
    for (const option of ["viewer_password", "metrics_token"])
      expect(StatusConfig.safeParse({ [option]: { env: "P" } }).error?.issues[0]?.path).toEqual([option]);
  });
});

describe("the routes of the status server", () => {
  test("serve health and readiness", async () => {
    const reasons = [{ reason: "disk-full", subject: "state", message: "Free some space." }] as const;
    let readiness: Readiness = { ready: false, reasons };
    const { get } = await startRoutes({ readiness: async () => readiness });
    expect(await (await get("/healthz")).text()).toBe("ok\n");
    const notReadyResponse = await get("/readyz");
    expect([notReadyResponse.status, await notReadyResponse.json()]).toEqual([503, readiness]);
    readiness = { ready: true, reasons: [] };
    const readyResponse = await get("/readyz");
    expect([readyResponse.status, await readyResponse.json()]).toEqual([200, readiness]);
  });

  test("serve the page and its files without references to other hosts", async () => {
    const { get } = await startRoutes();
    for (const path of PAGE) {
      const response = await get(path);
      expect(response.status, path).toBe(200);
      // Where a library or a format names its home, nothing is fetched from there; a browser test sees to that.
      if (!["/htm.mjs", "/uplot.mjs", "/favicon.svg"].includes(path))
        expect(await response.text()).not.toMatch(/https?:\/\//);
    }
  });

  test("serve files in an accepted encoding, and respond 304 for unchanged files", async () => {
    const { get } = await startRoutes();
    const fileText = await (await get("/uplot.mjs")).text();
    for (const [accepted, encoding] of [
      ["gzip, deflate, br", "br"],
      ["gzip", "gzip"],
      ["br;q=0, gzip;q=0.5", "gzip"],
      ["identity", null],
    ] as const) {
      const firstResponse = await get("/uplot.mjs", { ...LOCALHOST, "accept-encoding": accepted });
      const { headers } = firstResponse;
      const caching = [headers.get("content-encoding"), headers.get("vary"), headers.get("cache-control")];
      expect(caching).toEqual([encoding, "accept-encoding", "no-cache"]);
      const bytes = Buffer.from(await firstResponse.arrayBuffer());
      const text = encoding === "br" ? brotliDecompressSync(bytes) : encoding === "gzip" ? gunzipSync(bytes) : bytes;
      expect(text.toString()).toBe(fileText);
      const etag = headers.get("etag") ?? "";
      const conditionalHeaders = { ...LOCALHOST, "accept-encoding": accepted, "if-none-match": etag };
      const secondResponse = await get("/uplot.mjs", conditionalHeaders);
      expect([secondResponse.status, await secondResponse.text()]).toEqual([304, ""]);
    }
    expect((await get("/api/status")).headers.get("cache-control")).toBe("no-store");
  });

  test("serve events without values", async () => {
    const { get, store } = await startRoutes();
    await store.commit({ events: [valueEvent(1)] });
    expect(await (await get("/api/events")).json()).toEqual([]);
  });

  test("serve 100 of 5,000 alarms with counts by priority", async () => {
    const { get, store } = await startRoutes();
    const trigger = (priority: string) => ({ ...ALARM.trigger, priority });
    const makeAlarm = (n: number) => ({ id: `${500_001 + n}`, trigger: trigger(n % 50 === 0 ? "A" : "C") });
    await fillSource(store, "north", { tagNames: [], alarms: Array.from({ length: 5_000 }, (_, n) => makeAlarm(n)) });
    await fillSource(store, "south", { tagNames: [], alarms: [{ trigger: trigger("B") }] });
    const fetchList = async (query: string, headers = {}) => {
      const response = await get(`/api/alarms${query}`, { ...LOCALHOST, ...headers });
      const { priorities, rows } = (await response.json()) as AlarmList;
      const sources = new Set(rows.map(({ source }) => source));
      return { priorities, rows: rows.length, first: rows[0]?.alarm.trigger.priority, sources: [...sources] };
    };
    const counts = { A: 100, B: 1, C: 4_900 };
    expect(await fetchList("")).toEqual({ priorities: counts, rows: 100, first: "A", sources: ["north"] });
    expect(await fetchList("?priority=B")).toEqual({ priorities: counts, rows: 1, first: "B", sources: ["south"] });
    const south = { priorities: { B: 1 }, rows: 1, first: "B", sources: ["south"] };
    expect(await fetchList("?source=south")).toEqual(south);
    expect((await get("/api/alarms?source=nowhere")).status).toBe(404);
    expect((await get("/api/alarms?limit=9000")).status).toBe(400);
  });

  test("compress JSON and metrics for clients that accept gzip", async () => {
    const { get, store } = await startRoutes();
    const alarms = Array.from({ length: 200 }, (_, n) => ({ id: `${500_001 + n}` }));
    await fillSource(store, "north", { tagNames: [], alarms });
    for (const path of ["/api/alarms", "/api/status", "/metrics"]) {
      const plainResponse = await get(path, { ...LOCALHOST, "accept-encoding": "identity" });
      const plainBytes = (await plainResponse.arrayBuffer()).byteLength;
      const gzipResponse = await get(path, { ...LOCALHOST, "accept-encoding": "gzip, deflate, br" });
      expect([path, gzipResponse.headers.get("content-encoding")]).toEqual([path, "gzip"]);
      expect(gzipResponse.headers.get("vary")).toMatch(/accept-encoding/i);
      const bytes = await gzipResponse.arrayBuffer();
      expect(gunzipSync(bytes).byteLength).toBe(plainBytes);
      expect(bytes.byteLength).toBeLessThan(plainBytes / 2);
      if (path === "/api/alarms") expect(bytes.byteLength).toBeLessThan(10_000);
    }
  });

  test("serve current metrics under their documented names", async () => {
    const { get, store, clock } = await startRoutes();
    await store.outbox.register("lake", "now");
    await store.commit({ events: [valueEvent(1), valueEvent(2)] });
    await clock.advance(5_000);
    const response = await get("/metrics");
    expect(response.headers.get("content-type")).toMatch(/^text\/plain/);
    const metricsText = await response.text();
    expect(metricsText).toMatch(/^plenum_outbox_depth\{sink="lake"\} 2$/m);
    expect(metricsText).toMatch(/^plenum_outbox_oldest_age_seconds\{sink="lake"\} 5$/m);
    expect(metricsText).toContain("# TYPE plenum_api_requests_total ");
  });

  test("omit the text of an internal error", async () => {
    const { options, status } = await startRoutes();
    const report = () => Promise.reject(new Error("/etc/secret at line 3"));
    const app = statusRoutes({ ...options, status: { ...status, report } });
    const response = await app.request("/api/status", { headers: LOCALHOST });
    const bodyText = await response.text();
    expect(response.status).toBe(500);
    expect(bodyText).toMatch(/This request failed; the log says why \(request [0-9a-f-]{36}\)/);
    expect(bodyText).not.toContain("secret");
  });
});

describe("access to the status server", () => {
  test("is denied for other host names (DNS rebinding)", async () => {
    const { get } = await startRoutes();
    for (const host of ["localhost", "LOCALHOST:9850", "127.0.0.1", "[::1]:9850"]) {
      expect((await get("/api/status", { host })).status, host).toBe(200);
    }
    for (const host of ["evil.example", "evil.example:9850", "127.0.0.1.evil.example", "localhost.evil.example", ""]) {
      for (const path of READ_PATHS) expect((await get(path, { host })).status, `${host} ${path}`).toBe(403);
    }
  });

  test("beyond loopback requires a password and TLS", () => {
    const password = { env: "STATUS_PASSWORD" };
    for (const host of ["0.0.0.0", "::", "192.0.2.1", "plenum.example", "127.0.0.1.example"]) {
      for (const partial of [{}, { password }, { behind_tls_proxy: true }]) {
        expect(StatusConfig.safeParse({ host, ...partial }).success, `${host} ${JSON.stringify(partial)}`).toBe(false);
      }
      expect(StatusConfig.safeParse({ host, password, behind_tls_proxy: true }).success).toBe(true);
    }
    expect(StatusConfig.safeParse({ host: "127.0.0.1" }).success).toBe(true);
  });

  test("requires the password for everything except health", async () => {
    const config = { host: "0.0.0.0", password: { env: "P" }, behind_tls_proxy: true };
    const { get } = await startRoutes({ config, password: PASSWORD });
    for (const path of [...READ_PATHS, "/nothing"]) {
      const response = await get(path, { host: "plenum.example" });
      expect(response.status, path).toBe(401);
      expect(response.headers.get("www-authenticate")).toContain("Basic");
    }
    for (const path of OPEN_PATHS) expect((await get(path)).status).toBe(200);
    for (const header of [basic("plenum:wrong"), basic("admin:correct horse"), "Bearer correct horse", "Basic"]) {
      expect((await get("/api/status", { authorization: header })).status, header).toBe(401);
    }
    expect((await get("/api/status", { authorization: basic("plenum:correct horse") })).status).toBe(200);
  });

  describe("guessing of passwords", () => {
    const RIGHT = basic("plenum:correct horse");
    const GUESS = "Basic d3Jvbmc=";
    async function guesser(config: object = {}) {
      const viewer = new Secret("battery staple");
      const { app, clock } = await startRoutes({ config, password: PASSWORD, viewer, stopWrites: () => undefined });
      const ask = async (remoteAddress: string, authorization: string, more = {}, path = "/api/events") => {
        const request = {
          method: path === "/api/events" ? "GET" : "POST",
          headers: { ...FROM_PAGE, authorization, ...more },
        };
        return app.request(path, request, { incoming: { socket: { remoteAddress } } });
      };
      /** The status, and the seconds until it came. */
      const from = async (...requests: Parameters<typeof ask>) => {
        const startedMs = clock.monotonic();
        let status = 0;
        const request = ask(...requests).then((response) => {
          status = response.status;
        });
        await eventLoop();
        while (status === 0) await clock.advance(500);
        await request;
        return [status, (clock.monotonic() - startedMs) / 1_000];
      };
      const times = async (count: number, guess: () => Promise<readonly number[]>) => {
        const results: (readonly number[])[] = [];
        for (let n = 0; n < count; n += 1) results.push(await guess());
        return results;
      };
      return { app, ask, from, times, clock };
    }

    /** Five wrong passwords at once, and the delays of the next ones. */
    const FREE_GUESSES = Array<readonly number[]>(5).fill([401, 0]);

    test("is delayed from the sixth wrong password of an address on; the right password is accepted after the delay", async () => {
      const { from, times, clock } = await guesser();
      const guessWrong = () => from("192.0.2.1", GUESS);
      expect(await times(10, guessWrong)).toEqual([...FREE_GUESSES, [401, 1], [401, 2], [401, 3], [401, 4], [401, 4]]);
      expect(await from("192.0.2.1", RIGHT)).toEqual([200, 4]);
      expect(await from("192.0.2.2", RIGHT)).toEqual([200, 0]);
      expect(await from("192.0.2.1", GUESS), "a right one takes nothing back").toEqual([401, 4]);
      await times(100, guessWrong);
      await clock.advance(300_000);
      expect(await times(6, guessWrong), "an attack of minutes is forgotten").toEqual([...FREE_GUESSES, [401, 1]]);
    });

    test("is counted by the last forwarded address of the trusted proxy only", async () => {
      const { from, times } = await guesser({ trusted_proxy: { address: "192.0.2.9" } });
      let n = 0;
      const lying = () => from("::ffff:192.0.2.9", GUESS, { "x-forwarded-for": `10.0.0.${n++}, 198.51.100.1` });
      expect(await times(6, lying)).toEqual([...FREE_GUESSES, [401, 1]]);
      expect(await from("192.0.2.9", RIGHT, { "x-forwarded-for": "198.51.100.2" })).toEqual([200, 0]);
      const direct = () => from("192.0.2.77", GUESS, { "x-forwarded-for": `198.51.100.${n++}` });
      expect(await times(6, direct)).toEqual([...FREE_GUESSES, [401, 1]]);
    });

    test("is counted separately for the emergency stop", async () => {
      const { from, times } = await guesser();
      const stop = (authorization: string) => from("192.0.2.1", authorization, {}, "/api/writes/stop");
      await times(10, () => from("192.0.2.1", GUESS));
      expect(await stop(RIGHT)).toEqual([200, 0]);
      expect(await times(6, () => stop(GUESS))).toEqual([...FREE_GUESSES, [401, 1]]);
      expect(await stop(RIGHT)).toEqual([200, 2]);
    });

    test("does not delay a browser with the cookie of the same password", async () => {
      const { ask, from, times } = await guesser({ behind_tls_proxy: true });
      const [cookie = ""] = (await ask("192.0.2.1", RIGHT)).headers.getSetCookie();
      expect(cookie).toMatch(/^plenum-known=[0-9a-f]{64}; Path=\/; HttpOnly; Secure; SameSite=Strict$/);
      const cookies = { cookie: cookie.split(";")[0] ?? "" };
      await times(10, () => from("192.0.2.1", GUESS));
      expect(await from("192.0.2.1", RIGHT, cookies)).toEqual([200, 0]);
      expect((await ask("192.0.2.1", RIGHT, cookies)).headers.getSetCookie()).toEqual([]);
      expect(await from("192.0.2.1", GUESS, cookies), "the cookie is for that password alone").toEqual([401, 4]);
      const viewer = basic("viewer:battery staple");
      expect(await from("192.0.2.1", viewer, cookies)).toEqual([200, 4]);
      expect((await ask("192.0.2.3", GUESS)).headers.getSetCookie()).toEqual([]);
      expect(await from("192.0.2.4", "", cookies)).toEqual([401, 0]);
    });

    test("is limited to one delayed password per connection, which is not checked after a disconnect", async () => {
      const { app, clock, from, times } = await guesser();
      await times(5, () => from("192.0.2.1", GUESS));
      const socket = { remoteAddress: "192.0.2.1" };
      const disconnect = new AbortController();
      const request = (signal?: AbortSignal) => {
        const request = { headers: { ...LOCALHOST, authorization: RIGHT }, ...(signal && { signal }) };
        return app.request("/api/events", request, { incoming: { socket } });
      };
      const firstRequest = request(disconnect.signal);
      await eventLoop();
      expect((await request()).status).toBe(429);
      disconnect.abort();
      expect((await firstRequest).status).toBe(401);
      expect(clock.sleepers()).toBe(0);
    });

    test("is counted for at most 1,000 addresses", () => {
      const clock = createVirtualClock(0);
      const guesses = createGuessCounter(clock);
      for (let n = 0; n < 3; n += 1) guesses.countWrongGuess("stubborn");
      for (let n = 0; n < 5_000; n += 1) guesses.countWrongGuess(`10.0.${n >> 8}.${n & 255}`);
      expect(guesses.countedAddresses()).toBe(1_000);
      for (let n = 0; n < 2; n += 1) guesses.countWrongGuess("stubborn");
      expect(guesses.waitMs("stubborn")).toBe(30_000);
    });
  });

  test("requires a password of at least 12 characters at the start", () => {
    const config = StatusConfig.parse({ password: { env: "P" } });
    expect(() => readPageCredentials(config, { P: "eleven char" })).toThrow("status.password is shorter than 12");
    expect(readPageCredentials(config, { P: "twelve chars" })?.operator.reveal()).toBe("twelve chars");
    expect(readPageCredentials(StatusConfig.parse({}))).toBeNull();
  });

  test("gets security headers with every response", async () => {
    const { get } = await startRoutes();
    for (const path of [...READ_PATHS, ...OPEN_PATHS, "/nothing"]) {
      const { headers } = await get(path);
      const policy = headers.get("content-security-policy") ?? "";
      const rules = ["default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "base-uri 'none'"];
      for (const rule of [...rules, "form-action 'none'"]) expect(policy, path).toContain(rule);
      expect(policy).not.toMatch(/unsafe|\*|https?:/);
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.get("referrer-policy")).toBe("no-referrer");
      expect(headers.get("access-control-allow-origin")).toBeNull();
    }
  });
});

test("the status server listens on a free port, and stops at once even with an open connection", async () => {
  const building = await statusBuilding();
  const server = createStatusServer(serverOptions(building));
  await server.start(new AbortController().signal);
  expect(await (await fetch(`${server.url()}/healthz`)).text()).toBe("ok\n");
  // A stop that waits for the connection would take its time of 1,000 s.
  await server.stop(1_000_000);
  await server.stop(1_000_000);
  await expect(fetch(`${server.url()}/healthz`)).rejects.toThrow();
});
