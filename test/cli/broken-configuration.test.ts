import { spawn } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { expect, test } from "vitest";
import { sendCommand } from "#src/ui/operator/control-socket-client.ts";
import { MAIN, resultOf } from "./hosted.ts";
import {
  type Ended,
  type Harness,
  openHarness,
  type Service,
  simulatedServer,
  WRITING,
  waitForInventory,
} from "./plenum.ts";

const FILE = "plenum.yaml";
const STATE_FOLDER = "memory";

interface BrokenFile {
  readonly what: string;
  /** The good file was moved to `good.yaml`. */
  readonly make: (file: string, good: string) => void;
  readonly problem: RegExp;
}

const BROKEN_FILES: readonly BrokenFile[] = [
  {
    what: "a syntax error",
    make: (file, good) => writeFileSync(file, `${good}sinks: [\n`),
    problem: /plenum\.yaml:\d+:\d+ \S/,
  },
  {
    what: "an unknown key",
    make: (file, good) => writeFileSync(file, `${good}colour: red\n`),
    problem: /plenum\.yaml:\d+:1 colour: This key is not known here\./,
  },
  {
    what: "a missing secret",
    make: (file, good) => writeFileSync(file, good.replace("file: token", `env: \${NO_SUCH_SECRET}`)),
    problem: /plenum\.yaml:\d+:\d+ sources\.main\.token\.env: The environment variable NO_SUCH_SECRET is not set/,
  },
  {
    what: "a file that this user may not read",
    make(file, good) {
      writeFileSync(file, good);
      chmodSync(file, 0o000);
    },
    problem: /plenum\.yaml may not be read by this user/,
  },
  { what: "an empty file", make: (file) => writeFileSync(file, ""), problem: /The file is empty/ },
  { what: "a folder", make: (file) => mkdirSync(file), problem: /plenum\.yaml is a folder/ },
  { what: "no file", make: () => undefined, problem: /plenum\.yaml does not exist/ },
];

/** Root reads every file, except without these capabilities. */
const LIKE_A_USER = ["--bounding-set=-dac_override,-dac_read_search", process.execPath, MAIN];

async function asUser(cli: Harness, args: readonly string[]): Promise<Ended> {
  if (process.geteuid?.() !== 0) return cli.plenum(...args);
  const env = { PATH: process.env.PATH, HOME: cli.folder, XDG_RUNTIME_DIR: cli.folder };
  return resultOf(spawn("setpriv", [...LIKE_A_USER, ...args], { cwd: cli.folder, env }));
}

async function startArmedWorker(service: Service, state: Readonly<Record<string, unknown>> = { folder: STATE_FOLDER }) {
  const cli = openHarness(service.url);
  cli.configure({ state, commands: WRITING });
  await cli.run("--arm-writing");
  await waitForInventory(cli);
  return cli;
}

async function writeThrough(cli: Harness, id: string, value: number, run: Run): Promise<unknown> {
  const command = { source: null, tagId: "10169", forSeconds: null, ttlSeconds: null, user: "test" };
  const controlSocket = { stateFolder: cli.path(STATE_FOLDER) };
  await sendCommand(controlSocket, { ...command, id, value }, AbortSignal.timeout(60_000));
  const result = async () => {
    const { stdout } = await run("events", "--kind", "command-result", "--json");
    const line = stdout.split("\n").find((each) => each.includes(`"commandId":"${id}"`));
    const { data } = JSON.parse(line ?? "{}") as { data?: { outcome: string; reason: string } };
    return data === undefined ? null : [data.outcome, data.reason];
  };
  await expect.poll(result).not.toBe(null);
  return result();
}

type Run = (...args: readonly string[]) => Promise<Ended>;

function breakFile(cli: Harness, { make }: BrokenFile): void {
  renameSync(cli.path(FILE), cli.path("good.yaml"));
  make(cli.path(FILE), readFileSync(cli.path("good.yaml"), "utf8"));
}

function mend(cli: Harness): void {
  rmSync(cli.path(FILE), { recursive: true, force: true });
  renameSync(cli.path("good.yaml"), cli.path(FILE));
}

test("every control command works while the configuration file of the running worker is broken", async () => {
  const service = await simulatedServer({ sites: [6], alarms: { recorded: false } });
  const cli = await startArmedWorker(service);
  const written = () => service.simulator.truth.writes().map(({ value }) => value);
  for (const [n, broken] of BROKEN_FILES.entries()) {
    const { problem, what } = broken;
    breakFile(cli, broken);
    const run: Run = (...args) => (/may not read/.test(what) ? asUser(cli, args) : cli.plenum(...args));
    const runSuccessfully = async (...args: readonly string[]) => {
      const ended = await run(...args);
      expect(ended.code, `${args.join(" ")} with ${what}: ${ended.stderr}`).toBe(0);
      return ended;
    };
    expect((await runSuccessfully("writes", "resume")).stderr, what).toMatch(problem);
    expect(existsSync(cli.path(`${STATE_FOLDER}/WRITES-STOPPED`)), what).toBe(false);
    // A write takes two slots of the quota, so only two writes are made.
    if (n === 0 || n === BROKEN_FILES.length - 1)
      expect(await writeThrough(cli, `open-${n}`, 70 + n, run), what).toEqual(["confirmed", null]);
    const valuesBefore = written();
    const stop = await runSuccessfully("writes", "stop");
    expect(stop.stdout, what).toMatch(/^Writing is stopped while \S+memory\/WRITES-STOPPED exists\.$/m);
    expect(stop.stderr, what).toMatch(problem);
    expect(await writeThrough(cli, `closed-${n}`, 80 + n, run), what).toEqual(["rejected", "killed"]);
    expect(written(), what).toEqual(valuesBefore);
    const [running, first] = (await runSuccessfully("status")).stdout.split("\n");
    expect(running, what).toMatch(/^Running since /);
    expect(first, what).toMatch(/^! The configuration file plenum\.yaml is rejected: /);
    expect(first, what).toMatch(problem);
    expect((await runSuccessfully("status")).stdout, what).toContain("Writing is stopped by the kill switch");
    await runSuccessfully("status", "--probe");
    expect((await runSuccessfully("explain", "10169")).stdout, what).toContain("10169");
    const outbox = await runSuccessfully("outbox");
    expect(outbox.stdout, what).toContain("files");
    expect(outbox.stderr, what).toMatch(problem);
    const added = await runSuccessfully("silence", "add", "--site", "6", "--for", "1h", "--reason", "A test", "--json");
    const { id } = JSON.parse(added.stdout) as { id: string };
    expect((await runSuccessfully("silence")).stdout, what).toContain(id);
    await runSuccessfully("silence", "end", id);
    mend(cli);
  }
  expect(written()).toEqual([70, 70 + BROKEN_FILES.length - 1]);
  // A changed folder waits for a restart; the worker still uses the old one.
  cli.configure({ state: { folder: "elsewhere" } });
  const stopOutput = await cli.plenum("writes", "stop");
  expect([stopOutput.code, stopOutput.stdout.match(/\w+\/WRITES-STOPPED/g)]).toEqual([
    0,
    ["elsewhere/WRITES-STOPPED", `${STATE_FOLDER}/WRITES-STOPPED`],
  ]);
});

test("with a broken configuration and no worker, `plenum writes stop` stops writes from the next start or reports a failure", async () => {
  const cli = openHarness("http://127.0.0.1:1");
  writeFileSync(cli.path(FILE), "");
  const nowhere = await cli.plenum("writes", "stop");
  expect([nowhere.code, nowhere.stdout]).toEqual([78, ""]);
  expect(nowhere.stderr).toContain("Nothing was changed: no worker of this configuration file was found.");
  expect(nowhere.stderr).toContain("The file is empty");
  expect(existsSync(cli.path("state"))).toBe(false);
  mkdirSync(cli.path(STATE_FOLDER), { mode: 0o700 });
  writeFileSync(cli.path(`${STATE_FOLDER}/worker.lock`), "");
  writeFileSync(cli.path(FILE), `state: { folder: ${STATE_FOLDER} }\nsources: [\n`);
  const stopOutput = await cli.plenum("writes", "stop");
  expect([stopOutput.code, existsSync(cli.path(`${STATE_FOLDER}/WRITES-STOPPED`))]).toEqual([0, true]);
  expect((await cli.plenum("status")).code).toBe(78);
});
