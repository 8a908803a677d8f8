import { randomBytes } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runPlenum } from "../plenum-process.ts";
import {
  freePort,
  type RealServer,
  startInflux,
  startMosquitto,
  startVictoriaMetrics,
  temporaryFolder,
} from "../real-servers.ts";
import { receiveMqtt, receiveWebhooks } from "./receivers.ts";

/** An hour of the recording passes in a second, so that a minute and a half holds dozens of alarms. */
const SPEED = 3600;

const SITES = [1, 6, 14];

export type Harness = Awaited<ReturnType<typeof createRunHarness>>;

export async function createRunHarness() {
  const folder = temporaryFolder("recorded-run");
  const [mosquitto, victoriaMetrics, influx] = await Promise.all([
    startMosquitto(),
    startVictoriaMetrics(),
    startInflux(),
  ]);
  const secret = `whsec_${randomBytes(24).toString("base64")}`;
  const mqtt = await receiveMqtt(mosquitto.url);
  const webhooks = await receiveWebhooks(secret);

  const servicePort = await freePort();
  const service = `http://127.0.0.1:${servicePort}`;
  writeFileSync(
    join(folder, "simulator.yaml"),
    JSON.stringify({
      ...{ speed: SPEED, sites: SITES, anchor: "next-alarm", loops_before: 30 },
      alarms: { resolved_retention_h: 0.2 },
    }),
  );
  const simulator = runPlenum(["simulate", "--options", "simulator.yaml", "--port", String(servicePort)], {
    cwd: folder,
  });
  await simulator.waitForOutput("The simulator answers");

  const environment = { PLENUM_TOKEN: "simulator-token", HOOK_SECRET: secret };
  const statusPort = await freePort();
  const stateFolder = join(folder, "state");
  const eventFolder = join(folder, "events");
  mkdirSync(eventFolder);
  writeFileSync(
    join(folder, "plenum.yaml"),
    configuration({ service, statusPort, mosquitto, victoriaMetrics, influx, hook: webhooks.url }),
  );

  const control = async <T>(path: string, body?: unknown): Promise<T> => {
    const response = await fetch(`${service}/_simulator/${path}`, {
      ...(body === undefined
        ? {}
        : { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) }),
    });
    const answer = (await response.json()) as { data: T; error?: string };
    if (!response.ok) throw new Error(`${path}: ${answer.error}`);
    return answer.data;
  };

  return {
    ...{ folder, stateFolder, eventFolder, mosquitto, victoriaMetrics, influx, mqtt, webhooks },
    query: <T>(path: string) => control<T>(path),
    postControl: <T>(path: string, body: unknown) => control<T>(path, body),
    async startWorker() {
      const worker = runPlenum(["run", "--arm-writing"], { cwd: folder, environment });
      await worker.waitForOutput("Plenum is running");
      return worker;
    },
    async plenum(args: readonly string[]) {
      const once = runPlenum(args, { cwd: folder, environment });
      await once.waitForOutput(/\n$/);
      return once.output();
    },
    async clear() {
      await simulator.end("SIGTERM");
      await mqtt.close();
      await webhooks.close();
      await Promise.all([mosquitto.stop(), victoriaMetrics.stop(), influx.stop()]);
    },
  };
}

function configuration(parts: {
  readonly service: string;
  readonly statusPort: number;
  readonly mosquitto: RealServer;
  readonly victoriaMetrics: RealServer;
  readonly influx: RealServer;
  readonly hook: string;
}): string {
  return `
state: { folder: state }
status: { port: ${parts.statusPort} }
sources:
  main:
    base_url: ${parts.service}
    token: { env: PLENUM_TOKEN }
    time_zone: Europe/Helsinki
    quota: { reserve_for_writes: 1 }
    spread: 1s
    schedules:
      alarms: "*/4 * * * * *"
      resolved_sweep: "*/15 * * * * *"
    read:
      - { name: climate, select: { units: ["°C"] }, every: 15s }
      - { name: rest, every: 2m }
    history:
      - { name: all, resolution: 5m, every: 1m, backfill: 12h, grace: 5s }
sinks:
  broker:
    mqtt: { url: "${parts.mosquitto.url}", commands: { enabled: true } }
    from: beginning
  victoria:
    influxdb: { url: "${parts.victoriaMetrics.url}", bucket: plenum }
    from: beginning
    batch: 1000
  influx:
    influxdb: { url: "${parts.influx.url}", api: v1, database: plenum, create_database: true }
    from: beginning
    batch: 1000
  tickets:
    webhook: { url: "${parts.hook}", secrets: [{ env: HOOK_SECRET }], allow_networks: ["127.0.0.0/8"] }
    filter: { kinds: ["alarm-*"] }
    from: beginning
  files:
    file: { folder: events }
    from: beginning
commands:
  enabled: true
  allow:
    - { site_id: 6, tag_id: "10169", type: number, min: 60, max: 90 }
`;
}
