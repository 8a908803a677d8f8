import type { TagScalar, TagValue } from "../building.ts";
import { isoUtc } from "../clock.ts";
import { type Event, makeEvent, sourceUri } from "../event.ts";
import type { Command, Finish, Reason } from "./command.ts";

/** Sets of documents by source and tag: what waits to be put back, and what could not be. */
export const RESTORES = "command-restore";
export const UNRESTORED = "command-not-restored";

/** "22 °C for two hours": at `dueAt` the old value is put back if the tag still holds ours. */
export interface Restore {
  readonly command: Command;
  readonly before: TagScalar;
  readonly dueAt: string;
}

/**
 * Later than this after its time a value is not put back any more. A day, because whatever is in the way (a gateway
 * without power, a service in maintenance, a token that has run out) is mended by people within a working day, and
 * because hours in which a tag may be written come once a day. Until then the value that was meant for two hours is
 * still in force and nobody else will end it; what anybody has changed meanwhile is left (`unexpected-value`). After a
 * day people have arranged themselves with it, and a change out of the blue would do more harm than the word that it
 * was not put back.
 */
export const PATIENCE_MS = 86_400_000;

/** The id of the command that puts back what another one changed. Nobody else's command may end like this. */
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
    // Whoever agreed to the write agreed to its end.
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
  /** What the tag holds as far as is known; null when nobody knows. */
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
  const message = `A newer command for the tag was sent, so ${before} is not put back by this one.`;
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
