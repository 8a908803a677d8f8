import type { TagScalar, TagValue } from "../../core/model/building.ts";
import { type Event, makeEvent, sourceUri } from "../../core/model/event.ts";
import { isoUtc } from "../../core/values/iso-utc.ts";
import type { Command, Finish, Reason } from "./command.ts";
import { sameValue } from "./gate.ts";

/** Sets of documents by source and tag: what waits to be put back, and what could not be. */
export const RESTORES = "command-restore";
export const UNRESTORED = "command-not-restored";

/** "22 °C for two hours": at `dueAt` the old value is put back if the tag still holds ours. */
export interface Restore {
  readonly command: Command;
  readonly before: TagScalar;
  readonly dueAt: string;
  /** The promise whose place this one takes, kept until it is known that its own write happened. */
  readonly older?: Restore;
}

/** Promises of a tag: the current one, null without one, and those that a newer command ended. */
export interface Promises {
  readonly kept: Restore | null;
  readonly over: readonly Restore[];
}

/** The promise of a write for a time that is about to leave. Of a value that was itself for a time the old one is kept. */
export function promiseOf(command: Command, before: TagScalar, older: Restore | undefined, nowMs: number): Restore {
  const dueAt = isoUtc(nowMs + (command.forMs ?? 0));
  if (older === undefined) return { command, before, dueAt };
  return { command, before: sameValue(older.command.value, before) ? older.before : before, dueAt, older };
}

/**
 * Promises of the tag after a command ended. Only a written value ends an older promise: after 22 for two hours and a rejected
 * 23, 22 still ends after two hours. When it is unknown whether 23 was written, both stay: each restores only the value that
 * it wrote.
 */
export function promisesAfter(command: Command, finish: Finish, held: Restore | undefined, nowMs: number): Promises {
  if (held === undefined) return { kept: null, over: [] };
  if (command.id === restoreId(held.command.id)) {
    // Another value than its own is there: perhaps the one that was there before.
    const isOlders = finish.reason === "unexpected-value" && held.older !== undefined;
    return isOlders ? { kept: held.older, over: [] } : { kept: null, over: olderThan(held) };
  }
  const isOwn = command.id === held.command.id;
  if (isWritten(finish)) {
    const { older: _older, ...alone } = held;
    if (isOwn) return { kept: alone, over: olderThan(held) };
    const kept = prolonged(command, finish, held, nowMs);
    // The tag already had the value, so Plenum wrote nothing and promises nothing.
    if (kept === null && command.forMs !== null && finish.reason === "already-set") return { kept: held, over: [] };
    return { kept, over: withOlder(held) };
  }
  if (!isOwn || mayYetHold(finish, held)) return { kept: held, over: [] };
  return { kept: held.older ?? null, over: [] };
}

/**
 * True when a value may be in force although it was not read back: the tag could not be read, or a reading was up to 14 s
 * old, or an offline gateway writes later. An older waiting promise stays, because it states the value that must hold.
 */
function mayYetHold({ outcome }: Finish, { older }: Restore): boolean {
  return outcome === "unknown" || (outcome === "mismatch" && older === undefined);
}

/** "22 for two hours" while 22 is there for an hour yet: nothing is written, and two hours count from now. */
function prolonged(command: Command, { before, reason }: Finish, held: Restore, nowMs: number) {
  const isSame = before !== undefined && before !== null && sameValue(before, held.command.value);
  if (command.forMs === null || reason !== "already-set" || !isSame) return null;
  return { command, before: held.before, dueAt: isoUtc(nowMs + command.forMs) };
}

/** Whether a command ended with its value in the building: written by it, or there already. */
export function isWritten({ outcome, rehearsal }: Finish): boolean {
  return (outcome === "confirmed" || outcome === "accepted-unverified") && rehearsal !== true;
}

/** A promise and those whose place it takes, the newest first. */
export function withOlder(held: Restore): readonly Restore[] {
  return held.older === undefined ? [held] : [held, ...withOlder(held.older)];
}

function olderThan({ older }: Restore): readonly Restore[] {
  return older === undefined ? [] : withOlder(older);
}

/**
 * Time after which a value is no longer put back, in milliseconds. A day: most obstacles (a gateway without power, a
 * maintenance, an expired token) are fixed within a working day, and permitted hours come once a day. A value that was
 * changed meanwhile stays (`unexpected-value`). After a day, a sudden change would do more harm than the report that the old
 * value was not restored.
 */
export const PATIENCE_MS = 86_400_000;

/** Id of the command that restores the value of another command. No other id may end like this. */
export function restoreId(id: string): string {
  return `${id}${ENDING}`;
}

export function isRestoreId(id: string): boolean {
  return id.endsWith(ENDING);
}

const ENDING = "/restore";

export function restoringCommand({ command, before, dueAt }: Restore, nowMs: number): Command {
  return {
    ...command,
    id: restoreId(command.id),
    value: before,
    expect: command.value,
    forMs: null,
    // The approval of the write includes its end.
    needsSecond: false,
    by: `the end of ${command.id}`,
    receivedAt: isoUtc(nowMs),
    expiresAt: isoUtc(Date.parse(dueAt) + PATIENCE_MS),
  };
}

/**
 * Says "not now" and not "not this": it may pass by itself, or a person may end it who has closed writing for a while.
 * The kill switch and the other closures are such words too: they stop all writing while they last, and what is to be
 * put back is as old as before when they end. Whether its day is over is not the queue's to say: there a clock that
 * was set forward by mistake would end it too (`expired`). Everything else is final: the value may not be written back
 * (`not-restorable`, `step-too-large`), or somebody has changed the tag (`unexpected-value`).
 */
const NOT_NOW: ReadonlySet<Reason | null> = new Set<Reason>([
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

/** Whether the end of a restore that has not left may pass by itself. Of what has left no end may: it is not repeated. */
export function maybeLater({ reason }: Finish): boolean {
  return NOT_NOW.has(reason);
}

/** Whether a restore ended although the value that was meant for a time may still be in force. */
export function isLost({ outcome, reason }: Finish): boolean {
  // Somebody has put another value there, so ours is over.
  if (reason === "unexpected-value") return false;
  return outcome === "rejected" || outcome === "expired" || outcome === "mismatch" || outcome === "unknown";
}

/** A value that was meant for a time and could not be taken back, as it is stored until it is over. */
export interface Unrestored {
  readonly commandId: string;
  readonly source: string;
  readonly siteId: number;
  readonly tagId: string;
  /** Last known value of the tag; null when unknown. */
  readonly inForce: TagValue;
  readonly since: string;
  readonly wanted: TagScalar;
  readonly dueAt: string;
  readonly reason: Reason;
  readonly message: string;
  readonly toldAt: string;
}

export function unrestored({ command, before, dueAt }: Restore, finish: Finish, toldAt: string): Unrestored {
  const { id, siteId, source, tagId, value, forMs } = command;
  const held = finish.outcome === "unknown" ? null : value;
  return {
    commandId: id,
    source,
    siteId,
    tagId,
    inForce: finish.readBack ?? finish.before ?? held,
    since: isoUtc(Date.parse(dueAt) - (forMs ?? 0)),
    wanted: before,
    dueAt,
    reason: finish.reason ?? "in-doubt",
    message: finish.message,
    toldAt,
  };
}

export function notRestoredEvent(lost: Unrestored): Event<"command-not-restored"> {
  const { commandId, source, siteId, tagId, toldAt, ...told } = lost;
  return makeEvent({
    type: "command-not-restored",
    source: sourceUri(source),
    subject: `site/${siteId}/tag/${tagId}`,
    time: toldAt,
    siteId,
    facts: [commandId],
    data: { commandId, tagId, ...told },
  });
}

/** The end of a promise to put a value back that a newer command took the place of. */
export function takenOver(restore: Restore): { readonly command: Command; readonly finish: Finish } {
  const { command, before } = restore;
  const message = `A newer command for the tag took its place, so ${before} is not put back by this one.`;
  return {
    command: { ...command, id: restoreId(command.id), value: before },
    finish: { outcome: "superseded", reason: "superseded", message },
  };
}

/** A sentence for a person who has to see it. */
export function unrestoredLine(lost: Unrestored): string {
  const { commandId, dueAt, inForce, message, since, tagId, wanted } = lost;
  const held = inForce === null ? "holds nobody knows what" : `still holds ${inForce}`;
  return (
    `Tag ${tagId} ${held}, written by ${commandId} at ${since} for a time: ` +
    `${wanted} should hold again since ${dueAt}, and was not put back. ${message} Set it right by hand.`
  );
}
