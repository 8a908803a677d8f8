import { createHash, randomBytes } from "node:crypto";
import { lstatSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { errorText } from "../core/errors/errors.ts";
import type { Clock } from "../core/runtime/clock.ts";
import type { Log } from "../core/runtime/log.ts";
import { isoUtc } from "../core/values/iso-utc.ts";
import type { PinnedApprovers } from "../engine/commands/approval/check-approval.ts";
import { createKillSwitch } from "../engine/commands/kill-switch.ts";
import type { WritingGuards } from "../engine/commands/writing-guards.ts";
import type { FleetKillSwitch } from "./fleet/kill-switch.ts";
import { openFleetDocument, readOrWriteFleetDocument, writeFleetDocument } from "./fleet/shared-json-document.ts";
import type { StateDatabase } from "./postgres/state-database.ts";

export const APPROVERS_DOCUMENT_KEY = "approvers";
export const ARM_WRITING_REQUEST_KEY = "arm-writing";
export const DATABASE_ID_KEY = "database-id";

export interface ArmRequest {
  readonly by: string;
  readonly at: string;
}

export async function openFleetWritingGuards(options: {
  readonly database: StateDatabase;
  readonly killSwitch: FleetKillSwitch;
  /** State folder of this machine. It has the kill switch and a hash of the database whose fleet may write tags. */
  readonly stateFolder: string;
  /** Path of the file with this machine's write approvals; null if no second person must approve. */
  readonly approvalsFile: string | null;
  readonly clock: Clock;
  readonly log: Log;
}) {
  const { approvalsFile, clock, database, killSwitch, log, stateFolder } = options;
  const localKillSwitch = createKillSwitch(stateFolder);
  const armRequestDocument = await openFleetDocument<ArmRequest>({ database, key: ARM_WRITING_REQUEST_KEY, log });
  const databaseId = await openFleetDocument<string>({ database, key: DATABASE_ID_KEY, log });
  const approversDocument = await openFleetDocument<PinnedApprovers>({ database, key: APPROVERS_DOCUMENT_KEY, log });

  const guards: WritingGuards = {
    stateDescription: `the fleet ${database.name}`,
    killSwitch: {
      get remedy() {
        return localKillSwitch.isOn() ? localKillSwitch.remedy : killSwitch.remedy;
      },
      isOn: () => localKillSwitch.isOn() || killSwitch.isThrown(),
      turnOn: killSwitch.throwSwitch,
    },
    findUnarmedReason: () =>
      isMachineArmedToWrite(stateFolder, databaseId.read())
        ? null
        : `Writing was never armed on this machine for the fleet ${database.name}, so nothing is written: run plenum writes arm here once.`,
    armRequest: {
      get by() {
        return armRequestDocument.read()?.by ?? "the fleet";
      },
      isArmingRequested: () => armRequestDocument.read() !== null,
      // Do not delete the request of `plenum writes arm`, because it applies to every source.
      acknowledgeRequest() {},
    },
    approverStore: {
      read() {
        const storedApprovers = approversDocument.read();
        // Members share the approvers, but each machine has its own path of the approvals file.
        return storedApprovers && { ...storedApprovers, file: approvalsFile ?? storedApprovers.file };
      },
      version: approversDocument.version,
      async write(newApprovers) {
        try {
          await (newApprovers === null ? approversDocument.remove() : approversDocument.write(newApprovers));
        } catch (error) {
          log.warn({ reason: errorText(error) }, "who approved what may be written could not be remembered yet");
        }
      },
    },
    // Unknown, because the state is on the disk of the database server.
    freeDiskBytes: () => null,
  };
  return {
    ...guards,
    /** Allows tag writes for all sources of the fleet, and on this machine. */
    async armWriting(by: string): Promise<void> {
      await armThisMachine(database, stateFolder, { by, at: isoUtc(clock.now()) });
      await Promise.all([armRequestDocument.refresh(), databaseId.refresh()]);
    },
    close(): void {
      armRequestDocument.close();
      databaseId.close();
      approversDocument.close();
    },
  };
}

/** File with the digest of the fleet database for which `plenum writes arm` allowed tag writes on this machine. */
const WRITING_ARMED_FILE_NAME = "ARMED-DATABASE";
const DATABASE_ID_DIGEST_LENGTH = 64;

/** Allows tag writes in the fleet and on this machine. If the folder cannot be written, allows neither. */
export async function armThisMachine(database: StateDatabase, stateFolder: string, request: ArmRequest): Promise<void> {
  const newDatabaseId = JSON.stringify(randomBytes(16).toString("hex"));
  const databaseId = await readOrWriteFleetDocument(database, DATABASE_ID_KEY, newDatabaseId);
  mkdirSync(stateFolder, { recursive: true, mode: 0o700 });
  const file = join(stateFolder, WRITING_ARMED_FILE_NAME);
  // Rename a new file: members of one machine may start together, and a rename replaces a link instead of following it.
  const newArmedFile = `${file}.${randomBytes(4).toString("hex")}`;
  // Readable by all users, because root may arm a machine for a worker; the digest does not reveal the id.
  writeFileSync(newArmedFile, digestDatabaseId(JSON.parse(databaseId) as string), { mode: 0o644, flag: "wx" });
  renameSync(newArmedFile, file);
  await writeFleetDocument(database, ARM_WRITING_REQUEST_KEY, JSON.stringify(request));
}

/** Returns whether this machine may write tags with a database. Ignores a digest file of another user. */
export function isMachineArmedToWrite(stateFolder: string, databaseId: string | null): boolean {
  const file = join(stateFolder, WRITING_ARMED_FILE_NAME);
  try {
    const stats = lstatSync(file);
    const isOwnFile = stats.uid === 0 || stats.uid === (process.geteuid?.() ?? stats.uid);
    if (databaseId === null || !isOwnFile || !stats.isFile() || stats.size !== DATABASE_ID_DIGEST_LENGTH) return false;
    return readFileSync(file, "utf8") === digestDatabaseId(databaseId);
  } catch {
    return false;
  }
}

const digestDatabaseId = (databaseId: string): string => createHash("sha256").update(databaseId).digest("hex");
