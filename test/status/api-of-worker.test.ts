import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { createSimulator } from "#src/simulator/simulator.ts";
import type { SinkResponse } from "#src/ui/status/sink-reports.ts";
import type { SourceResponse } from "#src/ui/status/source-reports.ts";
import type { TagResponse } from "#src/ui/status/tag-api-response.ts";
import type { PlotResponse } from "#src/ui/status/tag-history-plot.ts";
import type { TagListResponse } from "#src/ui/status/tag-index.ts";
import { temporaryFolder } from "../real-servers.ts";
import { START_MS, type VirtualWorkerOptions } from "../virtual-worker.ts";
import { basic, JSON_TYPE } from "./status-building.ts";
import { MINUTE, workerOverHttp } from "./worker-over-http.ts";

/** The page's questions over HTTP, to a worker that has followed the simulated service in virtual time. */

const SIMULATOR = { sites: [4], alarms: { recorded: false } };

async function followSimulator(more: Partial<VirtualWorkerOptions> = {}) {
  const source = { read: [{ name: "all", every: "2m", fresher: true }] };
  const worker = await workerOverHttp({ simulator: SIMULATOR, source, ...more });
  const request = async (...request: Parameters<typeof worker.ask>) => {
    const { status, text } = await worker.ask(...request);
    return { status, body: JSON.parse(text) };
  };
  const response = async <T>(path: string): Promise<T> => {
    const { body, status } = await request(path);
    expect([path, status, status === 200 ? null : body]).toEqual([path, 200, null]);
    return body as T;
  };
  const firstTag = async () => (await response<TagListResponse>("/api/tags?limit=1&sort=-value")).rows[0]?.tag.id ?? "";
  return { ...worker, request, response, firstTag };
}

const knownCount = ({ value }: Pick<PlotResponse, "value">) => value.filter((each) => each !== null).length;

describe("a worker that has run for a while", () => {
  test("returns all stored readings for a plot, also after a stop and after a crash", async () => {
    const { response, clock, firstTag, virtual } = await followSimulator({
      source: { quota: { requests_per_minute: 2 }, read: [{ name: "all", every: "2m", fresher: true }] },
    });
    await clock.advance(65 * MINUTE);
    const id = await firstTag();
    const plot = () => response<PlotResponse>(`/api/plot?source=main&tag=${id}&span=6h`);
    const plotBefore = await plot();
    expect(plotBefore).toMatchObject({ origin: "read", history: { state: "idle", why: null } });
    expect(knownCount(plotBefore)).toBeGreaterThanOrEqual(30);
    expect(plotBefore.t).toEqual(plotBefore.t.toSorted((a, b) => a - b));
    expect(plotBefore.stepSeconds).toBe(30);
    await virtual.restart("crash");
    await clock.advance(3 * MINUTE);
    const plotAfter = await plot();
    expect(knownCount(plotAfter)).toBeGreaterThanOrEqual(knownCount(plotBefore));
    const missingTimes = plotBefore.t.filter((t) => !plotAfter.t.includes(t));
    expect(missingTimes).toEqual([]);
    await virtual.restart("stop");
    await clock.advance(1 * MINUTE);
    expect(knownCount(await plot())).toBeGreaterThanOrEqual(knownCount(plotAfter));
    const month = await response<PlotResponse>(`/api/plot?source=main&tag=${id}&span=30d`);
    expect(month).toMatchObject({ stepSeconds: 3_600, origin: "read" });
    expect(month.low?.length).toBe(month.t.length);
    for (const [n, low] of (month.low ?? []).entries()) expect(low ?? 0).toBeLessThanOrEqual(month.high?.[n] ?? 0);
  });

  test("fetches the history of a plotted tag once, with spare requests", async () => {
    const { response, clock, simulator } = await followSimulator();
    await clock.advance(5 * MINUTE);
    const { hasLog } = simulator.truth;
    const ids = [...simulator.world.tags.keys()];
    const path = `/api/plot?source=main&tag=${ids.find(hasLog)}&span=24h`;
    expect((await response<PlotResponse>(path)).history.state).toBe("idle");
    const requests = () => simulator.truth.requests().filter(({ endpoint }) => endpoint === "history").length;
    expect((await response<PlotResponse>(`${path}&fetch=1`)).history.state).toBe("asked");
    expect((await response<PlotResponse>(`${path}&fetch=1`)).history.state).toBe("asked");
    await clock.advance(2 * MINUTE);
    const filledPlot = await response<PlotResponse>(`${path}&fetch=1`);
    expect(filledPlot.history).toEqual({ state: "idle", why: null });
    expect(["both", "logged"]).toContain(filledPlot.origin);
    expect(knownCount(filledPlot)).toBeGreaterThan(100);
    expect(requests()).toBe(1);
  });

  test("counts requests by purpose, deliveries by sink, and rejected requests", async () => {
    const { response, clock } = await followSimulator({
      simulator: {
        ...SIMULATOR,
        faults: [{ match: { endpoints: ["read"] }, when: { skip: 20, count: 2 }, fault: { kind: "throttled" } }],
      },
    });
    await clock.advance(12 * MINUTE);
    const source = await response<SourceResponse>("/api/source?name=main");
    const sum = (column: readonly (number | null)[]) => column.reduce<number>((all, each) => all + (each ?? 0), 0);
    expect(source.t).toHaveLength(1_440);
    expect(source.allowed).toBe(20);
    expect(sum(source.lanes.live) + sum(source.lanes.spare)).toBeGreaterThan(100);
    expect(source.lanes.write.at(-1)).toBe(0);
    expect(source.lanes.write[0]).toBeNull();
    expect(source.refused.length).toBeGreaterThan(0);
    const sink = await response<SinkResponse>("/api/sink?name=files");
    expect(sink).toMatchObject({ sink: "files", connector: "file", dead: [], deadTotal: 0 });
    expect(sum(sink.rate.value)).toBeGreaterThan(100);
    expect(sink.lag.value.at(-1)).not.toBeNull();
  });

  test("stores no time series and deletes earlier ones when plots are switched off", async () => {
    const { response, clock, firstTag, virtual } = await followSimulator({ state: { plots: false } });
    await clock.advance(12 * MINUTE);
    const id = await firstTag();
    const plot = await response<PlotResponse>(`/api/plot?source=main&tag=${id}&span=6h`);
    expect(plot).toMatchObject({ origin: "none", t: [] });
    expect((await virtual.worker.store.documents("plot/main")).size).toBe(0);
    expect((await response<SinkResponse>("/api/sink?name=files")).rate.value.every((each) => each === null)).toBe(true);
  });
});

test("a write from the status page passes the write checks, reaches the service and is recorded in the audit log", async () => {
  const folder = temporaryFolder();
  const passwordFile = join(folder, "password");
  writeFileSync(passwordFile, "a long password", { mode: 0o600 });
  const { world } = createSimulator({ ...SIMULATOR, epoch: START_MS }, { now: () => START_MS });
  const analog = [...world.tags.values()].filter(({ kind }) => kind === "analog");
  const [tag, other] = analog.map(({ id }) => id);
  const { request, clock } = await followSimulator({
    status: { password: { file: passwordFile } },
    commands: { enabled: true, allow: [{ tag_id: tag, site_id: 4, type: "number", min: 0, max: 100 }] },
  });
  await clock.advance(3 * MINUTE);
  const headers = { ...JSON_TYPE, authorization: basic("plenum:a long password"), "x-plenum": "status-page" };
  const { body } = await request(`/api/tag?source=main&id=${tag}`, { headers });
  expect((body as TagResponse).writable).toEqual({ type: "number", min: 0, max: 100, step: null, closed: null });
  const postWrite = (wish: object) => request("/api/write", { method: "POST", headers, body: JSON.stringify(wish) });
  expect(await postWrite({ source: "main", tag: other, value: 50 })).toMatchObject({
    status: 409,
    body: { message: expect.stringMatching(/not on the list/) },
  });
  const acceptedWrite = await postWrite({ source: "main", tag, value: 50 });
  const { id } = acceptedWrite.body as { readonly id: string };
  expect(acceptedWrite).toMatchObject({ status: 202 });
  await clock.advance(1 * MINUTE);
  expect((await request("/api/commands", { headers })).body).toMatchObject([
    { id, tagId: tag, requested: 50, state: "confirmed", by: "operator status page" },
    { tagId: other, state: "rejected", by: "operator status page" },
  ]);
});
