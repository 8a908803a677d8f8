import { createHash, randomBytes } from "node:crypto";
import { lstatSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { StateDatabase } from "../postgres/state-database.ts";
import { readOrWriteBody, writeBody } from "./document.ts";

/**
 * Which database this machine may write to buildings for. The database is named by the configuration, so its own word that
 * writing is armed is not enough: an editor could name another one, and leave kill switch, counters and approvers behind.
 * So each database has a random id, and arming writes down in the state folder of the machine which id it was for.
 */
const ARMED_MACHINE_FILE = "ARMED-DATABASE";

/** The key of the request to arm all sources of the fleet. */
export const ARM = "arm-writing";
/** The key of the database's id. */
export const DATABASE_ID = "database-id";

export interface AskedToArm {
  readonly by: string;
  readonly at: string;
}

/** Arms the fleet, and this machine for its database. Nothing is armed where the folder cannot be written. */
export async function armFleetHere(database: StateDatabase, stateFolder: string, asked: AskedToArm): Promise<void> {
  const id = await readOrWriteBody(database, DATABASE_ID, JSON.stringify(randomBytes(16).toString("hex")));
  armMachine(stateFolder, JSON.parse(id) as string);
  await writeBody(database, ARM, JSON.stringify(asked));
}

function armMachine(stateFolder: string, databaseId: string): void {
  mkdirSync(stateFolder, { recursive: true, mode: 0o700 });
  const file = join(stateFolder, ARMED_MACHINE_FILE);
  // Members of one machine may start together, and a rename replaces a link instead of following it.
  const next = `${file}.${randomBytes(4).toString("hex")}`;
  // Readable for a worker whose machine root has armed. The id itself cannot be found from it.
  writeFileSync(next, digestOf(databaseId), { mode: 0o644, flag: "wx" });
  renameSync(next, file);
}

/** Whether the machine was armed for the database with this id. What another user put there arms nothing. */
export function isMachineArmed(stateFolder: string, databaseId: string | null): boolean {
  const file = join(stateFolder, ARMED_MACHINE_FILE);
  try {
    const marks = lstatSync(file);
    const isOurs = marks.uid === 0 || marks.uid === (process.geteuid?.() ?? marks.uid);
    if (databaseId === null || !isOurs || !marks.isFile() || marks.size !== DIGEST_LENGTH) return false;
    return readFileSync(file, "utf8") === digestOf(databaseId);
  } catch {
    return false;
  }
}

const DIGEST_LENGTH = 64;

function digestOf(databaseId: string): string {
  return createHash("sha256").update(databaseId).digest("hex");
}
