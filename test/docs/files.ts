import { globSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "../..");

/** Folders with generated files or files of others. */
const FOREIGN = ["node_modules", ".git", ".cache", "plenum-demo", "state"];

/** Returns the project's own files that match the pattern, with `/` as separator. */
export function files(pattern: string): readonly string[] {
  const found = globSync(pattern, { cwd: ROOT, exclude: FOREIGN.map((name) => `**/${name}/**`) });
  return found.map((file) => file.replaceAll("\\", "/")).toSorted();
}
