import { describe, expect, onTestFinished, test, vi } from "vitest";
import { Secret } from "#src/log.ts";
import { StatusConfig } from "#src/status/config.ts";
import type { Readiness } from "#src/status/readiness.ts";
import { createStatusServer, statusRoutes } from "#src/status/server.ts";
import { valueEvent } from "../sample-events.ts";
import { fillSource, serverOptions, shownBuilding } from "./shown-building.ts";

const LOCAL = { host: "127.0.0.1:9850" };
const PAGE = [
  "/",
  "/app.mjs",
  "/overview.mjs",
  "/panels.mjs",
  "/plan.mjs",
  "/words.mjs",
  "/style.css",
  "/favicon.svg",
  "/htm.mjs",
];
const DATA = ["/api/status", "/api/alarms", "/api/values", "/api/events", "/metrics"];
const OPEN = ["/healthz", "/readyz"];

async function routes(more: Parameters<typeof serverOptions>[1] = {}) {
  const building = await shownBuilding();
  const options = serverOptions(building, more);
  const app = statusRoutes(options);
  const get = (path: string, headers: Readonly<Record<string, string>> = LOCAL) =>
    app.request(path, { headers });
  return { ...building, options, app, get };
}

describe("the stop of all writing", () => {
  const OWN = {
    ...LOCAL,
    "x-plenum": "status-page",
    origin: "http://127.0.0.1:9850",
    "sec-fetch-site": "same-origin",
  };

  test("works from the page, and nothing lets go again", async () => {
    const stopWrites = vi.fn();
    const { app } = await routes({ stopWrites });
    const answer = await app.request("/api/writes/stop", { method: "POST", headers: OWN });
    expect([answer.status, stopWrites.mock.calls.length]).toEqual([200, 1]);
    expect((await app.request("/api/writes/resume", { method: "POST", headers: OWN })).status).toBe(404);
  });

  test.each([
    ["without the page's header", { ...LOCAL, origin: OWN.origin }],
    ["from another site", { ...OWN, origin: "https://evil.example" }],
    ["by a browser that says it is another site's doing", { ...OWN, "sec-fetch-site": "cross-site" }],
    ["under a foreign name", { ...OWN, host: "evil.example" }],
  ])("does nothing %s", async (_, headers) => {
    const stopWrites = vi.fn();
    const { app } = await routes({ stopWrites });
    expect((await app.request("/api/writes/stop", { method: "POST", headers })).status).toBe(403);
    expect(stopWrites).not.toHaveBeenCalled();
  });

  test("says so where nothing can be written", async () => {
    const { app } = await routes();
    expect((await app.request("/api/writes/stop", { method: "POST", headers: OWN })).status).toBe(409);
  });
});

describe("what is served", () => {
  test("health and readiness", async () => {
    const reasons = [{ reason: "disk-full", subject: "state", message: "Free some space." }] as const;
    let readiness: Readiness = { ready: false, reasons };
    const { get } = await routes({ readiness: async () => readiness });
    expect(await (await get("/healthz")).text()).toBe("ok\n");
    const waiting = await get("/readyz");
    expect([waiting.status, await waiting.json()]).toEqual([503, readiness]);
    readiness = { ready: true, reasons: [] };
    const ready = await get("/readyz");
    expect([ready.status, await ready.json()]).toEqual([200, readiness]);
  });

  test("the page and its parts, all from here", async () => {
    const { get } = await routes();
    for (const path of PAGE) {
      const response = await get(path);
      expect(response.status, path).toBe(200);
      if (path !== "/htm.mjs" && path !== "/favicon.svg")
        expect(await response.text()).not.toMatch(/https?:\/\//);
    }
  });

  test("data, and events without their data", async () => {
    const { get, store } = await routes();
    await fillSource(store, "north", { tagNames: ["Supply"], alarms: [{}] });
    expect(await (await get("/api/status")).json()).toMatchObject({ version: "1.2.3" });
    expect(await (await get("/api/values?source=north&site=1&search=supp")).json()).toMatchObject({
      total: 1,
    });
    expect(await (await get("/api/values?source=south")).json()).toEqual({ total: 0, rows: [] });
    expect(await (await get("/api/alarms")).json()).toHaveLength(1);
    await store.commit({ events: [valueEvent(1)] });
    expect(await (await get("/api/events")).json()).toEqual([]);
  });

  test("metrics as they are at the scrape, under their documented names", async () => {
    const { get, store, clock } = await routes();
    await store.outbox.register("lake", "now");
    await store.commit({ events: [valueEvent(1), valueEvent(2)] });
    await clock.advance(5_000);
    const response = await get("/metrics");
    expect(response.headers.get("content-type")).toMatch(/^text\/plain/);
    const text = await response.text();
    expect(text).toMatch(/^plenum_outbox_depth\{sink="lake"\} 2$/m);
    expect(text).toMatch(/^plenum_outbox_oldest_age_seconds\{sink="lake"\} 5$/m);
    for (const name of [
      "plenum_api_requests_total",
      "plenum_api_request_seconds",
      "plenum_quota_slots_total",
      "plenum_poll_last_success_timestamp_seconds",
      "plenum_events_committed_total",
      "plenum_sink_deliveries_total",
      "plenum_sink_up",
      "plenum_commands_total",
    ]) {
      expect(text).toContain(`# TYPE ${name} `);
    }
  });

  test("a fault inside is told without a word of its own", async () => {
    const building = await shownBuilding();
    const options = serverOptions(building);
    const app = statusRoutes({
      ...options,
      status: { ...building.status, report: () => Promise.reject(new Error("/etc/secret at line 3")) },
    });
    const response = await app.request("/api/status", { headers: LOCAL });
    const text = await response.text();
    expect(response.status).toBe(500);
    expect(text).toMatch(/This could not be answered; the log says why \(request [0-9a-f-]{36}\)/);
    expect(text).not.toContain("secret");
  });
});

describe("who may look", () => {
  test("no name but our own: a foreign one may be a page from elsewhere that points here (DNS rebinding)", async () => {
    const { get } = await routes();
    for (const host of ["localhost", "LOCALHOST:9850", "127.0.0.1", "[::1]:9850"]) {
      expect((await get("/api/status", { host })).status, host).toBe(200);
    }
    for (const host of [
      "evil.example",
      "evil.example:9850",
      "127.0.0.1.evil.example",
      "localhost.evil.example",
      "",
    ]) {
      for (const path of [...PAGE, ...DATA])
        expect((await get(path, { host })).status, `${host} ${path}`).toBe(403);
    }
  });

  test("an address that others can reach needs a password and a proxy with TLS", () => {
    const password = { env: "STATUS_PASSWORD" };
    for (const host of ["0.0.0.0", "::", "192.0.2.1", "plenum.example", "127.0.0.1.example"]) {
      for (const less of [{}, { password }, { behind_tls_proxy: true }]) {
        expect(StatusConfig.safeParse({ host, ...less }).success, `${host} ${JSON.stringify(less)}`).toBe(
          false,
        );
      }
      expect(StatusConfig.safeParse({ host, password, behind_tls_proxy: true }).success).toBe(true);
    }
    expect(StatusConfig.safeParse({ host: "127.0.0.1" }).success).toBe(true);
  });

  test("with a password everything but health asks for it, and nothing else opens", async () => {
    const { get } = await routes({
      config: { host: "0.0.0.0", password: { env: "P" }, behind_tls_proxy: true },
      password: new Secret("correct horse"),
    });
    const basic = (text: string) => `Basic ${Buffer.from(text).toString("base64")}`;
    for (const path of [...PAGE, ...DATA, "/nothing"]) {
      const response = await get(path, { host: "plenum.example" });
      expect(response.status, path).toBe(401);
      expect(response.headers.get("www-authenticate")).toContain("Basic");
    }
    for (const path of OPEN) expect((await get(path)).status).toBe(200);
    for (const wrong of [
      basic("plenum:wrong"),
      basic("admin:correct horse"),
      "Bearer correct horse",
      "Basic",
    ]) {
      expect((await get("/api/status", { authorization: wrong })).status, wrong).toBe(401);
    }
    expect((await get("/api/status", { authorization: basic("plenum:correct horse") })).status).toBe(200);
  });

  test("guessing gets slow, and a crowd of guessers is turned away", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "performance"] });
    onTestFinished(() => void vi.useRealTimers());
    const { get } = await routes({ password: new Secret("correct horse") });
    const guess = () => get("/api/status", { authorization: "Basic d3Jvbmc=" });
    const answers = await Promise.all([guess(), guess(), guess(), guess(), guess()]);
    expect(answers.map(({ status }) => status)).toEqual([401, 401, 401, 401, 401]);
    const crowd = Array.from({ length: 21 }, guess);
    expect((await crowd[20])?.status).toBe(429);
  });

  test("nothing changes by any method", async () => {
    const { app } = await routes();
    for (const method of ["POST", "PUT", "DELETE", "PATCH"]) {
      for (const path of [...PAGE, ...DATA]) {
        expect((await app.request(path, { method, headers: LOCAL })).status, `${method} ${path}`).toBe(404);
      }
    }
  });

  test("every answer carries the headers that keep foreign code out", async () => {
    const { get } = await routes();
    for (const path of [...PAGE, ...DATA, ...OPEN, "/nothing"]) {
      const { headers } = await get(path);
      const policy = headers.get("content-security-policy") ?? "";
      for (const rule of [
        "default-src 'none'",
        "script-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'none'",
        "form-action 'none'",
      ]) {
        expect(policy, path).toContain(rule);
      }
      expect(policy).not.toMatch(/unsafe|\*|https?:/);
      expect(headers.get("x-content-type-options")).toBe("nosniff");
      expect(headers.get("referrer-policy")).toBe("no-referrer");
      expect(headers.get("access-control-allow-origin")).toBeNull();
    }
  });
});

describe("the server", () => {
  test("takes a free port, answers, and stops at once also with an open connection", async () => {
    const building = await shownBuilding();
    const server = createStatusServer(serverOptions(building));
    await server.start(new AbortController().signal);
    expect(await (await fetch(`${server.url()}/healthz`)).text()).toBe("ok\n");
    const begin = performance.now();
    await server.stop(5_000);
    await server.stop(5_000);
    expect(performance.now() - begin).toBeLessThan(1_000);
    await expect(fetch(`${server.url()}/healthz`)).rejects.toThrow();
  });
});
