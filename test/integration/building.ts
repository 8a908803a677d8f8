import { existsSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connectAsync, type MqttClient } from "mqtt";
import { parse, stringify } from "yaml";
import { SERVICE_TOKEN } from "#src/simulator/options.ts";
import { startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { blocksIn, pages } from "../docs/markdown.ts";
import { print, runIfInstalled } from "../packages/real-run.ts";
import { type Running, runPlenum } from "../plenum-process.ts";
import { programPath, startMosquitto, temporaryFolder } from "../real-servers.ts";

/** Seconds from a reading until its value is stale: the interval, and two request slots in the first minute of a worker. */
export const PROMISE_S = 10 + 2 * 4;
export const READ_TAG = "10257";
export const WRITTEN_TAG = "10250";
/** Tags of site 12 that the worker reads in one request. */
export const TAGS = Array.from({ length: 20 }, (_, n) => String(Number(WRITTEN_TAG) + n));

export type Building = Awaited<ReturnType<typeof startBuilding>>;

/** Returns the text of the block of a recipe with this mark. */
export function recipeBlock(recipe: string, mark: string): string {
  const page = pages.find(({ file }) => file === `docs/recipes/${recipe}.md`);
  return blocksIn(page ?? { file: recipe, text: "" }).find((block) => block.mark === mark)?.text ?? "";
}

/** Starts a simulated service, Mosquitto and a worker with the sinks and commands of a recipe. */
export async function startBuilding(recipe: string) {
  const folder = temporaryFolder(`plenum-${recipe}`);
  const simulator = createSimulator({ sites: [1, 12], alarms: { recorded: false } }, { now: Date.now });
  simulator.control.changeToken(SERVICE_TOKEN, { sites: [12] });
  simulator.control.setTag(WRITTEN_TAG, 20);
  let service = await startSimulatorServer(simulator);
  const { port, url } = service;
  const broker = await startMosquitto();
  const { sinks, commands } = parse(recipeBlock(recipe, "configuration"));
  const { username, password, ...mqtt } = sinks.broker.mqtt;
  const main = {
    ...{ base_url: url, token: { env: "TOKEN" }, time_zone: "Europe/Oslo", quota: { list_requests_per_minute: 600 } },
    schedules: { token: "*/5 * * * * *", alarms: false, resolved_sweep: false, hosts: false, systems: false },
    read: [{ name: "some", select: { ids: TAGS }, every: "10s" }],
  };
  const configuration = {
    ...{ state: { folder: "state" }, status: { port: 0 }, sources: { main }, commands },
    sinks: { broker: { ...sinks.broker, mqtt: { ...mqtt, url: broker.url } } },
  };
  writeFileSync(join(folder, "plenum.yaml"), stringify(configuration));
  const client = await connectAsync(broker.url);
  let worker: Running | null = null;
  return {
    ...{ folder, simulator, broker, client },
    async startWorker(): Promise<Running> {
      worker = runPlenum(["run", "--arm-writing"], { cwd: folder, environment: { TOKEN: SERVICE_TOKEN } });
      await worker.waitForOutput("Plenum is running");
      return worker;
    },
    stopService: () => service.close(),
    async restartService(): Promise<void> {
      service = await startSimulatorServer(simulator, { port });
    },
    changeToken: (change: Parameters<typeof simulator.control.changeToken>[1]) =>
      simulator.control.changeToken(SERVICE_TOKEN, change),
    async close(): Promise<void> {
      await worker?.end("SIGKILL");
      await client.endAsync(true);
      await broker.stop();
      await service.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Keeps the newest payload of each topic, and waits until they are as expected. */
export async function watchTopics(client: MqttClient, ...filters: readonly string[]) {
  const payloads = new Map<string, string>();
  const listeners = new Set<() => void>();
  client.on("message", (topic, payload) => {
    payloads.set(topic, payload.toString());
    for (const listener of listeners) listener();
  });
  await client.subscribeAsync([...filters], { qos: 1 });
  return {
    payloads: payloads as ReadonlyMap<string, string>,
    /** Returns the seconds until `holds` returns true; rejects after `withinS`. */
    until: (what: string, withinS: number, condition: () => boolean) =>
      new Promise<number>((resolve, reject) => {
        const startMs = performance.now();
        const end = (error?: Error) => {
          clearTimeout(timer);
          listeners.delete(check);
          if (error === undefined) resolve((performance.now() - startMs) / 1_000);
          else reject(error);
        };
        const check = () => condition() && end();
        const timer = setTimeout(() => end(new Error(`Not within ${withinS} s: ${what}`)), withinS * 1_000);
        listeners.add(check);
        check();
      }),
  };
}

/** Runs a check against a program in a folder, or says how to install the program and succeeds. */
export async function runAgainst(
  {
    name,
    programs,
    install,
  }: { readonly name: string; readonly programs: readonly string[]; readonly install: string },
  work: (folder: string) => Promise<void>,
): Promise<void> {
  const folder = process.argv[2] ?? join(tmpdir(), name.replace(" ", "-"));
  const missing = programs.map((file) => join(folder, file)).filter((file) => !existsSync(file));
  if (programPath("mosquitto") === null) missing.push("mosquitto");
  if (missing.length > 0)
    return print(`Not run: missing ${missing.join(", ")}. ${install.replaceAll("FOLDER", folder)}`);
  await runIfInstalled(name, [], () => work(folder));
}
