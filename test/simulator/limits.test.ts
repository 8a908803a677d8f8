import { describe, expect, test } from "vitest";
import type { RateLimitOptions, SimulatorOptionsInput } from "#src/simulator/options.ts";
import { createRateLimiter } from "#src/simulator/rate-limiters.ts";
import { type Reply, simulatedService } from "./simulated-service.ts";

const SECOND_MS = 1000;
/** 250 ms past a whole second, 20.25 s into a calendar minute. */
const START_TIME = Date.parse("2026-11-21T10:00:20.250Z");

function limiter(model: RateLimitOptions["model"], limit = 20, burst = 1) {
  const countRequest = createRateLimiter({ model, limit, window_s: 60, burst });
  return (atMs: number) => countRequest("user 1", START_TIME + atMs);
}

function countAllowed(countRequest: (atMs: number) => { readonly allowed: boolean }, times: readonly number[]): number {
  return times.filter((atMs) => countRequest(atMs).allowed).length;
}

const burst = (count: number, atMs = 0) => Array.from({ length: count }, () => atMs);

describe("rate limit models", () => {
  test("first hit: opens a window of 60 s at the first request, and states a wait that is up to 1 s short", () => {
    const countRequest = limiter("first_hit_window");
    expect(countAllowed(countRequest, burst(25))).toBe(20);
    expect(countRequest(59_999)).toMatchObject({ allowed: false, retryAfterS: 0 });
    expect(countRequest(30_000).retryAfterS).toBe(30);
    expect(countRequest(60_000)).toMatchObject({ allowed: true, remainingCount: 19 });
    expect(
      countAllowed(limiter("first_hit_window"), [0, ...burst(19, 59 * SECOND_MS), ...burst(20, 60 * SECOND_MS)]),
    ).toBe(40);
  });

  test("calendar minute: opens a window at each full minute", () => {
    const countRequest = limiter("calendar_window");
    expect(countAllowed(countRequest, burst(21))).toBe(20);
    expect(countRequest(0).retryAfterS).toBe(40);
    expect(countRequest(39_749).allowed).toBe(false);
    expect(countRequest(39_750).allowed).toBe(true);
  });

  test("sliding log: never allows more than 20 requests in any 60 s", () => {
    const countRequest = limiter("sliding_log");
    const times = Array.from({ length: 2000 }, (_, index) => index * 700);
    const allowedTimes = times.filter((atMs) => countRequest(atMs).allowed);
    for (const atMs of allowedTimes)
      expect(allowedTimes.filter((other) => other > atMs - 60_000 && other <= atMs).length).toBeLessThanOrEqual(20);
    expect(allowedTimes.length).toBeGreaterThan(460);
  });

  test("sliding log that counts refusals: rejects a client that never pauses", () => {
    const withoutPause = Array.from({ length: 1000 }, (_, index) => index * SECOND_MS);
    const patient = limiter("sliding_log_counting_refusals");
    expect(countAllowed(patient, burst(21))).toBe(20);
    expect(patient(60_000).allowed).toBe(true);
    expect(countAllowed(limiter("sliding_log_counting_refusals"), withoutPause)).toBe(20);
    expect(countAllowed(limiter("sliding_log"), withoutPause)).toBeGreaterThan(300);
  });

  test("token bucket: allows 20 requests at once, then one every 3 s", () => {
    const countRequest = limiter("token_bucket");
    expect(countAllowed(countRequest, burst(30))).toBe(20);
    expect(countRequest(2999)).toMatchObject({ allowed: false, retryAfterS: 1 });
    expect(countRequest(3000).allowed).toBe(true);
    expect(countRequest(3000).allowed).toBe(false);
  });

  test("leaky bucket: allows two requests at once, then one every 3 s", () => {
    const countRequest = limiter("leaky_bucket");
    expect(countAllowed(countRequest, burst(5))).toBe(2);
    expect(countRequest(2999).allowed).toBe(false);
    expect(countRequest(3000).allowed).toBe(true);
  });

  test("weighted counter: also counts part of the requests of the previous minute", () => {
    const countRequest = limiter("weighted_counter");
    expect(countAllowed(countRequest, burst(25, 30_000))).toBe(20);
    const justAfter = 39_750;
    expect(countRequest(justAfter).allowed).toBe(false);
    expect(countAllowed(countRequest, burst(20, justAfter + 30_000))).toBe(10);
  });

  test.each(["first_hit_window", "calendar_window", "sliding_log", "token_bucket", "weighted_counter"] as const)(
    "%s: allows a request one second after the stated wait",
    (model) => {
      const countRequest = limiter(model);
      for (const atMs of burst(20, 12_345)) countRequest(atMs);
      const { retryAfterS } = countRequest(13_000);
      expect(countRequest(13_000 + (retryAfterS + 1) * SECOND_MS).allowed).toBe(true);
    },
  );
});

describe("request counters", () => {
  const read = (service: ReturnType<typeof simulatedService>, headers = {}) =>
    service.get("tags/read", { tags: "10001" }, headers);
  const history = (service: ReturnType<typeof simulatedService>) =>
    service.get("tags/history", {
      tags: "10001",
      from: "2026-11-20T00:00:00Z",
      to: "2026-11-20T01:00:00Z",
      resolution: "1h",
      tz: "UTC",
    });
  const write = (service: ReturnType<typeof simulatedService>) =>
    service.post("tags/write", { tags: [{ tag_id: "10169", value: 1 }] });
  const isRefused = (reply: Reply) => reply.status === 429;

  test("read, write and history share one counter, or have one each, as configured", () => {
    const shared = simulatedService();
    for (let tick = 0; tick < 10; tick += 1) expect([read(shared), history(shared)].some(isRefused)).toBe(false);
    expect([read(shared), history(shared), write(shared)].map(isRefused)).toEqual([true, true, true]);
    const own = simulatedService({ limits: { scope: "per_endpoint" } });
    for (let tick = 0; tick < 20; tick += 1) expect([read(own), history(own), write(own)].some(isRefused)).toBe(false);
    expect([read(own), history(own), write(own)].map(isRefused)).toEqual([true, true, true]);
    expect(own.simulator.truth.busiestMinute()).toBe(63);
  });

  test("tokens of one user share a counter unless the key is the token", () => {
    const tokens = [{ token: "a" }, { token: "b" }, { token: "c", user_id: 2 }];
    const refusals = (key: "user" | "token") => {
      const service = simulatedService({ tokens, limits: { key } });
      for (let tick = 0; tick < 20; tick += 1) read(service, { authorization: "Bearer a" });
      return ["a", "b", "c"].map((token) => isRefused(read(service, { authorization: `Bearer ${token}` })));
    };
    expect(refusals("user")).toEqual([true, true, false]);
    expect(refusals("token")).toEqual([true, false, false]);
  });

  test("failed requests are counted; requests without a valid token and list requests are not", () => {
    const service = simulatedService();
    for (let tick = 0; tick < 30; tick += 1) {
      read(service, { authorization: "Bearer wrong" });
      service.get("alarms");
      service.get("healthcheck");
    }
    for (let tick = 0; tick < 20; tick += 1) expect(isRefused(service.get("tags/read"))).toBe(false);
    expect(isRefused(service.get("tags/read"))).toBe(true);
  });

  test("the other endpoints can have their own limit", () => {
    const service = simulatedService({ limits: { list_endpoints: { limit: 3 } } });
    const statuses = ["sites", "alarms", "me", "gateways"].map((path) => service.get(path).status);
    expect(statuses).toEqual([200, 200, 200, 429]);
    expect(isRefused(read(service))).toBe(false);
  });

  test("the response headers state the remaining requests", () => {
    const service = simulatedService();
    expect(read(service).headers).toMatchObject({ "x-ratelimit-limit": "20", "x-ratelimit-remaining": "19" });
    expect(history(service).headers["x-ratelimit-remaining"]).toBe("18");
    expect(service.get("alarms").headers["x-ratelimit-remaining"]).toBeUndefined();
    expect(read(simulatedService({ limits: { headers: false } })).headers["x-ratelimit-remaining"]).toBeUndefined();
  });

  const describeRefusal = (retry_after: NonNullable<SimulatorOptionsInput["limits"]>["retry_after"]) => {
    const service = simulatedService({ limits: { tag_endpoints: { limit: 1 }, retry_after } });
    read(service);
    const { status, headers, body } = read(service);
    expect([status, body.errors[0].status]).toEqual([429, 429]);
    return { header: headers["retry-after"], top: body.meta?.retry_after, error: body.errors[0].meta.retry_after };
  };

  test("a 429 states the wait in each configured format", () => {
    expect(describeRefusal({})).toEqual({ header: undefined, top: undefined, error: 60 });
    expect(describeRefusal({ places: ["top_meta"] })).toEqual({ header: undefined, top: 60, error: undefined });
    expect(describeRefusal({ places: ["header"] })).toEqual({ header: "60", top: undefined, error: undefined });
    expect(describeRefusal({ form: "string" }).error).toBe("60");
    expect(describeRefusal({ form: "float" }).error).toBe(59.75);
    expect(describeRefusal({ form: "negative" }).error).toBe(-60);
    expect(describeRefusal({ form: "absent" }).error).toBeUndefined();
  });
});
