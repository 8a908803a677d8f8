import { createHash } from "node:crypto";
import type { SinkStateChange } from "../../../src/core/connector.ts";
import { ConfigError, meaningOf, Rejected, Throttled } from "../../../src/core/errors/errors.ts";
import type { Clock } from "../../../src/core/runtime/clock.ts";
import { isoUtc } from "../../../src/core/values/iso-utc.ts";
import type { Incident, IncidentMessage, IncidentReference, Receiver } from "./receiver.ts";
import { isOver, type StoredIncident } from "./stored-incident.ts";

/**
 * Brings what the receiver knows of one incident up to what is true. What was said is remembered before anything else
 * is said, and what opens or closes something is written down before it leaves:
 *
 *   remember "opening" → open → remember where it is       a crash in between leaves "opening": it is looked for
 *   remember "in doubt" → close → remember that it is over       a crash in between leaves "in doubt": it is said again
 *
 * Also where the same can be said twice without harm: until it is said again, the alarm may have ended or come back, and
 * then nothing else would tell that there is something to say.
 */
export interface Notifier {
  /**
   * Says what is to be said; answers the incident as it is remembered now. Throws what the receiver threw. `again`: also
   * where nothing is new.
   */
  send(stored: StoredIncident, again: boolean, signal: AbortSignal): Promise<StoredIncident>;
  /** Whether there is anything to say. */
  needsSending(stored: StoredIncident): boolean;
  /** Digest of the message that would be sent. */
  digestOf(stored: StoredIncident): string;
}

export function createNotifier(options: {
  readonly receiver: Omit<Receiver, "probe" | "dispose">;
  readonly messageOf: (stored: StoredIncident) => IncidentMessage;
  /** By the wall clock, which the receiver's search goes by, and by one that does not go back. */
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
        // What it says is not known: it may be older than what is true now.
        return keep(withSentState(before, found, false, ""));
      }
      isInDoubt = false;
    }
    // Also after a search that found nothing: should this one be in doubt, it is from now on that it is looked for.
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

  /** The same as it was told by before, or may have been. */
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
    const place = await (over
      ? receiver.close(text, told.place, signal)
      : receiver.update(text, told.place, signal));
    if (place !== "gone") return keep(withSentState(stored, place, over));
    // Somebody has removed it there. What is over needs nothing more; what is not gets a new one.
    if (over) return keep(withSentState(stored, told.place, true));
    return open({ ...stored, told: null, openingMs: null }, signal);
  }

  function needsSending(stored: StoredIncident): boolean {
    const { openingMs, told } = stored;
    if (told === null || told.isInDoubt === true) return true;
    // It may have been opened again.
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
      // Opening and closing are two things to say, also where both are late; so is what is not known of one found again.
      for (let steps = 0; steps < 3 && needsSending(now) && !waitsForSearch(now); steps += 1) {
        now = await sendStep(now, signal);
      }
      return now;
    },
  };
}

/** A failure after which nothing was carried out; of any other nobody knows. */
function wasNotDone(error: unknown): boolean {
  const failure = meaningOf(error);
  if (failure instanceof Throttled) return failure.scope === "allowance";
  return failure instanceof ConfigError || failure instanceof Rejected;
}

/**
 * What people would see: the id of the last event and the word for it are not part of it, nor is how the values went,
 * which is no news by itself.
 */
function digestOfMessage({ text, status, priority, link }: Incident & Pick<IncidentMessage, "text">): string {
  const { curves: _, ...news } = text;
  return createHash("sha256")
    .update(JSON.stringify([news, status, priority, link]))
    .digest("base64url");
}

/** One entry to remember. */
export function entry(key: string, stored: StoredIncident | null): SinkStateChange {
  return new Map([[key, stored]]);
}

/** Opens, changes and closes a marked test alarm at a receiver, and says of each step what came of it. */
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

/** An incident that is none, to see how one looks there. */
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
