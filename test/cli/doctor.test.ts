import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { DoctorReport } from "#src/cli/doctor/likely-problems.ts";
import { startStubInTest } from "../receivers/receiver-helpers.ts";
import { servedWorkplace, type Workplace, workplace } from "./plenum.ts";

interface DoctorOutput {
  readonly first: string;
  readonly stdout: string;
  readonly file: string;
  readonly report: DoctorReport;
}

async function doctor(cli: Workplace, ...args: readonly string[]): Promise<DoctorOutput> {
  const { code, stdout, stderr } = await cli.plenum("doctor", ...args);
  expect(code, stderr).toBe(0);
  const [first = ""] = stdout.split("\n");
  const file = /is in (\S+); it holds no secret/.exec(stdout)?.[1] ?? "";
  return { first, stdout, file, report: JSON.parse(readFileSync(cli.path(file), "utf8")) as DoctorReport };
}

test("plenum doctor finds no problem next to a running worker, and writes a private file with its report and log", async () => {
  const { service, cli } = await servedWorkplace();
  const worker = await cli.run();
  await expect.poll(async () => (await cli.plenum("status", "--probe")).code, { timeout: 30_000 }).toBe(0);
  const { first, file, report } = await doctor(cli);
  expect(first).toBe("Nothing is wrong, as far as can be seen from here.");
  expect(file).toMatch(/^plenum-doctor-\d{4}-\d\d-\d\dT.*Z\.json$/);
  expect(statSync(cli.path(file)).mode & 0o777).toBe(0o600);
  expect(report.worker).toMatchObject({ found: "running", notReady: null });
  expect(report.worker.report?.sources[0]?.name).toBe("main");
  expect(report.worker.log.some((line) => line.includes('"msg":"started"'))).toBe(true);
  expect(report.state).toMatchObject({ found: "good", problems: [] });
  expect(report.state.content?.events.length).toBeGreaterThan(0);
  expect(report.reach).toEqual([
    expect.objectContaining({ name: "main", answers: true, clockSkewMs: expect.any(Number) }),
    expect.objectContaining({ name: "files", answers: true }),
  ]);
  expect(report.configuration.content).toMatchObject({
    sources: { main: { base_url: service.url, token: { file: "token" }, time_zone: "Europe/Oslo" } },
  });
  expect(report.machine).toMatchObject({ node: process.version });
  await worker.stop();
  const withoutWorker = await doctor(cli);
  expect(withoutWorker.first).toMatch(/^Most likely: No worker is running on the state folder state/);
  expect(withoutWorker.report.worker.report?.startedAt).toBeNull();
  expect(readdirSync(cli.folder).filter((name) => name.startsWith("plenum-doctor-"))).toHaveLength(2);
}, 90_000);

test("plenum doctor lists a missing or wrong configuration first", async () => {
  const cli = workplace("http://127.0.0.1:9");
  const missingFile = await doctor(cli, "--config", "nowhere.yaml");
  expect(missingFile.first).toMatch(/^Most likely: There is no configuration at nowhere\.yaml/);
  expect(missingFile.report).toMatchObject({ configuration: { found: "missing", content: null }, reach: null });
  cli.configure({ sinks: { lake: { influxdb: { url: "http://127.0.0.1:9", buckt: "b" } } } });
  const wrongFile = await doctor(cli);
  expect(wrongFile.first).toMatch(/^Most likely: A worker does not start .*sinks\.lake\.influxdb/);
  expect(wrongFile.report.configuration).toMatchObject({ found: "wrong" });
  writeFileSync(cli.path("plenum.yaml"), "sources:\n\tmain: 1\n");
  expect((await doctor(cli)).first).toMatch(/does not start .*: line 2/);
  cli.configure();
  writeFileSync(cli.path("token"), "");
  expect((await doctor(cli)).first).toMatch(/^Most likely: A secret cannot be used: The secret file token is empty/);
});

test("plenum doctor lists problems in this order: damaged state, missing worker, source that rejects requests", async () => {
  const { cli } = await servedWorkplace();
  const worker = await cli.run();
  await worker.stop();
  writeFileSync(cli.path("token"), "another token");
  const refusedToken = await doctor(cli);
  const order = refusedToken.report.troubles.map((trouble) => trouble.slice(0, 20));
  expect(order.slice(0, 2), refusedToken.stdout).toEqual(["No worker is running", "Source main rejects "]);
  const file = cli.path("state/plenum.db");
  writeFileSync(file, readFileSync(file).fill(0xa5, 0, 4_096));
  const damagedState = await doctor(cli);
  expect(damagedState.first).toMatch(/^Most likely: The state in state is damaged: restart the worker/);
  expect(damagedState.report.state.found).toBe("damaged");
  expect(damagedState.report.state.files.length).toBeGreaterThan(0);
});

test("plenum doctor explains a missing worker by the port in use and the last error of its log", async () => {
  const { cli } = await servedWorkplace();
  const { port } = await startStubInTest();
  cli.configure({ status: { port } });
  const failure = { level: 50, msg: "polls fail", err: { message: "The disk has a fault." } };
  writeFileSync(cli.path("old.log"), `${JSON.stringify(failure)}\n{"level":30,"msg":"stopped"}`);
  const { first, stdout, report } = await doctor(cli, "--log", "old.log");
  expect(first).toContain(`Another program has the port of the status page (127.0.0.1:${port})`);
  expect(stdout).toContain("The last complaint in its log: polls fail: The disk has a fault.");
  expect(report.log?.lines).toHaveLength(2);
  expect(await cli.refusal("doctor", "--log", "no.log")).toBe("78 The log file no.log cannot be read.");
  expect(await cli.refusal("doctor", "--to", "no/folder")).toMatch(/^78 .*cannot be written \(ENOENT\)/);
});

test("plenum doctor reports an unreachable sink once, even if the worker reports the sink too", async () => {
  const { cli } = await servedWorkplace();
  const influxdb = { url: "http://127.0.0.1:9", bucket: "b", token: cli.token("lake-token") };
  cli.configure({ sinks: { lake: { from: "beginning", influxdb } } });
  const worker = await cli.run();
  const notices = async () => (await doctor(cli)).report.worker.report?.notices.join();
  await expect.poll(notices, { timeout: 40_000 }).toMatch(/Sink lake: /);
  const { troubles } = (await doctor(cli)).report;
  expect(troubles.filter((trouble) => trouble.startsWith("Sink lake"))).toEqual([
    expect.stringMatching(/^Sink lake does not respond: /),
  ]);
  await worker.stop();
}, 90_000);

test("plenum doctor reports one network problem when it can reach no server", async () => {
  const cli = workplace("https://service.invalid");
  cli.configure({ sinks: { broker: { mqtt: { url: "mqtts://broker.invalid" } } } });
  const { report } = await doctor(cli);
  expect(report.troubles[1]).toMatch(/^None of main, broker can be reached, so look at this machine's network first/);
});
