import type { TagScalar, TagValue } from "../../core/model/building.ts";
import { type Event, makeEvent, sourceUri } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Command, CommandEnd, CommandEndingReason } from "./command.ts";
import { isSameValue } from "./gate.ts";

export const RESTORE_SET = "command-restore";
export const UNRESTORED_SET = "command-not-restored";

/**
 * Pending restore of a timed write, e.g. of 22 °C for two hours: at `dueAt` the old value is put back.
 *   command sent ─► restore pending ─ dueAt ─► restoring command ─► done, or `command-not-restored`
 *                      └ ends when a newer command has written the tag
 */
export interface Restore {
  readonly command: Command;
  readonly before: TagScalar;
  readonly dueAt: string;
  /** Restore of an earlier timed write to the same tag; it ends once the later write is verified. */
  readonly older?: Restore;
}

/** Creates a restore. If the tag holds the value of another timed write, the value before that write is put back. */
export function createRestore(command: Command, before: TagScalar, older: Restore | undefined, nowMs: number): Restore {
  const dueAt = isoUtc(nowMs + (command.forMs ?? 0));
  if (older === undefined) return { command, before, dueAt };
  return { command, before: isSameValue(older.command.value, before) ? older.before : before, dueAt, older };
}

/** Returns which pending restores of a tag remain and which end after a command for the tag has ended. */
export function restoresAfterCommand(
  command: Command,
  ending: CommandEnd,
  storedRestore: Restore | undefined,
  nowMs: number,
): { readonly remainingRestore: Restore | null; readonly endedRestores: readonly Restore[] } {
  if (storedRestore === undefined) return { remainingRestore: null, endedRestores: [] };
  const olderRestores = storedRestore.older === undefined ? [] : listRestoreChain(storedRestore.older);
  if (command.id === restoreCommandId(storedRestore.command.id)) {
    const isOlderRestoreKept = ending.reason === "unexpected-value" && storedRestore.older !== undefined;
    return isOlderRestoreKept
      ? { remainingRestore: storedRestore.older, endedRestores: [] }
      : { remainingRestore: null, endedRestores: olderRestores };
  }
  const isOwnRestore = command.id === storedRestore.command.id;
  if (isCommandWritten(ending)) {
    const { older: _older, ...ownRestore } = storedRestore;
    if (isOwnRestore) return { remainingRestore: ownRestore, endedRestores: olderRestores };
    const extendedRestore = extendRestore(command, ending, storedRestore, nowMs);
    if (extendedRestore === null && command.forMs !== null && ending.reason === "already-set")
      return { remainingRestore: storedRestore, endedRestores: [] };
    return { remainingRestore: extendedRestore, endedRestores: listRestoreChain(storedRestore) };
  }
  // The tag may get the written value after the read-back: readings lag by up to 14 s, an offline gateway writes later.
  const mightBeWritten =
    ending.outcome === "unknown" || (ending.outcome === "mismatch" && storedRestore.older === undefined);
  return {
    remainingRestore: !isOwnRestore || mightBeWritten ? storedRestore : (storedRestore.older ?? null),
    endedRestores: [],
  };
}

/** Restarts the time of a restore if a later timed write repeats the value that the tag holds; else returns null. */
function extendRestore(command: Command, { before, reason }: CommandEnd, storedRestore: Restore, nowMs: number) {
  const isValueUnchanged = before !== undefined && before !== null && isSameValue(before, storedRestore.command.value);
  if (command.forMs === null || reason !== "already-set" || !isValueUnchanged) return null;
  return { command, before: storedRestore.before, dueAt: isoUtc(nowMs + command.forMs) };
}

export function isCommandWritten({ outcome, rehearsal }: CommandEnd): boolean {
  return (outcome === "confirmed" || outcome === "accepted-unverified") && rehearsal !== true;
}

export function listRestoreChain(restore: Restore): readonly Restore[] {
  return restore.older === undefined ? [restore] : [restore, ...listRestoreChain(restore.older)];
}

/** Maximum delay of a restore. Later, the old value is not put back, because the change would surprise people. */
export const MAX_RESTORE_DELAY_MS = 86_400_000;

const RESTORE_COMMAND_ID_SUFFIX = "/restore";

export function restoreCommandId(id: string): string {
  return `${id}${RESTORE_COMMAND_ID_SUFFIX}`;
}

export function isRestoreCommandId(id: string): boolean {
  return id.endsWith(RESTORE_COMMAND_ID_SUFFIX);
}

export function buildRestoreCommand({ command, before, dueAt }: Restore, nowMs: number): Command {
  return {
    ...command,
    id: restoreCommandId(command.id),
    value: before,
    expect: command.value,
    forMs: null,
    needsSecond: false,
    by: `the end of ${command.id}`,
    receivedAt: isoUtc(nowMs),
    expiresAt: isoUtc(Date.parse(dueAt) + MAX_RESTORE_DELAY_MS),
  };
}

/** Temporary reasons for a failed restore. After one of these, the restore is tried again. */
const TEMPORARY_ENDING_REASONS: ReadonlySet<CommandEndingReason | null> = new Set<CommandEndingReason>([
  "disabled",
  "killed",
  "not-armed",
  "unapproved",
  "audit-full",
  "clock-skew",
  "no-ability",
  "value-unknown",
  "locked",
  "too-soon",
  "too-many",
  "outside-hours",
  "gateway-offline",
  "rehearsal",
  "superseded",
  "rules-changed",
  "stopped",
  "expired",
]);

export function mayRetryRestore({ reason }: CommandEnd): boolean {
  return TEMPORARY_ENDING_REASONS.has(reason);
}

/** True if a restore ended although the tag may still hold the value of the timed write. */
export function isUnrestored({ outcome, reason }: CommandEnd): boolean {
  if (reason === "unexpected-value") return false;
  return outcome === "rejected" || outcome === "expired" || outcome === "mismatch" || outcome === "unknown";
}

export interface UnrestoredValue {
  readonly commandId: string;
  readonly source: string;
  readonly siteId: number;
  readonly tagId: string;
  readonly inForce: TagValue;
  readonly since: string;
  readonly wanted: TagScalar;
  readonly dueAt: string;
  readonly reason: CommandEndingReason;
  readonly message: string;
  readonly toldAt: string;
}

export function toUnrestoredValue(
  { command, before, dueAt }: Restore,
  ending: CommandEnd,
  toldAt: string,
): UnrestoredValue {
  const { id: commandId, siteId, source, tagId, value, forMs } = command;
  return {
    ...{ commandId, source, siteId, tagId },
    inForce: ending.readBack ?? ending.before ?? (ending.outcome === "unknown" ? null : value),
    since: isoUtc(Date.parse(dueAt) - (forMs ?? 0)),
    wanted: before,
    dueAt,
    reason: ending.reason ?? "in-doubt",
    message: ending.message,
    toldAt,
  };
}

export function buildNotRestoredEvent(unrestoredValue: UnrestoredValue): Event<"command-not-restored"> {
  const { commandId, source, siteId, tagId, toldAt, ...data } = unrestoredValue;
  return makeEvent({
    type: "command-not-restored",
    source: sourceUri(source),
    subject: `site/${siteId}/tag/${tagId}`,
    time: toldAt,
    siteId,
    facts: [commandId],
    data: { commandId, tagId, ...data },
  });
}

export function buildSupersededRestore({ command, before }: Restore): {
  readonly command: Command;
  readonly ending: CommandEnd;
} {
  const message = `A newer command for the tag took its place, so ${before} is not put back by this one.`;
  return {
    command: { ...command, id: restoreCommandId(command.id), value: before },
    ending: { outcome: "superseded", reason: "superseded", message },
  };
}

export function formatUnrestoredValue(unrestoredValue: UnrestoredValue): string {
  const { commandId, dueAt, inForce, message, since, tagId, wanted } = unrestoredValue;
  const tagStateText = inForce === null ? "holds an unknown value" : `still holds ${inForce}`;
  return (
    `Tag ${tagId} ${tagStateText}, written by ${commandId} at ${since} for a time: ` +
    `${wanted} should hold again since ${dueAt}, and was not put back. ${message} Set it right by hand.`
  );
}
