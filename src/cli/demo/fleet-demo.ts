import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { SERVICE_TOKEN } from "../../simulator/options.ts";
import { findFreePort } from "../shell/free-port.ts";
import { startMessageInbox } from "./alarm-message-inbox.ts";
import { currentSimulationEpoch, startMqttBroker, startSimulatedService } from "./broker-and-simulator.ts";
import { registerRunningDemo } from "./registry-of-running-demos.ts";
import { type ChildProcess, startChildProcess, startPostgres } from "./start-postgres.ts";

/** Demo in which members share six sources, each in its own process so that you can kill a member. */
export type FleetDemo = Awaited<ReturnType<typeof startFleetDemo>>;

export interface DemoMember extends ChildProcess {
  readonly name: string;
  readonly statusUrl: string;
}

interface FleetDemoOptions {
  readonly memberCount: number;
  /** Command line that runs a member, such as node with the path of `main.ts`. */
  readonly commandLine: readonly string[];
  readonly signal: AbortSignal;
}

const FLEET_DEMO_CONFIG_FILE = fileURLToPath(new URL("../../../config/demo-fleet.yaml", import.meta.url));

const SITES_BY_SOURCE_NAME = { harbour: 1, hill: 6, park: 9, square: 10, station: 14, tower: 15 } as const;
const PREFERRED_PORTS = { broker: 1883, status: 9850, inbox: 9860, database: 15_432 } as const;
const STOP_TIMEOUT_MS = 10_000;

export async function startFleetDemo({ memberCount, commandLine, signal }: FleetDemoOptions) {
  // Stops the started processes in reverse order, also if one of them cannot start.
  await using parts = new AsyncDisposableStack();
  const postgres = await startPostgres(await findFreePort(PREFERRED_PORTS.database), signal);
  parts.defer(postgres.close);
  const folder = mkdtempSync(join(tmpdir(), "plenum-fleet-"));
  parts.defer(() => rmSync(folder, { recursive: true, force: true }));
  const broker = await startMqttBroker({ port: await findFreePort(PREFERRED_PORTS.broker) });
  parts.defer(broker.close);
  const inbox = await startMessageInbox({ port: await findFreePort(PREFERRED_PORTS.inbox) });
  parts.defer(inbox.close);
  const { PLENUM_DEMO_LOG } = process.env;
  const environment: Record<string, string> = {
    PLENUM_DEMO_FOLDER: folder,
    PLENUM_DEMO_DATABASE: postgres.url,
    PLENUM_DEMO_DATABASE_PASSWORD: postgres.password,
    PLENUM_DEMO_BROKER: broker.url,
    PLENUM_DEMO_INBOX: inbox.url,
    ...(PLENUM_DEMO_LOG === undefined ? {} : { PLENUM_DEMO_LOG }),
  };
  const epoch = currentSimulationEpoch();
  for (const [name, site] of Object.entries(SITES_BY_SOURCE_NAME)) {
    const simulatedService = await startSimulatedService({ epoch, sites: [site], port: 0 });
    parts.defer(simulatedService.close);
    environment[`PLENUM_DEMO_SERVICE_${name.toUpperCase()}`] = simulatedService.url;
    environment[`PLENUM_DEMO_TOKEN_${name.toUpperCase()}`] = SERVICE_TOKEN;
  }

  const runningMembers: DemoMember[] = [];
  parts.defer(async () => {
    await Promise.all(runningMembers.map((member) => member.stop("SIGTERM", STOP_TIMEOUT_MS)));
  });
  const [command = process.execPath, ...programArgs] = commandLine;
  for (let n = 1; n <= memberCount; n += 1) {
    const name = `member-${n}`;
    const port = await findFreePort(PREFERRED_PORTS.status + n - 1);
    const args = [...programArgs, "run", "--config", FLEET_DEMO_CONFIG_FILE, "--member", name, "--arm-writing"];
    args.push("--allow-writable-config");
    const env = { ...process.env, ...environment, PLENUM_DEMO_STATUS_PORT: String(port) };
    runningMembers.push({ name, statusUrl: `http://127.0.0.1:${port}`, ...startChildProcess(command, args, { env }) });
  }
  const statusUrl = runningMembers[0]?.statusUrl ?? "";
  parts.defer(registerRunningDemo({ config: FLEET_DEMO_CONFIG_FILE, statusUrl, environment }));
  const runningParts = parts.move();
  const stop = () => runningParts.disposeAsync();
  return { members: runningMembers, inboxUrl: inbox.url, brokerUrl: broker.url, stop };
}
