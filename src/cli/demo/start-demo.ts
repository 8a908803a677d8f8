import { accessSync, constants, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Config } from "../../app/config/config.ts";
import { loadYamlConfig } from "../../app/config/load.ts";
import { createWorker } from "../../app/worker.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemErrorCode } from "../../core/errors/local-machine-failure.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { valueOr } from "../../core/values/value-or-fallback.ts";
import { SERVICE_TOKEN } from "../../simulator/options.ts";
import type { SimulatorState } from "../../simulator/simulator.ts";
import { findFreePort } from "../shell/free-port.ts";
import { startMessageInbox } from "./alarm-message-inbox.ts";
import { startMqttBroker, startSimulatedService } from "./broker-and-simulator.ts";
import { DEMO_CONFIG_FILE, registerRunningDemo } from "./registry-of-running-demos.ts";

/** Recorded sites of the demo: some with short intervals or many alarms, and the only one with a set-point. */
const DEMO_SITE_IDS = [1, 6, 9, 10, 14, 15];

const PREFERRED_PORTS = { broker: 1883, status: 9850, inbox: 9860, service: 8085 } as const;

const STOP_TIMEOUT_MS = 8_000;

interface SavedSimulation {
  readonly epoch: string;
  readonly state: SimulatorState | null;
}

/** Starts the demo in this process, on loopback: worker, simulated service, MQTT broker and inbox. */
export async function startDemo({ folder }: { readonly folder: string }) {
  prepareDemoFolder(folder);
  const simulationFile = join(folder, "simulator.json");
  const savedSimulation = valueOr(() => JSON.parse(readFileSync(simulationFile, "utf8")) as SavedSimulation, null);
  const epoch = savedSimulation?.epoch ?? isoUtc(Math.floor(systemClock.now() / 1000) * 1000);
  const options = { epoch, sites: DEMO_SITE_IDS, port: PREFERRED_PORTS.service, state: savedSimulation?.state ?? null };
  const service = await startSimulatedService(options);
  const saveSimulation = () => {
    const simulation: SavedSimulation = { epoch, state: service.simulator.exportState() };
    writeFileSync(`${simulationFile}.new`, JSON.stringify(simulation), { mode: 0o600 });
    renameSync(`${simulationFile}.new`, simulationFile);
  };
  saveSimulation();

  const broker = await startMqttBroker({ port: await findFreePort(PREFERRED_PORTS.broker) });
  const inbox = await startMessageInbox({ port: await findFreePort(PREFERRED_PORTS.inbox) });
  const { PLENUM_DEMO_LOG } = process.env;
  const environment = {
    PLENUM_DEMO_FOLDER: folder,
    PLENUM_DEMO_SERVICE: service.url,
    PLENUM_DEMO_BROKER: broker.url,
    PLENUM_DEMO_INBOX: inbox.url,
    PLENUM_DEMO_STATUS_PORT: String(await findFreePort(PREFERRED_PORTS.status)),
    PLENUM_DEMO_TOKEN: SERVICE_TOKEN,
    ...(PLENUM_DEMO_LOG === undefined ? {} : { PLENUM_DEMO_LOG }),
  };
  const config = loadYamlConfig({ schema: Config, file: DEMO_CONFIG_FILE, environment });
  const worker = await createWorker({ config, environment, armWriting: true });
  await worker.start();
  const unregisterDemo = registerRunningDemo({ config: DEMO_CONFIG_FILE, statusUrl: worker.statusUrl(), environment });

  return {
    folder,
    serviceUrl: service.url,
    brokerUrl: broker.url,
    statusUrl: worker.statusUrl(),
    inboxUrl: inbox.url,
    isContinued: savedSimulation !== null,
    worker,
    async stop(): Promise<void> {
      unregisterDemo();
      await worker.stop(STOP_TIMEOUT_MS);
      saveSimulation();
      await inbox.close();
      await broker.close();
      await service.close();
    },
  };
}

function prepareDemoFolder(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    accessSync(folder, constants.W_OK | constants.X_OK);
  } catch (error) {
    const errorCode = systemErrorCode(error);
    throw new ConfigError(`The demo cannot keep its state and its events in ${folder} (${errorCode}).`, {
      hint: "Name a folder that you may write, such as --folder /tmp/plenum-demo.",
      cause: error,
    });
  }
}
