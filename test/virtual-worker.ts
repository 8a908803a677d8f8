import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Config } from "#src/app/config/config.ts";
import { createWorker, type Worker } from "#src/app/worker.ts";
import type { ConnectorContext, Sink } from "#src/core/connector.ts";
import { ConfigError, Retryable } from "#src/core/errors/errors.ts";
import type { ReloadReport } from "#src/core/model/config-change-report.ts";
import type { AnyEvent } from "#src/core/model/event.ts";
import { createLog, type Log } from "#src/core/runtime/log.ts";
import type { Transport } from "#src/engine/source/transport.ts";
import type { SimulatorOptionsInput } from "#src/simulator/options.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { simulatedTransport, type TransportOptions } from "./simulated-transport.ts";
import { createVirtualClock, type VirtualClock } from "./virtual-clock.ts";

export type VirtualWorker = Awaited<ReturnType<typeof startVirtualWorker>>;

// biome-ignore lint/suspicious/noExplicitAny: as deep as the file
export type Written = Record<string, any>;

export interface VirtualWorkerOptions {
  readonly simulator: SimulatorOptionsInput;
  readonly source: object;
  readonly state?: object;
  readonly commands?: object;
  readonly status?: object;
  /** Folder of the file sink. Null: no file sink and no real input or output. */
  readonly eventsFolder?: string | null;
  readonly sinks?: Readonly<
    Record<string, { readonly delivery: object; readonly sink: (context: ConnectorContext) => Sink }>
  >;
  readonly onCrash?: (stateFolder: string) => void;
  readonly log?: Log;
  readonly way?: TransportOptions;
  /** Clock of the service; by default the worker's wall clock. */
  readonly serviceNow?: (clock: VirtualClock) => number;
  readonly around?: (transport: Transport, clock: VirtualClock) => Transport;
}

export const START_MS = Date.UTC(2026, 5, 1, 0, 0, 0);
const LATENCY_MS = 50;

export async function startVirtualWorker(options: VirtualWorkerOptions) {
  const folder = mkdtempSync(join(tmpdir(), "virtual-worker-"));
  const { eventsFolder = join(folder, "events") } = options;
  // Without real files one turn of the event loop settles all promises.
  const virtual = createVirtualClock(START_MS, { ticks: eventsFolder === null ? 1 : 3 });
  const clock = { ...virtual, now: () => Math.floor(virtual.now()) };
  const serviceNow = () => options.serviceNow?.(clock) ?? clock.now();
  const simulator = createSimulator({ epoch: START_MS, ...options.simulator }, { now: serviceNow });
  const way = options.way ?? { thereMs: () => LATENCY_MS };
  const direct = simulatedTransport(simulator, { ...clock, now: serviceNow }, way);
  const transport = options.around?.(direct, clock) ?? direct;
  let runCount = 0;
  const written: Written = structuredClone({
    state: { ...options.state, folder: join(folder, "state 0") },
    status: { port: 0, ...options.status },
    ...(options.commands === undefined ? {} : { commands: options.commands }),
    sources: {
      main: { base_url: "http://127.0.0.1", token: { env: "TOKEN" }, time_zone: "Europe/Oslo", ...options.source },
    },
    sinks: {
      ...(eventsFolder === null ? {} : { files: { file: { folder: eventsFolder } } }),
      ...Object.fromEntries(
        Object.entries(options.sinks ?? {}).map(([name, { delivery }]) => [name, { ...delivery, stdout: {} }]),
      ),
    },
  });
  let config = Config.parse(written);
  let current = await start();
  async function start() {
    const line = new AbortController();
    const worker = await createWorker({
      ...{ config, environment: { TOKEN: "simulator-token" }, armWriting: true },
      ...{ configFile: { file: "plenum.yaml", loadConfig: () => parsed(written), isWatched: false }, clock },
      log: options.log ?? createLog({ level: "silent" }),
      transport: (request, signal) => {
        if (line.signal.aborted) throw new Retryable("The process has ended.");
        return transport(request, AbortSignal.any([signal, line.signal]));
      },
      createReplacementSink: (name, context) =>
        withEndSignal(options.sinks?.[name]?.sink(context) ?? null, line.signal),
    });
    await worker.start();
    return { worker, cut: () => line.abort(new Retryable("The process has ended.")) };
  }

  async function stop({ worker }: { readonly worker: Worker }) {
    const stopped = worker.stop(1_000);
    await clock.advance(2_000);
    await stopped;
  }
  return {
    get worker() {
      return current.worker;
    },
    get config() {
      return config;
    },
    simulator,
    clock,
    async events(): Promise<readonly AnyEvent[]> {
      const latest = await current.worker.store.outbox.latest(1_000_000);
      return latest.map(({ event }) => event as AnyEvent).reverse();
    },
    /** `crash` restarts on a copy of the state as it is on disk now. */
    async restart(how: "stop" | "crash"): Promise<void> {
      const before = current;
      if (how === "crash") {
        before.cut();
        runCount += 1;
        const state = join(folder, `state ${runCount}`);
        cpSync(config.state.folder, state, { recursive: true, filter: (path) => !path.endsWith(".sock") });
        written.state.folder = state;
        options.onCrash?.(state);
      }
      await stop(before);
      config = parsed(written);
      // Remove the copied state, which would otherwise count as the original.
      if (how === "crash") rmSync(join(folder, `state ${runCount - 1}`), { recursive: true });
      current = await start();
    },
    async reload(edit: (written: Written) => void): Promise<ReloadReport> {
      edit(written);
      const report = current.worker.reload?.("signal", false);
      if (report === undefined) throw new Error("This worker reads no configuration again.");
      await clock.advance(0);
      const done = await report;
      if (done.refused === null) config = parsed(written);
      return done;
    },
    async clear(): Promise<void> {
      await stop(current);
      rmSync(folder, { recursive: true });
    },
  };
}

function parsed(written: Written): Config {
  const read = Config.safeParse(structuredClone(written));
  if (read.success) return read.data;
  throw new ConfigError(read.error.issues.map(({ message }) => message).join(" "));
}

function withEndSignal(sink: Sink | null, end: AbortSignal): Sink | null {
  if (sink === null) return null;
  return {
    ...sink,
    async write(batch, signal, accepted, offered) {
      end.throwIfAborted();
      return sink.write(batch, AbortSignal.any([signal, end]), accepted, offered);
    },
  };
}
