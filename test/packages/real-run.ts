import { spawnSync } from "node:child_process";
import { join } from "node:path";

export const ROOT = join(import.meta.dirname, "../..");

export const print = (line: string): void => void process.stdout.write(`${line}\n`);

export function report(what: string, holds: boolean, details = ""): void {
  if (!holds) throw new Error(`Failed: ${what}. ${details}`);
  print(`  ${what}`);
}

export function missingPrograms(...programs: readonly string[]): readonly string[] {
  const missingTools = programs.filter((program) => spawnSync("sh", ["-c", `command -v ${program}`]).status !== 0);
  return process.getuid?.() === 0 ? missingTools : ["root", ...missingTools];
}

/** Runs `work` unless something is missing; prints errors and sets the exit code. */
export async function runIfInstalled(
  what: string,
  missing: readonly string[],
  work: () => Promise<void>,
): Promise<void> {
  process.exitCode = 1;
  if (missing.length > 0) return print(`${what} was not tested: missing ${missing.join(", ")}.`);
  try {
    await work();
    print("All checks passed.");
    process.exitCode = 0;
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : String(error)}\n`);
  }
}

/** Checks user ids, capabilities and privileges in the text of `/proc/<pid>/status`, and returns its fields. */
export function checkPrivileges(status: string, uid: string): (name: string) => readonly string[] {
  const field = (name: string) => new RegExp(`^${name}:\\s*(.*)$`, "m").exec(status)?.[1]?.split(/\s+/) ?? [];
  const ids = field("Uid");
  report(`all user ids are ${uid}`, ids.length > 0 && ids.every((id) => id === uid), ids.join(" "));
  for (const set of ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
    report(`the process has no capability (${set})`, /^0+$/.test(field(set).join("")), field(set).join(" "));
  report("the process can get no new privileges", field("NoNewPrivs")[0] === "1");
  return field;
}
