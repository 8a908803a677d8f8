import { readFileSync } from "node:fs";
import { Ajv2020 } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { errorStatuses, type Reply, type SimulatedService, simulatedService } from "./simulated-service.ts";

const document = parse(readFileSync(new URL("../../src/simulator/openapi.yaml", import.meta.url), "utf8"));
const ajv = new Ajv2020({ allErrors: true, strict: false });
addFormats.default(ajv);
ajv.addSchema(document, "service");

function findViolations(method: string, path: string, reply: Reply): string[] {
  const operation = document.paths[`/api/v1/${path}`][method.toLowerCase()];
  const response = operation.responses[String(reply.status)];
  if (response === undefined) return [`${path} must not respond with HTTP ${reply.status}`];
  const pointer =
    response.$ref ??
    `#/paths/~1api~1v1~1${path.replaceAll("/", "~1")}/${method.toLowerCase()}/responses/${reply.status}`;
  const validate = ajv.compile({ $ref: `service${pointer}/content/application~1json/schema` });
  validate(reply.body);
  return (validate.errors ?? []).map((error) => `${path} ${error.instancePath} ${error.message}`);
}

const RANGE = { from: "2026-11-01T00:00:00Z", to: "2026-11-21T12:00:00Z", tz: "Europe/Oslo" };
const SITES = { site_id: 6 };

const SUCCESSES: readonly [string, Record<string, string | number>][] = [
  ["sites", {}],
  ["alarms", { status: "all", per_page: 500 }],
  ["tags", { site_id: 1, per_page: 20, page: 3 }],
  ["tags/read", { tags: "10001,10146,10150,10168,10315" }],
  ["tags/history", { tags: "10192,10150,10168", resolution: "5m", ...RANGE }],
  ["tags/history", { tags: "10192,10002", resolution: "1mo", ...RANGE }],
  ["tags/history", { tags: "10002", resolution: "1d", scalar: "1", ...RANGE, to: RANGE.from }],
  ["healthcheck", {}],
  ["me", {}],
  ["gateways", { site_id: 1 }],
  ["hosts", { site_id: 1, per_page: 200 }],
  ["systems", SITES],
];

describe("the OpenAPI document of the simulator", () => {
  test.each(SUCCESSES)("matches the response to GET %s %j", (path, query) => {
    const reply = simulatedService().get(path, query);
    expect(findViolations("GET", path, reply)).toEqual([]);
    expect(errorStatuses(reply)).toEqual([]);
  });

  test("does not match a wrong response", () => {
    const reply = simulatedService().get("tags/read", { tags: "10001" });
    const wrongReply = { ...reply, body: { data: [{ ...reply.body.data[0], value: "21.5" }] } };
    expect(findViolations("GET", "tags/read", wrongReply)).not.toEqual([]);
  });

  test("matches the responses to a write", () => {
    const service = simulatedService();
    const accepted = service.post("tags/write", { tags: [{ tag_id: "10169", value: 55.5 }] });
    expect(findViolations("POST", "tags/write", accepted)).toEqual([]);
    const rejectedReply = service.post("tags/write", { tags: [{ tag_id: 10169 }] });
    expect(findViolations("POST", "tags/write", rejectedReply)).toEqual([]);
    expect(errorStatuses(rejectedReply)).toEqual([422, 422]);
  });

  test.each(["value", "both", "measurements"] as const)("matches totals of history in the form %s", (scalar_form) => {
    const query = { tags: "10002,10192", resolution: "1d", scalar: "true", ...RANGE };
    const reply = simulatedService({ history: { scalar_form } }).get("tags/history", query);
    expect(findViolations("GET", "tags/history", reply)).toEqual([]);
  });

  test("matches the health check of a service that fails", () => {
    expect(
      findViolations("GET", "healthcheck", simulatedService({ health: "failing_500" }).get("healthcheck")),
    ).toEqual([]);
  });

  test("matches alarms that the control interface changed", () => {
    const service = simulatedService();
    const { control } = service.simulator;
    const id = control.raiseAlarm({ siteId: 6 });
    control.acknowledgeAlarm(id, "operator", "on my way");
    control.recoverAlarm(id, service.nowMs() + 60_000);
    control.resolveAlarm(control.raiseAlarm({ tagId: "10001", description: "By hand" }));
    control.retriggerAlarm(id);
    expect(findViolations("GET", "alarms", service.get("alarms", { status: "all", per_page: 500 }))).toEqual([]);
  });

  const PATHS = "alarms tags tags/read tags/history me hosts".split(" ");
  const QUERY = { site_id: 6, tags: "10168", resolution: "1h", ...RANGE };
  const withFault = (fault: object) => (service: SimulatedService, path: string) => {
    service.simulator.control.setFaults([{ fault }]);
    return service.get(path, QUERY);
  };
  const failures: readonly [string, (service: SimulatedService, path: string) => Reply][] = [
    ["without a token", (service, path) => service.get(path, QUERY, { authorization: "" })],
    ["without parameters", (service, path) => service.get(path, {})],
    ["failing with 500", withFault({ kind: "error", status: 500 })],
    ["throttled", withFault({ kind: "throttled", retry_after_s: 7 })],
    ["in maintenance", withFault({ kind: "maintenance", retry_after: 30 })],
  ];
  test.each(failures.flatMap(([name, request]) => PATHS.map((path) => [name, path, request] as const)))(
    "matches the response to a request %s: %s",
    (_, path, request) => {
      expect(findViolations("GET", path, request(simulatedService(), path))).toEqual([]);
    },
  );
});
