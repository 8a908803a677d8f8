import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { systemClock } from "../../core/runtime/clock.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import { DEFAULT_TOKEN } from "../../simulator/options.ts";
import { startSimulatorServer } from "../../simulator/server.ts";
import { createSimulator, type Simulator } from "../../simulator/simulator.ts";
import { startBroker } from "./broker.ts";
import { work } from "./caretaker.ts";
import { type Child, startChild } from "./child.ts";
import { freeOr } from "./free-port.ts";
import { startInbox } from "./inbox.ts";
import { startPostgres } from "./postgres.ts";
import { leaveWord } from "./whereabouts.ts";

/**
 * Several members that share six buildings' services out among themselves, each a process of its own, so that one can be
 * killed: PostgreSQL, simulators, broker and inbox are the demo's. Nothing of it outlives the demo.
 */
export interface FleetDemo {
  readonly members: readonly DemoMember[];
  readonly inboxUrl: string;
  readonly brokerUrl: string;
  stop(): Promise<void>;
}

export interface DemoMember extends Child {
  readonly name: string;
  readonly statusUrl: string;
}

const FLEET_CONFIG = fileURLToPath(new URL("../../../config/demo-fleet.yaml", import.meta.url));

/** Two minutes of the recording pass in a second, as in the demo of one worker. */
const SPEED = 120;
/** Of each source the name in the configuration, and the building that it has. */
const SOURCES = { harbour: 1, hill: 6, park: 9, square: 10, station: 14, tower: 15 } as const;
/** Where the demo likes to be; when a port is taken it moves to a free one. */
const PORTS = { broker: 1883, status: 9850, inbox: 9860, database: 15_432 } as const;
const STOP_WITHIN_MS = 10_000;

/** `program`: the command line that runs a member, such as node with the path of `main.ts`. */
export async function startFleetDemo(options: {
  readonly members: number;
  readonly program: readonly string[];
  readonly signal: AbortSignal;
}): Promise<FleetDemo> {
  /** What ends each part, the last first. */
  const ends: (() => Promise<void> | void)[] = [];
  const stop = async () => {
    for (let end = ends.pop(); end !== undefined; end = ends.pop()) await end();
  };
  try {
    return { ...(await start(options, ends)), stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

async function start(
  { members, program, signal }: Parameters<typeof startFleetDemo>[0],
  ends: (() => Promise<void> | void)[],
): Promise<Omit<FleetDemo, "stop">> {
  const postgres = await startPostgres(await freeOr(PORTS.database), signal);
  ends.push(postgres.close);
  const folder = mkdtempSync(join(tmpdir(), "plenum-fleet-"));
  ends.push(() => rmSync(folder, { recursive: true, force: true }));
  const broker = await startBroker({ host: "127.0.0.1", port: await freeOr(PORTS.broker) });
  ends.push(broker.close);
  const inbox = await startInbox({ port: await freeOr(PORTS.inbox) });
  ends.push(inbox.close);
  const services = await startServices(ends);
  const { PLENUM_DEMO_LOG } = process.env;
  const environment = {
    ...services,
    PLENUM_DEMO_FOLDER: folder,
    PLENUM_DEMO_DATABASE: postgres.url,
    PLENUM_DEMO_DATABASE_PASSWORD: postgres.password,
    PLENUM_DEMO_BROKER: broker.url,
    PLENUM_DEMO_INBOX: inbox.url,
    ...(PLENUM_DEMO_LOG === undefined ? {} : { PLENUM_DEMO_LOG }),
  };

  const running: DemoMember[] = [];
  ends.push(async () => {
    await Promise.all(running.map((member) => member.stop("SIGTERM", STOP_WITHIN_MS)));
  });
  const [command = process.execPath, ...before] = program;
  for (let n = 1; n <= members; n += 1) {
    const name = `member-${n}`;
    const port = await freeOr(PORTS.status + n - 1);
    const args = [...before, "run", "--config", FLEET_CONFIG, "--member", name, "--arm-writing"];
    // The file is a part of the program, which may belong to another user.
    args.push("--allow-writable-config");
    const env = { ...process.env, ...environment, PLENUM_DEMO_STATUS_PORT: String(port) };
    running.push({ name, statusUrl: `http://127.0.0.1:${port}`, ...startChild(command, args, { env }) });
  }
  const statusUrl = running[0]?.statusUrl ?? "";
  ends.push(leaveWord({ config: FLEET_CONFIG, statusUrl, environment }));
  return { members: running, inboxUrl: inbox.url, brokerUrl: broker.url };
}

/** A simulator for each source, all in this process; answers addresses and tokens, by variables of the configuration. */
async function startServices(ends: (() => Promise<void> | void)[]): Promise<Record<string, string>> {
  const epoch = isoUtc(Math.floor(systemClock.now() / 1000) * 1000);
  const found: Record<string, string> = {};
  for (const [name, site] of Object.entries(SOURCES)) {
    const simulator = createSimulator(
      { epoch, speed: SPEED, sites: [site], anchor: "next-alarm", loops_before: 1 },
      { now: () => systemClock.now() },
    );
    const server = await startSimulatorServer(simulator, { port: await freeOr(0) });
    ends.push(server.close, caretaken(simulator));
    found[`PLENUM_DEMO_SERVICE_${name.toUpperCase()}`] = server.url;
    found[`PLENUM_DEMO_TOKEN_${name.toUpperCase()}`] = DEFAULT_TOKEN;
  }
  return found;
}

/** Somebody acknowledges its alarms, until what is answered is called. */
function caretaken(simulator: Simulator): () => Promise<void> {
  const leaving = new AbortController();
  const caretaker = work(simulator, systemClock, leaving.signal);
  return async () => {
    leaving.abort();
    await caretaker;
  };
}
