import { lstatSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { DocumentChange, Store, StoreDescription } from "../store/store.ts";
import type { Refusing } from "./gate.ts";
import type { Journal } from "./journal.ts";
import { RESTORES, UNRESTORED } from "./timed.ts";
import { WRITE_COUNT } from "./write-count-limit.ts";

/**
 * Decides whether this state folder may write. A new folder has no kill switch, no write counts and no approvals, so a person
 * who changes the folder in the configuration would bypass all of them. Therefore a person with access to the folder arms it
 * once, with `plenum writes arm` or `plenum run --arm-writing`. It must be armed again after its write limits were damaged,
 * and in a copy, because two workers would execute the same command.
 */
export interface Arming {
  refusing(): Refusing | null;
  /** Takes a request to arm that is there: remembered and audited before it counts. */
  look(): Promise<void>;
}

/** Request to arm writing, by a person with access to the state folder. */
export interface ArmRequest {
  /** Who asks, for the audit log. */
  readonly by: string;
  isThere(): boolean;
  /** Reports that the request was executed. */
  taken(): void;
}

/** Name of the file inside the state folder with which a person asks to arm it. */
export const ARM_FILE = "ARM-WRITES";

const ARMED = "command-armed";
const KEY = "writing";

/** Document sets required to enforce write limits. */
const GUARDS = [ARMED, WRITE_COUNT, RESTORES, UNRESTORED];

interface Armed {
  readonly at: string;
  readonly by: string;
  /** Damaged documents of the guards that were known then; more than that is a reason to look again. */
  readonly damaged: number;
  /** Identity of the copy that the state was then; absent where it was none. */
  readonly copy?: string;
}

export interface ArmingOptions {
  readonly store: Pick<Store, "describe" | "document" | "damagedKeys">;
  /** For people: which state it is about. */
  readonly place: string;
  readonly request: ArmRequest;
  /** Why this machine may not write although the state is armed; null where it may. */
  readonly unarmedHere: () => string | null;
  /** True when the worker was started with `--arm-writing`. */
  readonly atStart: boolean;
  readonly journal: Pick<Journal, "note">;
  readonly clock: Clock;
  readonly log: Log;
}

export async function openArming(options: ArmingOptions): Promise<Arming> {
  const { store, place, request, unarmedHere, atStart, journal, clock, log } = options;
  const { copy, damaged, isAnothers, known } = await lookAtArming(store);
  let armed = known;

  async function arm(by: string): Promise<void> {
    const own = copy === undefined ? {} : { copy: copy.identity };
    const next = { at: isoUtc(clock.now()), by, damaged, ...own };
    await journal.note("writing-armed", { seenAt: next.at, by }, [armedAs(next)]);
    armed = next;
    // No warning: somebody has just asked for it, and the audit log keeps who.
    log.info({ by }, "writing is armed in this state");
  }

  if (atStart && armed === null) await arm("whoever started the worker");

  return {
    refusing() {
      if (armed === null) return notArmed(place, { copy, damaged, isAnothers });
      const message = unarmedHere();
      return message === null ? null : { reason: "not-armed", message };
    },
    async look() {
      if (armed !== null || !request.isThere()) return;
      await arm(request.by);
      request.taken();
    },
  };
}

/** Why this state writes nothing, without changing it; null where it is armed. */
export async function armingRefusal(store: ArmingOptions["store"], place: string): Promise<Refusing | null> {
  const found = await lookAtArming(store);
  return found.known === null ? notArmed(place, found) : null;
}

interface LookedAt {
  /** Null where it is not armed, or not armed any more. */
  readonly known: Armed | null;
  readonly damaged: number;
  readonly isAnothers: boolean;
  readonly copy: StoreDescription["copy"];
}

async function lookAtArming(store: ArmingOptions["store"]): Promise<LookedAt> {
  const keys = await Promise.all(GUARDS.map((set) => store.damagedKeys(set)));
  const damaged = keys.flat().length;
  const known = (await store.document<Armed>(ARMED, KEY)) ?? null;
  const { copy } = await store.describe();
  const isAnothers = known !== null && known.copy !== copy?.identity;
  const isArmed = known !== null && !isAnothers && known.damaged >= damaged;
  return { known: isArmed ? known : null, damaged, isAnothers, copy };
}

function notArmed(place: string, { copy, damaged, isAnothers }: Omit<LookedAt, "known">): Refusing {
  return {
    reason: "not-armed",
    message: isAnothers
      ? `${place.charAt(0).toUpperCase()}${place.slice(1)} was copied from ${copy?.from.folder ?? "another"}, which may write too, so nothing is written: make sure that only one does, then run plenum writes arm.`
      : damaged === 0
        ? `Writing was never armed in ${place}, so nothing is written: run plenum writes arm once.`
        : `What limits writing was damaged in ${place}, so nothing is written: see what was written lately (plenum audit show), then run plenum writes arm.`,
  };
}

/** Document that stores that a state is armed. */
export function armedAs(armed: Armed): DocumentChange {
  return { set: ARMED, put: [[KEY, armed]] };
}

/** Asks the worker of this state, running or not, to arm it. */
export function requestArming(stateFolder: string): void {
  const file = join(stateFolder, ARM_FILE);
  // Whatever lies there in its place is taken away and not written into.
  rmSync(file, { force: true });
  writeFileSync(file, "", { mode: 0o600, flag: "wx" });
}

/** The request as a file in the state folder. */
export function armRequestIn(stateFolder: string): ArmRequest {
  return {
    by: "a file in the state folder",
    isThere: () => isAskedFor(stateFolder),
    taken: () => rmSync(join(stateFolder, ARM_FILE), { force: true }),
  };
}

/** A file of the worker's own user; what somebody else laid there, or a link, asks for nothing. */
function isAskedFor(stateFolder: string): boolean {
  const found = lstatSync(join(stateFolder, ARM_FILE), { throwIfNoEntry: false });
  const own = process.geteuid?.();
  return found?.isFile() === true && (own === undefined || found.uid === own || found.uid === 0);
}
