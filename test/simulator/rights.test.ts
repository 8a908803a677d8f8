import { describe, expect, test } from "vitest";
import { SERVICE_TOKEN } from "#src/simulator/options.ts";
import { errorStatuses, simulatedService } from "./simulated-service.ts";

const ALL_PATHS = ["sites", "alarms", "tags", "tags/read", "tags/history", "me", "gateways", "hosts", "systems"];
const QUERY = {
  site_id: 6,
  tags: "10168",
  from: "2026-11-20T00:00:00Z",
  to: "2026-11-21T00:00:00Z",
  resolution: "1h",
  tz: "UTC",
};

describe("tokens of the simulator", () => {
  test("cause Unauthenticated inside HTTP 200 at every endpoint but the health check if missing, wrong or expired", () => {
    const service = simulatedService({ tokens: [{ token: "short", expires_at: "2026-11-21T10:01:00Z" }] });
    const shortToken = { authorization: "Bearer short" };
    for (const path of ALL_PATHS) {
      for (const headers of [{ authorization: "" }, { authorization: "Bearer other" }, { authorization: "short" }]) {
        const reply = service.get(path, QUERY, headers);
        expect(reply.status).toBe(200);
        expect(reply.body.errors).toMatchObject([{ status: 401, message: expect.stringContaining("Unauthenticated") }]);
      }
      expect(errorStatuses(service.get(path, QUERY, shortToken))).toEqual([]);
    }
    service.advance(61);
    expect(errorStatuses(service.get("me", {}, shortToken))).toEqual([401]);
    expect(service.get("healthcheck", {}, { authorization: "" }).body.status).toBe("healthy");
  });

  test("can be revoked and accepted again with the same text", () => {
    const service = simulatedService();
    service.simulator.control.changeToken(SERVICE_TOKEN, { revoked: true });
    expect(ALL_PATHS.map((path) => errorStatuses(service.get(path, QUERY))[0])).toEqual(ALL_PATHS.map(() => 401));
    service.simulator.control.changeToken(SERVICE_TOKEN, { revoked: false });
    expect(ALL_PATHS.flatMap((path) => errorStatuses(service.get(path, QUERY)))).toEqual([]);
  });

  test("have their permissions and sites in the response of GET me, and all permissions with *", () => {
    const service = simulatedService();
    service.simulator.control.changeToken(SERVICE_TOKEN, { abilities: ["*"], sites: [6] });
    const { token } = service.get("me").body.data;
    expect(token).toMatchObject({ abilities: ["*"], sites: [{ id: 6, display_name: "Bygg 105 Office" }] });
    expect(ALL_PATHS.flatMap((path) => errorStatuses(service.get(path, QUERY)))).toEqual([]);
  });

  test.each([
    ["alarms", "read:alarms"],
    ["tags", "read:tags"],
    ["tags/read", "read:tags"],
    ["gateways", "read:gateways"],
  ])("the endpoint %s requires the permission %s", (path, ability) => {
    const service = simulatedService();
    const { abilities } = service.simulator.options.tokens[0] ?? { abilities: [] };
    service.simulator.control.changeToken(SERVICE_TOKEN, { abilities: abilities.filter((other) => other !== ability) });
    expect(errorStatuses(service.get(path, QUERY))).toEqual([403]);
    service.simulator.control.changeToken(SERVICE_TOKEN, { abilities: [ability] });
    expect(errorStatuses(service.get(path, QUERY))).toEqual([]);
  });

  test("the endpoints gateways, hosts and systems also require that the user has the permission", () => {
    const service = simulatedService();
    service.simulator.control.changeToken(SERVICE_TOKEN, { permissions: [] });
    const errors = ["gateways", "hosts", "systems"].map((path) => errorStatuses(service.get(path, QUERY))[0]);
    expect(errors).toEqual([403, 403, 403]);
  });

  test("cause HTTP status 403 without the permission if the option forbidden is real", () => {
    const service = simulatedService({ forbidden: "real" });
    service.simulator.control.changeToken(SERVICE_TOKEN, { abilities: [] });
    expect(service.get("alarms").status).toBe(403);
  });
});

describe("the scope of a token", () => {
  test("without sites allows only the endpoint me", () => {
    const service = simulatedService();
    service.simulator.control.changeToken(SERVICE_TOKEN, { sites: [] });
    expect(ALL_PATHS.filter((path) => errorStatuses(service.get(path, QUERY)).length === 0)).toEqual(["me"]);
  });

  test("excludes other sites, their tags and their alarms", () => {
    const service = simulatedService();
    service.simulator.control.raiseAlarm({ siteId: 6 });
    service.simulator.control.changeToken(SERVICE_TOKEN, { sites: [1] });
    expect(service.get("sites").body.meta.total).toBe(1);
    expect(errorStatuses(service.get("tags", { site_id: 6 }))).toEqual([403]);
    expect(errorStatuses(service.get("tags/read", { tags: "10001,10168" }))).toEqual([403]);
    expect(service.get("alarms", { site_id: 6 }).body).toMatchObject({ data: [], meta: { total: 0 } });
    const rows: { attributes: { site: { id: number } } }[] = service.get("alarms", { status: "all" }).body.data;
    expect(new Set(rows.map(({ attributes }) => attributes.site.id))).toEqual(new Set([1]));
  });

  test("with visible_tags allows only these tags", () => {
    const service = simulatedService({ tokens: [{ token: SERVICE_TOKEN, visible_tags: ["10168"] }] });
    expect(service.get("tags", { site_id: 6 }).body.meta.total).toBe(1);
    expect(errorStatuses(service.get("tags/read", { tags: "10168" }))).toEqual([]);
    expect(errorStatuses(service.get("tags/read", { tags: "10168,10169" }))).toEqual([403]);
    expect(errorStatuses(service.get("tags/history", { ...QUERY, tags: "10169" }))).toEqual([403]);
    expect(errorStatuses(service.post("tags/write", { tags: [{ tag_id: "10169", value: 1 }] }))).toEqual([403]);
  });
});

test("unknown paths and methods give errors inside HTTP 200", () => {
  const service = simulatedService();
  expect(service.get("nothing").status).toBe(200);
  expect(errorStatuses(service.get("nothing"))).toEqual([404]);
  expect(errorStatuses(service.post("sites", {}))).toEqual([405]);
});

test("a request without the JSON Accept header redirects to the log-in page if configured", () => {
  const service = simulatedService({ without_accept: "redirect" });
  const redirect = { status: 302, headers: { location: "/login" } };
  expect(service.get("me", {}, { accept: "text/html" })).toMatchObject(redirect);
  expect(service.get("me").status).toBe(200);
});
