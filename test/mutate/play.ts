import { type ChildProcess, fork } from "node:child_process";
import { join } from "node:path";
import type { Played, Task } from "./player.ts";
import type { Room } from "./rooms.ts";

/** A process that plays mutants of one room, as its owner sees it. */
export interface Player {
  readonly room: Room;
  isAlive(): boolean;
  /** Null when there was no answer in time; the process is dead then. A process that dies has noticed. */
  play(task: Task, limitMs: number): Promise<Played | null>;
  end(): void;
}

const PROGRAM = join(import.meta.dirname, "player.ts");

export function startPlayer(room: Room, environment: NodeJS.ProcessEnv): Player {
  // Mutants are compared with each other, so chance has to be the same for all. The process leads a group, so that it
  // can be killed together with the workers of vitest. What a mutant prints when it dies says nothing to anybody.
  const child = fork(PROGRAM, room.tests, {
    env: { ...process.env, ...environment, PLENUM_SEED: "1", NO_COLOR: "1" },
    stdio: ["ignore", "ignore", "ignore", "ipc"],
    detached: true,
  });
  const end = () => killGroup(child);
  process.once("exit", end);
  child.once("exit", () => process.off("exit", end));
  return {
    room,
    isAlive: () => child.connected && child.exitCode === null,
    end,
    async play(task, limitMs) {
      const { promise, resolve } = Promise.withResolvers<Played | null>();
      const answered = (played: unknown) => resolve(played as Played);
      const died = () => resolve({ failed: "the process died", tookMs: 0 });
      const late = setTimeout(() => resolve(null), limitMs);
      child.once("message", answered);
      child.once("exit", died);
      child.send(task);
      const played = await promise;
      clearTimeout(late);
      child.off("message", answered);
      child.off("exit", died);
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
    // It has ended by itself meanwhile.
  }
}
