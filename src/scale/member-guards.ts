import { sentence } from "../core/errors/errors.ts";
import type { Clock } from "../core/runtime/clock.ts";
import type { Log } from "../core/runtime/log.ts";
import { isoUtc } from "../core/values/iso-utc.ts";
import type { Pinned } from "../engine/commands/approval/approval.ts";
import type { Guards } from "../engine/commands/guards.ts";
import { createKillSwitch } from "../engine/commands/kill-switch.ts";
import { ARM, type AskedToArm, armFleetHere, DATABASE_ID, isMachineArmed } from "./fleet/armed-machine.ts";
import { openFleetDocument } from "./fleet/document.ts";
import type { FleetKillSwitch } from "./fleet/kill-switch.ts";
import type { StateDatabase } from "./postgres/state-database.ts";

/** The guards that all members of a fleet have in common, as each member sees them. */
export interface FleetGuards extends Guards {
  /** Arms writing in every source of the fleet, those that come later too, and this machine for its database. */
  arm(by: string): Promise<void>;
  close(): void;
}

/** The key of the document of who approved last. */
export const PIN = "approvers";

/** Throws where the database cannot be asked. */
export async function openFleetGuards(options: {
  readonly database: StateDatabase;
  readonly killSwitch: FleetKillSwitch;
  /** This machine's state folder: holds its kill switch file and the database it is armed for. */
  readonly stateFolder: string;
  /** Path of this machine's approvals; null without a two-person rule. */
  readonly approvals: string | null;
  readonly clock: Clock;
  readonly log: Log;
}): Promise<FleetGuards> {
  const { approvals, clock, database, killSwitch, log, stateFolder } = options;
  const ofFolder = createKillSwitch(stateFolder);
  const armed = await openFleetDocument<AskedToArm>({ database, key: ARM, log });
  const id = await openFleetDocument<string>({ database, key: DATABASE_ID, log });
  const pin = await openFleetDocument<Pinned>({ database, key: PIN, log });

  /** Who approved is the same for all members, and where the file of it lies is each machine's own. */
  function pinned(): Pinned | null {
    const last = pin.read();
    return last === null ? null : { ...last, file: approvals ?? last.file };
  }

  async function remember(next: Pinned | null): Promise<void> {
    try {
      await (next === null ? pin.remove() : pin.write(next));
    } catch (error) {
      log.warn({ reason: sentence(error) }, "who approved what may be written could not be remembered yet");
    }
  }

  return {
    place: `the fleet ${database.name}`,
    killSwitch: {
      get remedy() {
        return ofFolder.thrown() ? ofFolder.remedy : killSwitch.remedy;
      },
      thrown: () => ofFolder.thrown() || killSwitch.thrown(),
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
      // It holds for every source, so it stays.
      taken() {},
    },
    pin: { read: pinned, mark: pin.mark, write: remember },
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
