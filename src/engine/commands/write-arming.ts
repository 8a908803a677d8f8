import { lstatSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { DocumentChange, Store } from "../store/store.ts";
import type { WriteRefusal } from "./gate.ts";
import type { Journal } from "./journal.ts";
import { RESTORE_SET, UNRESTORED_SET } from "./pending-restores.ts";
import { WRITE_COUNT_SET } from "./write-count-limit.ts";
import { WRITE_LOCK_SET } from "./write-locks.ts";

/** Plenum writes tags only if its state folder is armed: a new or copied folder lacks kill switch and approvals. */
export type WriteArming = Awaited<ReturnType<typeof openWriteArming>>;

export interface ArmWritingRequest {
  readonly by: string;
  isThere(): boolean;
  taken(): void;
}

export const ARM_WRITING_FILE = "ARM-WRITES";

const WRITE_ARMING_SET = "command-armed";
const WRITE_ARMING_KEY = "writing";

const WRITE_LIMIT_SETS = [WRITE_ARMING_SET, WRITE_COUNT_SET, RESTORE_SET, UNRESTORED_SET, WRITE_LOCK_SET];

interface ArmedWritingState {
  readonly at: string;
  readonly by: string;
  /** Number of damaged documents when writing was armed; if it rises, a person must arm it again. */
  readonly damaged: number;
  /** Identity of the state folder, if it was a copy when writing was armed. */
  readonly copy?: string;
}

type WriteArmingStore = Pick<Store, "describe" | "document" | "damagedKeys">;

export async function openWriteArming(options: {
  readonly store: WriteArmingStore;
  readonly guards: { readonly place: string; readonly armRequest: ArmWritingRequest; unarmedHere(): string | null };
  readonly atStart: boolean;
  readonly journal: Pick<Journal, "note">;
  readonly clock: Clock;
  readonly log: Log;
}) {
  const { store, guards, atStart, journal, clock, log } = options;
  const armingState = await readWriteArming(store);
  const { copy, damaged } = armingState;
  let { armed } = armingState;

  async function arm(by: string): Promise<void> {
    const copiedStateMark = copy === undefined ? {} : { copy: copy.identity };
    const armedState = { at: isoUtc(clock.now()), by, damaged, ...copiedStateMark };
    await journal.note("writing-armed", { seenAt: armedState.at, by }, [armingDocument(armedState)]);
    armed = armedState;
    log.info({ by }, "writing is armed in this state");
  }

  if (atStart && armed === null) await arm("the person who started the worker");

  return {
    refusing(): WriteRefusal | null {
      if (armed === null) return buildNotArmedRefusal(guards.place, armingState);
      const message = guards.unarmedHere();
      return message === null ? null : { reason: "not-armed", message };
    },
    async look(): Promise<void> {
      const { armRequest } = guards;
      if (armed !== null || !armRequest.isThere()) return;
      await arm(armRequest.by);
      armRequest.taken();
    },
  };
}

export async function readArmingRefusal(store: WriteArmingStore, place: string): Promise<WriteRefusal | null> {
  const armingState = await readWriteArming(store);
  return armingState.armed === null ? buildNotArmedRefusal(place, armingState) : null;
}

async function readWriteArming(store: WriteArmingStore) {
  const damagedCount = (await Promise.all(WRITE_LIMIT_SETS.map((set) => store.damagedKeys(set)))).flat().length;
  const storedArming = (await store.document<ArmedWritingState>(WRITE_ARMING_SET, WRITE_ARMING_KEY)) ?? null;
  const { copy } = await store.describe();
  const isArmedElsewhere = storedArming !== null && storedArming.copy !== copy?.identity;
  const isWritingArmed = storedArming !== null && !isArmedElsewhere && storedArming.damaged >= damagedCount;
  return { armed: isWritingArmed ? storedArming : null, damaged: damagedCount, isAnothers: isArmedElsewhere, copy };
}

function buildNotArmedRefusal(place: string, found: Awaited<ReturnType<typeof readWriteArming>>): WriteRefusal {
  const { copy, damaged, isAnothers } = found;
  return {
    reason: "not-armed",
    message: isAnothers
      ? `${place.charAt(0).toUpperCase()}${place.slice(1)} was copied from ${copy?.from.folder ?? "another"}, which may write too, so nothing is written: make sure that only one does, then run plenum writes arm.`
      : damaged === 0
        ? `Writing was never armed in ${place}, so nothing is written: run plenum writes arm once.`
        : `What limits writing was damaged in ${place}, so nothing is written: see what was written lately (plenum audit show), then run plenum writes arm.`,
  };
}

export function armingDocument(armed: ArmedWritingState): DocumentChange {
  return { set: WRITE_ARMING_SET, put: [[WRITE_ARMING_KEY, armed]] };
}

export function requestWriteArming(stateFolder: string): void {
  const armWritingFile = join(stateFolder, ARM_WRITING_FILE);
  // Do not write into a file or link of another user.
  rmSync(armWritingFile, { force: true });
  writeFileSync(armWritingFile, "", { mode: 0o600, flag: "wx" });
}

export function readArmWritingRequest(stateFolder: string): ArmWritingRequest {
  return {
    by: "a file in the state folder",
    /** Accepts only a file of the worker's user or of root, and no link. */
    isThere() {
      const fileStats = lstatSync(join(stateFolder, ARM_WRITING_FILE), { throwIfNoEntry: false });
      const userId = process.geteuid?.();
      return fileStats?.isFile() === true && (userId === undefined || fileStats.uid === userId || fileStats.uid === 0);
    },
    taken: () => rmSync(join(stateFolder, ARM_WRITING_FILE), { force: true }),
  };
}
