import { createHash, randomBytes } from "node:crypto";
import { lstatSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { sentence } from "../core/errors/errors.ts";
import type { Clock } from "../core/runtime/clock.ts";
import type { Log } from "../core/runtime/log.ts";
import { isoUtc } from "../core/values/iso-utc.ts";
import type { Pinned } from "../engine/commands/approval/approval.ts";
import type { Guards } from "../engine/commands/guards.ts";
import { createKillSwitch } from "../engine/commands/kill-switch.ts";
import { openFleetDocument, readOrWriteBody, writeBody } from "./fleet/fleet-document.ts";
import type { FleetKillSwitch } from "./fleet/kill-switch.ts";
import type { StateDatabase } from "./postgres/state-database.ts";

export interface FleetGuards extends Guards {
  /** Arms writing in every source of the fleet, present and future, and this machine for its database. */
  arm(by: string): Promise<void>;
  close(): void;
}

/** Document key: who approved last. */
export const APPROVERS_KEY = "approvers";
/** Document key: request to arm all sources of the fleet. */
export const ARM_REQUEST_KEY = "arm-writing";
/** Document key: random id of the database. */
export const DATABASE_ID_KEY = "database-id";

export interface ArmRequest {
  readonly by: string;
  readonly at: string;
}

/** Throws when the database does not respond. */
export async function openFleetGuards(options: {
  readonly database: StateDatabase;
  readonly killSwitch: FleetKillSwitch;
  /** This machine's folder with its kill switch file and the database for which it is armed. */
  readonly stateFolder: string;
  /** Path of this machine's approvals; null without a two-person rule. */
  readonly approvals: string | null;
  readonly clock: Clock;
  readonly log: Log;
}): Promise<FleetGuards> {
  const { approvals, clock, database, killSwitch, log, stateFolder } = options;
  const localSwitch = createKillSwitch(stateFolder);
  const armed = await openFleetDocument<ArmRequest>({ database, key: ARM_REQUEST_KEY, log });
  const id = await openFleetDocument<string>({ database, key: DATABASE_ID_KEY, log });
  const pin = await openFleetDocument<Pinned>({ database, key: APPROVERS_KEY, log });

  return {
    place: `the fleet ${database.name}`,
    killSwitch: {
      get remedy() {
        return localSwitch.isThrown() ? localSwitch.remedy : killSwitch.remedy;
      },
      isThrown: () => localSwitch.isThrown() || killSwitch.thrown(),
      throwIt: killSwitch.throwIt,
    },
    unarmedHere: () =>
      isMachineArmed(stateFolder, id.read())
        ? null
        : `Writing was never armed on this machine for the fleet ${database.name}, so nothing is written: run plenum writes arm here once.`,
    armRequest: {
      get by() {
        return armed.read()?.by ?? "the fleet";
      },
      isThere: () => armed.read() !== null,
      // The request stays, because it counts for every source.
      taken() {},
    },
    pin: {
      read() {
        const last = pin.read();
        // Members share the approvers, but each machine has its own path of the file.
        return last && { ...last, file: approvals ?? last.file };
      },
      version: pin.mark,
      async write(next) {
        try {
          await (next === null ? pin.remove() : pin.write(next));
        } catch (error) {
          log.warn({ reason: sentence(error) }, "who approved what may be written could not be remembered yet");
        }
      },
    },
    // The disk is the database's.
    freeBytes: () => null,
    async arm(by) {
      await armFleetHere(database, stateFolder, { by, at: isoUtc(clock.now()) });
      await Promise.all([armed.refresh(), id.refresh()]);
    },
    close() {
      armed.close();
      id.close();
      pin.close();
    },
  };
}

/** Digest of the database for which this machine is armed, in case an edited configuration names another one. */
const ARMED_MACHINE_FILE = "ARMED-DATABASE";
const DIGEST_LENGTH = 64;

/** Arms the fleet, and this machine for its database. Arms nothing if the folder cannot be written. */
export async function armFleetHere(database: StateDatabase, stateFolder: string, request: ArmRequest): Promise<void> {
  const id = await readOrWriteBody(database, DATABASE_ID_KEY, JSON.stringify(randomBytes(16).toString("hex")));
  mkdirSync(stateFolder, { recursive: true, mode: 0o700 });
  const file = join(stateFolder, ARMED_MACHINE_FILE);
  // Members of one machine may start together, and a rename replaces a link instead of following it.
  const next = `${file}.${randomBytes(4).toString("hex")}`;
  // Readable for a worker whose machine root has armed. The id itself cannot be found from it.
  writeFileSync(next, digestOf(JSON.parse(id) as string), { mode: 0o644, flag: "wx" });
  renameSync(next, file);
  await writeBody(database, ARM_REQUEST_KEY, JSON.stringify(request));
}

/** Ignores a file of another user. */
export function isMachineArmed(stateFolder: string, databaseId: string | null): boolean {
  const file = join(stateFolder, ARMED_MACHINE_FILE);
  try {
    const stats = lstatSync(file);
    const isOurs = stats.uid === 0 || stats.uid === (process.geteuid?.() ?? stats.uid);
    if (databaseId === null || !isOurs || !stats.isFile() || stats.size !== DIGEST_LENGTH) return false;
    return readFileSync(file, "utf8") === digestOf(databaseId);
  } catch {
    return false;
  }
}

function digestOf(databaseId: string): string {
  return createHash("sha256").update(databaseId).digest("hex");
}
