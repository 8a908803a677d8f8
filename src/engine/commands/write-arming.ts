import { lstatSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { DocumentChange, Store } from "../store/store.ts";
import type { WriteRefusal } from "./gate.ts";
import type { Journal } from "./journal.ts";
import { RESTORE_SET, UNRESTORED_SET } from "./pending-value-restores.ts";
import { WRITE_COUNT_SET } from "./write-count-limit.ts";
import { WRITE_LOCK_SET } from "./write-locks.ts";

/** Permits tag writes only after a person armed the state folder: a new folder lacks kill switch and approvals. */
export type WriteArming = Awaited<ReturnType<typeof openWriteArming>>;

export interface ArmWritingRequest {
  readonly by: string;
  isArmingRequested(): boolean;
  acknowledgeRequest(): void;
}

export const ARM_WRITING_FILE = "ARM-WRITES";

export const WRITE_ARMING_SET = "command-armed";
export const WRITE_ARMING_KEY = "writing";

/** Sets of documents that must be complete to enforce the write limits. */
export const WRITE_LIMIT_SETS = [WRITE_ARMING_SET, WRITE_COUNT_SET, RESTORE_SET, UNRESTORED_SET, WRITE_LOCK_SET];

export interface ArmedWritingState {
  readonly at: string;
  readonly by: string;
  /** Number of damaged documents when writing was armed; if it rises, a person must arm writing again. */
  readonly damaged: number;
  /** Identity of the state folder, if it was a copy when writing was armed. */
  readonly copy?: string;
}

type WriteArmingStore = Pick<Store, "describe" | "document" | "damagedKeys">;

export async function openWriteArming(options: {
  readonly store: WriteArmingStore;
  readonly guards: {
    readonly stateDescription: string;
    readonly armRequest: ArmWritingRequest;
    findUnarmedReason(): string | null;
  };
  readonly armAtStart: boolean;
  readonly journal: Pick<Journal, "recordAudit">;
  readonly clock: Clock;
  readonly log: Log;
}) {
  const { store, guards, armAtStart, journal, clock, log } = options;
  const armingState = await readWriteArming(store);
  const { copy, damaged } = armingState;
  let { armed } = armingState;

  async function armWriting(by: string): Promise<void> {
    const copiedStateMark = copy === undefined ? {} : { copy: copy.identity };
    const armedState = { at: isoUtc(clock.now()), by, damaged, ...copiedStateMark };
    await journal.recordAudit("writing-armed", { seenAt: armedState.at, by }, [armingDocument(armedState)]);
    armed = armedState;
    log.info({ by }, "writing is armed in this state");
  }

  if (armAtStart && armed === null) await armWriting("the person who started the worker");

  return {
    findRefusal(): WriteRefusal | null {
      if (armed === null) return buildNotArmedRefusal(guards.stateDescription, armingState);
      const message = guards.findUnarmedReason();
      return message === null ? null : { reason: "not-armed", message };
    },
    async armIfRequested(): Promise<void> {
      const { armRequest } = guards;
      if (armed !== null || !armRequest.isArmingRequested()) return;
      await armWriting(armRequest.by);
      armRequest.acknowledgeRequest();
    },
  };
}

export async function readArmingRefusal(
  store: WriteArmingStore,
  stateDescription: string,
): Promise<WriteRefusal | null> {
  const armingState = await readWriteArming(store);
  return armingState.armed === null ? buildNotArmedRefusal(stateDescription, armingState) : null;
}

async function readWriteArming(store: WriteArmingStore) {
  const damagedCount = (await Promise.all(WRITE_LIMIT_SETS.map((set) => store.damagedKeys(set)))).flat().length;
  const storedArming = (await store.document<ArmedWritingState>(WRITE_ARMING_SET, WRITE_ARMING_KEY)) ?? null;
  const { copy } = await store.describe();
  const isArmedElsewhere = storedArming !== null && storedArming.copy !== copy?.identity;
  const isWritingArmed = storedArming !== null && !isArmedElsewhere && storedArming.damaged >= damagedCount;
  return { armed: isWritingArmed ? storedArming : null, damaged: damagedCount, isArmedElsewhere, copy };
}

function buildNotArmedRefusal(
  stateDescription: string,
  armingState: Awaited<ReturnType<typeof readWriteArming>>,
): WriteRefusal {
  const { copy, damaged, isArmedElsewhere: isCopiedState } = armingState;
  return {
    reason: "not-armed",
    message: isCopiedState
      ? `${stateDescription.charAt(0).toUpperCase()}${stateDescription.slice(1)} was copied from ${copy?.from.folder ?? "another"}, which may write too, so nothing is written: make sure that only one does, then run plenum writes arm.`
      : damaged === 0
        ? `Writing was never armed in ${stateDescription}, so nothing is written: run plenum writes arm once.`
        : `Stored write limits were damaged in ${stateDescription}, so nothing is written: check the latest writes (plenum audit show), then run plenum writes arm.`,
  };
}

export function armingDocument(armed: ArmedWritingState): DocumentChange {
  return { set: WRITE_ARMING_SET, put: [[WRITE_ARMING_KEY, armed]] };
}

export function requestWriteArming(stateFolder: string): void {
  const armWritingFile = join(stateFolder, ARM_WRITING_FILE);
  // Remove the old file first: it could be a link, or a file that another user owns.
  rmSync(armWritingFile, { force: true });
  writeFileSync(armWritingFile, "", { mode: 0o600, flag: "wx" });
}

export function readArmWritingRequest(stateFolder: string): ArmWritingRequest {
  return {
    by: "a file in the state folder",
    /** True if the request file is a regular file (no link) of the worker's user or of root. */
    isArmingRequested() {
      const fileStats = lstatSync(join(stateFolder, ARM_WRITING_FILE), { throwIfNoEntry: false });
      const userId = process.geteuid?.();
      return fileStats?.isFile() === true && (userId === undefined || fileStats.uid === userId || fileStats.uid === 0);
    },
    acknowledgeRequest: () => rmSync(join(stateFolder, ARM_WRITING_FILE), { force: true }),
  };
}
