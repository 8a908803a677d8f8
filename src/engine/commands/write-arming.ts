import { lstatSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { DocumentChange, Store } from "../store/store.ts";
import type { WriteRefusal } from "./gate.ts";
import type { Journal } from "./journal.ts";
import { RESTORE_SET, UNRESTORED_SET } from "./timed-writes.ts";
import { WRITE_COUNT_SET } from "./write-count-limit.ts";

/** Only an armed state folder may write, so that a new or copied folder bypasses no kill switch, limit or approval. */
export type WriteArming = Awaited<ReturnType<typeof openArming>>;

export interface ArmRequest {
  readonly by: string;
  isThere(): boolean;
  taken(): void;
}

export const ARM_FILE = "ARM-WRITES";

const ARMING_DOCUMENT_SET = "command-armed";
const ARMING_DOCUMENT_KEY = "writing";

const WRITE_LIMIT_SETS = [ARMING_DOCUMENT_SET, WRITE_COUNT_SET, RESTORE_SET, UNRESTORED_SET];

interface ArmedState {
  readonly at: string;
  readonly by: string;
  /** Number of damaged documents when it was armed; with more, a person must arm it again. */
  readonly damaged: number;
  /** Identity of the state when it was armed as a copy. */
  readonly copy?: string;
}

type ArmingStore = Pick<Store, "describe" | "document" | "damagedKeys">;

export async function openArming(options: {
  readonly store: ArmingStore;
  readonly guards: { readonly place: string; readonly armRequest: ArmRequest; unarmedHere(): string | null };
  readonly atStart: boolean;
  readonly journal: Pick<Journal, "note">;
  readonly clock: Clock;
  readonly log: Log;
}) {
  const { store, guards, atStart, journal, clock, log } = options;
  const armingState = await readArming(store);
  const { copy, damaged } = armingState;
  let { armed } = armingState;

  async function arm(by: string): Promise<void> {
    const copyMark = copy === undefined ? {} : { copy: copy.identity };
    const armedState = { at: isoUtc(clock.now()), by, damaged, ...copyMark };
    await journal.note("writing-armed", { seenAt: armedState.at, by }, [armedDocument(armedState)]);
    armed = armedState;
    log.info({ by }, "writing is armed in this state");
  }

  if (atStart && armed === null) await arm("whoever started the worker");

  return {
    refusing(): WriteRefusal | null {
      if (armed === null) return buildNotArmedRefusal(guards.place, armingState);
      const message = guards.unarmedHere();
      return message === null ? null : { reason: "not-armed", message };
    },
    /** Executes a waiting request to arm. It is audited before it counts. */
    async look(): Promise<void> {
      const { armRequest } = guards;
      if (armed !== null || !armRequest.isThere()) return;
      await arm(armRequest.by);
      armRequest.taken();
    },
  };
}

export async function armingRefusal(store: ArmingStore, place: string): Promise<WriteRefusal | null> {
  const armingState = await readArming(store);
  return armingState.armed === null ? buildNotArmedRefusal(place, armingState) : null;
}

async function readArming(store: ArmingStore) {
  const keys = await Promise.all(WRITE_LIMIT_SETS.map((set) => store.damagedKeys(set)));
  const damagedCount = keys.flat().length;
  const storedState = (await store.document<ArmedState>(ARMING_DOCUMENT_SET, ARMING_DOCUMENT_KEY)) ?? null;
  const { copy } = await store.describe();
  const isArmedElsewhere = storedState !== null && storedState.copy !== copy?.identity;
  const isArmed = storedState !== null && !isArmedElsewhere && storedState.damaged >= damagedCount;
  return { armed: isArmed ? storedState : null, damaged: damagedCount, isAnothers: isArmedElsewhere, copy };
}

function buildNotArmedRefusal(place: string, found: Awaited<ReturnType<typeof readArming>>): WriteRefusal {
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

export function armedDocument(armed: ArmedState): DocumentChange {
  return { set: ARMING_DOCUMENT_SET, put: [[ARMING_DOCUMENT_KEY, armed]] };
}

export function requestArming(stateFolder: string): void {
  const file = join(stateFolder, ARM_FILE);
  // Replace a file or link of another user instead of writing into it.
  rmSync(file, { force: true });
  writeFileSync(file, "", { mode: 0o600, flag: "wx" });
}

export function readArmRequest(stateFolder: string): ArmRequest {
  return {
    by: "a file in the state folder",
    /** Accepts only a file of the worker's user or of root, and no link. */
    isThere() {
      const stats = lstatSync(join(stateFolder, ARM_FILE), { throwIfNoEntry: false });
      const userId = process.geteuid?.();
      return stats?.isFile() === true && (userId === undefined || stats.uid === userId || stats.uid === 0);
    },
    taken: () => rmSync(join(stateFolder, ARM_FILE), { force: true }),
  };
}
