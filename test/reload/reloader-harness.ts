import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { pino } from "pino";
import { Config } from "#src/app/config/config.ts";
import { createReloader, type PreparedConfigChange, type ReconfigurableWorkerPart } from "#src/app/reload/reloader.ts";
import type { ConfigurationChanged } from "#src/core/model/config-change-report.ts";
import type { Event } from "#src/core/model/event.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createMemoryStore } from "../sync/memory-store.ts";
import { testFolder } from "../test-resources.ts";
import { createVirtualClock } from "../virtual-clock.ts";

const NOW = Date.UTC(2026, 10, 2, 6);

interface FileOptions {
  readonly every?: string;
  readonly port?: number;
  readonly folder?: string;
}

function configured({ every = "10m", port = 9850, folder: stateFolder = "state" }: FileOptions = {}): Config {
  return Config.parse({
    state: { folder: stateFolder },
    status: { port },
    sources: {
      main: {
        base_url: "https://monitoring.example.com",
        token: { file: "token.txt" },
        time_zone: "Europe/Oslo",
        read: [{ name: "all", every }],
      },
    },
  });
}

/** Records its calls and behaves as the test says. */
function recordingPart(name: string, notes: string[]) {
  const does = { prepare: async (): Promise<void> => undefined, takeOver: async (): Promise<void> => undefined };
  const reconfigurable: ReconfigurableWorkerPart = {
    name,
    async prepare(next): Promise<PreparedConfigChange> {
      await does.prepare();
      const readIntervalMs = next.sources.main?.read[0]?.every;
      notes.push(`${name} prepares ${readIntervalMs}`);
      return {
        async applyChange() {
          await does.takeOver();
          notes.push(`${name} takes ${readIntervalMs} over`);
        },
        async discardChange() {
          notes.push(`${name} discards ${readIntervalMs}`);
        },
      };
    },
  };
  return { does, reconfigurable };
}

export async function startReloader({ isWatched = false, isStarted = true } = {}) {
  const file = join(testFolder("reloader"), "plenum.yaml");
  writeFileSync(file, "first");
  const clock = createVirtualClock(NOW);
  const notes: string[] = [];
  const [first, second] = [recordingPart("first", notes), recordingPart("second", notes)];
  const store = createMemoryStore(() => clock.now());
  const metrics = createMetrics();
  const logLines: { readonly msg: string }[] = [];
  const log = pino({ base: null }, { write: (line: string) => logLines.push(JSON.parse(line)) });
  const fakes = { written: {} as FileOptions, wrong: null as Error | null, commit: store.commit };
  const reloader = createReloader({
    file,
    loadConfig() {
      if (fakes.wrong !== null) throw fakes.wrong;
      return configured(fakes.written);
    },
    config: configured(),
    parts: [first.reconfigurable, second.reconfigurable],
    store: { commit: (change) => fakes.commit(change) },
    ...{ clock, log, metrics, isWatched },
  });
  if (isStarted) await reloader.start(new AbortController().signal);
  return {
    ...{ reloader, world: fakes, notes, clock, store, metrics, lines: logLines, file },
    ...{ first: first.does, second: second.does },
    told: () => store.events.map(({ data }: Event) => data as ConfigurationChanged),
    counts: async () => ({
      pending: (await metrics.configPending.get()).values[0]?.value,
      isRefused: (await metrics.configRefused.get()).values[0]?.value,
      ...Object.fromEntries(
        (await metrics.reloads.get()).values.map(({ labels, value }) => [String(labels.outcome), value]),
      ),
    }),
  };
}
