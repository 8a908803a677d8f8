import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test, vi } from "vitest";
import { systemClock } from "#src/clock.ts";
import { ConfigError, Malformed, NoLog, Rejected, Retryable, Throttled } from "#src/errors.ts";
import { tellFailure, toldFailure } from "#src/operator/failure.ts";
import { readDoor, writeDoor } from "#src/operator/key.ts";
import { openDoor } from "#src/operator/remote.ts";
import { operatorRoutes } from "#src/operator/routes.ts";
import { askPlan, askTag, workRoutes } from "#src/operator/work.ts";
import type { TracedRequest } from "#src/source/request-trace.ts";
import type { Source } from "#src/source/source.ts";
import { type PlanReport, planReport } from "#src/sync/plan/report.ts";
import { PLAN_FACTS } from "../status/shown-building.ts";

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

describe("what a worker knows of its work", () => {
  const request = (number: number, tagIds: readonly string[]): TracedRequest => ({
    number,
    at: `2026-11-21T10:00:0${number}.000Z`,
    lane: "live",
    endpoint: "read",
    tagIds,
    outcome: "ok",
    message: null,
    tookMs: 100,
  });

  function work(plan: () => Promise<PlanReport>) {
    const door = writeDoor(folder());
    const app = workRoutes({
      key: door.key,
      lastPolls: async () => new Map([["alarms", "2026-11-21T10:00:00.000Z"]]),
      sources: new Map([
        [
          "main",
          {
            plan,
            tag: () => null,
            historyStarvesSince: () => null,
            requests: () => [request(1, ["1", "2"]), request(2, ["3"]), request(3, ["1"])],
          },
        ],
      ]),
    });
    const ask = async (path: string, authorization = `Bearer ${door.key.reveal()}`) => {
      const response = await app.request(path, { headers: { authorization } });
      return { status: response.status, ...((await response.json()) as object) };
    };
    return { app, ask };
  }
  const made = async () => planReport(PLAN_FACTS);

  test("is told to the key of this start only, and nothing is done before it was seen", async () => {
    const plan = vi.fn(made);
    const { ask } = work(plan);
    for (const path of ["/main/plan", "/main/polls", "/main/tags/1", "/other/plan"]) {
      expect(await ask(path, "Bearer wrong"), path).toMatchObject({ status: 401 });
      expect(await ask(path, ""), path).toMatchObject({ status: 401 });
    }
    expect(plan).not.toHaveBeenCalled();
  });

  test("the plan, and what became of a tag", async () => {
    const { ask } = work(made);
    expect(await ask("/main/plan")).toMatchObject({ status: 200, source: "north", fits: true });
    expect(await ask("/main/tags/1")).toMatchObject({
      status: 200,
      live: null,
      requests: [{ number: 1 }, { number: 3 }],
      remembered: { requests: 3, since: "2026-11-21T10:00:01.000Z" },
    });
    expect(await ask("/main/polls")).toEqual({ status: 200, alarms: "2026-11-21T10:00:00.000Z" });
    expect(await ask("/main/tags/9")).toMatchObject({ status: 200, requests: [] });
    for (const path of ["/other/plan", "/other/polls", "/other/tags/1"]) {
      expect(await ask(path)).toMatchObject({ status: 404, message: "No such source." });
    }
  });

  test("a plan that cannot be made says why, without credentials", async () => {
    const { ask } = work(() => Promise.reject(new Retryable("https://user:pw@host is busy")));
    expect(await ask("/main/plan")).toEqual({
      status: 502,
      failure: "retryable",
      message: "https://[redacted]@host is busy",
    });
  });

  test("a worker that is gone while it is asked is one sentence", async () => {
    const state = folder();
    writeDoor(state).open("http://127.0.0.1:9");
    const door = readDoor(state);
    if (door === null) throw new Error("no door");
    const { signal } = new AbortController();
    for (const asked of [askPlan(door, "main", signal), askTag(door, "main", "1", signal)]) {
      await expect(asked).rejects.toThrow("The worker does not answer any more.");
    }
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
