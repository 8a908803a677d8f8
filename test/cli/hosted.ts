import { type ChildProcess, fork, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { expect } from "vitest";
import { BUNDLE, BUNDLED_MAIN } from "../../tools/bundle.ts";
import type { CommandResult, HostedCommand } from "./command-host.ts";

const ROOT = join(import.meta.dirname, "../..");
export const MAIN = join(ROOT, BUNDLE, BUNDLED_MAIN);
const HOST = join(import.meta.dirname, "command-host.ts");
const CACHE = "NODE_COMPILE_CACHE";
export const COMPILED = join(ROOT, "node_modules/.cache/plenum");

/** These commands keep running and change the process: streams, signals. */
const LONG_RUNNING_COMMANDS = ["run", "demo", "simulate"];
/** Node.js reads these once, when it starts. */
const READ_AT_START = /^(?:NODE_|TZ$)/;

export function command(request: HostedCommand, isAlone = inItsOwnProcess): Promise<CommandResult> {
  const isLongRunning = request.args.some((word) => LONG_RUNNING_COMMANDS.includes(word));
  const needsOwnProcess = Object.keys(request.environment).some((name) => name !== CACHE && READ_AT_START.test(name));
  return (isLongRunning || needsOwnProcess ? null : hosted(request)) ?? isAlone(request);
}

async function inItsOwnProcess({ args, folder, environment }: HostedCommand): Promise<CommandResult> {
  const childProcess = spawn(process.execPath, [MAIN, ...args], {
    cwd: folder,
    env: { ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  return resultOf(childProcess);
}

export async function resultOf(childProcess: ChildProcess & Record<"stdout" | "stderr", Readable>) {
  const [stdout, stderr, [code]] = await Promise.all([
    text(childProcess.stdout),
    text(childProcess.stderr),
    once(childProcess, "close") as Promise<[number]>,
  ]);
  return { code, stdout, stderr };
}

interface Host {
  readonly process: ChildProcess;
  /** A process serves one test file: commands leave state in its memory. */
  readonly file: string | undefined;
  isAtWork: boolean;
}
let host: Host | undefined;

/** Returns null while the shared process runs a command. */
function hosted(request: HostedCommand): Promise<CommandResult> | null {
  if (host?.isAtWork === true) return null;
  const { testPath: file } = expect.getState();
  if (host?.process.connected !== true || host.file !== file) {
    host?.process.kill("SIGKILL");
    const env = { PATH: process.env.PATH, [CACHE]: COMPILED };
    const hostProcess = fork(HOST, [MAIN], { env, execArgv: [], stdio: ["ignore", "ignore", "inherit", "ipc"] });
    hostProcess.unref();
    hostProcess.channel?.unref();
    host = { process: hostProcess, file, isAtWork: false };
  }
  const currentHost = host;
  currentHost.isAtWork = true;
  return new Promise((resolve, reject) => {
    const releaseHost = () => {
      currentHost.isAtWork = false;
      currentHost.process.off("message", onResult).off("exit", onExit);
    };
    const onResult = (hostMessage: unknown) => {
      releaseHost();
      resolve(hostMessage as CommandResult);
    };
    const onExit = (code: number | null) => {
      releaseHost();
      reject(new Error(`the process of ${request.args.join(" ")} ended with ${code}`));
    };
    currentHost.process.on("message", onResult).on("exit", onExit).send(request);
  });
}
