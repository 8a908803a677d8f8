import { createHash } from "node:crypto";
import type { SinkStateChange } from "../../../src/core/connector.ts";
import { ConfigError, meaningOf, Rejected, Throttled } from "../../../src/core/errors/errors.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import type { Incident, IncidentMessage, IncidentReference, Receiver } from "./receiver.ts";
import { isOver, type StoredIncident } from "./stored-incident.ts";

/**
 * Brings the receiver up to date with one incident. It stores each intent before the request and each result after it,
 * so that a crash in between is detected:
 *
 *     store "opening" → open → store the reference        after a crash: search for it
 *     store "in doubt" → close → store "closed"           after a crash: send again
 */
export interface Notifier {
  /**
   * Sends the pending messages and returns the stored incident. Throws the error of the receiver. `again`: send
   * although nothing changed.
   */
  send(stored: StoredIncident, again: boolean, signal: AbortSignal): Promise<StoredIncident>;
  /** True when the receiver is not up to date. */
  needsSending(stored: StoredIncident): boolean;
  /** Digest of the message that would be sent. */
  digestOf(stored: StoredIncident): string;
}

export function createNotifier(options: {
  readonly receiver: Omit<Receiver, "probe" | "dispose">;
  readonly messageOf: (stored: StoredIncident) => IncidentMessage;
  /** Wall clock, which the search of the receiver uses, and monotonic clock. */
  readonly wallMs: () => number;
  readonly monotonicMs: () => number;
  readonly store: (stored: StoredIncident) => Promise<void>;
}): Notifier {
  const { receiver, wallMs, monotonicMs, store } = options;

  async function keep(stored: StoredIncident): Promise<StoredIncident> {
    await store(stored);
    return stored;
  }

  const withSentState = (
    stored: StoredIncident,
    place: IncidentReference,
    isClosed: boolean,
    digest = digestOf(stored),
  ): StoredIncident => {
    const { lookAtMs: _, openingAs: __, refused: ___, ...rest } = stored;
    const { retriggers, status } = stored;
    return {
      ...rest,
      openingMs: null,
      told: { place, status, retriggers, digest, isClosed, atMs: monotonicMs() },
    };
  };

  const digestOf = (stored: StoredIncident) => digestOfMessage(options.messageOf(stored));

  async function open(before: StoredIncident, signal: AbortSignal): Promise<StoredIncident> {
    let isInDoubt = before.openingMs !== null;
    if (before.openingMs !== null && receiver.find !== undefined) {
      const found = await receiver.find(options.messageOf(before), before.openingMs, signal);
      if (found !== null && "againInMs" in found) {
        return keep({ ...before, lookAtMs: monotonicMs() + found.againInMs });
      }
      if (found !== null) {
        // Its content is unknown and may be outdated, so the digest stays empty.
        return keep(withSentState(before, found, false, ""));
      }
      isInDoubt = false;
    }
    // Store a new start even after a search found nothing: a later search begins there.
    const stored = await keep({ ...before, ...identityOf(before), openingMs: wallMs() });
    try {
      const place = await receiver.open(options.messageOf(stored), signal, stored.openingAs);
      return await keep(withSentState(stored, place, false));
    } catch (error) {
      const { openingAs: _, ...rest } = stored;
      if (!isInDoubt && wasNotDone(error)) await keep({ ...rest, openingMs: null });
      throw error;
    }
  }

  /** Reuses the identity of the earlier opening. */
  function identityOf(stored: StoredIncident): Pick<StoredIncident, "openingAs"> {
    if (receiver.identify === undefined) return {};
    return {
      openingAs: stored.openingAs ?? stored.told?.place.ref ?? receiver.identify(options.messageOf(stored)),
    };
  }

  async function sendStep(stored: StoredIncident, signal: AbortSignal): Promise<StoredIncident> {
    const { told } = stored;
    if (told === null) return open(stored, signal);
    const over = isOver(stored);
    const mayBeClosed = told.isClosed || told.isInDoubt === true;
    if (mayBeClosed && !over && receiver.opensAgain !== "findable") return open(stored, signal);
    const text = options.messageOf(stored);
    if (told.isClosed !== over) await keep({ ...stored, told: { ...told, isInDoubt: true } });
    const place = await (over ? receiver.close(text, told.place, signal) : receiver.update(text, told.place, signal));
    if (place !== "gone") return keep(withSentState(stored, place, over));
    // The incident was removed there. Open a new one only if the alarm is not over.
    if (over) return keep(withSentState(stored, told.place, true));
    return open({ ...stored, told: null, openingMs: null }, signal);
  }

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

    async send(stored, again, signal) {
      if (again && stored.told !== null) return sendStep(stored, signal);
      let now = stored;
      // Opening and closing are two messages even when both are late.
      for (let steps = 0; steps < 3 && needsSending(now) && !waitsForSearch(now); steps += 1) {
        now = await sendStep(now, signal);
      }
      return now;
    },
  };
}

/** True for failures after which the receiver certainly did nothing. */
function wasNotDone(error: unknown): boolean {
  const failure = meaningOf(error);
  if (failure instanceof Throttled) return failure.scope === "allowance";
  return failure instanceof ConfigError || failure instanceof Rejected;
}

/** Digest of the visible content. Event id, change name and time series alone do not count as news. */
function digestOfMessage({ text, status, priority, link }: Incident & Pick<IncidentMessage, "text">): string {
  const { curves: _, ...news } = text;
  return createHash("sha256")
    .update(JSON.stringify([news, status, priority, link]))
    .digest("base64url");
}

/** One change of the sink state. */
export function entry(key: string, stored: StoredIncident | null): SinkStateChange {
  return new Map([[key, stored]]);
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
  const incident = testIncident(clock.now());
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

/** A test incident, not in the ledger. */
function testIncident(nowMs: number): StoredIncident {
  return {
    kind: "test",
    source: "plenum",
    episode: String(nowMs),
    site: null,
    alarm: null,
    gateway: null,
    priority: "C",
    status: "active",
    change: "raised",
    changeId: `test.${nowMs}`,
    startedAt: isoUtc(nowMs),
    endedAt: null,
    retriggers: 0,
    into: null,
    metMs: nowMs,
    holdFromMs: nowMs,
    changedMs: nowMs,
    through: 0,
    openingMs: null,
    told: null,
  };
}
