import { once } from "node:events";
import { cpSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { Aedes } from "aedes";
import { expect, onTestFinished, test } from "vitest";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import { type Harness, onlyLine, servedHarness, WRITING } from "./plenum.ts";

function initialAlarms(cli: Harness): readonly string[] {
  return readdirSync(cli.path("events"))
    .flatMap((name) => readFileSync(cli.path(`events/${name}`), "utf8").split("\n"))
    .filter((line) => line.includes('"alarm-raised"') && line.includes('"initial":true'))
    .map((line) => (JSON.parse(line) as { readonly id: string }).id);
}

async function activeAlarms(url: string): Promise<number> {
  const response = await fetch(`${url}/api/v1/alarms?status=active&per_page=500`, {
    headers: { authorization: "Bearer simulator-token", accept: "application/json" },
  });
  return ((await response.json()) as { readonly data: readonly unknown[] }).data.length;
}

async function runUntil(cli: Harness, alarms: number): Promise<void> {
  const worker = await cli.run();
  await expect.poll(() => initialAlarms(cli).length).toBe(alarms);
  await worker.kill();
}

test("a damaged state is reported by plenum state check, quarantined and replaced at the next start, and salvaged by plenum state salvage", async () => {
  const { service, cli } = await servedHarness();
  service.simulator.control.raiseAlarm({ siteId: 1 });
  expect(await cli.refusal("state", "check")).toMatch(/^78 .*There is no state/);
  const active = await activeAlarms(service.url);
  await runUntil(cli, active);
  const intactCheck = await cli.plenum("state", "check");
  expect([intactCheck.code, intactCheck.stdout]).toEqual([0, expect.stringMatching(/The file is whole\. \d+ rows/)]);
  const file = cli.path("state/plenum.db");
  const bytes = readFileSync(file);
  writeFileSync(file, bytes.fill(0xa5, 0, 4_096));
  writeFileSync(`${file}-wal`, readFileSync(`${file}-wal`).fill(0xa5, 0, 32));
  const damagedCheck = await cli.plenum("state", "check", "--json");
  expect([damagedCheck.code, JSON.parse(damagedCheck.stdout)]).toEqual([1, expect.objectContaining({ whole: false })]);
  expect(onlyLine(damagedCheck.stderr)).toMatch(/^The state is damaged\. Restart the worker/);
  await runUntil(cli, 2 * active);
  const ids = initialAlarms(cli);
  expect(ids.slice(active).toSorted(), "the same alarms, with the same ids").toEqual(ids.slice(0, active).toSorted());
  const { filesSetAside, trouble } = JSON.parse((await cli.plenum("state", "check", "--json")).stdout) as {
    readonly filesSetAside: readonly string[];
    readonly trouble: readonly string[];
  };
  expect([filesSetAside.length, trouble]).toEqual([1, []]);
  expect(readdirSync(cli.path("state"))).toContain(`${filesSetAside[0]}-wal`);
  const salvage = await cli.plenum("state", "salvage", cli.path(`state/${filesSetAside[0]}`));
  expect(salvage.stdout + salvage.stderr).toMatch(/events were read out of \d+ pages|No event could be read/);
});

test("a state with a write-ahead log but an empty database file is reported and salvaged", async () => {
  const { service, cli } = await servedHarness();
  service.simulator.control.raiseAlarm({ siteId: 1 });
  const active = await activeAlarms(service.url);
  await runUntil(cli, active);
  writeFileSync(cli.path("state/plenum.db"), "");
  const worker = await cli.run();
  await expect.poll(() => initialAlarms(cli).length).toBe(2 * active);
  const status = await cli.json<StatusReport>("status");
  expect(status.notices).toContainEqual(
    expect.stringMatching(/^The state file was damaged\. It was set aside as .*plenum\.db\.damaged-/),
  );
  const { filesSetAside } = await cli.json<{ readonly filesSetAside: readonly string[] }>("state", "check");
  const salvage = await cli.plenum("state", "salvage", cli.path(`state/${filesSetAside[0]}`), "--json");
  expect(salvage.code).toBe(0);
  const { found, taken, known, delivered } = JSON.parse(salvage.stdout) as Record<string, number>;
  expect(found).toBeGreaterThan(0);
  expect((taken ?? 0) + (known ?? 0) + (delivered ?? 0)).toBe(found);
  await worker.stop();
});

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

test("a worker on a copied state reports the copy, uses other MQTT client ids, and writes only after plenum writes arm", async () => {
  const { cli } = await servedHarness({ sites: [6] });
  const { url, names } = await broker();
  const sections = {
    sinks: { scada: { mqtt: { url, protocol: "3.1.1", commands: { enabled: true } } } },
    commands: WRITING,
  };
  cli.configure(sections);
  const firstWorker = await cli.run("--arm-writing");
  await expect.poll(() => names.size).toBeGreaterThanOrEqual(2);
  const ofFirst = new Set(names);
  await firstWorker.stop();
  cpSync(cli.path("state"), cli.path("copy"), { recursive: true });
  const restartedWorker = await cli.run();
  cli.configure({ ...sections, state: { folder: "copy" } });
  const copy = await cli.run();
  await expect.poll(() => names.size).toBeGreaterThanOrEqual(2 * ofFirst.size);
  const { notices } = await cli.json<StatusReport>("status");
  expect(notices).toContainEqual(
    expect.stringMatching(/^This state was copied from .*\/state, which still exists, .*Run only one of the two/),
  );
  expect(notices).toContainEqual(expect.stringMatching(/was copied from .*\/state, which may write too/));
  for (const worker of [restartedWorker, copy]) await worker.stop();
  for (const { stderr } of [await restartedWorker.ended, await copy.ended]) {
    expect(stderr).not.toMatch(/"level":[45]0[^\n]*broker/);
  }
});
