import { get } from "node:http";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ConfigurationError } from "#src/app/config/config-problems.ts";
import { draftConfiguration } from "#src/cli/running/write-first-configuration.ts";
import { ConfigError, Retryable } from "#src/core/errors/errors.ts";
import type { BuildingSummary } from "#src/ui/setup/building-inspection.ts";
import { type SetupActions, type SetupServer, startSetupServer } from "#src/ui/setup/setup-server.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { buildingWith, CONFIGURATION_VALUES, HISTORY, NOW } from "./buildings.ts";

const ADDRESS = { address: "https://bms.example.com/api/v1", token: " secret ", allowPlainHttp: false };
const SERVICE = { baseUrl: "https://bms.example.com", token: "secret", allowPlainHttp: false };
const CHOICES = { every: { readings: 60_000, meters: null, rest: null }, history: null, polite: 1 };
const WRITE = { choices: CHOICES, timeZone: "Europe/Oslo", mqttUrl: "" };
const WRITTEN = { file: "plenum.yaml", tokenFile: "token", next: [["plenum run", "runs it"]] } as const;
const PROBLEM = { file: "f", line: 3, column: 1, path: "sinks", message: "No such broker." };
const rowsLine = (rows: number) => `A database or data lake stores ${rows} rows of values a day`;
const UNKNOWN = "The server does not understand this request. Load the page again.";

describe("the server of the setup page", () => {
  let server: SetupServer;
  let clock: ReturnType<typeof createVirtualClock>;
  let calls: unknown[];
  let building: BuildingSummary | Promise<BuildingSummary>;
  let fault: Error | null;
  let starts: number;
  const steps: SetupActions = {
    async inspect(service) {
      calls.push(service);
      if (fault !== null) throw fault;
      return building;
    },
    plan: (summary, choices) => draftConfiguration(CONFIGURATION_VALUES, choices, summary).plan,
    write(_, request) {
      calls.push(request);
      return WRITTEN;
    },
  };
  const start = (port: number) => {
    const onStart = () => {
      starts += 1;
    };
    return startSetupServer({ actions: steps, clock, machineZone: "Europe/Oslo", onStart }, port);
  };

  beforeEach(async () => {
    clock = createVirtualClock(NOW);
    calls = [];
    building = buildingWith({ "°C": 30, kWh: 5 });
    fault = null;
    starts = 0;
    server = await start(0);
  });
  afterEach(() => server.close());
  async function request(path: string, body?: unknown, headers: Readonly<Record<string, string>> = {}) {
    const options = {
      method: "POST",
      headers: { "x-plenum": "status-page", "content-type": "application/json", ...headers },
      body: typeof body === "string" ? body : JSON.stringify(body),
    };
    const response = await fetch(server.url + path, body === undefined ? { headers } : options);
    const text = await response.text();
    const isJson = response.headers.get("content-type")?.includes("json") === true;
    // biome-ignore lint/suspicious/noExplicitAny: bodies of six different requests.
    return { status: response.status, headers: response.headers, body: (isJson ? JSON.parse(text) : text) as any };
  }

  /** Enters the code and returns the key as a header. */
  async function enterCode(code = server.code) {
    const { headers, status } = await request("/api/code", { code });
    expect(status).toBe(204);
    const cookie = headers.get("set-cookie") ?? "";
    expect(cookie).toMatch(/=[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict$/);
    return { cookie: cookie.split(";")[0] ?? "" };
  }

  test("serves the page and its files without the session key, and no other file", async () => {
    expect(server.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    const scripts = ["/setup.mjs", "/htm.mjs"].map((path) => [path, "text/javascript"]);
    const styles = ["/colours.css", "/setup.css"].map((path) => [path, "text/css"]);
    const otherFiles = [
      ["/", "text/html"],
      ["/favicon.svg", "image/svg+xml"],
    ];
    for (const [path = "", type] of [...scripts, ...styles, ...otherFiles]) {
      const { status, headers } = await request(path);
      expect([status, headers.get("content-type")?.split(";")[0]], path).toEqual([200, type]);
      const policy = headers.get("content-security-policy");
      expect(policy, path).toMatch(/^default-src 'none'; script-src 'self'; (?!.*(unsafe|\*|https?:))/);
    }
    expect((await request("/plenum.yaml")).status).toBe(404);
  });

  test("accepts the code once, in any spelling, and limits wrong codes to 5, then to 2 a minute", async () => {
    expect(server.code).toMatch(/^[A-HJ-NP-Z2-9]{4}-[A-HJ-NP-Z2-9]{4}$/);
    const wrongCode = await request("/api/code", { code: "" });
    expect([wrongCode.status, wrongCode.headers.get("set-cookie")]).toEqual([403, null]);
    expect(wrongCode.body.message).toBe("This is not the code. The terminal shows the code for one browser.");
    await enterCode(` ${server.code.toLowerCase().replace("-", " ")} `);
    expect((await request("/api/code", { code: server.code })).status).toBe(403);
    for (let n = 0; n < 3; n += 1) await request("/api/code", { code: "AAAA-AAAA" });
    const delayedCode = await request("/api/code", { code: "AAAA-AAAA" });
    expect([delayedCode.status, delayedCode.body.message, delayedCode.headers.get("retry-after")]).toEqual([
      ...[429, "Too many wrong codes; wait 30 s.", "30"],
    ]);
    await clock.advance(29_500);
    expect((await request("/api/code", { code: "x" })).body.message).toBe("Too many wrong codes; wait 1 s.");
    expect((await request("/api/code", { code: "x".repeat(101) })).status).toBe(400);
    await clock.advance(500);
    expect((await request("/api/code", { code: "x".repeat(100) })).status).toBe(403);
  });

  test("rejects the right code during the delay after wrong codes, and accepts it afterwards", async () => {
    for (let n = 0; n < 5; n += 1) await request("/api/code", { code: `WRONG${n}` });
    expect((await request("/api/code", { code: server.code })).status).toBe(429);
    await clock.advance(30_000);
    await enterCode();
  });

  test("rejects requests without the session key, and requests from another page or host name", async () => {
    const key = await enterCode();
    for (const path of ["/api/look", "/api/plan", "/api/write", "/api/start"]) {
      const { body, status } = await request(path, ADDRESS);
      expect([status, body.message], path).toEqual([401, "Enter the code from the terminal."]);
      expect((await request(path, ADDRESS, { cookie: `${key.cookie}x` })).status, path).toBe(401);
      expect((await request(path, ADDRESS, { ...key, "x-plenum": "" })).status, path).toBe(403);
      expect((await request(path, ADDRESS, { ...key, origin: "https://evil.example" })).status, path).toBe(403);
    }
    for (const headers of [{ "x-plenum": "" }, { origin: "https://evil.example" }])
      expect((await request("/api/code", { code: server.code }, headers)).status).toBe(403);
    // DNS rebinding: another host name resolves to this machine.
    expect(await fetchStatus(server.url, "evil.example")).toBe(403);
    expect(await fetchStatus(server.url, new URL(server.url).host)).toBe(200);
    expect((await request("/api/setup")).status).toBe(401);
    expect((await request("/api/setup", undefined, key)).status).toBe(200);
    expect([calls, starts]).toEqual([[], 0]);
  });

  test("accepts each step from the service's address to the start of the worker, and writes the files once", async () => {
    const key = await enterCode();
    expect((await request("/api/setup", undefined, key)).body).toEqual({ looked: null, written: null });
    const earlyStart = await request("/api/start", {}, key);
    expect([earlyStart.status, earlyStart.body.message, starts]).toEqual([409, "There is no configuration yet.", 0]);
    const lookResponse = await request("/api/look", ADDRESS, key);
    expect(lookResponse.status).toBe(200);
    expect(JSON.stringify(lookResponse.body)).not.toContain("secret");
    const plan = await request("/api/plan", CHOICES, key);
    expect([plan.status, plan.body.fits]).toEqual([200, true]);
    const writeResponse = await request("/api/write", WRITE, key);
    expect(writeResponse.body).toEqual(WRITTEN);
    expect(calls).toEqual([SERVICE, { ...WRITE, ...SERVICE }]);
    expect((await request("/api/setup", undefined, key)).body).toEqual({
      looked: lookResponse.body,
      written: writeResponse.body,
    });
    expect((await request("/api/write", WRITE, key)).body.message).toBe("plenum.yaml is written already.");
    expect([(await request("/api/start", {}, key)).status, starts]).toEqual([202, 1]);
  });

  test("rejects a plan and a configuration before the building is inspected, and rejects an empty token", async () => {
    const key = await enterCode();
    for (const [path, body] of Object.entries({ "/api/plan": CHOICES, "/api/write": WRITE }))
      expect((await request(path, body, key)).body.message).toBe(
        "No building was inspected yet; begin with the address.",
      );
    expect((await request("/api/look", { ...ADDRESS, token: " " }, key)).body.message).toBe(
      "The access token is missing.",
    );
    expect(calls).toEqual([]);
  });

  test("describes the building, proposes read intervals that fit the quota, and computes a plan for other intervals", async () => {
    const key = await enterCode();
    const { body: looked } = await request("/api/look", ADDRESS, key);
    expect(looked).toMatchObject({
      ...{ baseUrl: "https://bms.example.com", alarms: 0, doubts: [] },
      notes: ["/api/v1 at the end of the address is left out; it is added by itself."],
      tags: "35 tags",
      zone: { proposed: "Europe/Oslo", note: null },
      groups: [
        { group: "readings", tags: 30, units: ["°C"] },
        { group: "meters", tags: 5, units: ["kWh"] },
      ],
      choices: { every: { readings: 30_000, meters: 900_000, rest: null }, polite: 1, history: HISTORY },
      plan: { fits: true, change: null, lines: expect.arrayContaining([rowsLine(30 * 2_880 + 5 * 96)]) },
    });
    expect((await request("/api/plan", looked.choices, key)).body).toEqual(looked.plan);
    const every = { readings: 15_000, meters: 15_000, rest: null };
    const { body: more } = await request("/api/plan", { ...looked.choices, every }, key);
    expect(more.load).toBeGreaterThan(looked.plan.load);
    expect([more.fits, more.lines]).toMatchObject([true, { length: 4 }]);
    expect(more.lines).toContainEqual(rowsLine(35 * 5_760));
    building = buildingWith({ "°C": 3_000 });
    await request("/api/look", ADDRESS, key);
    const excessiveChoices = { ...CHOICES, every: { ...CHOICES.every, readings: 3_000 } };
    const { body: over } = await request("/api/plan", excessiveChoices, key);
    expect(over).toMatchObject({ fits: false, change: expect.any(String) });
  });

  test("writes the configuration of the last inspected address", async () => {
    const key = await enterCode();
    await request("/api/look", { ...ADDRESS, address: "https://old.example.com" }, key);
    await request("/api/look", { ...ADDRESS, allowPlainHttp: true }, key);
    await request("/api/write", WRITE, key);
    expect(calls.at(-1)).toEqual({ ...WRITE, ...SERVICE, allowPlainHttp: true });
  });

  test.each<[string, Error, number, string]>([
    ["a user error", new ConfigError("No such zone.", { hint: "Write Oslo." }), 400, "No such zone. Write Oslo."],
    ["a wrong configuration", new ConfigurationError([PROBLEM]), 400, "No such broker."],
    ["an unreachable service", new Retryable("It does not answer."), 502, "It does not answer."],
    ["a password in an address", new ConfigError("See https://u:p@x.org."), 400, "See https://[redacted]@x.org."],
  ])("explains %s in one message without credentials", async (_, error, status, message) => {
    const key = await enterCode();
    fault = error;
    const response = await request("/api/look", ADDRESS, key);
    expect([response.status, response.body.message]).toEqual([status, message]);
  });

  test.each<[string, unknown, number, string]>([
    ["a body that is not JSON", "{", 400, UNKNOWN],
    ["an unknown field", { ...ADDRESS, more: 1 }, 400, UNKNOWN],
    ["a token of 10,001 characters", { ...ADDRESS, token: "x".repeat(10_001) }, 400, UNKNOWN],
    ["an address of 2,001 characters", { ...ADDRESS, address: "x".repeat(2_001) }, 400, UNKNOWN],
    ["a body of 33 KiB", { ...ADDRESS, token: "x".repeat(33 * 1024) }, 413, "The request is too long."],
  ])("rejects a request with %s", async (_, body, status, message) => {
    const response = await request("/api/look", body, await enterCode());
    expect([response.status, response.body.message]).toEqual([status, message]);
    expect(calls).toEqual([]);
  });

  test.each<[string, object, number]>([
    ["intervals of 3 s and of one day", { every: { readings: 3_000, meters: 86_400_000, rest: null } }, 200],
    ["an interval below 3 s", { every: { readings: 2_999, meters: null, rest: null } }, 400],
    ["an interval above one day", { every: { readings: 86_400_001, meters: null, rest: null } }, 400],
    ["3,650 days of history", { history: { ...HISTORY, backfillDays: 3_650 } }, 200],
    ["0 days of history", { history: { ...HISTORY, backfillDays: 0 } }, 200],
    ["3,651 days of history", { history: { ...HISTORY, backfillDays: 3_651 } }, 400],
    ["-1 days of history", { history: { ...HISTORY, backfillDays: -1 } }, 400],
    ["5 % of the quota", { polite: 0.05 }, 200],
    ["4 % of the quota", { polite: 0.04 }, 400],
    ["110 % of the quota", { polite: 1.1 }, 400],
  ])("checks the bounds of a choice: %s", async (_, choices, status) => {
    const key = await enterCode();
    await request("/api/look", ADDRESS, key);
    expect((await request("/api/plan", { ...CHOICES, ...choices }, key)).status).toBe(status);
  });

  test("fails to start with a message that names the port when the port is in use", async () => {
    const { port } = new URL(server.url);
    await expect(start(Number(port))).rejects.toThrow(`The port ${port} of 127.0.0.1 cannot be used (EADDRINUSE).`);
  });

  test("finishes a running request when the server closes, and accepts no new request", async () => {
    const key = await enterCode();
    const slowInspection = Promise.withResolvers<BuildingSummary>();
    const result = await building;
    building = slowInspection.promise;
    const lookRequest = request("/api/look", ADDRESS, key);
    await expect.poll(() => calls.length).toBe(1);
    const closing = server.close();
    slowInspection.resolve(result);
    expect((await lookRequest).status).toBe(200);
    await closing;
    await expect(request("/")).rejects.toThrow();
  });
});

function fetchStatus(url: string, host: string): Promise<number | undefined> {
  return new Promise((resolve, reject) => {
    get(url, { headers: { host } }, (response) => {
      response.resume();
      resolve(response.statusCode);
    }).once("error", reject);
  });
}
