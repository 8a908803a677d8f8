import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { TestProject } from "vitest/node";
import { build } from "../tools/bundle.ts";
import { createRunFolder, RUN_FOLDER_PREFIX, removeFolder } from "./run-folders.ts";
import { chooseTemporaryRoot } from "./temporary-root.ts";

const ROOT = join(import.meta.dirname, "..");

/** Puts temporary folders into memory and removes them after the run; keeps compiled code between processes. */
export async function setup(project: TestProject): Promise<void> {
  await build(ROOT);
  project.onTestsRerun(() => build(ROOT));
  process.env.TMPDIR = createRunFolder(chooseTemporaryRoot());
  if (!project.config.coverage.enabled) process.env.NODE_COMPILE_CACHE ??= join(ROOT, "node_modules/.cache/plenum");
}

export function teardown(): void {
  const folder = tmpdir();
  if (basename(folder).startsWith(RUN_FOLDER_PREFIX)) removeFolder(folder);
}
