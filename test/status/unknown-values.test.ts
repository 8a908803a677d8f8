import { describe, expect, test } from "vitest";
import { Config } from "#src/app/config/config.ts";
import { toPageConfig } from "#src/app/status-page-settings.ts";
import { createLog } from "#src/core/runtime/log.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { documentSet } from "#src/engine/store/store.ts";
import { type StoredJob, syncSet } from "#src/engine/sync/stored-documents.ts";
import { refreshMetricGauges } from "#src/ui/status/health.ts";
import { createStatus, type Status } from "#src/ui/status/status-report.ts";
import { sampleEvent, valueEvent } from "../sample-events.ts";
import { counting, fillSource, NOW, statusBuilding, WORKER } from "./status-building.ts";

const MINUTE = 60_000;
const NORTH = {
  ...{ base_url: "https://north.example", token: { env: "TOKEN" }, time_zone: "Europe/Stockholm" },
  ...{ read: [{ name: "all", every: "1m" }], schedules: { hosts: false } },
};
const CONFIG = Config.parse({
  sources: { north: NORTH },
  sinks: { lake: { file: { folder: "events" }, filter: { kinds: ["alarm-*"] } } },
});

/** Status of a worker that has only just started: what it has not done yet is not late. */
async function startNorth(
  filled?: Parameters<typeof fillSource>[2],
  polls: Readonly<Record<string, StoredJob>> = {},
  heard: Readonly<Record<string, string>> = {},
) {
  const { store, clock } = await statusBuilding();
  if (filled !== undefined) await fillSource(store, "north", filled);
  await store.commit({ documents: [{ set: documentSet("poll", "north"), put: Object.entries(polls) }] });
  const live = counting({ ...WORKER, startedAtMs: Date.parse(NOW) }, store, clock, heard);
  return { store, clock, status: createStatus({ version: "1", clock, store, ...toPageConfig(CONFIG), live }) };
}

const poll = (lastSuccess: string | null, more: Partial<StoredJob> = {}): StoredJob => ({
  ...{ lastSuccess, lastAttempt: lastSuccess ?? NOW, problem: null, ...more },
});

async function northReport(status: Status) {
  const [source] = (await status.report()).sources;
  if (source === undefined) throw new Error("no source");
  return source;
}

async function scrapeMetrics(status: Status): Promise<string> {
  const metrics = createMetrics();
  await refreshMetricGauges({ status, metrics, log: createLog({ level: "silent" }) });
  return (await metrics.registry.metrics()).replaceAll(/^#.*\n/gm, "");
}

describe("a worker that has just started", () => {
  test("reports unknown counts and all polling jobs, and sets no gauge", async () => {
    const { status } = await startNorth();
    const { counts, jobs, readings } = await northReport(status);
    expect(counts).toEqual({ sites: null, tags: null, values: 0, bad: 0, alarms: null });
    expect(Object.values(readings).map(({ state }) => state)).toEqual(["never", "never", "never", "never"]);
    const jobNames = ["token", "sites", "alarms", "resolved_sweep", "gateways", "systems", "tags", "live"];
    expect(jobs).toMatchObject(jobNames.map((name) => ({ name, lastSuccess: null, late: false })));
    const metricsText = await scrapeMetrics(status);
    for (const name of ["alarms_active", "poll_last_success", "outbox_", "audit_log"]) {
      expect(metricsText).not.toContain(`plenum_${name}`);
    }
  });

  test("reports a polling job that never succeeds as late", async () => {
    const { clock, status } = await startNorth();
    await clock.advance(10 * MINUTE);
    const { notices, sources } = await status.report();
    const lateJobs = sources[0]?.jobs.filter(({ late }) => late).map(({ name }) => name);
    expect(lateJobs).toEqual(["sites", "alarms", "resolved_sweep", "gateways", "live"]);
    expect(notices).toContainEqual(
      expect.stringMatching(
        /^north, alarms: no poll has succeeded yet, and the next was due by 2026-11-21T10:0[3-5]:\S+Z at the latest\.$/,
      ),
    );
  });
});

describe("the count of a list", () => {
  test("is 0 when the list is empty, also in the metrics", async () => {
    const { status } = await startNorth({ tagNames: ["a"] });
    expect((await northReport(status)).counts).toEqual({ sites: 1, tags: 1, values: 1, bad: 0, alarms: 0 });
    const metricsText = await scrapeMetrics(status);
    for (const priority of ["A", "B", "C"]) {
      expect(metricsText).toContain(`plenum_alarms_active{source="north",site="1",priority="${priority}"} 0\n`);
    }
    expect(metricsText).toContain(
      `plenum_poll_last_success_timestamp_seconds{source="north",job="alarms"} ${Date.parse(NOW) / 1_000}\n`,
    );
    expect(metricsText).not.toMatch(/poll_last_success.*job="token"/);
  });

  test("becomes unknown with the last known count when the next poll is late", async () => {
    const { clock, status } = await startNorth({ tagNames: ["a"], alarms: [{}] });
    expect((await northReport(status)).counts).toMatchObject({ alarms: 1 });
    await clock.advance(5 * MINUTE);
    const { counts, readings, sites, jobs } = await northReport(status);
    // A list of tags is read every six hours, a list of alarms every half minute.
    expect(counts).toMatchObject({ sites: 1, tags: 1, alarms: null });
    expect(readings.alarms).toEqual({ state: "old", at: NOW, storedCount: 1 });
    expect(sites[0]).toMatchObject({ tags: 1, alarms: null });
    expect(jobs.find(({ name }) => name === "alarms")).toMatchObject({ lastSuccess: NOW, late: true });
    expect(await scrapeMetrics(status)).not.toContain("plenum_alarms_active");
  });

  test("becomes unknown as soon as the service rejects the list", async () => {
    const { store, clock, status } = await startNorth({ tagNames: ["a"] });
    const unavailability = { since: NOW, reason: "forbidden: 403." };
    const set = syncSet("availability", "north");
    await store.commit({ documents: [{ set, put: [["feature/alarms", unavailability]] }] });
    expect((await northReport(status)).counts).toMatchObject({ tags: 1, alarms: null });
    await store.commit({ documents: [{ set, remove: ["feature/alarms"], put: [["service", unavailability]] }] });
    await clock.advance(1_001);
    const { counts, sites } = await northReport(status);
    expect(counts).toMatchObject({ tags: 1, alarms: null });
    expect(sites[0]?.gateways).toEqual({ online: null, all: 1, unclear: 0 });
  });

  test("becomes unknown with a lower bound when the list was incomplete", async () => {
    const polls = { alarms: poll(NOW, { problem: "Left out: site 2." }) };
    const { status } = await startNorth({ tagNames: ["a"], alarms: [{}] }, polls);
    const { counts, readings, sites } = await northReport(status);
    expect(readings.alarms).toEqual({ state: "part", at: NOW, storedCount: 1 });
    expect([counts.alarms, sites[0]?.alarms]).toEqual([null, { A: 1 }]);
  });

  test("is unknown and marked as never read when the only poll was incomplete and had no result", async () => {
    const noSite = poll(NOW, { problem: "No site is known yet." });
    const { status } = await startNorth(undefined, { tags: noSite, gateways: noSite, live: poll(NOW) });
    const { counts, jobs, readings } = await northReport(status);
    expect([counts.tags, readings.tags.state, readings.gateways.state]).toEqual([null, "never", "never"]);
    expect(jobs.find(({ name }) => name === "tags")).toMatchObject({ partly: true });
    const liveJob = jobs.find(({ name }) => name === "live");
    expect(liveJob, "a run that read nothing").toMatchObject({ lastSuccess: null });
    expect(await scrapeMetrics(status)).not.toMatch(/poll_last_success.*job="live"/);
  });

  test("of gateways includes a gateway without a state neither as online nor as offline", async () => {
    const { store, status } = await startNorth({ tagNames: [] });
    const storedGateway = { value: { id: "8", online: null }, siteId: 1, since: NOW, missingSince: null };
    await store.commit({ documents: [{ set: documentSet("gateway", "north"), put: [["8", storedGateway]] }] });
    const { sites } = await northReport(status);
    expect(sites[0]?.gateways).toEqual({ online: 0, all: 2, unclear: 1 });
  });
});

describe("the last successful poll", () => {
  test("is the latest of the stored time, the worker's latest poll and the newest value", async () => {
    const polls = { alarms: poll("2026-11-21T09:59:10.000Z"), live: poll("2026-11-21T09:55:00.000Z") };
    const { status } = await startNorth({ tagNames: ["a"] }, polls, { alarms: "2026-11-21T09:59:40.000Z" });
    const { jobs } = await northReport(status);
    const lastSuccessOf = (name: string) => jobs.find((job) => job.name === name)?.lastSuccess;
    expect(lastSuccessOf("alarms")).toBe("2026-11-21T09:59:40.000Z");
    expect(lastSuccessOf("live"), "the time of the newest value").toBe(NOW);
  });

  test("of a disabled polling job is not reported and causes no warning", async () => {
    const { status } = await startNorth(undefined, { hosts: poll(null, { problem: "forbidden" }) });
    const { notices, sources } = await status.report();
    expect(sources[0]?.jobs.map(({ name }) => name)).not.toContain("hosts");
    expect(notices).toEqual([]);
  });
});

test("the report contains the service's health check, also in the warning about an unavailable service", async () => {
  const { store, clock, status } = await startNorth();
  expect((await northReport(status)).health).toBeNull();
  const health = { status: "unhealthy", time: null, askedAt: NOW };
  const unavailability = { since: NOW, reason: "unreachable: no answer." };
  await store.commit({
    documents: [
      { set: "health/north", put: [["health", health]] },
      { set: syncSet("availability", "north"), put: [["service", unavailability]] },
    ],
  });
  await clock.advance(1_001);
  const { notices, sources } = await status.report();
  expect(sources[0]?.health).toEqual(health);
  expect(notices[0]).toContain(`Its own health check says: unhealthy (requested at ${NOW}).`);
});

test("the lag of a sink counts only events that pass its filter", async () => {
  const { store, status } = await startNorth();
  await store.outbox.register("lake", "now");
  const values = Array.from({ length: 40 }, (_, n) => valueEvent(n));
  await store.commit({ events: [...values, sampleEvent("alarm-raised", {}, 1)] });
  expect((await status.report()).sinks).toMatchObject([{ sink: "lake", depth: 1, exact: true }]);
  const metricsText = await scrapeMetrics(status);
  expect(metricsText).toContain('plenum_outbox_depth{sink="lake"} 1\n');
  expect(metricsText).toContain('plenum_outbox_depth_exact{sink="lake"} 1\n');
});

test("the gauges are cleared when the state cannot be read", async () => {
  const metrics = createMetrics();
  metrics.outboxDepth.set({ sink: "lake" }, 3);
  metrics.alarmsActive.set({ source: "north", site: "1", priority: "A" }, 2);
  const failRead = () => Promise.reject(new Error("disk I/O error"));
  const status = { health: failRead, sinks: failRead };
  await refreshMetricGauges({ status, metrics, log: createLog({ level: "silent" }) });
  expect(await metrics.registry.metrics()).not.toMatch(/^plenum_(outbox_depth|alarms_active)\{/m);
});
