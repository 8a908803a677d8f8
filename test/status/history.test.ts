import { describe, expect, test } from "vitest";
import { makeHistoryEvent } from "#src/core/codec/history-event.ts";
import { TagPoints } from "#src/core/codec/points.ts";
import { NoTagLog } from "#src/core/errors/errors.ts";
import type { Resolution, TagLog } from "#src/core/model/building.ts";
import { sourceUri } from "#src/core/model/event.ts";
import { statusRoutes } from "#src/ui/status/status-server.ts";
import { createFetchedHistory, type HistoryRange, type PlotResponse } from "#src/ui/status/tag-history-plot.ts";
import { createVirtualClock } from "../virtual-clock.ts";
import { fillSource, LOCALHOST, NOW, serverOptions, statusBuilding } from "./status-building.ts";

const NOW_MS = Date.parse("2026-11-21T10:00:00.500Z");
const DAY_MS = 86_400_000;

function range(id: string, more: Partial<HistoryRange> = {}): HistoryRange {
  return { source: "north", id, fromMs: NOW_MS - DAY_MS, toMs: NOW_MS, resolution: "5m", ...more };
}

function startFetching() {
  const clock = createVirtualClock(NOW_MS);
  const calls: { query: object; signal: AbortSignal; reply: PromiseWithResolvers<readonly TagLog[]> }[] = [];
  const fetched = createFetchedHistory(clock, (source, query, signal) => {
    if (source !== "north") return null;
    const reply = Promise.withResolvers<readonly TagLog[]>();
    signal.addEventListener("abort", () => reply.reject(signal.reason), { once: true });
    calls.push({ query, signal, reply });
    return reply.promise;
  });
  return { clock, calls, fetched };
}

const sampleLog = (id: string): TagLog => ({
  ...{ id, displayName: id, description: null, unit: null },
  measurements: [
    { time: "2026-11-21T09:05:00.000Z", value: true },
    { time: "2026-11-21T09:00:00.000Z", value: 20 },
    { time: "yesterday", value: 1 },
    { time: "2026-11-21T09:10:00.000Z", value: null },
  ],
});

describe("history for a plot", () => {
  test("is requested at most once in ten minutes", async () => {
    const { calls, clock, fetched } = startFetching();
    expect(fetched.stateOf(range("1"))).toEqual({ state: "idle", why: null });
    for (let n = 0; n < 5; n++) expect(fetched.requestHistory(range("1")).state).toBe("asked");
    expect(calls).toHaveLength(1);
    expect(calls[0]?.query).toEqual({
      ...{ tagIds: ["1"], resolution: "5m" },
      ...{ from: "2026-11-20T10:00:00Z", to: "2026-11-21T10:00:00Z" },
    });
    const earlierVersion = fetched.version(range("1"));
    calls[0]?.reply.resolve([sampleLog("1")]);
    await clock.advance(1);
    expect(fetched.requestHistory(range("1"))).toEqual({ state: "idle", why: null });
    expect(fetched.version(range("1"))).not.toBe(earlierVersion);
    const firstS = Date.parse("2026-11-21T09:00:00Z") / 1_000;
    expect(fetched.samples(range("1"))).toEqual({ times: [firstS, firstS + 300, firstS + 600], values: [20, 1, null] });
    await clock.advance(600_000);
    fetched.requestHistory(range("1"));
    expect(calls).toHaveLength(2);
    // The page shows the former samples until the new response arrives.
    expect(fetched.samples(range("1")).times).toHaveLength(3);
  });

  test("is requested again within ten minutes only for a longer range", async () => {
    const { calls, clock, fetched } = startFetching();
    fetched.requestHistory(range("1"));
    calls[0]?.reply.resolve([sampleLog("1")]);
    await clock.advance(1);
    expect(fetched.requestHistory(range("1", { fromMs: NOW_MS - DAY_MS / 4 })).state).toBe("idle");
    expect(fetched.requestHistory(range("1", { fromMs: NOW_MS - 7 * DAY_MS })).state).toBe("asked");
    expect(calls).toHaveLength(2);
  });

  test("has at most one open request per tag and three in total", () => {
    const { calls, fetched } = startFetching();
    for (const id of ["1", "2", "3", "4"]) expect(fetched.requestHistory(range(id)).state).toBe("asked");
    expect(fetched.requestHistory(range("1", { resolution: "1h" })).state).toBe("asked");
    expect(calls).toHaveLength(3);
    expect(fetched.requestHistory(range("1", { source: "west" })).state).toBe("asked");
  });

  test("is not requested for ten minutes after a rejection, and times out after five minutes without a free request", async () => {
    const { calls, clock, fetched } = startFetching();
    fetched.requestHistory(range("1"));
    calls[0]?.reply.reject(new NoTagLog("The tag has no log."));
    await clock.advance(1);
    for (let n = 0; n < 3; n++)
      expect(fetched.requestHistory(range("1"))).toEqual({ state: "refused", why: "The tag has no log." });
    fetched.requestHistory(range("2"));
    await clock.advance(300_000);
    expect(fetched.stateOf(range("2"))).toMatchObject({ state: "refused", why: expect.stringMatching(/five minutes/) });
    expect(calls).toHaveLength(2);
    expect(fetched.requestHistory(range("5", { source: "west" }))).toMatchObject({ state: "off" });
  });

  test("has its open requests aborted at a stop", async () => {
    const { calls, clock, fetched } = startFetching();
    fetched.requestHistory(range("1"));
    fetched.stop();
    await clock.advance(1);
    expect(calls[0]?.signal.aborted).toBe(true);
    expect(clock.sleepers()).toBe(0);
  });
});

type DayPoints = Readonly<Record<string, number | null>>;

/** Plot of a tag without readings, from emitted history by resolution. Keys of the points are times of 2026-11-21. */
async function plotFromHistory(span: string, logs: Partial<Record<Resolution, DayPoints>>) {
  const building = await statusBuilding();
  await fillSource(building.store, "north", { tagNames: ["T1"] });
  const tag = { id: "10001", displayName: "T1", description: null, unit: "°C" };
  for (const [resolution, byTime] of Object.entries(logs) as [Resolution, DayPoints][]) {
    const points = Object.entries(byTime).map(([time, value]) => ({ time: `2026-11-21T${time}:00.000Z`, value }));
    const event = makeHistoryEvent({
      ...{ source: sourceUri("north"), subject: `site/1/tag/10001/history/${resolution}`, time: NOW, siteId: 1 },
      tag,
      resolution,
      timeZone: "UTC",
      origin: "live",
      revisedAt: null,
      points: TagPoints.fromMeasurements(points),
    });
    await building.store.commit({ events: [event] });
  }
  const path = `/api/plot?source=north&tag=10001&span=${span}`;
  const response = await statusRoutes(serverOptions(building)).request(path, { headers: LOCALHOST });
  const { t, ...plot } = (await response.json()) as PlotResponse;
  return { ...plot, t: t.map((time) => new Date(time * 1_000).toISOString().slice(11, 16)) };
}

test("a plot of hours uses the finest emitted history, with lowest and highest values", async () => {
  const plot = await plotFromHistory("7d", {
    "5m": { "06:00": 20, "06:05": 25, "06:10": 21, "07:00": null },
    "1h": { "06:00": 99, "07:00": 22 },
  });
  expect(plot).toMatchObject({
    ...{ origin: "logged", stepSeconds: 3_600, unit: "°C" },
    ...{ t: ["06:00", "07:00"], value: [21, 22], low: [20, 22], high: [25, 22] },
  });
});

test("a plot of a day fills gaps with hourly history", async () => {
  const plot = await plotFromHistory("6h", {
    "5m": { "06:00": 20, "06:05": 25, "06:10": null },
    "1h": { "05:00": 18, "06:00": 99 },
  });
  expect(plot).toMatchObject({ origin: "logged", t: ["05:00", "06:00", "06:05", "06:10"], value: [18, 20, 25, null] });
});
