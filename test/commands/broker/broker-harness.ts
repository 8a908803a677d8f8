import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connectAsync, type IClientPublishOptions, type MqttClient } from "mqtt";
import type { CommandResult } from "#src/core/model/command-event-data.ts";
import { KILL_SWITCH_FILE } from "#src/engine/commands/kill-switch.ts";
import { startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator } from "#src/simulator/simulator.ts";
import { freePort, type RealServer, startMosquitto } from "../../real-servers.ts";
import { createRunFolder } from "../../run-folders.ts";
import { chooseTemporaryRoot } from "../../temporary-root.ts";
import type { SeededRandom } from "../seeded-random.ts";
import { CLIENT_ID, configurationOf, openTags, SITES } from "./building.ts";
import { calm, type Moment } from "./disturbances.ts";
import { type ClockSpeed, fastClock } from "./fast-clock.ts";
import { createLedger } from "./ledger.ts";
import { type Message, marked } from "./messages.ts";
import { postJudge } from "./post-judge.ts";
import { withRunningState } from "./state-reader.ts";
import { startWireTap } from "./wire-tap.ts";
import { startWorkerRun, type WorkerRun } from "./worker-run.ts";

export const FACTOR = 8;
/** Long, because it only ends a campaign that hangs. */
const WAIT_TIMEOUT_MS = 180_000;
const PACE = 30;
const MOST_UNDER_WAY = 40;
const MOST_AHEAD = 300;
const MOST_LOST = 40;

export type Harness = Awaited<ReturnType<typeof createBrokerHarness>>;

export async function createBrokerHarness(seed: number, random: SeededRandom) {
  const closing: (() => unknown)[] = [];
  const close = async () => {
    for (const each of closing.splice(0).toReversed()) await each();
  };
  try {
    return { ...(await built(seed, random, closing)), close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function built(seed: number, random: SeededRandom, closing: (() => unknown)[]) {
  const clockSpeed: ClockSpeed = { sinceMs: Date.now(), factor: FACTOR };
  const clock = fastClock(clockSpeed);
  const now = () => clock.now();
  const folder = createRunFolder(chooseTemporaryRoot());
  closing.push(() => rmSync(folder, { recursive: true, force: true }));
  const stateFolder = join(folder, "state");
  const waiter = createWaiter();
  const ledger = createLedger();
  const lastSerial = () => ledger.lastSerial();
  const workerRuns: WorkerRun[] = [];
  const kills: Moment[] = [];
  let plannedKill: Moment | null = null;

  function killIfPlanned(moment: Moment): void {
    if (plannedKill === null || (moment !== plannedKill && moment !== "now")) return;
    kills.push(moment);
    plannedKill = null;
    workerRuns.at(-1)?.kill();
  }

  const simulator = createSimulator({ sites: SITES, seed, alarms: { recorded: false } }, { now });
  const { tags, limits, allow } = openTags(simulator);
  const judge = postJudge({ simulator, stateFolder, ledger, limits, wayMs: 1_000 * FACTOR });
  const server = await startSimulatorServer({
    ...simulator,
    handle(request) {
      const reply = judge.handle(request);
      if (request.method === "POST") killIfPlanned("write");
      else if (request.path.endsWith("/read")) killIfPlanned("read");
      return reply;
    },
  });
  closing.push(() => server.close());
  calm(simulator);

  const port = await freePort();
  const sessions = mkdtempSync(join(tmpdir(), "plenum-campaign-broker-"));
  closing.push(() => rmSync(sessions, { recursive: true, force: true }));
  let broker: RealServer = await startBroker(port, sessions);
  closing.push(() => broker.stop());
  const tap = await startWireTap(() => port, {
    now,
    lastSerial,
    run: () => workerRuns.length - 1,
    changed: waiter.ring,
    delivered(delivery) {
      ledger.arrived(delivery);
      killIfPlanned("delivery");
    },
    acknowledged: () => killIfPlanned("acknowledgement"),
  });
  closing.push(() => tap.close());
  const publishers = await startPublishers(broker.url, { lastSerial, changed: waiter.ring });
  closing.push(() => publishers.close());
  const listener = await listenForResults(broker.url);
  closing.push(() => listener.leave());

  function startRun(): WorkerRun {
    const configuration = configurationOf({
      stateFolder,
      folder,
      service: server.url,
      broker: `mqtt://127.0.0.1:${tap.port}`,
      protocol: random.chance(0.5) ? "5" : "3.1.1",
      allow,
    });
    const run = startWorkerRun({ number: workerRuns.length, configuration, clockSpeed, now });
    workerRuns.push(run);
    void run.ended.then(waiter.ring);
    return run;
  }
  closing.push(async () => {
    for (const run of workerRuns) run.kill();
    await Promise.all(workerRuns.map((run) => run.ended));
  });
  const isAlive = () => workerRuns.at(-1)?.how === "running";
  await startRun().started;
  await waiter.until(async () => {
    if (!tap.hears()) return false;
    const known = await withRunningState(stateFolder, (store) => store.documents("tag/main"));
    return known.size >= limits.size;
  }, "the worker knows the building");

  const sinceMs = now();
  let deafFrom: number | null = null;
  function hasSpace(): boolean {
    if (!isAlive()) return true;
    if (publishers.pending() >= MOST_UNDER_WAY) return false;
    if (lastSerial() > ((now() - sinceMs) / 1_000) * PACE) return false;
    const handled = tap.handled();
    deafFrom = handled === null ? (deafFrom ?? lastSerial()) : null;
    return handled === null ? lastSerial() < (deafFrom ?? 0) + MOST_LOST : lastSerial() < handled + MOST_AHEAD;
  }

  return {
    clock: { now },
    folder,
    stateFolder,
    switchFile: join(stateFolder, KILL_SWITCH_FILE),
    simulator,
    judge,
    ledger,
    tap,
    publishers,
    tags,
    runs: workerRuns as readonly WorkerRun[],
    kills: kills as readonly Moment[],
    heard: listener.outcomes,
    publish: (message: Message) => publishers.publish(message, ledger.addMessage(message)),
    hasSpace: () => waiter.until(async () => hasSpace(), "the worker keeps up"),
    isAlive,
    arm(moment: Moment): void {
      plannedKill = moment;
      if (moment === "now") killIfPlanned("now");
    },
    isArmed: () => plannedKill !== null,
    strikeNow: () => killIfPlanned("now"),
    async stopWorker(): Promise<void> {
      plannedKill = null;
      await workerRuns.at(-1)?.stop();
    },
    async revive(meanwhile: () => void): Promise<void> {
      await workerRuns.at(-1)?.ended;
      if (random.chance(0.5)) await leavePersistentSession(broker.url);
      meanwhile();
      const run = startRun();
      await waiter.until(async () => tap.hears() || run.how !== "running", "a new worker listens");
    },
    async restartBroker(how: "end" | "kill", meanwhile: () => void): Promise<void> {
      await broker[how]();
      await broker.stop();
      meanwhile();
      broker = await startBroker(port, sessions);
    },
    until: waiter.until,
  };
}

async function startPublishers(url: string, listener: { readonly lastSerial: () => number; changed(): void }) {
  const options = { clean: false, reconnectPeriod: 200, keepalive: 60 };
  const modern = await connectAsync(url, {
    ...options,
    clientId: "sender-5",
    protocolVersion: 5,
    properties: { sessionExpiryInterval: 3600 },
  });
  const old = await connectAsync(url, { ...options, clientId: "sender-3", protocolVersion: 4 });
  const clients = [modern, old];
  for (const client of clients) client.on("error", () => undefined);
  const acknowledged = new Map<number, number>();
  let pending = 0;

  async function send(client: MqttClient, message: Message, serial: number): Promise<void> {
    pending += 1;
    try {
      await client.publishAsync(message.topic, marked(message.payload, serial), optionsOf(message, client));
      acknowledged.set(serial, listener.lastSerial());
    } catch {
      // The library gives up what it was about to send again when the connection is lost once more at that moment.
    } finally {
      pending -= 1;
      listener.changed();
    }
  }

  return {
    acknowledged: acknowledged as ReadonlyMap<number, number>,
    pending: () => pending,
    publish(message: Message, serial: number): void {
      const client = message.mqtt5Properties !== null || serial % 2 === 0 ? modern : old;
      void send(client, message, serial);
    },
    async close(): Promise<void> {
      for (const client of clients) await client.endAsync(true);
    },
  };
}

function optionsOf({ retain, mqtt5Properties }: Message, client: MqttClient): IClientPublishOptions {
  if (client.options.protocolVersion !== 5 || mqtt5Properties === null) return { qos: 1, retain };
  const { userProperties, ...others } = mqtt5Properties;
  const user = userProperties === undefined ? {} : { userProperties: { ...userProperties } };
  return { qos: 1, retain, properties: { ...others, ...user } };
}

function startBroker(port: number, folder: string): Promise<RealServer> {
  return startMosquitto({
    port,
    lines: () => [
      `listener ${port} 127.0.0.1`,
      "allow_anonymous true",
      "persistence true",
      `persistence_location ${folder}/`,
      "max_queued_messages 0",
    ],
  });
}

async function leavePersistentSession(url: string): Promise<void> {
  const client = await connectAsync(url, {
    clientId: `${CLIENT_ID}-cmd`,
    protocolVersion: 5,
    clean: false,
    reconnectPeriod: 0,
    properties: { sessionExpiryInterval: 3600 },
  });
  await client.subscribeAsync("plenum/cmd/#", { qos: 1 });
  await client.endAsync();
}

async function listenForResults(url: string) {
  const outcomes = new Map<string, string>();
  const client = await connectAsync(url, { clientId: "listener", protocolVersion: 5, reconnectPeriod: 200 });
  client.on("error", () => undefined);
  client.on("message", (_topic, payload) => {
    const { commandId, outcome } = JSON.parse(payload.toString()) as CommandResult;
    outcomes.set(commandId, outcome);
  });
  await client.subscribeAsync("plenum/+/+/tag/+/result", { qos: 1 });
  return { outcomes, leave: () => client.endAsync(true) };
}

function createWaiter() {
  const sleepers = new Set<() => void>();
  return {
    ring: () => {
      for (const wake of sleepers) wake();
    },
    until: async (holds: () => Promise<boolean>, what: string): Promise<void> => {
      const until = performance.now() + WAIT_TIMEOUT_MS;
      while (!(await holds())) {
        if (performance.now() > until) throw new Error(`It did not happen in time that ${what}.`);
        await new Promise<void>((resolve) => {
          const wake = () => {
            clearTimeout(timer);
            sleepers.delete(wake);
            resolve();
          };
          const timer = setTimeout(wake, 50);
          sleepers.add(wake);
        });
      }
    },
  };
}
