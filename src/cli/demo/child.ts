import { type SpawnOptions, spawn } from "node:child_process";
import { systemClock } from "../../core/runtime/clock.ts";
import { within } from "../../core/runtime/waiting.ts";

/** A process of the demo's own. A Ctrl-C at the terminal does not reach it, so that all are ended in their order. */
export interface Child {
  readonly pid: number;
  readonly isRunning: () => boolean;
  /** The latest that it said on standard error. */
  readonly said: () => string;
  /** Resolves with what ended it: a signal, or its code. */
  readonly ended: Promise<string>;
  /** Asks it to end, and ends it where it has not after so many milliseconds. */
  stop(signal: NodeJS.Signals, withinMs: number): Promise<void>;
}

const KEPT_CHARACTERS = 4_000;

export function startChild(
  program: string,
  args: readonly string[],
  options: Pick<SpawnOptions, "cwd" | "env" | "gid" | "uid">,
): Child {
  const child = spawn(program, args, { ...options, detached: true, stdio: ["ignore", "ignore", "pipe"] });
  let said = "";
  child.stderr?.on("data", (text: Buffer) => {
    said = (said + text.toString()).slice(-KEPT_CHARACTERS);
  });
  let isOver = false;
  const ended = new Promise<string>((resolve) => {
    const end = (how: string) => {
      isOver = true;
      resolve(how);
    };
    child.once("error", (error) => end(error.message));
    child.once("exit", (code, signal) => end(signal ?? `code ${code}`));
  });
  return {
    pid: child.pid ?? 0,
    isRunning: () => !isOver,
    said: () => said,
    ended,
    async stop(signal, withinMs) {
      if (isOver) return;
      child.kill(signal);
      if (!(await within(systemClock, withinMs, ended))) child.kill("SIGKILL");
      await ended;
    },
  };
}
