import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { TestProject } from "vitest/node";

const NAME = "plenum-tests-";

/**
 * Every temporary folder of a test run lies in one, which goes with the run, also after a test that failed. And compiled
 * code is kept, for all processes that tests start: each then begins in half the processor time.
 */
export function setup({ config }: TestProject): void {
  process.env.TMPDIR = mkdtempSync(join(tmpdir(), NAME));
  // Of code that comes from there it is not known which parts ran.
  if (!config.coverage.enabled)
    process.env.NODE_COMPILE_CACHE ??= join(import.meta.dirname, "../node_modules/.cache/plenum");
}

export function teardown(): void {
  const folder = tmpdir();
  if (basename(folder).startsWith(NAME)) rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}
