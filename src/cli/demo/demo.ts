import { accessSync, constants, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Config } from "../../app/config/config.ts";
import { loadYaml } from "../../app/config/load.ts";
import { createWorker, type Worker } from "../../app/worker.ts";
import { ConfigError } from "../../core/errors/errors.ts";
import { systemCodeOf } from "../../core/errors/local-failure.ts";
import { systemClock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { DEFAULT_TOKEN } from "../../simulator/options.ts";
import { startSimulatorServer } from "../../simulator/server.ts";
import { createSimulator, type Simulator } from "../../simulator/simulator.ts";
import type { SimulatorState } from "../../simulator/state.ts";
import { startBroker } from "./broker.ts";
import { work } from "./caretaker.ts";
import { freeOr } from "./free-port.ts";
import { startInbox } from "./inbox.ts";
import { DEMO_CONFIG, leaveWord } from "./whereabouts.ts";

/**
 * The main job with no configuration and no server: the simulator replaying real readings, an embedded MQTT
 * broker, an inbox that stands for a chat channel, and the worker between them, in one process on loopback.
 *
 * Everything it remembers is in one folder: the simulated world's beginning and what happened to it by hand, the
 * worker's state, and the delivered events. A second start goes on where the first stopped.
 */
export interface Demo {
  readonly folder: string;
  readonly serviceUrl: string;
  readonly brokerUrl: string;
  readonly statusUrl: string;
  readonly inboxUrl: string;
  readonly continued: boolean;
  readonly worker: Worker;
  stop(): Promise<void>;
}

/** Two minutes of the recording pass in a second: an hourly series then changes every 30 s. */
const SPEED = 120;

/** Buildings with short intervals, many alarms, and the one set-point among the recordings. */
const SITES = [1, 6, 9, 10, 14, 15];

/** Where the demo likes to be; when a port is taken it moves to a free one. */
const PORTS = { broker: 1883, status: 9850, inbox: 9860, service: 8085 } as const;

const STOP_WITHIN_MS = 8_000;

interface Remembered {
  readonly epoch: string;
  readonly state: SimulatorState | null;
}

export async function startDemo(options: { readonly folder: string }): Promise<Demo> {
  const { folder } = options;
  prepareFolder(folder);
  const memory = join(folder, "simulator.json");
  const remembered = recall(memory);
  const epoch = remembered?.epoch ?? isoUtc(Math.floor(systemClock.now() / 1000) * 1000);

  const simulator = createSimulator(
    { epoch, speed: SPEED, sites: SITES, anchor: "next-alarm", loops_before: 1 },
    { now: () => systemClock.now() },
  );
  if (remembered?.state) simulator.importState(remembered.state);
  keep(memory, epoch, simulator);

  const service = await startSimulatorServer(simulator, { port: await freeOr(PORTS.service) });
  const broker = await startBroker({ host: "127.0.0.1", port: await freeOr(PORTS.broker) });
  const inbox = await startInbox({ port: await freeOr(PORTS.inbox) });
  const { PLENUM_DEMO_LOG } = process.env;
  const environment = {
    PLENUM_DEMO_FOLDER: folder,
    PLENUM_DEMO_SERVICE: service.url,
    PLENUM_DEMO_BROKER: broker.url,
    PLENUM_DEMO_INBOX: inbox.url,
    PLENUM_DEMO_STATUS_PORT: String(await freeOr(PORTS.status)),
    PLENUM_DEMO_TOKEN: DEFAULT_TOKEN,
    ...(PLENUM_DEMO_LOG === undefined ? {} : { PLENUM_DEMO_LOG }),
  };
  const config = loadYaml({ schema: Config, file: DEMO_CONFIG, environment });
  const worker = await createWorker({ config, environment, armWriting: true });
  await worker.start();
  const takeBackWord = leaveWord({ config: DEMO_CONFIG, statusUrl: worker.statusUrl(), environment });
  const leaving = new AbortController();
  const caretaker = work(simulator, systemClock, leaving.signal);

  return {
    folder,
    serviceUrl: service.url,
    brokerUrl: broker.url,
    statusUrl: worker.statusUrl(),
    inboxUrl: inbox.url,
    continued: remembered !== null,
    worker,
    async stop() {
      takeBackWord();
      leaving.abort();
      await caretaker;
      await worker.stop(STOP_WITHIN_MS);
      keep(memory, epoch, simulator);
      await inbox.close();
      await broker.close();
      await service.close();
    },
  };
}

/** Throws ConfigError for a folder that this user cannot make or may not write. */
function prepareFolder(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    accessSync(folder, constants.W_OK | constants.X_OK);
  } catch (error) {
    throw new ConfigError(
      `The demo cannot keep its state and its events in ${folder} (${systemCodeOf(error)}).`,
      {
        hint: "Name a folder that you may write, such as --folder /tmp/plenum-demo.",
        cause: error,
      },
    );
  }
}

function recall(file: string): Remembered | null {
  try {
    return JSON.parse(readFileSync(file, "utf8")) as Remembered;
  } catch {
    return null;
  }
}

/** Written beside and renamed, so that a kill in the middle leaves the old one. */
function keep(file: string, epoch: string, simulator: Simulator): void {
  const remembered: Remembered = { epoch, state: simulator.exportState() };
  writeFileSync(`${file}.new`, JSON.stringify(remembered), { mode: 0o600 });
  renameSync(`${file}.new`, file);
}
