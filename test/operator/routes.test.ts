import { describe, expect, test } from "vitest";
import { ConfigError, Malformed, NoTagLog, Rejected, Retryable, Throttled } from "#src/core/errors/errors.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import type { TracedRequest } from "#src/engine/source/request-trace.ts";
import type { Source } from "#src/engine/source/source.ts";
import { reportPlan } from "#src/engine/sync/plan/report.ts";
import { decodeFailure } from "#src/ui/operator/control-socket-client.ts";
import { encodeFailure, operatorRoutes } from "#src/ui/operator/control-socket-routes.ts";
import type { SourceActivity } from "#src/ui/operator/quota-plan-routes.ts";
import { PLAN_FACTS } from "../status/status-building.ts";

const unexpected = (): Promise<never> => Promise.reject(new Error("unexpected request"));

function serve({ read = unexpected, notReady = null as string | null, work = new Map<string, SourceActivity>() } = {}) {
  const accepted: unknown[] = [];
  const app = operatorRoutes({
    sources: new Map([["main", { read } as unknown as Source]]),
    expectedWaitMs: () => 0,
    changeLock: unexpected,
    acceptCommand: async (arrival) => void accepted.push(arrival),
    clock: systemClock,
    report: unexpected,
    notReadyReason: () => notReady,
    configuration: () => ({ file: "/etc/plenum/plenum.yaml", config: { state: { folder: "/state" } } }),
    sourcePlanOptions: { sources: work },
  });
  const parse = async (response: Response) => ({ status: response.status, ...((await response.json()) as object) });
  return {
    accepted,
    app,
    get: async (path: string) => parse(await app.request(path)),
    post: async (path: string, body: string) => parse(await app.request(path, { method: "POST", body })),
  };
}

describe("operatorRoutes (the control socket's requests)", () => {
  test("are rejected when the request or its command is malformed", async () => {
    const { post, accepted } = serve();
    for (const body of ["", "{", "null", "[]", '{"method":"close"}', '{"method":"read","tagIds":[]}']) {
      expect(await post("/sources/main", body), body).toMatchObject({ status: 400, message: "No such question." });
    }
    for (const body of [
      "{",
      '{"id":"a","source":null,"tagId":"1"}',
      '{"id":"","source":null,"tagId":"1","value":1}',
      '{"id":"a","source":null,"tagId":"1","value":"1"}',
    ]) {
      expect(await post("/commands", body), body).toMatchObject({ status: 400, message: "Not a command." });
    }
    const otherSource = await post("/sources/other", '{"method":"read","tagIds":["1"]}');
    expect(otherSource).toMatchObject({ status: 404, message: "No such source." });
    expect(accepted).toEqual([]);
  });

  test("are rejected when they are larger than 64 KiB", async () => {
    const { app, accepted } = serve();
    const body = JSON.stringify({ id: "a", source: null, tagId: "1", value: 1, user: "x".repeat(70_000) });
    expect((await app.request("/commands", { method: "POST", body })).status).toBe(413);
    expect(accepted).toEqual([]);
  });

  test("get a response only for /ping and /ready while the worker starts or stops", async () => {
    const { get, post, accepted } = serve({ notReady: "The worker is starting or stopping." });
    expect(await get("/ping")).toEqual({ status: 200, result: "here" });
    expect(await get("/ready")).toEqual({ status: 200, result: "The worker is starting or stopping." });
    for (const path of ["/sources/main", "/commands", "/seconds"]) {
      expect(await post(path, '{"id":"a","source":null,"tagId":"1","value":1}'), path).toEqual({
        status: 503,
        failure: "retryable",
        message: "The worker is starting or stopping.",
      });
    }
    expect(accepted).toEqual([]);
  });
});

describe("workRoutes (plan and requests of a source)", () => {
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
  const activity: SourceActivity = {
    plan: async () => reportPlan(PLAN_FACTS),
    liveTagState: () => null,
    tagReadClass: () => null,
    historyStarvesSince: () => null,
    suddenChanges: () => [],
    firstInventory: () => ({ pagesRead: 0, pagesTotal: null, done: true, message: null }),
    counts: () => ({
      ...{ activeAlarms: new Map(), siteIds: [], tagsWithoutValue: null },
      lastPolls: new Map([["alarms", { atMs: Date.parse("2026-11-21T10:00:00Z"), monotonicMs: 0 }]]),
      inventoryPageMs: null,
    }),
    requests: () => [request(1, ["1", "2"]), request(2, ["3"]), request(3, ["1"])],
  };

  test("return the plan, the last polls and the requests of a tag", async () => {
    const { get } = serve({ work: new Map([["main", activity]]) });
    expect(await get("/work/main/plan")).toMatchObject({ status: 200, result: { source: "north", fits: true } });
    expect(await get("/work/main/tags/1")).toMatchObject({
      status: 200,
      result: {
        live: null,
        requests: [{ number: 1 }, { number: 3 }],
        remembered: { requests: 3, since: "2026-11-21T10:00:01.000Z" },
      },
    });
    expect(await get("/work/main/polls")).toEqual({ status: 200, result: { alarms: "2026-11-21T10:00:00.000Z" } });
    expect(await get("/work/main/tags/9")).toMatchObject({ status: 200, result: { requests: [] } });
    for (const path of ["/other/plan", "/other/polls", "/other/tags/1"]) {
      expect(await get(`/work${path}`)).toMatchObject({ status: 404, message: "No such source." });
    }
  });
});

describe("encodeFailure and decodeFailure", () => {
  test.each([
    new ConfigError("a", { hint: "b" }),
    new Retryable("a"),
    new Throttled("a", 1_000),
    new Rejected("a"),
    new NoTagLog("a"),
    new Malformed("a", "<html>"),
  ])("keep the kind $kind and the message of a failure", (failure) => {
    const decoded = decodeFailure(JSON.parse(JSON.stringify(encodeFailure(failure))));
    expect(decoded.kind).toBe(failure.kind);
    expect(decoded.message).toBe(failure.hint === undefined ? "a" : "a b");
  });

  test("keep the reason and the field of a configuration error", () => {
    const failure = new ConfigError("tags: 422", { reason: "validation", field: "system_id" });
    const decoded = decodeFailure(JSON.parse(JSON.stringify(encodeFailure(failure))));
    expect(decoded).toMatchObject({ reason: "validation", field: "system_id" });
    expect(decodeFailure({ failure: "config", message: "a" })).toMatchObject({ reason: "settings" });
  });

  test("remove credentials from the message", async () => {
    const { post } = serve({ read: () => Promise.reject(new Retryable("https://user:pw@host did not answer")) });
    expect(await post("/sources/main", '{"method":"read","tagIds":["1"]}')).toEqual({
      status: 502,
      failure: "retryable",
      message: "https://[redacted]@host did not answer",
    });
  });
});
