import {
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import { isOurs, runtimeFolder } from "./runtime-folders.ts";

/**
 * Where a demo that runs is to be found, so that every command works against it: a file of each in a folder of this user's
 * alone, for as long as that demo runs. Of several the one that was started last counts.
 */
const Whereabouts = z.strictObject({
  pid: z.int().positive(),
  statusUrl: z.string(),
  /** Path of its configuration. */
  config: z.string(),
  /** What the demo's configuration is filled in with. */
  environment: z.record(z.string().regex(/^PLENUM_DEMO_[A-Z_]+$/), z.string()),
});
export type Whereabouts = z.infer<typeof Whereabouts>;

/** The configuration of the demo of one worker; its variables are in `environment`. */
export const DEMO_CONFIG = fileURLToPath(new URL("../../../config/demo.yaml", import.meta.url));

/** A file of each, so that one which ends hides no other. */
const NAME = /^demo-\d+\.json$/;

/** Leaves word; answers what takes it back. A demo that cannot leave any is found by nobody, and runs all the same. */
export function leaveWord(word: Omit<Whereabouts, "pid">): () => void {
  const folder = runtimeFolder();
  const file = join(folder, `demo-${process.pid}.json`);
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    if (!isOurs(folder)) return () => undefined;
    for (const left of wordsIn(folder)) if (!isOfRunning(left.word)) rmSync(left.file, { force: true });
    const own: Whereabouts = { ...word, pid: process.pid };
    writeFileSync(`${file}.new`, JSON.stringify(own), { mode: 0o600 });
    renameSync(`${file}.new`, file);
  } catch {
    return () => undefined;
  }
  return () => {
    rmSync(file, { force: true });
    try {
      rmdirSync(folder);
    } catch {
      // Something else is in it.
    }
  };
}

/** The demo that runs now, of several the one that was started last; null when none does. */
export function findDemo(): Whereabouts | null {
  const folder = runtimeFolder();
  const running = isOurs(folder)
    ? wordsIn(folder).flatMap(({ word }) => (isOfRunning(word) ? [word] : []))
    : [];
  return running[0] ?? null;
}

interface Left {
  readonly file: string;
  /** Null where nobody can read it. */
  readonly word: Whereabouts | null;
}

/** What demos have left in a folder, the last first. */
function wordsIn(folder: string): readonly Left[] {
  const leftAt = (file: string) => lstatSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  return readdirSync(folder)
    .filter((name) => NAME.test(name))
    .map((name) => join(folder, name))
    .map((file) => ({ file, word: read(file), at: leftAt(file) }))
    .toSorted((a, b) => b.at - a.at);
}

function isOfRunning(word: Whereabouts | null): word is Whereabouts {
  return word !== null && isRunning(word.pid);
}

function read(file: string): Whereabouts | null {
  try {
    return Whereabouts.parse(JSON.parse(readFileSync(file, "utf8")));
  } catch {
    return null;
  }
}

/** A demo that was killed leaves its word behind. */
function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
