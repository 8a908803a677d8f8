import { setTimeout as pause } from "node:timers/promises";
import { afterEach, describe, expect, test } from "vitest";
import { SERVICE_TOKEN, type SimulatorOptionsInput } from "#src/simulator/options.ts";
import { type SimulatorServer, startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { ticksUntil } from "../effort.ts";

const running: SimulatorServer[] = [];

// biome-ignore lint/suspicious/noExplicitAny: openapi.test.ts validates the shape of bodies
async function readJson(response: Response): Promise<any> {
  return response.json();
}

async function startServer(options: SimulatorOptionsInput = {}) {
  const simulator = createSimulator(options, { now: Date.now });
  const server = await startSimulatorServer(simulator);
  running.push(server);
  const headers = { authorization: `Bearer ${SERVICE_TOKEN}`, accept: "application/json" };
  return {
    server,
    simulator,
    get: (path: string) => fetch(`${server.url}/api/v1/${path}`, { headers, redirect: "manual" }),
    control: async (path: string, body?: unknown) => {
      const headers = { "content-type": "application/json" };
      const post = { method: "POST", headers, body: JSON.stringify(body) };
      const response = await fetch(`${server.url}/_simulator/${path}`, body === undefined ? {} : post);
      return { status: response.status, body: await readJson(response) };
    },
  };
}

afterEach(async () => {
  await Promise.all(running.splice(0).map((server) => server.close()));
});

describe("the simulator over a socket", () => {
  test("has links to the requested host in its responses", async () => {
    const { get, server } = await startServer();
    const response = await get("sites?per_page=3");
    expect(response.headers.get("content-type")).toBe("application/json");
    const body = await readJson(response);
    expect(body.data).toHaveLength(3);
    expect(body.links.next).toBe(`${server.url}/api/v1/sites?page=2`);
  });

  test("writes the value in a request body", async () => {
    const { server, simulator } = await startServer();
    const response = await fetch(`${server.url}/api/v1/tags/write`, {
      method: "POST",
      headers: { authorization: `Bearer ${SERVICE_TOKEN}`, "content-type": "application/json" },
      body: JSON.stringify({ tags: [{ tag_id: "10169", value: 60.5 }] }),
    });
    expect((await readJson(response)).data[0].value).toBe(60.5);
    expect(simulator.truth.value("10169", Date.now())).toBe(60.5);
  });

  test("cuts a response at the given byte", async () => {
    const { get } = await startServer({ faults: [{ fault: { kind: "cut", after_bytes: 10 } }] });
    const response = await get("me");
    expect(Number(response.headers.get("content-length"))).toBeGreaterThan(10);
    expect(await ticksUntil(expect(response.text()).rejects.toThrow())).toBeLessThan(20);
  });

  test("resets the connection", async () => {
    const { get } = await startServer({ faults: [{ fault: { kind: "reset" } }] });
    await expect(get("me")).rejects.toThrow();
  });

  test("delays and drips a complete response", async () => {
    const drip = { fault: { kind: "drip", bytes: 20, every_ms: 20 } } as const;
    const { get } = await startServer({ faults: [{ fault: { kind: "slow", delay_ms: 150 } }, drip] });
    const startMs = performance.now();
    expect((await readJson(await get("healthcheck"))).status).toBe("healthy");
    expect(performance.now() - startMs).toBeGreaterThan(170);
  });

  test("a stop of the server ends open connections and can be called twice", async () => {
    const { get, server } = await startServer({ faults: [{ fault: { kind: "slow", delay_ms: 60_000 } }] });
    const pendingReply = get("me").then(
      () => "answered",
      () => "broken",
    );
    await pause(50);
    await server.close();
    await server.close();
    expect(await pendingReply).toBe("broken");
  });

  test("rejects a body above the limit", async () => {
    const { server } = await startServer();
    const request = fetch(`${server.url}/api/v1/tags/write`, { method: "POST", body: "x".repeat(2_000_000) });
    expect([413, undefined]).toContain((await request.catch(() => undefined))?.status);
  });

  test("continues after a client disconnects", async () => {
    const { get, server } = await startServer({
      faults: [{ when: { count: 1 }, fault: { kind: "slow", delay_ms: 100 } }],
    });
    await expect(fetch(`${server.url}/api/v1/healthcheck`, { signal: AbortSignal.timeout(30) })).rejects.toThrow();
    await pause(150);
    expect((await get("healthcheck")).status).toBe(200);
  });
});

describe("the control interface over HTTP", () => {
  test("changes alarms, gateways, tags, tokens, faults, health and inventory, and returns the simulator's own state", async () => {
    const { control, get, simulator } = await startServer({ alarms: { recorded: false } });
    const { id } = (await control("alarms/raise", { site_id: 6 })).body.data;
    await control("alarms/acknowledge", { id, by: "Kari" });
    expect((await control("truth/alarms")).body.data).toMatchObject([{ id, acknowledged: { by: "Kari" } }]);
    await control("alarms/resolve", { id });
    await control("alarms/retrigger", { id });
    await control("alarms/delete", { id });
    const kinds = (await control("truth/transitions")).body.data.map((one: { kind: string }) => one.kind);
    expect(kinds).toEqual(["raised", "acknowledged", "resolved", "retriggered", "deleted"]);

    await control("gateways/set", { id: 109, online: false });
    expect((await control("truth/gateways")).body.data).toMatchObject([{ gatewayId: 109, online: false }]);
    await control("tags/set", { id: "10001", value: 12.5 });
    expect((await readJson(await get("tags/read?tags=10001"))).data[0].value).toBe(12.5);
    await control("tags/release", { id: "10001" });
    await control("inventory/change", { kind: "tags", id: "10169", removed: true });
    await control("health/set", { health: "failing_503" });
    expect((await get("healthcheck")).status).toBe(503);
    await control("faults/set", { rules: [{ fault: { kind: "error", status: 500 } }] });
    expect((await readJson(await get("sites"))).errors[0].status).toBe(500);
    await control("faults/set", { rules: [] });
    await control("tokens/change", { token: SERVICE_TOKEN, sites: [6] });
    expect((await readJson(await get("sites"))).meta.total).toBe(1);

    expect((await control("truth/totals")).body.data.totals).toMatchObject({ "read 200": 1 });
    expect((await control("truth/requests?after=1")).body.data.length).toBe(simulator.truth.requests().length - 1);
    const history = await control(
      "truth/history?tag=10001&from=2026-01-01T00:00:00Z&to=2100-01-01T00:00:00Z&resolution=1mo&tz=UTC",
    );
    expect(history.body.data.length).toBeGreaterThan(1);
    expect((await control("state")).body.data.version).toBe(1);
  });

  test("rejects requests with an unknown alarm, property or path", async () => {
    const { control } = await startServer();
    expect((await control("alarms/resolve", { id: "1" })).body.error).toMatch(/no alarm 1/);
    expect((await control("alarms/resolve", { nr: "1" })).status).toBe(400);
    expect((await control("nothing")).status).toBe(404);
    expect((await control("nothing", {})).status).toBe(404);
  });

  test("rejects forms and pages of another origin", async () => {
    const { server } = await startServer();
    const body = JSON.stringify({ health: "failing_500" });
    const readJson = { "content-type": "application/json" };
    for (const headers of [{ "content-type": "text/plain" }, { ...readJson, origin: "http://elsewhere.test" }]) {
      const request = { method: "POST", body, headers };
      expect((await fetch(`${server.url}/_simulator/health/set`, request)).status).toBe(403);
    }
  });
});
