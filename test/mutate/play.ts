import { type ChildProcess, fork } from "node:child_process";
import { join } from "node:path";
import type { Played, Task } from "./player.ts";
import type { MutationTarget } from "./targets.ts";

/** A child process that runs the tests of one target against mutants. */
export interface Player {
  readonly target: MutationTarget;
  isAlive(): boolean;
  /** Returns null and kills the process on a timeout. A process that dies has detected the mutant. */
  play(task: Task, limitMs: number): Promise<Played | null>;
  end(): void;
}

const PROGRAM = join(import.meta.dirname, "player.ts");

export function startPlayer(target: MutationTarget, environment: NodeJS.ProcessEnv): Player {
  // A fixed seed makes mutants comparable. `detached` makes a process group, which is killed with the workers of vitest.
  const playerProcess = fork(PROGRAM, target.tests, {
    env: { ...process.env, ...environment, PLENUM_SEED: "1", NO_COLOR: "1" },
    stdio: ["ignore", "ignore", "ignore", "ipc"],
    detached: true,
  });
  const end = () => killGroup(playerProcess);
  process.once("exit", end);
  playerProcess.once("exit", () => process.off("exit", end));
  return {
    target,
    isAlive: () => playerProcess.connected && playerProcess.exitCode === null,
    end,
    async play(task, limitMs) {
      const { promise, resolve } = Promise.withResolvers<Played | null>();
      const resolvePlayed = (played: unknown) => resolve(played as Played);
      const onDeath = () => resolve({ failed: "the process died", tookMs: 0 });
      const timeoutTimer = setTimeout(() => resolve(null), limitMs);
      playerProcess.once("message", resolvePlayed);
      playerProcess.once("exit", onDeath);
      playerProcess.send(task);
      const played = await promise;
      clearTimeout(timeoutTimer);
      playerProcess.off("message", resolvePlayed);
      playerProcess.off("exit", onDeath);
      if (played === null) end();
      return played;
    },
  };
}

function killGroup({ pid, exitCode }: ChildProcess): void {
  if (pid === undefined || exitCode !== null) return;
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // The process has already ended.
  }
}
