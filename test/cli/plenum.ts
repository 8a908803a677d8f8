import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished } from "vitest";
import { stringify } from "yaml";
import type { AnyEvent } from "#src/core/model/event.ts";
import { SERVICE_TOKEN, type SimulatorOptionsInput } from "#src/simulator/options.ts";
import { startSimulatorServer } from "#src/simulator/server.ts";
import { createSimulator, type Simulator } from "#src/simulator/simulator.ts";
import type { StatusReport } from "#src/ui/status/status-report.ts";
import type { CommandResult } from "./command-host.ts";
import { COMPILED, command, MAIN } from "./hosted.ts";

export type { CommandResult as Ended };

export interface Running {
  readonly pid: number;
  /** Resolves with all output when the text appears on standard error; rejects when the process ends first. */
  waitForOutput(text: string): Promise<string>;
  printed(): string;
  signal(name: NodeJS.Signals): void;
  readonly ended: Promise<CommandResult>;
  /** Sends SIGTERM and expects exit code 0. */
  stop(): Promise<CommandResult>;
  kill(): Promise<CommandResult>;
}

export type Harness = ReturnType<typeof openHarness>;

export function openHarness(serviceUrl: string, environment: Readonly<Record<string, string>> = {}) {
  const folder = mkdtempSync(join(tmpdir(), "plenum-cli-"));
  const children: ChildProcess[] = [];
  onTestFinished(async () => {
    for (const child of children) if (child.exitCode === null) child.kill("SIGKILL");
    rmSync(folder, { recursive: true, force: true });
  });
  const path = (name: string) => join(folder, name);
  const token = (name: string) => {
    writeFileSync(path(name), `${SERVICE_TOKEN}\n`, { mode: 0o600 });
    return { file: name };
  };
  token("token");
  const start = (...args: readonly string[]) => spawnProgram(process.execPath, [MAIN, ...args]);
  const startWithin = (descriptors: number, ...args: readonly string[]) =>
    spawnProgram("sh", ["-c", `ulimit -n ${descriptors} && exec "$@"`, "sh", process.execPath, MAIN, ...args]);
  const variables = () => ({
    PATH: process.env.PATH,
    HOME: folder,
    TMPDIR: tmpdir(),
    // A demo of this user has its files in the real runtime folder.
    XDG_RUNTIME_DIR: folder,
    NODE_COMPILE_CACHE: COMPILED,
    ...environment,
  });

  function spawnProgram(program: string, args: readonly string[]): Running {
    const childProcess = spawn(program, args, { cwd: folder, env: variables(), stdio: ["ignore", "pipe", "pipe"] });
    children.push(childProcess);
    let [stdout, stderr] = ["", ""];
    const listeners = new Set<() => void>();
    childProcess.stdout.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
    });
    childProcess.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
      for (const listener of listeners) listener();
    });
    const exit = new Promise<CommandResult>((resolve) => {
      childProcess.once("close", (code) => resolve({ code, stdout, stderr }));
    });
    return {
      pid: childProcess.pid ?? 0,
      ended: exit,
      printed: () => stdout,
      signal: (name) => childProcess.kill(name),
      async stop() {
        childProcess.kill("SIGTERM");
        expect((await exit).code, stderr).toBe(0);
        return exit;
      },
      kill() {
        childProcess.kill("SIGKILL");
        return exit;
      },
      waitForOutput: (text) =>
        new Promise((resolve, reject) => {
          const checkOutput = () => stderr.includes(text) && resolve(stderr);
          listeners.add(checkOutput);
          checkOutput();
          void exit.then(({ code }) => reject(new Error(`ended with ${code} without a word of “${text}”: ${stderr}`)));
        }),
    };
  }

  /** Short commands share a process (`hosted.ts`). */
  const plenum = (...args: readonly string[]): Promise<CommandResult> =>
    command({ args, folder, environment: variables() }, () => start(...args).ended);

  /** `sections` replace those of a small valid configuration; `source` adds options to its source `main`. */
  function configure({ source, ...sections }: Readonly<Record<string, unknown>> & { readonly source?: object } = {}) {
    const main = { base_url: serviceUrl, token: { file: "token" }, time_zone: "Europe/Oslo", ...source };
    const config = {
      state: { folder: "state" },
      status: { port: 0 },
      sources: { main },
      sinks: { files: { file: { folder: "events" }, from: "beginning" } },
      ...sections,
    };
    // A worker refuses a file that a group may write, also with a umask of 002.
    writeFileSync(path("plenum.yaml"), stringify(config), { mode: 0o644 });
  }
  configure();

  return {
    ...{ folder, path, token, start, startWithin, plenum, configure },
    /** Starts a worker, and waits until it runs. */
    async run(...args: readonly string[]): Promise<Running> {
      const worker = start("run", ...args);
      await worker.waitForOutput("Plenum is running");
      return worker;
    },
    /** Exit code and error message of a command: `78 There is no sink nowhere.` */
    async refusal(...args: readonly string[]): Promise<string> {
      const { code, stderr } = await plenum(...args);
      return `${code} ${onlyLine(stderr)}`;
    },
    /** Output of a command with `--json`. */
    json: async <T>(...args: readonly string[]): Promise<T> => JSON.parse((await plenum(...args, "--json")).stdout),
    async each(lines: readonly string[]): Promise<readonly CommandResult[]> {
      const results: CommandResult[] = [];
      for (const line of lines) results.push(await plenum(...line.split(" ")));
      return results;
    },
  };
}

/** Section `commands` that allows writes to the set-point of site 6. */
export const WRITING = {
  enabled: true,
  read_back_after: "100ms",
  allow: [{ type: "number", site_id: 6, tag_id: "10169", min: 60, max: 90, min_interval: "0s" }],
};

/** Waits until the worker has read the complete lists of all sources. */
export async function waitForInventory(cli: Harness): Promise<void> {
  const isInventoryRead = async () => {
    const { stdout } = await cli.plenum("status", "--json");
    const { sources } = JSON.parse(stdout) as StatusReport;
    return sources.length > 0 && sources.every(({ firstInventory }) => firstInventory?.done === true);
  };
  await expect.poll(isInventoryRead).toBe(true);
}

/** Returns the configuration of a webhook to a server on this machine. */
export const localHook = (url: string) => ({ url, unsigned: true, allow_networks: ["127.0.0.0/8"] });

export interface Service {
  readonly url: string;
  readonly simulator: Simulator;
  close(): Promise<void>;
}

export async function simulatedServer(options: SimulatorOptionsInput = {}): Promise<Service> {
  const simulator = createSimulator({ sites: [1, 6], ...options }, { now: Date.now });
  const server = await startSimulatorServer(simulator, { port: 0 });
  let isOpen = true;
  const close = async () => {
    if (isOpen) await server.close();
    isOpen = false;
  };
  onTestFinished(close);
  return { url: server.url, simulator, close };
}

/** One site without recorded alarms. */
export const QUIET_SITE: SimulatorOptionsInput = { sites: [6], alarms: { recorded: false } };

/** Starts a simulated service, and creates a harness whose source is this service. */
export async function servedHarness(options?: SimulatorOptionsInput, environment?: Readonly<Record<string, string>>) {
  const service = await simulatedServer(options);
  return { service, cli: openHarness(service.url, environment) };
}

export const tagRequests = ({ simulator }: Service) =>
  simulator.truth.requests().filter(({ path }) => /\/tags\/(read|write|history)/.test(path));

/** The events that the sink `file` wrote to a folder, in their order. */
export function readEvents(folder: string): readonly AnyEvent[] {
  return readdirSync(folder)
    .toSorted()
    .flatMap((name) => readFileSync(join(folder, name), "utf8").split("\n"))
    .filter((line) => line !== "")
    .map((line) => JSON.parse(line) as AnyEvent);
}

/** Fails the test for several lines, such as a stack trace. Progress does not count. */
export function onlyLine(stderr: string): string {
  const errorLines = stderr
    .trimEnd()
    .split("\n")
    .filter((line) => !/ … \d+ s$/.test(line));
  if (errorLines.length !== 1) throw new Error(`more than one sentence:\n${stderr}`);
  return errorLines[0] ?? "";
}
