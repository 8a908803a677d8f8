import { readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { DoctorReport } from "#src/cli/doctor/diagnosis.ts";
import { startStubInTest } from "../receivers/receiver-helpers.ts";
import { simulatedServer, type Workplace, workplace } from "./plenum.ts";

interface Seen {
  readonly first: string;
  readonly stdout: string;
  readonly file: string;
  readonly report: DoctorReport;
}

async function doctor(place: Workplace, ...args: readonly string[]): Promise<Seen> {
  const { code, stdout, stderr } = await place.plenum("doctor", ...args);
  expect(code, stderr).toBe(0);
  const [first = ""] = stdout.split("\n");
  const file = /is in (\S+); it holds no secret/.exec(stdout)?.[1] ?? "";
  return { first, stdout, file, report: JSON.parse(readFileSync(place.path(file), "utf8")) as DoctorReport };
}

test("`doctor` finds no problem next to a running worker, and writes a private file with its report and log", async () => {
  const service = await simulatedServer();
  const place = workplace(service.url);
  const worker = await place.run();
  await expect.poll(async () => (await place.plenum("status", "--probe")).code, { timeout: 30_000 }).toBe(0);
  const { first, file, report } = await doctor(place);
  expect(first).toBe("Nothing is wrong, as far as can be seen from here.");
  expect(file).toMatch(/^plenum-doctor-\d{4}-\d\d-\d\dT.*Z\.json$/);
  expect(statSync(place.path(file)).mode & 0o777).toBe(0o600);
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

  const stopped = await doctor(place);
  expect(stopped.first).toMatch(/^Most likely: No worker is running on the state folder state/);
  expect(stopped.report.worker.report?.startedAt).toBeNull();

  expect(readdirSync(place.folder).filter((name) => name.startsWith("plenum-doctor-"))).toHaveLength(2);
}, 90_000);

test("`doctor` lists a missing or wrong configuration first", async () => {
  const place = workplace("http://127.0.0.1:9");
  const missing = await doctor(place, "--config", "nowhere.yaml");
  expect(missing.first).toMatch(/^Most likely: There is no configuration at nowhere\.yaml/);
  expect(missing.report).toMatchObject({ configuration: { found: "missing", content: null }, reach: null });

  place.configure({ sinks: { lake: { influxdb: { url: "http://127.0.0.1:9", buckt: "b" } } } });
  const wrong = await doctor(place);
  expect(wrong.first).toMatch(/^Most likely: A worker does not start .*sinks\.lake\.influxdb/);
  expect(wrong.report.configuration).toMatchObject({ found: "wrong" });

  writeFileSync(place.path("plenum.yaml"), "sources:\n\tmain: 1\n");
  expect((await doctor(place)).first).toMatch(/does not start .*: line 2/);

  place.configure();
  writeFileSync(place.path("token"), "");
  expect((await doctor(place)).first).toMatch(/^Most likely: A secret cannot be used: The secret file token is empty/);
});

test("`doctor` lists a damaged state before a missing worker, and a source that rejects requests after the missing worker", async () => {
  const service = await simulatedServer();
  const place = workplace(service.url);
  const worker = await place.run();
  await worker.stop();
  writeFileSync(place.path("token"), "another token");
  const refused = await doctor(place);
  const order = refused.report.troubles.map((trouble) => trouble.slice(0, 20));
  expect(order.slice(0, 2), refused.stdout).toEqual(["No worker is running", "Source main refuses "]);

  const file = place.path("state/plenum.db");
  writeFileSync(file, readFileSync(file).fill(0xa5, 0, 4_096));
  const damaged = await doctor(place);
  expect(damaged.first).toMatch(/^Most likely: The state in state is damaged: restart the worker/);
  expect(damaged.report.state.found).toBe("damaged");
  expect(damaged.report.state.files.length).toBeGreaterThan(0);
});

test("`doctor` explains a missing worker by the port in use and the last error of its log", async () => {
  const service = await simulatedServer();
  const place = workplace(service.url);
  const { port } = await startStubInTest();
  place.configure({ status: { port } });
  const failure = { level: 50, msg: "polls fail", err: { message: "The disk has a fault." } };
  writeFileSync(place.path("old.log"), `${JSON.stringify(failure)}\n{"level":30,"msg":"stopped"}`);
  const { first, stdout, report } = await doctor(place, "--log", "old.log");
  expect(first).toContain(`Another program has the port of the status page (127.0.0.1:${port})`);
  expect(stdout).toContain("The last complaint in its log: polls fail: The disk has a fault.");
  expect(report.log?.lines).toHaveLength(2);

  expect(await place.refusal("doctor", "--log", "no.log")).toBe("78 The log file no.log cannot be read.");
  expect(await place.refusal("doctor", "--to", "no/folder")).toMatch(/^78 .*cannot be written \(ENOENT\)/);
});

test("`doctor` reports an unreachable sink once, even if the worker reports the sink too", async () => {
  const service = await simulatedServer();
  const place = workplace(service.url);
  const influxdb = { url: "http://127.0.0.1:9", bucket: "b", token: place.token("lake-token") };
  place.configure({ sinks: { lake: { from: "beginning", influxdb } } });
  const worker = await place.run();
  const notices = async () => (await doctor(place)).report.worker.report?.notices.join();
  await expect.poll(notices, { timeout: 40_000 }).toMatch(/Sink lake: /);
  const { troubles } = (await doctor(place)).report;
  expect(troubles.filter((trouble) => trouble.startsWith("Sink lake"))).toEqual([
    expect.stringMatching(/^Sink lake does not respond: /),
  ]);
  await worker.stop();
}, 90_000);

test("`doctor` reports one network problem when it can reach no server", async () => {
  const place = workplace("https://service.invalid");
  place.configure({ sinks: { broker: { mqtt: { url: "mqtts://broker.invalid" } } } });
  const { report } = await doctor(place);
  expect(report.troubles[1]).toMatch(/^None of main, broker can be reached, so look at this machine's network first/);
});
