import { type Clock, isoUtc } from "./clock.ts";
import type { Pinned } from "./commands/approval/approval.ts";
import type { Guards } from "./commands/guards.ts";
import { sentence } from "./errors.ts";
import { openFleetDocument } from "./fleet/document.ts";
import type { FleetKillSwitch } from "./fleet/kill-switch.ts";
import type { Log } from "./log.ts";
import type { StateDatabase } from "./store/postgres/state-database.ts";

/** The guards that all members of a fleet have in common, as each member sees them. */
export interface FleetGuards extends Guards {
  /** Arms writing in every source of the fleet, those that come later too. */
  arm(by: string): Promise<void>;
  close(): void;
}

interface AskedToArm {
  readonly by: string;
  readonly at: string;
}

export const ARM = "arm-writing";
/** The key of the document of who approved last. */
export const PIN = "approvers";

/** Throws where the database cannot be asked. */
export async function openFleetGuards(options: {
  readonly database: StateDatabase;
  readonly killSwitch: FleetKillSwitch;
  /** Where this machine has the approvals; null without a two-person rule. */
  readonly approvals: string | null;
  readonly clock: Clock;
  readonly log: Log;
}): Promise<FleetGuards> {
  const { approvals, clock, database, killSwitch, log } = options;
  const armed = await openFleetDocument<AskedToArm>({ database, key: ARM, log });
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
    killSwitch,
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
      if (armed.read() === null) await armed.write({ by, at: isoUtc(clock.now()) });
    },
    close() {
      armed.close();
      pin.close();
    },
  };
}
