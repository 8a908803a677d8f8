import { closeSync, fsyncSync, openSync, readFileSync, renameSync, rmSync, writeSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { ConfigError } from "../../core/errors/errors.ts";

/** Name of the file inside a state folder that says where its state went. */
export const MOVED_FILE = "MOVED.json";

const Mark = z.strictObject({
  /** Tells this move from others, here and in the database: 16 hexadecimal digits. */
  id: z.string().regex(/^[0-9a-f]{16}$/),
  /** For people: `db.example:5432/plenum, schema plenum_state`. */
  to: z.string(),
  begunAt: z.iso.datetime(),
  /** Null until it is known that the database has it. */
  movedAt: z.iso.datetime().nullable(),
});

/**
 * That the state of a folder is being moved into a database, or was. It is a file beside the state and not a row in it,
 * so that it counts as well when an older backup of the state is put back; and a person who knows better can take it
 * away.
 */
export type MovedMark = z.infer<typeof Mark>;

/** Null where nothing was moved. Throws `ConfigError` where nobody can tell. */
export function readMoved(folder: string): MovedMark | null {
  const file = join(folder, MOVED_FILE);
  try {
    return Mark.parse(JSON.parse(readFileSync(file, "utf8")));
  } catch (error) {
    // Where there is no folder, that is said by whoever needs one.
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return null;
    throw new ConfigError(`${file} cannot be read, or is damaged.`, {
      cause: error,
      hint: "It says that the state was moved into a database; take it away only if you know that it was not.",
    });
  }
}

/** On the disk when it returns, whole or not at all. */
export function writeMoved(folder: string, mark: MovedMark): void {
  const file = join(folder, MOVED_FILE);
  const beside = `${file}.new`;
  rmSync(beside, { force: true });
  // Not through a link that somebody laid there.
  const descriptor = openSync(beside, "wx", 0o600);
  try {
    writeSync(descriptor, `${JSON.stringify(mark, null, 2)}\n`);
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
  renameSync(beside, file);
  const place = openSync(folder, "r");
  try {
    fsyncSync(place);
  } finally {
    closeSync(place);
  }
}

/** Nothing was moved, and that is known. */
export function forgetMoved(folder: string): void {
  rmSync(join(folder, MOVED_FILE), { force: true });
}

/** Throws `ConfigError` for a folder whose state is a fleet's now, or may be. */
export function refuseMoved(folder: string): void {
  const mark = readMoved(folder);
  if (mark === null) return;
  if (mark.movedAt === null) {
    throw new ConfigError(
      `The state in the folder ${folder} is being moved to ${mark.to} since ${mark.begunAt}, and nobody knows yet whether it is there.`,
      { hint: `Run plenum state move again: it finds out, and goes on where it has to.` },
    );
  }
  throw new ConfigError(`The state in the folder ${folder} was moved to ${mark.to} at ${mark.movedAt}.`, {
    hint: "Set state.postgres in the configuration and start the members of the fleet (plenum run).",
  });
}
