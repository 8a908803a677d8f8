import { type ChildProcess, spawn } from "node:child_process";
import { readFileSync } from "node:fs";

/** What a process has used so far, as Linux counts it for all of its threads. */
export interface Used {
  readonly processorMs: number;
  readonly writtenBytes: number;
  readonly residentBytes: number;
  readonly peakBytes: number;
}

export interface Measured {
  readonly pid: number;
  used(): Used;
  /** Resolves once it has printed the text; answers all of it so far. */
  says(text: string): Promise<string>;
  end(): Promise<void>;
}

/** A process of the bench. All of them are ended together, whatever happens (`endAll`). */
const running = new Set<Measured>();

export function start(
  command: string,
  args: readonly string[],
  environment: Record<string, string> = {},
): Measured {
  const child: ChildProcess = spawn(command, args, {
    env: { ...process.env, NO_COLOR: "1", ...environment },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  const listeners = new Set<() => void>();
  const heard = (piece: Buffer) => {
    output += piece.toString();
    for (const listener of listeners) listener();
  };
  child.stdout?.on("data", heard);
  child.stderr?.on("data", heard);
  const ended = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  const pid = child.pid ?? 0;
  const measured: Measured = {
    pid,
    used: () => usedBy(pid),
    async says(text) {
      const said = new Promise<void>((resolve) => {
        const look = () => output.includes(text) && resolve();
        listeners.add(look);
        look();
      });
      await Promise.race([
        said,
        ended.then(() => {
          throw new Error(
            `${command} ${args.join(" ")} ended without saying "${text}":\n${output.slice(-2_000)}`,
          );
        }),
      ]);
      return output;
    },
    async end() {
      running.delete(measured);
      child.kill("SIGTERM");
      const timer = setTimeout(() => child.kill("SIGKILL"), 10_000);
      await ended;
      clearTimeout(timer);
    },
  };
  running.add(measured);
  return measured;
}

export async function endAll(): Promise<void> {
  await Promise.all([...running].map((each) => each.end()));
}

function usedBy(pid: number): Used {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]?.split(" ") ?? [];
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  const written = /^write_bytes: (\d+)/m.exec(readFileSync(`/proc/${pid}/io`, "utf8"))?.[1];
  const kilobytes = (name: string) => Number(new RegExp(`${name}:\\s+(\\d+) kB`).exec(status)?.[1]) * 1_024;
  return {
    // Fields 14 and 15, in hundredths of a second.
    processorMs: (Number(stat[11]) + Number(stat[12])) * 10,
    writtenBytes: Number(written),
    residentBytes: kilobytes("VmRSS"),
    peakBytes: kilobytes("VmHWM"),
  };
}
