import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ConfigurationError } from "#src/app/config/problems.ts";
import { ConfigError, Retryable } from "#src/core/errors/errors.ts";
import { createEntryCode, type EntryCode } from "#src/ui/setup/entry-code.ts";
import { type SetupServer, startSetupServer } from "#src/ui/setup/server.ts";
import type { createVirtualClock } from "../virtual-clock.ts";
import { ADDRESS, WISHES, world } from "./page-world.ts";

describe("the setup page's server", () => {
  let server: SetupServer;
  let entry: EntryCode;
  let clock: ReturnType<typeof createVirtualClock>;
  let given: unknown[];
  let answers: ReturnType<typeof world>["answers"];
  let starts: number;

  beforeEach(async () => {
    const made = world();
    ({ clock, given, answers } = made);
    entry = createEntryCode(clock);
    starts = 0;
    const onStart = () => {
      starts += 1;
    };
    server = await startSetupServer({ setup: made.setup, entry, onStart }, 0);
  });
  afterEach(() => server.close());

  async function ask(path: string, body?: unknown, headers: Readonly<Record<string, string>> = {}) {
    const options = {
      method: "POST",
      headers: { "x-plenum": "status-page", "content-type": "application/json", ...headers },
      body: typeof body === "string" ? body : JSON.stringify(body),
    };
    const answer = await fetch(server.url + path, body === undefined ? { headers } : options);
    const text = await answer.text();
    const isJson = answer.headers.get("content-type")?.includes("json") === true;
    return {
      status: answer.status,
      headers: answer.headers,
      body: (isJson ? JSON.parse(text) : text) as {
        readonly message?: string;
        readonly [key: string]: unknown;
      },
    };
  }

  /** The key, as a header. */
  async function entered() {
    const { headers, status } = await ask("/api/code", { code: entry.code });
    expect(status).toBe(204);
    const cookie = headers.get("set-cookie") ?? "";
    expect(cookie).toMatch(/; HttpOnly; SameSite=Strict$/);
    return { cookie: cookie.split(";")[0] ?? "" };
  }

  test("serves the page and its parts to everybody, and nothing else", async () => {
    expect(server.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/);
    for (const [path, type] of [
      ["/", "text/html"],
      ["/setup.mjs", "text/javascript"],
      ["/wishes.mjs", "text/javascript"],
      ["/language.mjs", "text/javascript"],
      ["/norwegian.mjs", "text/javascript"],
      ["/htm.mjs", "text/javascript"],
      ["/colours.css", "text/css"],
      ["/setup.css", "text/css"],
      ["/favicon.svg", "image/svg+xml"],
    ] as const) {
      const { status, headers } = await ask(path);
      expect([status, headers.get("content-type")?.split(";")[0]], path).toEqual([200, type]);
      expect(headers.get("content-security-policy"), path).toContain("default-src");
    }
    expect((await ask("/plenum.yaml")).status).toBe(404);
  });

  test("gives the key for the code alone, once, and asks who guesses to wait", async () => {
    const wrong = await ask("/api/code", { code: "AAAA-AAAA" });
    expect([wrong.status, wrong.body.message]).toEqual([
      403,
      "This is not the code. It stands in the terminal, and is good for one browser.",
    ]);
    expect(wrong.headers.get("set-cookie")).toBeNull();
    await entered();
    expect((await ask("/api/code", { code: entry.code })).status).toBe(403);
    for (let n = 0; n < 3; n += 1) await ask("/api/code", { code: "AAAA-AAAA" });
    const late = await ask("/api/code", { code: "AAAA-AAAA" });
    expect([late.status, late.body.message, late.headers.get("retry-after")]).toEqual([
      429,
      "Too many wrong codes; wait 30 s.",
      "30",
    ]);
    await clock.advance(29_500);
    expect((await ask("/api/code", { code: "x" })).body.message).toBe("Too many wrong codes; wait 1 s.");
    expect((await ask("/api/code", { code: "x".repeat(101) })).status).toBe(400);
    await clock.advance(500);
    expect((await ask("/api/code", { code: "x".repeat(100) })).status).toBe(403);
  });

  test("does nothing without the key, and nothing that another page asks for", async () => {
    const key = await entered();
    const posts = ["/api/look", "/api/plan", "/api/write", "/api/start"];
    for (const path of posts) {
      const without = await ask(path, ADDRESS);
      expect([without.status, without.body.message], path).toEqual([
        401,
        "Enter the code that stands in the terminal.",
      ]);
      expect((await ask(path, ADDRESS, { cookie: `${key.cookie}x` })).status, path).toBe(401);
      expect((await ask(path, ADDRESS, { ...key, "x-plenum": "" })).status, path).toBe(403);
      expect((await ask(path, ADDRESS, { ...key, origin: "https://evil.example" })).status, path).toBe(403);
    }
    expect((await ask("/api/setup")).status).toBe(401);
    expect((await ask("/api/setup", undefined, key)).status).toBe(200);
    expect([given, starts]).toEqual([[], 0]);
  });

  test("leads from the address to the start", async () => {
    const key = await entered();
    expect((await ask("/api/setup", undefined, key)).body).toEqual({ looked: null, written: null });
    const early = await ask("/api/start", {}, key);
    expect([early.status, early.body.message, starts]).toEqual([409, "There is no configuration yet.", 0]);
    const looked = await ask("/api/look", ADDRESS, key);
    expect([looked.status, looked.body.baseUrl]).toEqual([200, "https://bms.example.com"]);
    expect(JSON.stringify(looked.body)).not.toContain("secret");
    const plan = await ask("/api/plan", WISHES, key);
    expect([plan.status, plan.body.fits]).toEqual([200, true]);
    const written = await ask("/api/write", { wishes: WISHES, timeZone: "Europe/Oslo", mqttUrl: "" }, key);
    expect(written.body).toEqual({
      file: "plenum.yaml",
      tokenFile: "token",
      next: [["plenum run", "runs it"]],
    });
    expect((await ask("/api/setup", undefined, key)).body).toEqual({
      looked: looked.body,
      written: written.body,
    });
    expect([(await ask("/api/start", {}, key)).status, starts]).toEqual([202, 1]);
  });

  test.each<[string, Error, number, string]>([
    [
      "a mistake of the person",
      new ConfigError("No such zone.", { hint: "Write Europe/Oslo." }),
      400,
      "No such zone. Write Europe/Oslo.",
    ],
    [
      "a configuration that would be wrong",
      new ConfigurationError([{ file: "f", line: 3, column: 1, path: "sinks", message: "No such broker." }]),
      400,
      "No such broker.",
    ],
    ["a service that is away", new Retryable("It does not answer."), 502, "It does not answer."],
    [
      "a secret in an address",
      new ConfigError("See https://u:hidden@x.example."),
      400,
      "See https://[redacted]@x.example.",
    ],
  ])("says %s in one sentence", async (_, fault, status, message) => {
    const key = await entered();
    answers.fault = fault;
    const answer = await ask("/api/look", ADDRESS, key);
    expect([answer.status, answer.body.message]).toEqual([status, message]);
  });

  test.each<[string, unknown, number, string]>([
    ["no JSON", "{", 400, "The page asked for something that there is not; load it again."],
    ["another field", { ...ADDRESS, more: 1 }, 400, "The page asked for something that there is not; load it again."],
    [
      "a token that is too long",
      { ...ADDRESS, token: "x".repeat(10_001) },
      400,
      "The page asked for something that there is not; load it again.",
    ],
    [
      "an address that is too long",
      { ...ADDRESS, address: "x".repeat(2_001) },
      400,
      "The page asked for something that there is not; load it again.",
    ],
    ["a body that is too long", { ...ADDRESS, token: "x".repeat(33 * 1024) }, 413, "That is too long."],
  ])("refuses %s", async (_, body, status, message) => {
    const answer = await ask("/api/look", body, await entered());
    expect([answer.status, answer.body.message]).toEqual([status, message]);
    expect(given).toEqual([]);
  });

  test.each<[string, object, boolean]>([
    ["the shortest and the longest age", { every: { readings: 3_000, meters: 86_400_000, rest: null } }, true],
    ["an age that the quota cannot keep", { every: { readings: 2_999, meters: null, rest: null } }, false],
    ["an age above a day", { every: { readings: 86_400_001, meters: null, rest: null } }, false],
    ["ten years of history", { history: { resolution: "1h", backfillDays: 3_650 } }, true],
    ["none of it", { history: { resolution: "1h", backfillDays: 0 } }, true],
    ["more of it", { history: { resolution: "1h", backfillDays: 3_651 } }, false],
    ["less than none", { history: { resolution: "1h", backfillDays: -1 } }, false],
    ["a twentieth of the quota", { polite: 0.05 }, true],
    ["less of it", { polite: 0.04 }, false],
    ["more than all", { polite: 1.1 }, false],
  ])("takes wishes within their bounds only: %s", async (_, wishes, isTaken) => {
    const key = await entered();
    await ask("/api/look", ADDRESS, key);
    expect((await ask("/api/plan", { ...WISHES, ...wishes }, key)).status).toBe(isTaken ? 200 : 400);
  });

  test("says so where its port is taken", async () => {
    const { port } = new URL(server.url);
    const second = startSetupServer({ setup: world().setup, entry, onStart: () => {} }, Number(port));
    await expect(second).rejects.toThrow(`The port ${port} of 127.0.0.1 cannot be used (EADDRINUSE).`);
  });

  test("sends what is under way when it closes, and takes nothing new", async () => {
    const key = await entered();
    const slow = Promise.withResolvers<void>();
    const seen = answers.seen;
    Object.defineProperty(answers, "seen", { get: () => slow.promise.then(() => seen) });
    const looking = ask("/api/look", ADDRESS, key);
    await expect.poll(() => given.length).toBe(1);
    const closed = server.close();
    slow.resolve();
    expect((await looking).status).toBe(200);
    await closed;
    await expect(ask("/")).rejects.toThrow();
  });
});
