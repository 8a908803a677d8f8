import type { TagScalar, TagValue } from "../../core/model/building.ts";
import { type Event, makeEvent, sourceUri } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Command, CommandEnd, CommandReason } from "./command.ts";
import { sameValue } from "./gate.ts";

export const RESTORE_SET = "command-restore";
export const UNRESTORED_SET = "command-not-restored";

/**
 * The promise of a timed write, e.g. 22 °C for two hours: at `dueAt` the old value is put back if the tag still holds ours.
 *
 *   command sent ─► promise ─ dueAt ─► restoring command ─► done, or `command-not-restored`
 *                      └ a newer written command for the tag ends it
 */
export interface Restore {
  readonly command: Command;
  readonly before: TagScalar;
  readonly dueAt: string;
  /** The promise that this promise replaces once its own write is verified. */
  readonly older?: Restore;
}

/** Returns the promise of a timed write. If the tag holds another timed value, the value before that is put back. */
export function createPromise(command: Command, before: TagScalar, older: Restore | undefined, nowMs: number): Restore {
  const dueAt = isoUtc(nowMs + (command.forMs ?? 0));
  if (older === undefined) return { command, before, dueAt };
  return { command, before: sameValue(older.command.value, before) ? older.before : before, dueAt, older };
}

/** Returns the tag's promise after a command ended, and the promises that are over. */
export function restoresAfter(
  command: Command,
  finish: CommandEnd,
  stored: Restore | undefined,
  nowMs: number,
): { readonly current: Restore | null; readonly over: readonly Restore[] } {
  if (stored === undefined) return { current: null, over: [] };
  const olderRestores = stored.older === undefined ? [] : restoreChain(stored.older);
  if (command.id === restoreId(stored.command.id)) {
    const isOlderPromiseKept = finish.reason === "unexpected-value" && stored.older !== undefined;
    return isOlderPromiseKept ? { current: stored.older, over: [] } : { current: null, over: olderRestores };
  }
  const isOwnPromise = command.id === stored.command.id;
  if (isWritten(finish)) {
    const { older: _older, ...ownRestore } = stored;
    if (isOwnPromise) return { current: ownRestore, over: olderRestores };
    const extendedRestore = extendTime(command, finish, stored, nowMs);
    if (extendedRestore === null && command.forMs !== null && finish.reason === "already-set")
      return { current: stored, over: [] };
    return { current: extendedRestore, over: restoreChain(stored) };
  }
  // The value may be in force although it was not read back: readings lag by up to 14 s, and an offline gateway writes later.
  const mayHold = finish.outcome === "unknown" || (finish.outcome === "mismatch" && stored.older === undefined);
  return { current: !isOwnPromise || mayHold ? stored : (stored.older ?? null), over: [] };
}

/** For a repeated timed write of the value that the tag holds, nothing is written and the time starts again. */
function extendTime(command: Command, { before, reason }: CommandEnd, stored: Restore, nowMs: number): Restore | null {
  const isSame = before !== undefined && before !== null && sameValue(before, stored.command.value);
  if (command.forMs === null || reason !== "already-set" || !isSame) return null;
  return { command, before: stored.before, dueAt: isoUtc(nowMs + command.forMs) };
}

export function isWritten({ outcome, rehearsal }: CommandEnd): boolean {
  return (outcome === "confirmed" || outcome === "accepted-unverified") && rehearsal !== true;
}

export function restoreChain(restore: Restore): readonly Restore[] {
  return restore.older === undefined ? [restore] : [restore, ...restoreChain(restore.older)];
}

/** Later, a sudden change of the value does more harm than the report that the value was not restored. */
export const MAX_RESTORE_DELAY_MS = 86_400_000;

const RESTORE_ID_SUFFIX = "/restore";

/** Id of the command that puts back the value before another command. No other id may end like this. */
export function restoreId(id: string): string {
  return `${id}${RESTORE_ID_SUFFIX}`;
}

export function isRestoreId(id: string): boolean {
  return id.endsWith(RESTORE_ID_SUFFIX);
}

export function restoringCommand({ command, before, dueAt }: Restore, nowMs: number): Command {
  return {
    ...command,
    id: restoreId(command.id),
    value: before,
    expect: command.value,
    forMs: null,
    needsSecond: false,
    by: `the end of ${command.id}`,
    receivedAt: isoUtc(nowMs),
    expiresAt: isoUtc(Date.parse(dueAt) + MAX_RESTORE_DELAY_MS),
  };
}

/** Reasons that may pass by themselves or by a person, e.g. `expired` after a clock was set forward by mistake. */
const TEMPORARY_REASONS: ReadonlySet<CommandReason | null> = new Set<CommandReason>([
  "disabled",
  "killed",
  "not-armed",
  "unapproved",
  "audit-full",
  "clock-skew",
  "no-ability",
  "value-unknown",
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

export function mayRetry({ reason }: CommandEnd): boolean {
  return TEMPORARY_REASONS.has(reason);
}

/** True when a restore ended although the timed value may still be in force. */
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
  readonly reason: CommandReason;
  readonly message: string;
  readonly toldAt: string;
}

export function toUnrestored({ command, before, dueAt }: Restore, finish: CommandEnd, toldAt: string): UnrestoredValue {
  const { id: commandId, siteId, source, tagId, value, forMs } = command;
  return {
    ...{ commandId, source, siteId, tagId },
    inForce: finish.readBack ?? finish.before ?? (finish.outcome === "unknown" ? null : value),
    since: isoUtc(Date.parse(dueAt) - (forMs ?? 0)),
    wanted: before,
    dueAt,
    reason: finish.reason ?? "in-doubt",
    message: finish.message,
    toldAt,
  };
}

export function notRestoredEvent(lost: UnrestoredValue): Event<"command-not-restored"> {
  const { commandId, source, siteId, tagId, toldAt, ...data } = lost;
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

export function endTakenOver({ command, before }: Restore): { readonly command: Command; readonly finish: CommandEnd } {
  const message = `A newer command for the tag took its place, so ${before} is not put back by this one.`;
  return {
    command: { ...command, id: restoreId(command.id), value: before },
    finish: { outcome: "superseded", reason: "superseded", message },
  };
}

export function unrestoredLine(lost: UnrestoredValue): string {
  const { commandId, dueAt, inForce, message, since, tagId, wanted } = lost;
  const tagStateText = inForce === null ? "holds nobody knows what" : `still holds ${inForce}`;
  return (
    `Tag ${tagId} ${tagStateText}, written by ${commandId} at ${since} for a time: ` +
    `${wanted} should hold again since ${dueAt}, and was not put back. ${message} Set it right by hand.`
  );
}
