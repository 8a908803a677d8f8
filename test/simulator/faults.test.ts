import { describe, expect, test } from "vitest";
import type { FaultRule } from "#src/simulator/fault-plan.ts";
import { errorStatuses, simulatedService } from "./simulated-service.ts";

type Rule = { readonly [Key in keyof FaultRule]?: unknown };

function serviceWithFaults(...faults: readonly Rule[]) {
  const service = simulatedService();
  service.simulator.control.setFaults(faults);
  return service;
}

const READ_QUERY = { tags: "10001,10168" };

describe("injected faults", () => {
  test("respond with 429 in the form of the limit options", () => {
    const reply = serviceWithFaults({ fault: { kind: "throttled", retry_after_s: 17 } }).get("alarms");
    expect(reply.status).toBe(429);
    expect(reply.body.errors[0].meta.retry_after).toBe(17);
  });

  test("respond with 503 as JSON, HTML, empty, or a page inside 200, and any form of Retry-After", () => {
    const maintenance = (fault: object) =>
      serviceWithFaults({ fault: { kind: "maintenance", ...fault } }).get("alarms");
    expect(maintenance({ retry_after: 120 })).toMatchObject({ status: 503, headers: { "retry-after": "120" } });
    expect(errorStatuses(maintenance({}))).toEqual([503]);
    const html = maintenance({ body: "html", status: 200, retry_after: "Sat, 21 Nov 2026 10:05:00 GMT" });
    expect(html).toMatchObject({ status: 200, headers: { "retry-after": "Sat, 21 Nov 2026 10:05:00 GMT" } });
    expect(html.headers["content-type"]).toContain("text/html");
    expect(maintenance({ body: "empty" }).text).toBe("");
  });

  test("respond with an error inside 200 or with the real status", () => {
    const readAfter = (fault: object) => serviceWithFaults({ fault }).get("tags/read", READ_QUERY);
    expect(readAfter({ kind: "error", status: 504 }).status).toBe(200);
    const realError = readAfter({ kind: "error", status: 500, real_status: true });
    expect([realError.status, errorStatuses(realError)]).toEqual([500, [500]]);
  });

  test("remove an endpoint, which then returns 404 even without a token", () => {
    const withoutRoute = (body: string) =>
      serviceWithFaults({ match: { endpoints: ["history"] }, fault: { kind: "missing_route", body } });
    const historyQuery = { tags: "10168", from: "2026-11-20T00:00:00Z", to: "2026-11-21T00:00:00Z" };
    const history = (body: string) => withoutRoute(body).get("tags/history", historyQuery, { authorization: "" });
    expect(history("json")).toMatchObject({ status: 404, body: { message: expect.any(String) } });
    expect(history("html")).toMatchObject({ status: 404, body: undefined });
    expect([history("inside").status, errorStatuses(history("inside"))]).toEqual([200, [404]]);
    expect(errorStatuses(withoutRoute("json").get("tags/read", READ_QUERY))).toEqual([]);
  });

  test("shorten a list to a consistent list with fewer records and pages", () => {
    const service = serviceWithFaults({ match: { endpoints: ["tags"] }, fault: { kind: "shrunken_list", keep: 0.3 } });
    const page = (number: number) =>
      service.get("tags", { site_id: 1, per_page: 25, page: number }).body as {
        data: unknown[];
        links: { next: string | null; last: string };
        meta: object;
      };
    expect(page(1)).toMatchObject({ meta: { total: 39, last_page: 2, from: 1, to: 25 } });
    expect(page(1).links.next).not.toBeNull();
    expect(page(1).links.last).toMatch(/page=2$/);
    expect([page(2).data.length, page(2).links.next]).toEqual([14, null]);
    expect(page(3)).toMatchObject({ data: [], meta: { from: null, to: null } });
  });

  test("fail each page of a list that contains a given record, whatever the size of the page", () => {
    const service = serviceWithFaults({ fault: { kind: "failing_record", id: "10029" } });
    const statuses = (per_page: number) =>
      Array.from({ length: Math.ceil(140 / per_page) }, (_, n) =>
        errorStatuses(service.get("tags", { site_id: 1, per_page, page: n + 1 })),
      ).flat();
    expect([statuses(130), statuses(26), statuses(10)]).toEqual([[500], [500], [500]]);
  });

  test("redirect with the given status and location", () => {
    const location = "http://elsewhere.test/";
    const reply = serviceWithFaults({ fault: { kind: "redirect", status: 307, location } }).get("me");
    expect(reply).toMatchObject({ status: 307, headers: { location } });
  });

  test("return null values for all tags, for some tags, or behind a gateway", () => {
    const values = (fault: object) =>
      serviceWithFaults({ fault })
        .get("tags/read", READ_QUERY)
        .body.data.map((tag: { value: unknown }) => tag.value === null);
    expect(values({ kind: "null_values" })).toEqual([true, true]);
    expect(values({ kind: "null_values", tags: ["10168"] })).toEqual([false, true]);
    expect(values({ kind: "gateway_offline", gateways: ["109"] })).toEqual([false, true]);
    const service = serviceWithFaults({ fault: { kind: "gateway_offline", gateways: ["109"] } });
    const gateways = service.get("gateways", { site_id: 6 });
    expect(gateways.body.data[0].attributes.online).toBe(false);
  });

  test("return errors in addition to data, a malformed body, a hostile link, or a raw response", () => {
    const mixedReply = serviceWithFaults({ fault: { kind: "errors_and_data" } }).get("tags/read", READ_QUERY).body;
    expect([mixedReply.data.length, mixedReply.errors.length]).toEqual([2, 1]);
    const service = serviceWithFaults({
      match: { endpoints: ["sites"] },
      fault: { kind: "hostile_links", next: "http://evil.test/?page=2" },
    });
    expect(service.get("sites").body.links.next).toBe("http://evil.test/?page=2");
    const rawReply = { kind: "raw", status: 418, headers: {}, body: "teapot" };
    expect(serviceWithFaults({ fault: rawReply }).get("me")).toMatchObject({ status: 418, text: "teapot" });
    expect(() => serviceWithFaults({ fault: { kind: "malformed" } }).get("me")).toThrow(/JSON/);
  });

  test("delay, drip, cut or reset the transport of a complete body", () => {
    const service = serviceWithFaults(
      { fault: { kind: "slow", delay_ms: 3000 } },
      { fault: { kind: "drip", bytes: 5, every_ms: 100 } },
      { fault: { kind: "cut", after_bytes: 40 } },
      { fault: { kind: "reset", effect: "applied" } },
    );
    const reply = service.get("tags/read", READ_QUERY);
    const pace = { delayMs: 3000, dripBytes: 5, dripEveryMs: 100 };
    expect(reply.transport).toEqual({ ...pace, cutAfterBytes: 40, reset: true });
    expect(reply.body.data).toHaveLength(2);
  });

  test.each([
    ["none", false],
    ["applied", true],
  ])("respond to a write with an error and, with the effect %s, write the value: %s", (effect, isApplied) => {
    const service = serviceWithFaults({ match: { method: "POST" }, fault: { kind: "error", effect } });
    service.post("tags/write", { tags: [{ tag_id: "10169", value: 61.5 }] });
    expect(service.simulator.truth.value("10169", service.nowMs()) === 61.5).toBe(isApplied);
    expect(service.simulator.truth.writes()).toHaveLength(isApplied ? 1 : 0);
  });
});

test("responses have the simulated time as Date header, also with a configured clock skew", () => {
  expect(simulatedService().get("me").headers.date).toBe("Sat, 21 Nov 2026 10:00:00 GMT");
  expect(simulatedService({ clock_skew_s: 90 }).get("me").headers.date).toBe("Sat, 21 Nov 2026 10:01:30 GMT");
});

describe("the conditions of an injected fault", () => {
  const fault = { kind: "error", status: 500 };
  const traceHits = (rule: Rule, count: number, stepS = 1) => {
    const service = serviceWithFaults(rule);
    return Array.from({ length: count }, () => {
      const hit = errorStatuses(service.get("alarms")).length > 0;
      service.advance(stepS);
      return hit ? "x" : ".";
    }).join("");
  };

  test("match by endpoint, method, site, tag and page", () => {
    const traceMatches = (match: object) => {
      const service = serviceWithFaults({ match, fault });
      return [
        service.get("tags", { site_id: 6 }),
        service.get("tags", { site_id: 1, page: 2 }),
        service.get("tags/read", { tags: "10168" }),
        service.get("tags/read", { tags: "10001,10002" }),
        service.post("tags/write", { tags: [{ tag_id: "10168", value: 1 }] }),
      ]
        .map((reply) => (errorStatuses(reply).length > 0 ? "x" : "."))
        .join("");
    };
    expect(traceMatches({ endpoints: ["read"] })).toBe("..xx.");
    expect(traceMatches({ method: "POST" })).toBe("....x");
    expect(traceMatches({ site_id: 6 })).toBe("x.x.x");
    expect(traceMatches({ tag_id: "10168" })).toBe("..x.x");
    expect(traceMatches({ page: 2 })).toBe(".x...");
  });

  test("limit a fault by start, duration, count and every n-th request", () => {
    expect(traceHits({ when: { after_s: 3, for_s: 2 }, fault }, 8)).toBe("...xx...");
    expect(traceHits({ when: { skip: 2, count: 3 }, fault }, 8)).toBe("..xxx...");
    expect(traceHits({ when: { every: 3 }, fault }, 8)).toBe("..x..x..");
  });

  test("apply a probability with the same result for the same seed", () => {
    const firstTrace = traceHits({ when: { probability: 0.3 }, fault }, 200);
    expect(firstTrace).toBe(traceHits({ when: { probability: 0.3 }, fault }, 200));
    const share = firstTrace.replaceAll(".", "").length / 200;
    expect(share).toBeGreaterThan(0.2);
    expect(share).toBeLessThan(0.4);
  });

  test("are validated, and can be removed while the simulator runs", () => {
    const service = serviceWithFaults({ fault });
    expect(errorStatuses(service.get("alarms"))).toEqual([500]);
    service.simulator.control.setFaults([]);
    expect(errorStatuses(service.get("alarms"))).toEqual([]);
    expect(() => service.simulator.control.setFaults([{ fault: { kind: "flood" } }])).toThrow();
  });

  test("a maintenance fault precedes the checks of token and rate limit", () => {
    const service = serviceWithFaults({ when: { count: 30 }, fault: { kind: "maintenance" } });
    for (let round = 0; round < 30; round += 1)
      expect(service.get("tags/read", READ_QUERY, { authorization: "" }).status).toBe(503);
    expect(service.get("tags/read", READ_QUERY).headers["x-ratelimit-remaining"]).toBe("19");
  });

  test("the request log has endpoint, outcome and faults of each request", () => {
    const service = serviceWithFaults({ when: { count: 1 }, fault });
    service.get("tags/read", READ_QUERY);
    service.advance(1);
    service.get("tags/read", READ_QUERY);
    const commonFields = { endpoint: "read", httpStatus: 200, limit: "allowed", query: "tags=10001%2C10168" };
    expect(service.simulator.truth.requests()).toMatchObject([
      { ...commonFields, number: 1, errorStatus: 500, faults: ["error"] },
      { ...commonFields, number: 2, errorStatus: null, faults: [] },
    ]);
    expect(service.simulator.truth.totals()).toEqual({ "read 500": 1, "read 200": 1 });
  });
});
