import { globSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "../..");

/** What tools leave behind, and what is not ours. */
const FOREIGN = ["node_modules", ".git", ".cache", "plenum-demo", "state"];

/** The project's own files that fit, by their paths with `/` between folders. */
export function files(pattern: string): readonly string[] {
  const found = globSync(pattern, { cwd: ROOT, exclude: FOREIGN.map((name) => `**/${name}/**`) });
  return found.map((file) => file.replaceAll("\\", "/")).toSorted();
}
