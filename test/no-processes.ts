import childProcess from "node:child_process";
import { syncBuiltinESMExports } from "node:module";

/** Makes the fast tests fail when they start a process, except for git. */
const STARTERS = ["spawn", "spawnSync", "exec", "execSync", "execFile", "execFileSync", "fork"] as const;
const GUARDED = Symbol.for("plenum.noProcesses");

function guard(name: (typeof STARTERS)[number]): void {
  const start = childProcess[name] as (command: string, ...rest: unknown[]) => unknown;
  const guarded = (command: string, ...rest: unknown[]) => {
    if (command === "git") return start(command, ...rest);
    throw new Error(`A fast test started “${command}”: add its file or folder to test/slow.json.`);
  };
  Object.assign(childProcess, { [name]: guarded });
}

// Test files share a process, so the functions are replaced once.
const shared = globalThis as { [GUARDED]?: true };
if (shared[GUARDED] !== true) {
  shared[GUARDED] = true;
  for (const name of STARTERS) guard(name);
  syncBuiltinESMExports();
}
