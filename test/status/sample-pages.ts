import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createAdaptorServer } from "@hono/node-server";
import { Hono } from "hono";
import { onTestFinished } from "vitest";
import { Secret } from "#src/core/runtime/log.ts";
import { listen } from "#src/ui/status/connection-limits.ts";
import { statusRoutes } from "#src/ui/status/status-server.ts";
import { browserOfTests, OPERATOR } from "./page-in-browser.ts";
import * as samples from "./sample-responses.ts";
import { basic, fillSource, serverOptions, statusBuilding } from "./status-building.ts";

/** Responses to the requests of the views, by path. */
export type ResponsesByPath = Readonly<Record<string, (query: URLSearchParams) => unknown>>;

export const DEFAULT_RESPONSES: ResponsesByPath = {
  "/api/tags": (query) => samples.tagList(query, 3_000),
  "/api/tag": (query) => samples.tagResponse(query.get("id") ?? "10001"),
  "/api/plot": samples.plotResponse,
  "/api/alarm": () => samples.alarmResponse(),
  "/api/site": () => samples.siteResponse(),
  "/api/sink": (query) => samples.sinkResponse(query.get("name") ?? "lake"),
  "/api/source": (query) => samples.sourceResponse(query.get("name") ?? "north"),
  "/api/commands": () => Array.from({ length: 12 }, (_, n) => samples.commandRow(n)),
  "/api/fleet": () => samples.fleetResponse(),
  "/api/alarm-days": () => samples.dayBars(),
};

/** The real page and report of a small building, with invented responses for the views. Changes are only recorded. */
export function samplePages() {
  const openView = browserOfTests();
  type Respond = (path: string, body: unknown) => object;
  return async (width = 1280, responses: ResponsesByPath = {}, orders: Respond = () => ({}), hasPassword = true) => {
    const building = await statusBuilding();
    const trigger = { id: 89, displayName: "Fan stopped", description: null, priority: "B", enabled: true };
    await fillSource(building.store, "north", { tagNames: ["Supply", "Return", "Outdoor"], alarms: [{}, { trigger }] });
    await fillSource(building.store, "south", { tagNames: ["Supply"] });
    // Requested paths with their queries.
    const requests: string[] = [];
    const ordered: { path: string; body: unknown }[] = [];
    const app = new Hono();
    for (const [path, response] of Object.entries({ ...DEFAULT_RESPONSES, ...responses })) {
      app.get(path, (context) => {
        const { pathname, search, searchParams } = new URL(context.req.url);
        requests.push(pathname + search);
        const body = response(searchParams);
        return body === null ? context.json({ message: "Nothing of this kind is known." }, 404) : context.json(body);
      });
    }
    for (const path of ["/api/write", "/api/sink/retry"]) {
      app.post(path, async (context) => {
        const body: unknown = await context.req.json();
        ordered.push({ path, body });
        const result = orders(path, body);
        return context.json(result, "message" in result ? 409 : 200);
      });
    }
    const { username, password } = OPERATOR;
    const realRoutes = statusRoutes(serverOptions(building, hasPassword ? { password: new Secret(password) } : {}));
    app.all("*", (context) => {
      const request = new Request(context.req.raw);
      if (hasPassword) request.headers.set("authorization", basic(`${username}:${password}`));
      return realRoutes.fetch(request, context.env);
    });
    const server = createAdaptorServer({ fetch: app.fetch }) as Server;
    await listen(server, { port: 0, host: "127.0.0.1" }, (error) => error);
    onTestFinished(() => void server.close().closeAllConnections());
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
    return { ...building, ...(await openView(url, width, false)), url, requests, ordered };
  };
}
