import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { systemClock } from "#src/clock.ts";
import { ConfigError, Malformed, NoLog, Rejected, Retryable, Throttled } from "#src/errors.ts";
import { tellFailure, toldFailure } from "#src/operator/failure.ts";
import { readDoor, writeDoor } from "#src/operator/key.ts";
import { openDoor } from "#src/operator/remote.ts";
import { operatorRoutes } from "#src/operator/routes.ts";
import type { Source } from "#src/source/source.ts";

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), "plenum-door-"));
  onTestFinished(() => rmSync(path, { recursive: true }));
  return path;
}

function routes(read: () => Promise<never> = () => Promise.reject(new Error("not asked"))) {
  const door = writeDoor(folder());
  const accepted: unknown[] = [];
  const app = operatorRoutes({
    key: door.key,
    sources: new Map([["main", { read } as unknown as Source]]),
    expectedWaitMs: () => 0,
    accept: async (arrival) => void accepted.push(arrival),
    clock: systemClock,
    report: () => Promise.reject(new Error("not asked")),
  });
  const authorization = `Bearer ${door.key.reveal()}`;
  const post = async (path: string, body: string, headers = { authorization }) => {
    const response = await app.request(path, { method: "POST", body, headers });
    return { status: response.status, ...((await response.json()) as object) };
  };
  return { app, post, accepted, authorization };
}

describe("the operator's door", () => {
  test("opens to the key of this start only, on every route", async () => {
    const { app, authorization, accepted } = routes();
    const key = authorization.replace("Bearer ", "");
    for (const wrong of [
      undefined,
      "",
      "Bearer ",
      `Bearer ${key}x`,
      `Bearer ${key.slice(1)}`,
      `Basic ${key}`,
    ]) {
      for (const [method, path] of [
        ["GET", "/ping"],
        ["GET", "/status"],
        ["POST", "/sources/main"],
        ["POST", "/commands"],
      ] as const) {
        const response = await app.request(path, {
          method,
          headers: wrong === undefined ? {} : { authorization: wrong },
        });
        expect(response.status, `${method} ${path}`).toBe(401);
      }
    }
    expect((await app.request("/ping", { headers: { authorization } })).status).toBe(200);
    expect(accepted).toEqual([]);
  });

  test("what is no question and no command is refused before anybody acts on it", async () => {
    const { post, accepted } = routes();
    for (const body of ["", "{", "null", "[]", '{"method":"close"}', '{"method":"read","tagIds":[]}']) {
      expect(await post("/sources/main", body), body).toMatchObject({
        status: 400,
        message: "No such question.",
      });
    }
    for (const body of [
      "{",
      '{"id":"a","source":null,"tagId":"1"}',
      '{"id":"","source":null,"tagId":"1","value":1}',
      '{"id":"a","source":null,"tagId":"1","value":"1"}',
    ]) {
      expect(await post("/commands", body), body).toMatchObject({ status: 400, message: "Not a command." });
    }
    expect(await post("/sources/other", "{}")).toMatchObject({ status: 404, message: "No such source." });
    expect(accepted).toEqual([]);
  });

  test("its file is for its owner only, and goes with the worker", () => {
    const state = folder();
    const door = writeDoor(state);
    door.open("http://127.0.0.1:1");
    expect(statSync(join(state, "operator.json")).mode & 0o777).toBe(0o600);
    expect(readDoor(state)?.url).toBe("http://127.0.0.1:1");
    expect(JSON.stringify(readDoor(state))).not.toContain(door.key.reveal());
    door.close();
    expect(readDoor(state)).toBeNull();
  });

  test("one that a killed worker left, or that is damaged, counts as none", async () => {
    const state = folder();
    writeDoor(state).open("http://127.0.0.1:9");
    expect(await openDoor(state, new AbortController().signal)).toBeNull();
    writeFileSync(join(state, "operator.json"), "{");
    expect(await openDoor(state, new AbortController().signal)).toBeNull();
  });
});

describe("failures on the way", () => {
  test.each([
    new ConfigError("a", { hint: "b" }),
    new Retryable("a"),
    new Throttled("a", 1_000),
    new Rejected("a"),
    new NoLog("a"),
    new Malformed("a", "<html>"),
  ])("$kind stays what it is, with its sentence", (failure) => {
    const told = toldFailure(JSON.parse(JSON.stringify(tellFailure(failure))));
    expect(told.kind).toBe(failure.kind);
    expect(told.message).toBe(failure.hint === undefined ? "a" : "a b");
  });

  test("credentials stay behind", async () => {
    const { post } = routes(() => Promise.reject(new Retryable("https://user:pw@host did not answer")));
    expect(await post("/sources/main", '{"method":"read","tagIds":["1"]}')).toEqual({
      status: 502,
      failure: "retryable",
      message: "https://[redacted]@host did not answer",
    });
  });
});
