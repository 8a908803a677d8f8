import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";

const NAME = "plenum-tests-";

/** Every temporary folder of a test run lies in one, which goes with the run, also after a test that failed. */
export function setup(): void {
  process.env.TMPDIR = mkdtempSync(join(tmpdir(), NAME));
}

export function teardown(): void {
  const folder = tmpdir();
  if (basename(folder).startsWith(NAME)) rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}
