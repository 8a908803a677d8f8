import { readdirSync, readFileSync, rmSync } from "node:fs";
import { createConnection } from "node:net";
import { join } from "node:path";
import { Hono } from "hono";
import { pino } from "pino";
import { describe, expect, test } from "vitest";
import { createCommandListeners } from "#src/app/build-sinks.ts";
import { Config } from "#src/app/config/config.ts";
import { watchFile } from "#src/app/reload/file-watch.ts";
import { createReloader } from "#src/app/reload/reloader.ts";
import { createTagNamesFileWatch } from "#src/app/reload/tag-names-file-watch.ts";
import type { CommandSource } from "#src/core/connector.ts";
import { createClockCheck } from "#src/core/runtime/clock-check.ts";
import { startServiceOnce, type WorkerService } from "#src/core/runtime/lifecycle.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { sleepFor } from "#src/core/runtime/waiting.ts";
import type { Source } from "#src/engine/source/source.ts";
import { createCronTicker } from "#src/engine/sync/cron-schedule.ts";
import { createHeartbeat } from "#src/engine/sync/heartbeat.ts";
import type { SyncJob } from "#src/engine/sync/job.ts";
import { createJobScheduler } from "#src/engine/sync/job-scheduler.ts";
import { createServiceAvailability } from "#src/engine/sync/service-availability.ts";
import { createServiceOutage } from "#src/engine/sync/service-outage.ts";
import { createSyncState } from "#src/engine/sync/sync-state.ts";
import { createTokenScope } from "#src/engine/sync/token-scope.ts";
import { createControlSocket } from "#src/ui/operator/control-socket-server.ts";
import { createStatusServer } from "#src/ui/status/status-server.ts";
import { createHarness } from "./commands/command-harness.ts";
import { freePort, temporaryFolder } from "./real-servers.ts";
import { serverOptions, statusBuilding } from "./status/status-building.ts";
import { describeService } from "./suites/service-suite.ts";
import { createMemoryStore } from "./sync/memory-store.ts";
import { createVirtualClock, type VirtualClock } from "./virtual-clock.ts";

const CONFIG = Config.parse({
  sources: { main: { base_url: "http://127.0.0.1", token: { env: "TOKEN" }, time_zone: "UTC" } },
});

/** All services of the worker and the test that runs the suite on each. Add new services here. */
const SERVICES: Readonly<Record<string, string>> = {
  "src/app/build-sinks.ts": "services.test.ts",
  "src/core/runtime/clock-check.ts": "clock/clock-check.test.ts",
  "src/engine/commands/commands.ts": "services.test.ts",
  "src/engine/delivery/dispatcher.ts": "delivery/dispatcher.test.ts",
  "src/engine/delivery/event-log-pruning.ts": "delivery/pruning.test.ts",
  "src/scale/fleet/fleet.ts": "fleet/virtual-faults.test.ts",
  "src/scale/fleet/kill-switch.ts": "fleet/kill-switch.test.ts",
  "src/app/reload/file-watch.ts": "services.test.ts",
  "src/app/reload/tag-names-file-watch.ts": "services.test.ts",
  "src/app/reload/reloader.ts": "services.test.ts",
  "src/engine/silence/alarm-silences.ts": "alarm-silences.test.ts",
  "src/ui/operator/control-socket-server.ts": "services.test.ts",
  "src/ui/plots/plot-storage.ts": "plots/plots.test.ts",
  "src/ui/status/connection-limits.ts": "services.test.ts",
  "src/ui/status/status-server.ts": "services.test.ts",
  "src/engine/sync/heartbeat.ts": "services.test.ts",
  "src/engine/sync/job-scheduler.ts": "services.test.ts",
  "src/engine/sync/sync.ts": "services.test.ts",
};

test("SERVICES maps every worker service to the test file that runs the shared tests of services", () => {
  const root = join(import.meta.dirname, "..");
  const files = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })
    .filter((file) => file.endsWith(".ts") && !file.endsWith("lifecycle.ts"))
    .map((file) => `src/${file}`);
  const naming = files.filter((file) => {
    const text = readFileSync(join(root, file), "utf8");
    const fromLifecycle = /import (?:type )?\{([^}]*)\} from "[./a-z]*lifecycle\.ts"/.exec(text)?.[1] ?? "";
    return /\b(WorkerService|startServiceOnce|createLoopService)\b/.test(fromLifecycle);
  });
  expect(naming.toSorted()).toEqual(Object.keys(SERVICES).toSorted());
  for (const file of new Set(Object.values(SERVICES))) {
    expect(readFileSync(join(import.meta.dirname, file), "utf8"), file).toMatch(/^describeService\(/m);
  }
});

function scriptedListener(): CommandSource & { isOpen(): boolean; readonly opened: () => number } {
  let open = false;
  let opened = 0;
  return {
    async open(_accept, signal) {
      opened += 1;
      await new Promise((resolve) => setImmediate(resolve));
      signal.throwIfAborted();
      open = true;
    },
    async close() {
      open = false;
    },
    isOpen: () => open,
    opened: () => opened,
  };
}

describeService("listening", async () => {
  const listeners = [scriptedListener(), scriptedListener()];
  return {
    service: createCommandListeners(listeners, async () => undefined),
    quiet() {
      expect(listeners.map((each) => each.isOpen())).toEqual([false, false]);
      expect(Math.max(...listeners.map((each) => each.opened()))).toBeLessThan(2);
    },
  };
});

describeService("the status server", async () => {
  const building = await statusBuilding();
  const port = await freePort();
  const options = serverOptions(building);
  const service = createStatusServer({ ...options, config: { ...options.config, port } });
  return { service, quiet: async () => expect(await answers(port)).toBe(false) };
});

describeService("the control socket", async () => {
  const stateFolder = temporaryFolder("door");
  const service = createControlSocket({ stateFolder, routes: new Hono() });
  return {
    service,
    quiet: () => expect(readdirSync(stateFolder)).toEqual([]),
    dispose: async () => rmSync(stateFolder, { recursive: true }),
  };
});

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = createConnection({ host: "127.0.0.1", port });
    const end = (answer: boolean) => {
      socket.destroy();
      resolve(answer);
    };
    socket.once("connect", () => end(true));
    socket.once("error", () => end(false));
  });
}

describeService("commands", async () => {
  const harness = await createHarness({ isStarted: false });
  return { service: harness.commands, quiet: () => expect(harness.clock.sleepers()).toBe(0), dispose: harness.close };
});

const virtualClock = () => createVirtualClock(Date.UTC(2026, 0, 1));
const log = pino({ level: "silent" });
const ON_A_CLOCK: Readonly<Record<string, (clock: VirtualClock) => WorkerService>> = {
  createHeartbeat: (clock) =>
    createHeartbeat({ source: "main", everyMs: 60_000, store: createMemoryStore(), clock, log }),
  watchFile: (clock) => watchFile({ name: "file", file: import.meta.filename, clock, log, onStable: async () => true }),
  createTagNamesFileWatch: (clock) =>
    createTagNamesFileWatch({
      ...{ source: "main", file: import.meta.filename, clock, log, knownTagIds: () => new Set(["1"]) },
      ...{ changeNames: () => {}, commitNames: async () => {} },
    }),
  createReloader: (clock) =>
    createReloader({
      ...{ file: import.meta.filename, loadConfig: () => CONFIG, config: CONFIG, parts: [], isWatched: true },
      ...{ store: createMemoryStore(), clock, log, metrics: createMetrics() },
    }),
};

for (const [name, make] of Object.entries(ON_A_CLOCK)) {
  describeService(name, async () => {
    const clock = virtualClock();
    return { service: make(clock), quiet: () => expect(clock.sleepers()).toBe(0) };
  });
}

describeService("createScheduler", async () => {
  const clock = virtualClock();
  const holding = await createSyncState(createMemoryStore(), ["availability/main", "poll/main"]);
  const availability = createServiceAvailability("main", holding, clock);
  const source = { name: "main", me: async () => ({ sites: [], abilities: [] }) } as unknown as Source;
  const scope = createTokenScope(source, clock);
  const random = () => 0.5;
  const outage = createServiceOutage({
    ...{ source, clock, log, random, availability, scope },
    ...{ noteHealth: async () => undefined, alarmReconciler: () => null, tokenStamp: null },
  });
  let runningJobs = 0;
  const job = (name: string, firstRun: boolean): SyncJob => ({
    name,
    schedule: "* * * * *",
    firstRun,
    async run(signal) {
      runningJobs += 1;
      await clock.sleep(10_000, signal).finally(() => {
        runningJobs -= 1;
      });
      return { kind: "ok" };
    },
  });
  const scheduler = createJobScheduler({
    source: "main",
    jobs: [job("first", true), job("later", false)],
    loopJobs: [
      {
        name: "live",
        async follow({ draining, forced }) {
          runningJobs += 1;
          await sleepFor(clock, 1e9, draining, forced);
          runningJobs -= 1;
        },
      },
    ],
    ticker: createCronTicker(clock, createClockCheck({ clock, log })),
    ...{ clock, log, metrics: createMetrics(), random, spreadMs: 0, outage, availability, scope },
    ...{ storedState: () => undefined, storeState: () => undefined },
  });
  const advancingScheduler: WorkerService = {
    ...scheduler,
    async stop(deadlineMs) {
      const stopping = scheduler.stop(deadlineMs);
      for (let n = 0; n < 20; n += 1) await clock.advance(100);
      await stopping;
    },
  };
  return {
    service: advancingScheduler,
    async quiet() {
      await clock.advance(300_000);
      expect(runningJobs).toBe(0);
      expect(clock.sleepers()).toBe(0);
    },
  };
});

describe("startServiceOnce", () => {
  test("does nothing at a stop before any start, and rejects every caller of a failed start", async () => {
    const calls: string[] = [];
    const make = (fails: boolean) =>
      startServiceOnce({
        name: "once",
        async start() {
          calls.push("start");
          if (fails) throw new Error("no port");
        },
        async stop() {
          calls.push("stop");
        },
      });
    await make(false).stop(0);
    expect(calls).toEqual([]);
    const failing = make(true);
    const signal = new AbortController().signal;
    const both = await Promise.allSettled([failing.start(signal), failing.start(signal)]);
    expect(both.map(({ status }) => status)).toEqual(["rejected", "rejected"]);
    await failing.stop(0);
    expect(calls).toEqual(["start", "stop"]);
  });

  test("aborts a running start when the service stops", async () => {
    const service = startServiceOnce({
      name: "slow",
      start: (signal) =>
        new Promise((_, reject) => {
          signal.addEventListener("abort", () => reject(signal.reason), { once: true });
        }),
      stop: async () => undefined,
    });
    const started = service.start(new AbortController().signal);
    await service.stop(1_000);
    await expect(started).resolves.toBeUndefined();
  });
});
