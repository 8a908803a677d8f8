import { connect, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { startStubInTest } from "../receivers/receiver-helpers.ts";
import { type Harness, QUIET_SITE, servedHarness, WRITING } from "./plenum.ts";

/** More connections than the status page accepts at once. */
const OPEN_REQUESTS = 600;

async function running(environment: Readonly<Record<string, string>> = {}) {
  const { service, cli } = await servedHarness(QUIET_SITE, environment);
  cli.configure({ commands: WRITING });
  const worker = cli.start("run", "--arm-writing");
  const startLog = await worker.waitForOutput("Plenum is running");
  const url = new URL(/"status":"(http[^"]+)"/.exec(startLog)?.[1] ?? "");
  await expect.poll(async () => (await cli.plenum("status")).stdout).toContain(" 8 tags");
  return { service, cli, worker, url };
}

async function everyCommand(cli: Harness): Promise<void> {
  const status = await cli.plenum("status");
  expect([status.code, status.stdout]).toEqual([0, expect.stringMatching(/^Running since /)]);
  expect((await cli.plenum("status", "--probe")).code).toBe(0);
  const explained = await cli.plenum("explain", "10169", "--json");
  expect([explained.code, explained.stdout]).toEqual([0, expect.stringContaining('"worker":"open"')]);
  const plan = await cli.plenum("plan", "--json");
  expect([plan.code, plan.stdout]).toEqual([0, expect.stringContaining('"tags":8')]);
  const reading = await cli.plenum("read", "10169");
  expect([reading.code, reading.stdout]).toEqual([0, expect.stringMatching(/^10169 /m)]);
  const written = await cli.plenum("write", "10169", "75", "--json");
  expect([written.code, written.stdout]).toEqual([0, expect.stringContaining('"outcome":"confirmed"')]);
}

function halfOpen(url: URL): Promise<Socket> {
  return new Promise((resolve) => {
    const socket = connect({ host: url.hostname, port: Number(url.port) });
    onTestFinished(() => void socket.destroy());
    socket.on("error", () => resolve(socket));
    socket.once("connect", () => socket.write("GET /api/status HTTP/1.1\r\nHost: ", () => resolve(socket)));
  });
}

test("commands reach the worker while 600 open requests block its status page", async () => {
  const { cli, url } = await running();
  await Promise.all(Array.from({ length: OPEN_REQUESTS }, () => halfOpen(url)));
  await everyCommand(cli);
});

test("commands do not use a proxy of the environment for the control socket", async () => {
  const proxy = await startStubInTest();
  const names = ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY"];
  const proxies = Object.fromEntries(names.map((name) => [name, proxy.url]));
  const { cli } = await running({ NODE_USE_ENV_PROXY: "1", ...proxies });
  await everyCommand(cli);
  expect(proxy.connections).toBe(0);
});
