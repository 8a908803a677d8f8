import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "..");

/** Long, because it only ends a test that hangs. */
const OUTPUT_TIMEOUT_MS = 180_000;

export interface Running {
  readonly pid: number;
  output(): string;
  /** Resolves when the output contains the text; rejects if the process ends first. */
  waitForOutput(text: string | RegExp): Promise<void>;
  end(signal: "SIGTERM" | "SIGKILL" | "SIGINT"): Promise<number | null>;
}

interface RunOptions {
  readonly cwd?: string;
  readonly environment?: Readonly<Record<string, string>>;
}

export function runPlenum(args: readonly string[], options: RunOptions & { readonly cwd: string }): Running {
  // The start script ends in `exec`, so the process is the worker itself: signals and measurements reach it.
  return runProgram(join(ROOT, "plenum"), args, options);
}

export function runProgram(command: string, args: readonly string[], options: RunOptions = {}): Running {
  const child: ChildProcess = spawn(command, args, {
    cwd: options.cwd,
    env: { ...process.env, NO_COLOR: "1", ...options.environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let text = "";
  const listeners = new Set<() => void>();
  const onOutput = (piece: Buffer) => {
    text += piece.toString();
    for (const listener of listeners) listener();
  };
  child.stdout?.on("data", onOutput);
  child.stderr?.on("data", onOutput);
  const ended = new Promise<number | null>((resolve) => child.once("exit", (code) => resolve(code)));
  return {
    pid: child.pid ?? 0,
    output: () => text,
    waitForOutput(wanted) {
      return new Promise((resolve, reject) => {
        const fits = () => (typeof wanted === "string" ? text.includes(wanted) : wanted.test(text));
        const done = (error?: Error) => {
          listeners.delete(look);
          clearTimeout(timer);
          if (error === undefined) resolve();
          else reject(error);
        };
        const look = () => {
          if (fits()) done();
        };
        const timer = setTimeout(() => done(new Error(`It did not say ${wanted}, but:\n${text}`)), OUTPUT_TIMEOUT_MS);
        listeners.add(look);
        void ended.then(() => done(fits() ? undefined : new Error(`It ended without saying ${wanted}:\n${text}`)));
        look();
      });
    },
    async end(signal) {
      child.kill(signal);
      return ended;
    },
  };
}
