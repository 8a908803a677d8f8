import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { TestProject } from "vitest/node";
import { build } from "../tools/bundle.ts";
import { swiftPlace } from "./swift-place.ts";

const NAME = "plenum-tests-";
const ROOT = join(import.meta.dirname, "..");

/**
 * Every temporary folder of a test run lies in one, in memory where there is room, which goes with the run, also after a
 * test that failed. And compiled code is kept, for all processes that tests start: each then begins in half the processor
 * time. They run the bundle, as users do.
 */
export async function setup(project: TestProject): Promise<void> {
  await build(ROOT);
  project.onTestsRerun(() => build(ROOT));
  const place = swiftPlace();
  forgetKilled(place);
  process.env.TMPDIR = mkdtempSync(join(place, `${NAME}${process.pid}-`));
  // Of code that comes from there it is not known which parts ran.
  if (!project.config.coverage.enabled)
    process.env.NODE_COMPILE_CACHE ??= join(ROOT, "node_modules/.cache/plenum");
}

export function teardown(): void {
  const folder = tmpdir();
  if (basename(folder).startsWith(NAME)) remove(folder);
}

/** Takes away what a run has left that was killed: in memory it would stay until the machine is started anew. */
function forgetKilled(place: string): void {
  for (const name of readdirSync(place)) {
    const pid = new RegExp(`^${NAME}(\\d+)-`).exec(name)?.[1];
    if (pid !== undefined && !isAlive(Number(pid))) remove(join(place, name));
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // Somebody else's.
    return (error as NodeJS.ErrnoException).code === "EPERM";
  }
}

function remove(folder: string): void {
  rmSync(folder, { recursive: true, force: true, maxRetries: 5 });
}
