import { once } from "node:events";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { Aedes } from "aedes";
import { type Clock, systemClock } from "../../core/runtime/clock.ts";
import { runLoop } from "../../core/runtime/waiting.ts";
import { startSimulatorServer } from "../../simulator/server.ts";
import { createSimulator, type Simulator, type SimulatorState } from "../../simulator/simulator.ts";
import { findFreePort } from "../shell/free-port.ts";

// MQTT broker and simulated monitoring service of the demo. They accept every client, so they use loopback only.

/** MQTT 3.1.1 broker without persistence, also for tests. */
export async function startMqttBroker(options: { readonly port?: number } = {}) {
  const broker = await Aedes.createBroker();
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.once("close", () => sockets.delete(socket));
    broker.handle(socket);
  });
  server.listen(options.port ?? 0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `mqtt://127.0.0.1:${port}`,
    port,
    async close(): Promise<void> {
      const serverClosed = once(server, "close");
      server.close();
      await new Promise<void>((resolve) => broker.close(() => resolve()));
      for (const socket of sockets) socket.destroy();
      await serverClosed;
    },
  };
}

/** Speed of the replay: 120 recorded seconds per second, so hourly values change every 30 s. */
const REPLAY_SPEED = 120;

export async function startSimulatedService(options: {
  readonly epoch: string;
  readonly sites: number[];
  readonly port: number;
  readonly state: SimulatorState | null;
}) {
  const { epoch, port, sites, state } = options;
  const simulator = createSimulator(
    { epoch, speed: REPLAY_SPEED, sites, anchor: "next-alarm", loops_before: 1 },
    { now: () => systemClock.now() },
  );
  if (state !== null) simulator.importState(state);
  const server = await startSimulatorServer(simulator, { port: await findFreePort(port) });
  const stopController = new AbortController();
  const acknowledgeTask = acknowledgeNewAlarms(simulator, systemClock, stopController.signal);
  return {
    simulator,
    url: server.url,
    async close(): Promise<void> {
      stopController.abort();
      await acknowledgeTask;
      await server.close();
    },
  };
}

/** Age at which the demo acknowledges an alarm; alarms of the demo last about 33 s. */
const ALARM_ACKNOWLEDGE_DELAY_MS = 12_000;
const ACKNOWLEDGE_CHECK_INTERVAL_MS = 2_000;

export function acknowledgeNewAlarms(
  { control, now, truth }: Pick<Simulator, "control" | "now" | "truth">,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  const startMs = now();
  return runLoop({
    clock,
    signal,
    async step() {
      const nowMs = now();
      for (const { acknowledged, id, triggeredAtMs } of truth.alarms.list(nowMs, { status: "active" })) {
        const isDue = triggeredAtMs >= startMs && nowMs - triggeredAtMs >= ALARM_ACKNOWLEDGE_DELAY_MS;
        if (isDue && acknowledged === null) control.acknowledgeAlarm(id, "Caretaker of the demo", "I am on my way.");
      }
      return ACKNOWLEDGE_CHECK_INTERVAL_MS;
    },
    // Ignore errors: the alarm may have ended since it was listed.
    onFault: () => undefined,
  });
}
