import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { TestProject } from "vitest/node";
import { build } from "../tools/bundle.ts";
import { RUN_FOLDER, removeWhole, runFolder } from "./leftovers.ts";
import { swiftPlace } from "./swift-place.ts";

const ROOT = join(import.meta.dirname, "..");

/**
 * Every temporary folder of a test run lies in one, in memory where there is room, which goes with the run, also after a
 * test that failed. And compiled code is kept, for all processes that tests start: each then begins in half the processor
 * time. They run the bundle, as users do.
 */
export async function setup(project: TestProject): Promise<void> {
  await build(ROOT);
  project.onTestsRerun(() => build(ROOT));
  process.env.TMPDIR = runFolder(swiftPlace());
  // Of code that comes from there it is not known which parts ran.
  if (!project.config.coverage.enabled) process.env.NODE_COMPILE_CACHE ??= join(ROOT, "node_modules/.cache/plenum");
}

export function teardown(): void {
  const folder = tmpdir();
  if (basename(folder).startsWith(RUN_FOLDER)) removeWhole(folder);
}
