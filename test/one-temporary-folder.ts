import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** Every temporary folder of a test run lies in one, which goes with the run, also after a test that failed. */
export default function setup(): () => void {
  const folder = mkdtempSync(join(tmpdir(), "plenum-tests-"));
  process.env.TMPDIR = folder;
  return () => rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}
