import { once } from "node:events";
import { cpSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { Aedes } from "aedes";
import { expect, onTestFinished, test } from "vitest";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { simulatedServer, WRITING, workplace } from "./plenum.ts";

async function broker() {
  const aedes = await Aedes.createBroker();
  const server = createServer((socket) => aedes.handle(socket));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(async () => {
    server.close();
    await new Promise<void>((resolve) => aedes.close(() => resolve()));
  });
  const names = new Set<string>();
  aedes.on("client", ({ id }) => names.add(id));
  return { url: `mqtt://127.0.0.1:${(server.address() as AddressInfo).port}`, names };
}

test("a worker on a copied state reports the copy, gets another name, and writes no value until it is armed by plenum writes arm", async () => {
  const service = await simulatedServer({ sites: [6] });
  const { url, names } = await broker();
  const cli = workplace(service.url);
  const sections = {
    sinks: { scada: { mqtt: { url, protocol: "3.1.1", commands: { enabled: true } } } },
    commands: WRITING,
  };
  cli.configure(sections);
  const firstWorker = await cli.run("--arm-writing");
  await expect.poll(() => names.size, { timeout: 20_000 }).toBeGreaterThanOrEqual(2);
  const ofFirst = new Set(names);
  await firstWorker.stop();
  cpSync(cli.path("state"), cli.path("copy"), { recursive: true });
  const restartedWorker = await cli.run();
  cli.configure({ ...sections, state: { folder: "copy" } });
  const copy = await cli.run();
  await expect.poll(() => names.size, { timeout: 20_000 }).toBeGreaterThanOrEqual(2 * ofFirst.size);
  const { notices } = await cli.json<StatusReport>("status");
  expect(notices).toContainEqual(
    expect.stringMatching(/^This state was copied from .*\/state, which still exists, .*Run only one of the two/),
  );
  expect(notices).toContainEqual(expect.stringMatching(/was copied from .*\/state, which may write too/));
  for (const worker of [restartedWorker, copy]) {
    await worker.stop();
  }
  for (const { stderr } of [await restartedWorker.ended, await copy.ended]) {
    expect(stderr).not.toMatch(/"level":[45]0[^\n]*broker/);
  }
}, 90_000);
