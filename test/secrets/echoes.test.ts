import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import mqtt from "mqtt";
import { expect, onTestFinished, test } from "vitest";
import { startMqttBroker } from "#src/cli/demo/broker-and-simulator.ts";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { type Harness, openHarness, simulatedServer } from "../cli/plenum.ts";
import { type Canaries, canaries, findLeaks, SLOTS } from "./canaries.ts";
import { echoingBroker, echoingProxy, echoingReceiver, echoingService } from "./echo-servers.ts";

/** Runs the real worker against servers that repeat its secrets: no file, page or log contains a part of them. */

const COMMANDS = [
  "status",
  "status --json",
  "explain 10169",
  "explain 10169 --json",
  "gaps 10169 --json",
  "outbox --json",
  "outbox dead --json",
  "plan --json",
  "sites --json",
  "alarms --json",
  "read 10169 --json",
  "read 10170",
  "history 10169",
  "history 10170 --from 2h",
  "write 10169 75 --json",
  "check",
  "check --json",
];

async function readAllOutput(cli: Harness, page: URL, password: string): Promise<Record<string, string>> {
  const outputByOrigin: Record<string, string> = {};
  for (const line of COMMANDS) {
    const { stdout, stderr } = await cli.plenum(...line.split(" "));
    outputByOrigin[`plenum ${line}`] = stdout + stderr;
  }
  const headers = { authorization: `Basic ${Buffer.from(`plenum:${password}`).toString("base64")}` };
  for (const path of ["/metrics", "/api/status", "/api/alarms", "/api/tags", "/api/events", "/healthz", "/readyz"]) {
    const response = await fetch(new URL(path, page), { headers });
    outputByOrigin[`page ${path}`] = JSON.stringify([...response.headers]) + (await response.text());
  }
  const denied = await fetch(new URL("/api/status", page), { headers: { authorization: `${headers.authorization}x` } });
  outputByOrigin["page, wrong password"] = await denied.text();
  return outputByOrigin;
}

function readFiles(folder: string): Record<string, string> {
  const names = readdirSync(folder, { recursive: true, encoding: "utf8" });
  return Object.fromEntries(
    names
      .filter((name) => statSync(join(folder, name)).isFile())
      .map((name) => [name, readFileSync(join(folder, name), "latin1")]),
  );
}

function buildSections(urls: Readonly<Record<"service" | "v2" | "v1" | "hook" | "closed" | "open" | "proxy", string>>) {
  const file = (slot: string) => ({ file: `secret-${slot}` });
  const everything = { from: "beginning" };
  const proxy = { url: urls.proxy, username: "me", password: file("proxyPassword") };
  return {
    log: { level: "trace" },
    status: { port: 0, password: file("statusPassword") },
    sources: {
      main: {
        base_url: urls.service,
        token: file("service"),
        time_zone: "Europe/Oslo",
        read: [{ name: "all", every: "1m" }],
        history: [{ name: "log", resolution: "5m", backfill: "1d" }],
      },
    },
    sinks: {
      files: { file: { folder: "events" }, ...everything },
      v2: { influxdb: { url: urls.v2, bucket: "b", token: file("influxToken") }, ...everything },
      v1: {
        influxdb: { url: urls.v1, api: "v1", database: "d", username: "me", password: file("influxPassword") },
        ...everything,
      },
      hook: {
        webhook: {
          url: urls.hook,
          secrets: [file("webhookSigning")],
          headers: { authorization: file("webhookHeader") },
          allow_networks: ["127.0.0.0/8"],
        },
        schedule: ["1ms", "1ms"],
        ...everything,
      },
      barred: { webhook: { url: "https://hook.example/", unsigned: true, proxy }, ...everything },
      proxied: { influxdb: { url: "https://lake.example", bucket: "b", proxy }, ...everything },
      closed: {
        mqtt: { url: urls.closed, username: "me", password: file("mqttPassword"), plain_text: true },
        ...everything,
      },
      open: { mqtt: { url: urls.open, protocol: "3.1.1" }, ...everything },
    },
    commands: {
      enabled: true,
      read_back_after: "100ms",
      allow: [{ type: "number", site_id: 6, tag_id: "10169", min: 60, max: 90, min_interval: "0s" }],
    },
  };
}

async function recordMessages(url: string): Promise<() => string> {
  const client = await mqtt.connectAsync(url);
  onTestFinished(() => client.endAsync(true));
  let heardMessages = "";
  client.on("message", (topic, payload) => {
    heardMessages += `${topic} ${payload.toString()}\n`;
  });
  await client.subscribeAsync("#");
  return () => heardMessages;
}

test("the worker stores, emits and shows no part of a secret that servers echo", async () => {
  const secrets: Canaries = canaries();
  const { url, simulator } = await simulatedServer({
    sites: [6],
    alarms: { recorded: false },
    tokens: [{ token: secrets.service }],
  });
  simulator.control.raiseAlarm({ siteId: 6, description: "Too cold" });
  const cli = openHarness(url);
  for (const slot of SLOTS) writeFileSync(cli.path(`secret-${slot}`), `${secrets[slot]}\n`, { mode: 0o600 });
  const broker = await startMqttBroker();
  onTestFinished(() => broker.close());
  const messages = await recordMessages(broker.url);
  cli.configure(
    buildSections({
      service: await echoingService(url, /\/(history|write|systems|hosts)|status=resolved|ids=10170/),
      v2: await echoingReceiver(),
      v1: await echoingReceiver(),
      hook: `${await echoingReceiver()}/hook`,
      closed: await echoingBroker(secrets.mqttPassword),
      open: broker.url,
      proxy: await echoingProxy(),
    }),
  );

  const worker = cli.start("run");
  const startLog = await worker.waitForOutput("Plenum is running");
  const page = new URL(/"status":"(http[^"]+)"/.exec(startLog)?.[1] ?? "");
  const readReport = async () => JSON.parse((await cli.plenum("status", "--json")).stdout) as StatusReport;
  const counts = async () => (await readReport()).sources[0]?.counts;
  await expect.poll(async () => (await counts())?.tags).toBe(8);
  await expect.poll(async () => (await counts())?.alarms).toBe(1);
  await expect.poll(async () => (await counts())?.values).toBeGreaterThan(0);
  await expect.poll(messages).toContain("/alarm/");
  const letters = async () => JSON.parse((await cli.plenum("outbox", "dead", "--json")).stdout) as object[];
  await expect.poll(async () => (await letters()).length).toBeGreaterThan(30);

  const commandOutput = await readAllOutput(cli, page, secrets.statusPassword);
  worker.signal("SIGTERM");
  const { stdout, stderr } = await worker.ended;
  const { "plenum.yaml": _, token: __, ...files } = readFiles(cli.folder);
  for (const slot of SLOTS) delete files[`secret-${slot}`];
  const all = { ...commandOutput, ...files, messages: messages(), log: stderr, "standard output": stdout };
  expect(findLeaks(secrets, all)).toEqual([]);
  const redacted = Object.values(all).join("").split("[redacted]").length;
  expect(redacted).toBeGreaterThan(100);
  expect(messages()).toContain("[redacted]");
  expect(files["state/plenum.db"] ?? "").toContain("[redacted]");
});

test("the search for secrets finds a secret in every encoding", () => {
  const secrets = canaries();
  for (const slot of SLOTS) {
    const bareSecret = secrets[slot].replace(/^(Bearer |whsec_|mqtt-|out-|page-|pass |17\|)/, "");
    for (const text of [
      bareSecret.slice(3, 15),
      Buffer.from(`me:${bareSecret}`).toString("base64"),
      Buffer.from(bareSecret).toString("hex"),
      encodeURIComponent(bareSecret),
    ])
      expect(findLeaks(secrets, { here: `a ${text} b` }), text).toHaveLength(1);
  }
  expect(findLeaks(secrets, { here: "Bearer and nothing else" })).toEqual([]);
});
