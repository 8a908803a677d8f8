import { createHash } from "node:crypto";
import { ConfigError, meaningOf, Rejected, Throttled } from "../../../src/core/errors/errors.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import type { IncidentMessage, IncidentReference, Receiver } from "./receiver.ts";
import type { Calls } from "./retries.ts";
import { isOver, newIncident, type StoredIncident } from "./stored-incident.ts";

export type Notifier = ReturnType<typeof createNotifier>;

/**
 * Brings the receiver up to date with one incident. It stores each intent before the request and each result after it,
 * so that a crash in between is detected:
 *
 *     store "opening" → open → store the reference        after a crash: search for it
 *     store "in doubt" → close → store "closed"           after a crash: send again
 */
export function createNotifier(options: {
  readonly receiver: Receiver;
  readonly call: Calls["call"];
  readonly messageOf: (stored: StoredIncident) => IncidentMessage;
  /** Wall clock, for the search of the receiver. */
  readonly wallMs: () => number;
  readonly monotonicMs: () => number;
  readonly store: (stored: StoredIncident) => Promise<void>;
}) {
  const { receiver, call, messageOf, wallMs, monotonicMs } = options;
  const digestOf = (stored: StoredIncident) => digestOfMessage(messageOf(stored));

  async function store(stored: StoredIncident): Promise<StoredIncident> {
    await options.store(stored);
    return stored;
  }

  function storeSent(stored: StoredIncident, place: IncidentReference, isClosed: boolean, digest = digestOf(stored)) {
    const { lookAtMs: _, openingAs: __, refused: ___, ...rest } = stored;
    const { retriggers, status } = stored;
    const told = { place, status, retriggers, digest, isClosed, atMs: monotonicMs() };
    return store({ ...rest, openingMs: null, told });
  }

  async function open(before: StoredIncident, signal: AbortSignal): Promise<StoredIncident> {
    const { openingMs } = before;
    let mayExist = openingMs !== null;
    if (openingMs !== null && receiver.find !== undefined) {
      const found = await call("find", signal, async () => receiver.find?.(messageOf(before), openingMs, signal));
      if (found && "againInMs" in found) return store({ ...before, lookAtMs: monotonicMs() + found.againInMs });
      // The content of a found incident may be outdated, so the digest stays empty.
      if (found) return storeSent(before, found, false, "");
      mayExist = false;
    }
    // Store a new start even after a search found nothing: a later search begins there.
    const stored = await store({ ...before, ...identityOf(before), openingMs: wallMs() });
    try {
      const place = await call("open", signal, () => receiver.open(messageOf(stored), signal, stored.openingAs));
      return await storeSent(stored, place, false);
    } catch (error) {
      const { openingAs: _, ...rest } = stored;
      if (!mayExist && wasNotDone(error)) await store({ ...rest, openingMs: null });
      throw error;
    }
  }

  /** Reuses the identity of the earlier opening. */
  function identityOf(stored: StoredIncident): Pick<StoredIncident, "openingAs"> {
    if (receiver.identify === undefined) return {};
    return { openingAs: stored.openingAs ?? stored.told?.place.ref ?? receiver.identify(messageOf(stored)) };
  }

  async function sendStep(stored: StoredIncident, signal: AbortSignal): Promise<StoredIncident> {
    const { told } = stored;
    if (told === null) return open(stored, signal);
    const over = isOver(stored);
    const mayBeClosed = told.isClosed || told.isInDoubt === true;
    if (mayBeClosed && !over && receiver.opensAgain !== "findable") return open(stored, signal);
    const message = messageOf(stored);
    if (told.isClosed !== over) await store({ ...stored, told: { ...told, isInDoubt: true } });
    const kind = over ? "close" : "update";
    const place = await call(kind, signal, () => receiver[kind](message, told.place, signal));
    if (place !== "gone") return storeSent(stored, place, over);
    // The incident was removed there. Open a new one only if the alarm is not over.
    return over ? storeSent(stored, told.place, true) : open({ ...stored, told: null, openingMs: null }, signal);
  }

  /** True when the receiver is not up to date. */
  function needsSending(stored: StoredIncident): boolean {
    const { openingMs, told } = stored;
    if (told === null || told.isInDoubt === true) return true;
    // A reopening may have succeeded.
    if (isOver(stored)) return !told.isClosed || openingMs !== null;
    return told.isClosed || told.digest !== digestOf(stored);
  }

  const waitsForSearch = ({ lookAtMs, openingMs }: StoredIncident) =>
    openingMs !== null && lookAtMs !== undefined && monotonicMs() < lookAtMs;

  return {
    digestOf,
    needsSending,

    /** Sends and stores the pending messages. Throws the error of the receiver. `again`: send although nothing changed. */
    async send(stored: StoredIncident, again: boolean, signal: AbortSignal): Promise<void> {
      if (again && stored.told !== null) return void (await sendStep(stored, signal));
      let now = stored;
      // Opening and closing are two messages even when both are late.
      for (let steps = 0; steps < 3 && needsSending(now) && !waitsForSearch(now); steps += 1)
        now = await sendStep(now, signal);
    },
  };
}

/** True for failures after which the receiver certainly did nothing. */
function wasNotDone(error: unknown): boolean {
  const failure = meaningOf(error);
  if (failure instanceof Throttled) return failure.scope === "allowance";
  return failure instanceof ConfigError || failure instanceof Rejected;
}

/** Digest of the visible content. Event id, change name and time series alone do not need a message. */
export function digestOfMessage({ text, status, priority, link }: IncidentMessage): string {
  const { curves: _, ...visible } = text;
  const content = JSON.stringify([visible, status, priority, link]);
  return createHash("sha256").update(content).digest("base64url");
}

/** Opens, changes and closes a test alarm at a receiver and reports each step. */
export async function runTestAlarm(
  options: {
    readonly receiver: Receiver;
    readonly messageOf: (stored: StoredIncident) => IncidentMessage;
    readonly clock: Pick<Clock, "now">;
    readonly report: (line: string) => void;
  },
  signal: AbortSignal,
): Promise<void> {
  const { receiver, clock, report } = options;
  const nowMs = clock.now();
  const incident = newIncident("test", "plenum", String(nowMs), {
    ...{ priority: "C", change: "raised", changeId: `test.${nowMs}`, startedAt: isoUtc(nowMs) },
    ...{ metMs: nowMs, holdFromMs: nowMs, changedMs: nowMs, through: 0 },
  });
  const messageOf = (step: string, state: Partial<StoredIncident>) =>
    options.messageOf({ ...incident, ...state, changeId: `${incident.changeId}.${step}` });
  const reportStep = (done: string, { ticket, link }: IncidentReference) =>
    report([done, ticket, link].filter((text) => text !== null).join(" "));

  const opened = await receiver.open(messageOf("opened", {}), signal);
  reportStep("opened", opened);
  const acknowledged = messageOf("changed", { status: "acknowledged", change: "acknowledged" });
  const changed = await receiver.update(acknowledged, opened, signal);
  if (changed === "gone") return report("changed: it is not there any more");
  reportStep("changed", changed);
  const over = messageOf("closed", { status: "resolved", change: "resolved", endedAt: isoUtc(clock.now()) });
  const closed = await receiver.close(over, changed, signal);
  if (closed === "gone") return report("closed: it is not there any more");
  reportStep("closed", closed);
}
