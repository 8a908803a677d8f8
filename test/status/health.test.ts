import { DatabaseSync } from "node:sqlite";
import { describe, expect, test, vi } from "vitest";
import { Retryable } from "#src/core/errors/errors.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { DocumentKeyConflict, documentSet, type Store } from "#src/engine/store/store.ts";
import { createReadinessCheck, joinMetricTexts, MAX_SINK_BLOCKED_MS, type Readiness } from "#src/ui/status/health.ts";
import { failedCommitWarnings, watchFailedWrites } from "#src/ui/status/state-disk-space.ts";
import { createStatus, type StatusHealth } from "#src/ui/status/status-report.ts";
import { valueEvent } from "../sample-events.ts";
import { counting, fillSource, NOW, statusBuilding, WORKER } from "./status-building.ts";
import { MINUTE, workerOverHttp } from "./worker-over-http.ts";

const nowMs = Date.parse(NOW);

async function startReadiness(
  options: {
    readonly sink?: { readonly state: string; readonly sinceMs: number };
    readonly health?: (health: StatusHealth) => StatusHealth | Promise<StatusHealth>;
    readonly isRunning?: () => boolean;
    readonly store?: (store: Store) => Store;
  } = {},
) {
  const { store: opened, clock } = await statusBuilding();
  const { store, oldestFailure: trouble } = watchFailedWrites(options.store?.(opened) ?? opened, clock);
  await fillSource(opened, "north", { tagNames: ["Supply"] });
  const { state, sinceMs } = options.sink ?? { state: "idle", sinceMs: nowMs };
  const lake = { name: "lake", connector: "influxdb", lastError: "tokenly words", state };
  await store.outbox.register("lake", "now");
  const dueTimes = new Map([["alarms", (lastMs: number) => lastMs + 3 * MINUTE] as const]);
  const sources = [{ name: "north", origin: "https://north.example", dueTimes }];
  const sinks = () => [{ ...lake, since: new Date(sinceMs).toISOString() }];
  const live = counting({ ...WORKER, sinks }, store, clock);
  const status = createStatus({ version: "1.2.3", clock, store, sources, live });
  const look = createReadinessCheck({
    clock,
    health: async () => {
      const health = await status.health();
      return (await options.health?.(health)) ?? health;
    },
    isRunning: options.isRunning ?? (() => true),
    currentCommitFailure: trouble,
  });
  return { store, clock, trouble, look };
}

const reasons = ({ reasons: all }: Readiness) => all.map(({ reason, subject }) => `${reason} ${subject}`);

describe("the readiness of a worker", () => {
  test("is true only between the worker's start and stop", async () => {
    let runs = false;
    const { look, clock } = await startReadiness({ isRunning: () => runs });
    expect(reasons(await look())).toEqual(["starting-or-stopping worker"]);
    runs = true;
    expect((await look()).ready).toBe(true);
    runs = false;
    await clock.advance(100);
    expect((await look()).ready).toBe(false);
  });

  test("is false while a poll is late", async () => {
    const { look, clock, store } = await startReadiness();
    await clock.advance(3 * MINUTE);
    expect((await look()).ready).toBe(true);
    await clock.advance(MINUTE);
    const readiness = await look();
    expect(reasons(readiness)).toEqual(["poll-late source/north/alarms"]);
    expect(readiness.reasons[0]?.message).toBe(
      "A successful poll of north, alarms, was due by 2026-11-21T10:03:00.000Z at the latest, and the last was at 2026-11-21T10:00:00.000Z.",
    );
    const now = new Date(clock.now()).toISOString();
    const poll = { lastSuccess: now, lastAttempt: now, problem: null };
    await store.commit({ documents: [{ set: documentSet("poll", "north"), put: [["alarms", poll]] }] });
    await clock.advance(1_000);
    expect((await look()).ready).toBe(true);
  });

  test("is false from a failed commit to the next successful commit", async () => {
    let isFull = false;
    const diskFull = new Retryable("The disk that holds /state/plenum.db is full; nothing was half-written.");
    const { look, clock, store, trouble } = await startReadiness({
      store: (opened) => ({
        ...opened,
        commit: (change) => (isFull ? Promise.reject(diskFull) : opened.commit(change)),
      }),
    });
    isFull = true;
    await expect(store.commit({ events: [valueEvent(1)] })).rejects.toBe(diskFull);
    await clock.advance(5 * 1_000);
    await expect(store.commit({ events: [valueEvent(2)] })).rejects.toBe(diskFull);
    // A small write may still fit.
    await store.quotaStore.save("tags", { id: 1, sentAtMs: nowMs, countedByMs: nowMs });
    const readiness = await look();
    expect(reasons(readiness)).toEqual(["commit-failed state"]);
    expect(readiness.reasons[0]?.message).toContain(NOW);
    expect(JSON.stringify(readiness)).not.toContain("plenum.db");
    expect(failedCommitWarnings(trouble())[0]).toContain("is full");
    isFull = false;
    await store.commit({ events: [valueEvent(1)] });
    await clock.advance(1_000);
    expect((await look()).ready).toBe(true);
    expect(failedCommitWarnings(trouble())).toEqual([]);
  });

  test("is false when the progress of a sink or the use of the quota cannot be stored", async () => {
    const fault = new Retryable("fsync failed");
    const failingStore = (opened: Store): Store => ({
      ...opened,
      outbox: { ...opened.outbox, settle: () => Promise.reject(fault) },
      quotaStore: { ...opened.quotaStore, save: () => Promise.reject(fault) },
    });
    const { look, store } = await startReadiness({ store: failingStore });
    await expect(store.outbox.settle("lake", { isRepeat: false, through: 1, rejected: [] })).rejects.toBe(fault);
    expect(reasons(await look())).toEqual(["commit-failed state"]);
    const saving = await startReadiness({ store: failingStore });
    const slot = { id: 1, sentAtMs: nowMs, countedByMs: nowMs };
    await expect(saving.store.quotaStore.save("tags", slot)).rejects.toBe(fault);
    expect(reasons(await saving.look())).toEqual(["commit-failed state"]);
  });

  test("is true after a commit that inserts an existing key is rejected", async () => {
    const { look, store } = await startReadiness();
    const insert = { documents: [{ set: "journal", insert: [["a", 1]] as const }] };
    await store.commit(insert);
    await expect(store.commit(insert)).rejects.toBeInstanceOf(DocumentKeyConflict);
    expect((await look()).ready).toBe(true);
  });

  test("is false when the disk is full or the state is unreadable", async () => {
    const readyWithFree = (free: number | null) =>
      startReadiness({ health: (health) => ({ ...health, disk: { ...health.disk, free } }) });
    expect(reasons(await (await readyWithFree(63 * 1024 ** 2)).look())).toEqual(["disk-full state"]);
    expect((await (await readyWithFree(65 * 1024 ** 2)).look()).ready).toBe(true);
    expect((await (await readyWithFree(null)).look()).ready).toBe(true);
    const unreadable = await startReadiness({ health: () => Promise.reject(new Retryable("input/output error")) });
    expect(reasons(await unreadable.look())).toEqual(["commit-failed state"]);
  });

  test.each(["retrying", "throttled", "stopped", "ended"])(
    "is false when a sink has been %s for longer than ten minutes, unlike a delivering sink",
    async (state) => {
      const delivering = await startReadiness({ sink: { state: "delivering", sinceMs: nowMs - 1_440 * MINUTE } });
      expect((await delivering.look()).ready).toBe(true);
      const justBlocked = await startReadiness({ sink: { state, sinceMs: nowMs - MAX_SINK_BLOCKED_MS } });
      expect((await justBlocked.look()).ready).toBe(true);
      const longBlocked = await startReadiness({ sink: { state, sinceMs: nowMs - MAX_SINK_BLOCKED_MS - 1 } });
      const readiness = await longBlocked.look();
      expect(reasons(readiness)).toEqual(["sink-blocked sink/lake"]);
      // The response needs no password, so it must not contain texts of other systems.
      expect(JSON.stringify(readiness)).not.toContain("tokenly");
    },
  );

  test("is computed at most once a second", async () => {
    const readHealth = vi.fn((health: StatusHealth) => health);
    const { look, clock } = await startReadiness({ health: readHealth });
    await Promise.all(Array.from({ length: 100 }, look));
    expect(readHealth).toHaveBeenCalledTimes(1);
    await clock.advance(1_000);
    await look();
    expect(readHealth).toHaveBeenCalledTimes(2);
  });
});

test("/healthz and /readyz report a healthy worker that is not ready while commits fail or the service is unavailable", async () => {
  let isAway = false;
  const { ask, clock, readyz, virtual } = await workerOverHttp({
    simulator: { sites: [3], alarms: { recorded: false } },
    source: { schedules: { alarms: "*/30 * * * * *" }, read: [{ name: "all", every: "1m", fresher: true }] },
    eventsFolder: null,
    around: (transport) => (request, signal) => {
      if (isAway) throw new Retryable("The service cannot be reached.");
      return transport(request, signal);
    },
  });
  const statusAndReasons = async () => {
    const { status, reasons } = await readyz();
    return [status, ...new Set(reasons.map(({ reason }) => reason))];
  };
  await clock.advance(5 * MINUTE);
  expect(await statusAndReasons()).toEqual([200]);
  const otherDatabase = new DatabaseSync(`${virtual.config.state.folder}/plenum.db`);
  otherDatabase.exec("create trigger full before insert on event begin select raise(abort, 'disk I/O error'); end");
  await clock.advance(2 * MINUTE);
  expect(await statusAndReasons()).toEqual([503, "commit-failed"]);
  otherDatabase.exec("drop trigger full");
  otherDatabase.close();
  await clock.advance(2 * MINUTE);
  expect((await readyz()).status).toBe(200);
  isAway = true;
  await clock.advance(10 * MINUTE);
  expect(await statusAndReasons()).toEqual([503, "poll-late"]);
  expect(await ask("/healthz")).toEqual({ status: 200, text: "ok\n" });
  isAway = false;
  await clock.advance(5 * MINUTE);
  expect((await readyz()).status).toBe(200);
});

/** Metrics of one source of a member. */
function sampleMetrics(source: string) {
  const metrics = createMetrics();
  metrics.registry.setDefaultLabels({ source });
  metrics.outboxDepth.set({ sink: "broker" }, source.length);
  metrics.tagsRead.inc({ source, quality: "good" }, 3);
  return metrics;
}

test("the metrics of several sources are joined with one declaration per metric family", async () => {
  const processMetrics = createMetrics();
  processMetrics.clockSteps.inc({ direction: "back" });
  const texts = await Promise.all(
    [processMetrics, sampleMetrics("north"), sampleMetrics('so,source="uth')].map(({ registry }) => registry.metrics()),
  );
  const lines = joinMetricTexts(texts).split("\n");
  const declarations = lines.filter((line) => line.startsWith("# TYPE"));
  expect(new Set(declarations).size).toBe(declarations.length);
  expect(lines.filter((line) => line.startsWith("plenum_outbox_depth{"))).toEqual([
    'plenum_outbox_depth{sink="broker",source="north"} 5',
    'plenum_outbox_depth{sink="broker",source="so,source=\\"uth"} 14',
  ]);
  expect(lines.filter((line) => line.startsWith("plenum_tags_read_total{"))).toEqual([
    'plenum_tags_read_total{source="north",quality="good"} 3',
    'plenum_tags_read_total{source="so,source=\\"uth",quality="good"} 3',
  ]);
  expect(lines).toContain('plenum_clock_steps_total{direction="back"} 1');
  // The samples of a family follow its declaration.
  const families = lines.map((line) => line.replace(/^# (?:HELP|TYPE) /, "").split(/[ {]/)[0] ?? "");
  const depthGroups = families.filter((name, n) => name !== families[n - 1] && name === "plenum_outbox_depth");
  expect(depthGroups).toHaveLength(1);
});
