import { lstatSync, mkdirSync, readdirSync, readFileSync, renameSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { valueOr } from "../../core/values/value-or-fallback.ts";
import { isPrivateFolder, userRuntimeFolder } from "../shell/worker-location-file.ts";

// Each running demo writes a file to the runtime folder of its user, so that other commands find the demo.

const RunningDemo = z.strictObject({
  pid: z.int().positive(),
  statusUrl: z.string(),
  config: z.string(),
  environment: z.record(z.string().regex(/^PLENUM_DEMO_[A-Z_]+$/), z.string()),
});
export type RunningDemo = z.infer<typeof RunningDemo>;

export const DEMO_CONFIG_FILE = fileURLToPath(new URL("../../../config/demo.yaml", import.meta.url));

const DEMO_FILE_NAME_PATTERN = /^demo-\d+\.json$/;

/** Writes the file of this demo and returns a function that deletes it. The demo also runs without the file. */
export function registerRunningDemo(demo: Omit<RunningDemo, "pid">): () => void {
  const folder = userRuntimeFolder();
  const file = join(folder, `demo-${process.pid}.json`);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    if (!isPrivateFolder(folder)) return () => undefined;
    for (const demoFile of listDemoFiles(folder)) if (demoFile.demo === null) rmSync(demoFile.file, { force: true });
    writeFileSync(`${file}.new`, JSON.stringify({ ...demo, pid: process.pid }), { mode: 0o600 });
    renameSync(`${file}.new`, file);
  } catch {
    return () => undefined;
  }
  return () => {
    rmSync(file, { force: true });
    try {
      rmdirSync(folder);
    } catch {
      // Keep the folder if it contains files of other demos.
    }
  };
}

export function findRunningDemo(): RunningDemo | null {
  const folder = userRuntimeFolder();
  if (!isPrivateFolder(folder)) return null;
  return listDemoFiles(folder).find(({ demo }) => demo !== null)?.demo ?? null;
}

/** Lists the files of demos, newest first; `demo` is null if the demo ended or the file is invalid. */
function listDemoFiles(folder: string): readonly { readonly file: string; readonly demo: RunningDemo | null }[] {
  const modificationTimeMs = (file: string) => lstatSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  return readdirSync(folder)
    .filter((name) => DEMO_FILE_NAME_PATTERN.test(name))
    .map((name) => join(folder, name))
    .map((file) => ({ file, demo: readRunningDemo(file), modifiedAtMs: modificationTimeMs(file) }))
    .toSorted((a, b) => b.modifiedAtMs - a.modifiedAtMs);
}

function readRunningDemo(file: string): RunningDemo | null {
  return valueOr(() => {
    const demo = RunningDemo.parse(JSON.parse(readFileSync(file, "utf8")));
    process.kill(demo.pid, 0);
    return demo;
  }, null);
}
