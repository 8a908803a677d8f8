import { describe, expect, it, vi } from "vitest";
import { Rejected, Throttled } from "#src/core/errors/errors.ts";
import { systemClock } from "#src/core/runtime/clock.ts";
import { readClocks } from "#src/core/runtime/elapsed-time.ts";
import { OrderlyStop } from "#src/core/runtime/lifecycle.ts";
import { TagIdError } from "#src/engine/source/queries.ts";
import { StaleSocket } from "#src/engine/source/transport.ts";
import { CALLS, errorOf, GOOD, never, openHarness, passThrough, reply, TOKEN, tagRecord } from "./source-harness.ts";

const DAY = "from=2026-06-01T00%3A00%3A00Z&to=2026-06-02T00%3A00%3A00Z&resolution=1h&tz=Europe%2FStockholm";
const PATHS: Record<string, string> = {
  ...{ sites: "sites?per_page=100", alarms: "alarms?status=active&per_page=500", me: "me" },
  ...Object.fromEntries(
    ["tags", "gateways", "hosts", "systems"].map((list) => [list, `${list}?site_id=1&per_page=100`]),
  ),
  ...{ read: "tags/read?tags=1%2C2", write: "tags/write", history: `tags/history?tags=1%2C2&${DAY}` },
  totals: `tags/history?tags=1%2C2&${DAY}&scalar=1`,
};

const parsedTag = (n: number) => ({ id: String(n), displayName: `Tag ${n}`, description: null, unit: "°C" });
const HOUSE = { id: 1, displayName: "House" };
const RAISED_AT = "2026-06-01T10:00:00.000Z";
/** Results of the calls for the replies in `GOOD`. */
const PARSED: Record<string, unknown> = {
  sites: [HOUSE],
  alarms: [
    {
      ...{ id: "a1", site: HOUSE, status: "active", source: "trigger", description: "It is too hot" },
      trigger: { id: 4, displayName: "Too hot", description: null, priority: "A", enabled: true },
      ...{ triggeredAt: RAISED_AT, triggeredAtRaw: "2026-06-01T12:00:00+02:00" },
      ...{ resolvedAt: null, resolvedAtRaw: null, recoveringUntil: null },
      ...{ acknowledged: false, acknowledgedAt: null, acknowledgedBy: null, acknowledgedMessage: null },
      lastActiveEvent: {
        ...{ id: 8, source: "tag", type: "threshold", value: 31.5, textlistValue: null },
        ...{ triggeredAt: RAISED_AT, triggeredOn: "Tag 1" },
      },
    },
  ],
  tags: [parsedTag(1)],
  gateways: [
    {
      ...{ id: "9", displayName: "G", online: true, version: "1.2" },
      ...{ hardware: "hw", ipAddress: "10.0.0.9", location: "Cellar" },
    },
  ],
  hosts: [
    {
      ...{ id: "7", displayName: "H", description: null, gateway: { id: 9, displayName: "G" } },
      ...{ ip: "10.0.0.7", macAddress: null, modelName: "M", type: "modbus" },
    },
  ],
  systems: [
    {
      ...{ id: "5", code: "320.01", displayName: "Heating", description: "d", discipline: "HVAC", location: "l" },
      ...{ datapointsCount: 12, installedYear: 2004, maintenanceNotes: null, manufacturer: "m" },
    },
  ],
  read: {
    readings: [
      { ...parsedTag(1), value: 21.5 },
      { ...parsedTag(2), value: null },
    ],
    ...{ receivedAtMs: 1_780_315_200_000, latencyMs: 0 },
  },
  write: [{ ...parsedTag(1), value: 21.5 }],
  history: [
    { ...parsedTag(1), measurements: [{ time: "2026-06-01T00:00:00.000Z", value: 20 }] },
    { ...parsedTag(2), measurements: [] },
  ],
  totals: [{ ...parsedTag(1), total: 42.5 }],
  me: {
    ...{ user: { id: 3, name: "Ada", email: "ada@example.com" }, name: "plenum", sites: [HOUSE] },
    ...{ abilities: ["read:tags"], expiresAt: "2027-01-01T00:00:00.000Z" },
  },
};

describe("requests to each endpoint", () => {
  it.each(Object.keys(CALLS))(
    "%s: sends one request with path, media types and token, and parses the reply",
    async (name) => {
      const clock = { now: () => 1_780_315_200_000, monotonic: () => 0, sleep: async () => {} };
      const harness = openHarness(() => reply(200, GOOD[name]), { clock });
      const parsed = await CALLS[name]?.(harness.source);
      expect(JSON.parse(JSON.stringify(parsed))).toEqual(PARSED[name]);
      expect(harness.requests).toHaveLength(1);
      const [request] = harness.requests;
      expect(request?.path).toBe(`/base/api/v1/${PATHS[name]}`);
      expect(request?.method).toBe(name === "write" ? "POST" : "GET");
      const [accept, authorization] = ["application/json", `Bearer ${TOKEN}`];
      const types = { accept, "content-type": accept, "accept-encoding": "identity" };
      expect(request?.headers).toMatchObject({ ...types, authorization });
    },
  );

  it("requests health without a token and without the quota", async () => {
    const harness = openHarness(() => reply(200, { status: "healthy", timestamp: "2026-06-01T00:00:00Z" }));
    expect(await harness.source.health(never())).toEqual({ status: "healthy", time: "2026-06-01T00:00:00.000Z" });
    expect(harness.requests[0]?.headers).toMatchObject({ accept: "application/json" });
    expect(harness.requests[0]?.headers).not.toHaveProperty("authorization");
    expect(harness.runs).toEqual([]);
  });

  it("sends tag requests through the quota in their lane, and list requests without the quota", async () => {
    const headers = { "x-ratelimit-limit": "20", "x-ratelimit-remaining": "7" };
    const harness = openHarness(({ path }) => reply(200, GOOD[/tags\/(\w+)/.exec(path)?.[1] ?? ""], headers));
    for (const name of ["read", "write", "history"]) await CALLS[name]?.(harness.source);
    expect(harness.runs.map(({ lane, endpoint }) => `${lane} ${endpoint}`)).toEqual([
      "live read",
      "write write",
      "history history",
    ]);
    expect(harness.observed).toEqual(Array(3).fill({ limit: 20, remaining: 7 }));
  });
});

describe("the health check", () => {
  const unhealthy = { status: "unhealthy", time: null };
  it.each([
    ["500", () => reply(500, { status: "unhealthy" })],
    ["503", () => reply(503, { status: "unhealthy" }, { "retry-after": "3600" })],
    ["200 and unhealthy", () => reply(200, { status: "unhealthy" })],
    ["500 and healthy", () => reply(500, { status: "healthy" })],
    ["HTML", () => reply(503, "<html>")],
    ["errors", () => reply(200, { errors: [{ status: 500, message: "no" }] })],
    ["a redirect", () => reply(302, "", { location: "https://login.example" })],
    ["a time-out", () => Promise.reject(new Error("late"))],
  ])("reports unhealthy for %s and pauses no request", async (_name, respond) => {
    const harness = openHarness(respond);
    expect(await harness.source.health(never())).toEqual(unhealthy);
    expect(harness.pauses).toEqual([]);
  });
});

describe("pauses that the service requests", () => {
  it("a 429 pauses the endpoint's quota for the stated time and one second of rounding", async () => {
    const harness = openHarness(() =>
      reply(429, { errors: [{ status: 429, message: "slow", meta: { retry_after: 12 } }] }),
    );
    const failure = await errorOf(harness.source.read(["1"], "live", never()));
    expect(failure).toBeInstanceOf(Throttled);
    expect(harness.pauses).toEqual([{ forMs: 13_000, scope: "read" }]);
  });

  it("a 503 pauses every lane, with growing back-off if no time is stated", async () => {
    let now = 0;
    const sleep = async (ms: number) => {
      now += ms;
    };
    const clock = { now: () => now, monotonic: () => now, sleep };
    const harness = openHarness(() => reply(503, "<html>maintenance</html>"), { clock });
    for (let i = 0; i < 7; i++)
      expect(await errorOf(harness.source.me(never()))).toMatchObject({ kind: "throttled", retryAfterMs: null });
    expect(harness.pauses.map((pause) => [pause.forMs, pause.scope])).toEqual(
      [22_500, 45_000, 90_000, 180_000, 360_000, 675_000, 675_000].map((ms) => [ms, "everything"]),
    );
    expect(now).toBeGreaterThanOrEqual(22_500 + 45_000 + 90_000 + 180_000 + 360_000 + 675_000);
  });

  it("a pause begins before the refused request frees its slot, so that no other request is sent in between", async () => {
    const order: string[] = [];
    const harness = openHarness(() => reply(429, { errors: [{ status: 429 }] }), {
      limiter: {
        ...passThrough({ pauses: [], runs: [], observed: [] }),
        async run(_lane, _endpoint, task) {
          await task(readClocks(systemClock)).catch((error: unknown) => {
            order.push("place given up");
            throw error;
          });
          throw new Error("unreachable");
        },
        pauseRequests: () => order.push("held"),
        observeHeaders: () => order.push("observed"),
      },
    });
    await errorOf(harness.source.read(["1"], "live", never()));
    expect(order).toEqual(["observed", "held", "place given up"]);
  });
});

describe("a stale kept-alive socket", () => {
  it("makes the client repeat a GET once, using a second request slot", async () => {
    let first = true;
    const harness = openHarness(() => {
      if (!first) return reply(200, GOOD.read);
      first = false;
      throw new StaleSocket("stale");
    });
    const { readings } = await harness.source.read(["1", "2"], "live", never());
    expect(readings).toHaveLength(2);
    expect(harness.runs).toHaveLength(2);
  });

  it.each([
    ["read", 2, "a GET that fails twice"],
    ["write", 1, "a POST without repeating it"],
  ])("a stale socket makes a %s fail after %i requests: %s", async (name, requests) => {
    const harness = openHarness(() => {
      throw new StaleSocket("stale");
    });
    expect(await errorOf(CALLS[name]?.(harness.source) ?? Promise.resolve())).toMatchObject({ kind: "retryable" });
    expect(harness.requests).toHaveLength(requests);
  });
});

describe("writing values", () => {
  const write = (tagId: string, value: number | boolean) => ({ tagId, value });

  it("calls prepare when the slot is free and sends exactly its result", async () => {
    const harness = openHarness(() => reply(200, GOOD.write));
    const written = await harness.source.write(async () => {
      expect(harness.runs).toHaveLength(1);
      expect(harness.requests).toHaveLength(0);
      return [write("1", 21.5), write("2", false)];
    }, never());
    const tags = [write("1", 21.5), write("2", false)].map(({ tagId, value }) => ({ tag_id: tagId, value }));
    expect(JSON.parse(harness.requests[0]?.body ?? "")).toEqual({ tags });
    expect(written.map((reading) => [reading.id, reading.value])).toEqual([["1", 21.5]]);
  });

  it("sends nothing when prepare returns no values, or rejects: the write rejects with that error", async () => {
    const harness = openHarness(() => reply(200, GOOD.write));
    expect(await harness.source.write(async () => [], never())).toEqual([]);
    const trouble = new Error("disk full");
    await expect(harness.source.write(() => Promise.reject(trouble), never())).rejects.toBe(trouble);
    expect(harness.requests).toHaveLength(0);
  });

  it("does not build the body of a write request without a token", async () => {
    const harness = openHarness(() => reply(200, GOOD.write), { environment: {} });
    const prepare = vi.fn(async () => [write("1", 1)]);
    expect(await errorOf(harness.source.write(prepare, never()))).toMatchObject({ kind: "config" });
    expect(prepare).not.toHaveBeenCalled();
  });

  it.each([
    ["NaN", [write("1", Number.NaN)]],
    ["Infinity", [write("1", Number.POSITIVE_INFINITY)]],
    ["one tag twice", [write("1", 1), write("1", 2)]],
    ["21 tags", Array.from({ length: 21 }, (_, i) => write(String(i), 1))],
    ["two ids in one text", [write("1,2", 1)]],
  ])("rejects %s before it sends a request", async (_name, writes) => {
    const harness = openHarness(() => reply(200, GOOD.write));
    await expect(harness.source.write(async () => writes, never())).rejects.toBeInstanceOf(Rejected);
    expect(harness.requests).toHaveLength(0);
  });
});

describe("validation of requests", () => {
  const times = { from: "2026-06-01T00:00:00Z", to: "2026-06-02T00:00:00Z" };
  const range = { ...times, resolution: "1h", timeZone: "UTC" } as const;
  it.each([
    ["an offset in place of Z", { ...range, from: "2026-06-01T00:00:00+02:00" }, "rejected"],
    ["no offset", { ...range, to: "2026-06-02T00:00:00" }, "rejected"],
    ["a day that does not exist", { ...range, to: "2026-06-31T00:00:00Z" }, "rejected"],
    ["a range that ends where it starts", { ...range, to: range.from }, "rejected"],
    ["an unknown zone", { ...range, timeZone: "Europe/Stokholm" }, "config"],
  ])("sends no history request with %s", async (_name, query, kind) => {
    const harness = openHarness(() => reply(200, GOOD.history));
    const failure = await errorOf(harness.source.history({ tagIds: ["1"], ...query }, "history", never()));
    expect(failure).toMatchObject({ kind });
    expect(harness.requests).toHaveLength(0);
  });

  const tooMany = Array.from({ length: 21 }, (_, i) => String(i));
  it.each([[[]], [tooMany], [["a,b"]], [[""]]])("sends no read request for the tag ids %j", async (ids) => {
    const harness = openHarness(() => reply(200, GOOD.read));
    await expect(harness.source.read(ids, "live", never())).rejects.toBeInstanceOf(TagIdError);
    expect(harness.requests).toHaveLength(0);
  });

  it("requests a repeated tag once", async () => {
    const harness = openHarness(() => reply(200, { data: [{ ...tagRecord("1"), value: 1 }] }));
    await harness.source.read(["1", "1"], "live", never());
    expect(harness.requests[0]?.path).toBe("/base/api/v1/tags/read?tags=1");
  });
});

it("a request that is aborted rejects with the signal's reason and counts as no failure", async () => {
  const controller = new AbortController();
  const harness = openHarness(async (_request, signal) => {
    controller.abort(new OrderlyStop());
    signal.throwIfAborted();
    return reply(200, GOOD.read);
  });
  await expect(harness.source.read(["1"], "live", controller.signal)).rejects.toBeInstanceOf(OrderlyStop);
  expect((await harness.metrics.apiRequests.get()).values).toEqual([]);
});

it("the request metric counts requests by outcome", async () => {
  let status = 200;
  const harness = openHarness(() => (status === 200 ? reply(200, GOOD.read) : reply(200, { errors: [{ status }] })));
  await harness.source.read(["1"], "live", never());
  status = 401;
  await errorOf(harness.source.read(["1"], "live", never()));
  expect((await harness.metrics.apiRequests.get()).values).toEqual([
    { labels: { source: "trial", endpoint: "read", outcome: "ok" }, value: 1 },
    { labels: { source: "trial", endpoint: "read", outcome: "config" }, value: 1 },
  ]);
});

describe("a 401 while the token is being replaced", () => {
  const refusing = (next: string | undefined, isNewAccepted = true) => {
    const environment: Record<string, string | undefined> = { PLENUM_TOKEN: TOKEN };
    return openHarness(
      ({ headers, path }) => {
        if (isNewAccepted && headers.authorization !== `Bearer ${TOKEN}`)
          return reply(200, GOOD[path.includes("/read") ? "read" : "me"]);
        environment.PLENUM_TOKEN = next;
        return reply(200, { errors: [{ status: 401, message: "Unauthenticated" }] });
      },
      { environment },
    );
  };
  const outcomeOf = (asked: Promise<unknown> | undefined) =>
    Promise.resolve(asked).then(
      () => "answered",
      (error: Error & { reason?: string }) => error.reason,
    );

  it("repeats the request with the new token, using a second request slot", async () => {
    for (const name of ["read", "me"]) {
      const harness = refusing("18|new");
      expect(await outcomeOf(CALLS[name]?.(harness.source))).toBe("answered");
      expect(harness.requests.map(({ headers }) => headers.authorization)).toEqual([
        `Bearer ${TOKEN}`,
        "Bearer 18|new",
      ]);
      expect(harness.runs).toHaveLength(name === "read" ? 2 : 0);
    }
  });

  it("rejects the request when the token is unchanged, and never repeats a write", async () => {
    for (const [name, next] of [
      ["read", TOKEN],
      ["read", undefined],
      ["write", "18|new"],
    ] as const) {
      const harness = refusing(next);
      expect(await outcomeOf(CALLS[name]?.(harness.source))).toBe("unauthenticated");
      expect(harness.requests).toHaveLength(1);
    }
  });

  it("rejects the request when the service rejects the new token too", async () => {
    const harness = refusing("18|new", false);
    expect(await outcomeOf(CALLS.me?.(harness.source))).toBe("unauthenticated");
    expect(harness.requests).toHaveLength(2);
  });
});
