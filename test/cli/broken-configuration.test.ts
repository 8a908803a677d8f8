import { spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { text } from "node:stream/consumers";
import { expect, test } from "vitest";
import { sendCommand } from "#src/ui/operator/remote.ts";
import { MAIN } from "./hosted.ts";
import { type Ended, type Service, simulatedServer, type Workplace, WRITING, workplace } from "./plenum.ts";

const FILE = "plenum.yaml";
const STATE = "memory";

interface Broken {
  readonly what: string;
  /** The good file was moved to `good.yaml`. */
  readonly make: (file: string, good: string) => void;
  readonly problem: RegExp;
}

const BROKEN: readonly Broken[] = [
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

async function asUser(place: Workplace, args: readonly string[]): Promise<Ended> {
  if (process.geteuid?.() !== 0) return place.plenum(...args);
  const env = { PATH: process.env.PATH, HOME: place.folder, XDG_RUNTIME_DIR: place.folder };
  const child = spawn("setpriv", [...LIKE_A_USER, ...args], { cwd: place.folder, env });
  const [stdout, stderr, [code]] = await Promise.all([
    text(child.stdout),
    text(child.stderr),
    once(child, "close") as Promise<[number]>,
  ]);
  return { code, stdout, stderr };
}

async function armed(service: Service, state: Readonly<Record<string, unknown>> = { folder: STATE }) {
  const place = workplace(service.url);
  place.configure({ state, commands: WRITING });
  await place.run("--arm-writing");
  const known = async () => !(await place.plenum("status", "--json")).stdout.includes('"tags":0');
  await expect.poll(known, { timeout: 20_000 }).toBe(true);
  return place;
}

async function writeThrough(place: Workplace, id: string, value: number, run: Run): Promise<unknown> {
  const command = { source: null, tagId: "10169", forSeconds: null, ttlSeconds: null, user: "test" };
  const door = { stateFolder: place.path(STATE) };
  await sendCommand(door, { ...command, id, value }, AbortSignal.timeout(20_000));
  const result = async () => {
    const { stdout } = await run("events", "--kind", "command-result", "--json");
    const line = stdout.split("\n").find((each) => each.includes(`"commandId":"${id}"`));
    const { data } = JSON.parse(line ?? "{}") as { data?: { outcome: string; reason: string } };
    return data === undefined ? null : [data.outcome, data.reason];
  };
  await expect.poll(result, { timeout: 30_000 }).not.toBe(null);
  return result();
}

type Run = (...args: readonly string[]) => Promise<Ended>;

function breakFile(place: Workplace, { make }: Broken): void {
  renameSync(place.path(FILE), place.path("good.yaml"));
  make(place.path(FILE), readFileSync(place.path("good.yaml"), "utf8"));
}

function mend(place: Workplace): void {
  rmSync(place.path(FILE), { recursive: true, force: true });
  renameSync(place.path("good.yaml"), place.path(FILE));
}

test("every control command works while the configuration file of the running worker is broken", async () => {
  const service = await simulatedServer({ sites: [6], alarms: { recorded: false } });
  const place = await armed(service);
  const written = () => service.simulator.truth.writes().map(({ value }) => value);
  for (const [n, broken] of BROKEN.entries()) {
    const { problem, what } = broken;
    breakFile(place, broken);
    const run: Run = (...args) => (/may not read/.test(what) ? asUser(place, args) : place.plenum(...args));
    const done = async (...args: readonly string[]) => {
      const ended = await run(...args);
      expect(ended.code, `${args.join(" ")} with ${what}: ${ended.stderr}`).toBe(0);
      return ended;
    };

    expect((await done("writes", "resume")).stderr, what).toMatch(problem);
    expect(existsSync(place.path(`${STATE}/WRITES-STOPPED`)), what).toBe(false);
    // A write takes two slots of the quota, so only two writes are made.
    if (n === 0 || n === BROKEN.length - 1)
      expect(await writeThrough(place, `open-${n}`, 70 + n, run), what).toEqual(["confirmed", null]);
    const before = written();
    const stop = await done("writes", "stop");
    expect(stop.stdout, what).toMatch(/^Writing is stopped while \S+memory\/WRITES-STOPPED exists\.$/m);
    expect(stop.stderr, what).toMatch(problem);
    expect(await writeThrough(place, `closed-${n}`, 80 + n, run), what).toEqual(["rejected", "killed"]);
    expect(written(), what).toEqual(before);

    const [running, first] = (await done("status")).stdout.split("\n");
    expect(running, what).toMatch(/^Running since /);
    expect(first, what).toMatch(/^! The configuration file plenum\.yaml is rejected: /);
    expect(first, what).toMatch(problem);
    expect((await done("status")).stdout, what).toContain("Writing is stopped by the kill switch");
    await done("status", "--probe");
    expect((await done("explain", "10169")).stdout, what).toContain("10169");
    const outbox = await done("outbox");
    expect(outbox.stdout, what).toContain("files");
    expect(outbox.stderr, what).toMatch(problem);
    const added = await done("silence", "add", "--site", "6", "--for", "1h", "--reason", "A test", "--json");
    const { id } = JSON.parse(added.stdout) as { id: string };
    expect((await done("silence")).stdout, what).toContain(id);
    await done("silence", "end", id);
    const doctor = await done("doctor");
    expect(doctor.stdout, what).toMatch(/There is no configuration at|cannot be read|correct it/);
    expect(doctor.stdout, what).not.toContain("No worker is running");
    mend(place);
  }
  expect(written()).toEqual([70, 70 + BROKEN.length - 1]);

  // A changed folder waits for a restart; the worker still uses the old one.
  place.configure({ state: { folder: "elsewhere" } });
  const both = await place.plenum("writes", "stop");
  expect([both.code, both.stdout.match(/\w+\/WRITES-STOPPED/g)]).toEqual([
    0,
    ["elsewhere/WRITES-STOPPED", `${STATE}/WRITES-STOPPED`],
  ]);
}, 240_000);

test("without a worker and with a broken file, `writes stop` prevents writes at the next start or reports that writes cannot be stopped", async () => {
  const place = workplace("http://127.0.0.1:1");
  writeFileSync(place.path(FILE), "");
  const nowhere = await place.plenum("writes", "stop");
  expect([nowhere.code, nowhere.stdout]).toEqual([78, ""]);
  expect(nowhere.stderr).toContain("Nothing was changed: no worker of this configuration file was found.");
  expect(nowhere.stderr).toContain("The file is empty");
  expect(existsSync(place.path("state"))).toBe(false);

  mkdirSync(place.path(STATE), { mode: 0o700 });
  writeFileSync(place.path(`${STATE}/worker.lock`), "");
  writeFileSync(place.path(FILE), `state: { folder: ${STATE} }\nsources: [\n`);
  const stopped = await place.plenum("writes", "stop");
  expect([stopped.code, existsSync(place.path(`${STATE}/WRITES-STOPPED`))]).toEqual([0, true]);
  expect((await place.plenum("status")).code).toBe(78);
});
