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
  tell(held: StoredIncident, again: boolean, signal: AbortSignal): Promise<StoredIncident>;
  /** Whether there is anything to say. */
  isBehind(held: StoredIncident): boolean;
  /** Whether it is in doubt, and too early to look for it. */
  isLookedForLater(held: StoredIncident): boolean;
  /** A digest of what would be said. */
  digestOf(held: StoredIncident): string;
}

export function createNotifier(options: {
  readonly receiver: Omit<Receiver, "probe" | "dispose">;
  readonly told: (held: StoredIncident) => IncidentMessage;
  /** By the wall clock, which the receiver's search goes by, and by one that does not go back. */
  readonly wallMs: () => number;
  readonly onwardMs: () => number;
  readonly remember: (held: StoredIncident) => Promise<void>;
}): Notifier {
  const { receiver, wallMs, onwardMs, remember } = options;

  async function keep(held: StoredIncident): Promise<StoredIncident> {
    await remember(held);
    return held;
  }

  const known = (
    held: StoredIncident,
    place: IncidentReference,
    isClosed: boolean,
    digest = digestOf(held),
  ): StoredIncident => {
    const { lookAtMs: _, openingAs: __, refused: ___, ...rest } = held;
    const { retriggers, status } = held;
    return {
      ...rest,
      openingMs: null,
      told: { place, status, retriggers, digest, isClosed, atMs: onwardMs() },
    };
  };

  const digestOf = (held: StoredIncident) => digestOfTold(options.told(held));

  async function open(before: StoredIncident, signal: AbortSignal): Promise<StoredIncident> {
    let isInDoubt = before.openingMs !== null;
    if (before.openingMs !== null && receiver.find !== undefined) {
      const found = await receiver.find(options.told(before), before.openingMs, signal);
      if (found !== null && "againInMs" in found) {
        return keep({ ...before, lookAtMs: onwardMs() + found.againInMs });
      }
      if (found !== null) {
        // What it says is not known: it may be older than what is true now.
        return keep(known(before, found, false, ""));
      }
      isInDoubt = false;
    }
    // Also after a search that found nothing: should this one be in doubt, it is from now on that it is looked for.
    const held = await keep({ ...before, ...identityOf(before), openingMs: wallMs() });
    try {
      const place = await receiver.open(options.told(held), signal, held.openingAs);
      return await keep(known(held, place, false));
    } catch (error) {
      const { openingAs: _, ...rest } = held;
      if (!isInDoubt && surelyNot(error)) await keep({ ...rest, openingMs: null });
      throw error;
    }
  }

  /** The same as it was told by before, or may have been. */
  function identityOf(held: StoredIncident): Pick<StoredIncident, "openingAs"> {
    if (receiver.identify === undefined) return {};
    return { openingAs: held.openingAs ?? held.told?.place.ref ?? receiver.identify(options.told(held)) };
  }

  async function say(held: StoredIncident, signal: AbortSignal): Promise<StoredIncident> {
    const { told } = held;
    if (told === null) return open(held, signal);
    const over = isOver(held);
    const mayBeClosed = told.isClosed || told.isInDoubt === true;
    if (mayBeClosed && !over && receiver.opensAgain !== "findable") return open(held, signal);
    const text = options.told(held);
    if (told.isClosed !== over) await keep({ ...held, told: { ...told, isInDoubt: true } });
    const place = await (over
      ? receiver.close(text, told.place, signal)
      : receiver.update(text, told.place, signal));
    if (place !== "gone") return keep(known(held, place, over));
    // Somebody has removed it there. What is over needs nothing more; what is not gets a new one.
    if (over) return keep(known(held, told.place, true));
    return open({ ...held, told: null, openingMs: null }, signal);
  }

  function isBehind(held: StoredIncident): boolean {
    const { openingMs, told } = held;
    if (told === null || told.isInDoubt === true) return true;
    // It may have been opened again.
    if (isOver(held)) return !told.isClosed || openingMs !== null;
    return told.isClosed || told.digest !== digestOf(held);
  }

  const isLookedForLater = ({ lookAtMs, openingMs }: StoredIncident) =>
    openingMs !== null && lookAtMs !== undefined && onwardMs() < lookAtMs;

  return {
    digestOf,
    isBehind,
    isLookedForLater,

    async tell(held, again, signal) {
      if (again && held.told !== null) return say(held, signal);
      let now = held;
      // Opening and closing are two things to say, also where both are late; so is what is not known of one found again.
      for (let steps = 0; steps < 3 && isBehind(now) && !isLookedForLater(now); steps += 1) {
        now = await say(now, signal);
      }
      return now;
    },
  };
}

/** A failure after which nothing was carried out; of any other nobody knows. */
function surelyNot(error: unknown): boolean {
  const failure = meaningOf(error);
  if (failure instanceof Throttled) return failure.scope === "allowance";
  return failure instanceof ConfigError || failure instanceof Rejected;
}

/**
 * What people would see: the id of the last event and the word for it are not part of it, nor is how the values went,
 * which is no news by itself.
 */
function digestOfTold({ text, status, priority, link }: Incident & Pick<IncidentMessage, "text">): string {
  const { curves: _, ...news } = text;
  return createHash("sha256")
    .update(JSON.stringify([news, status, priority, link]))
    .digest("base64url");
}

/** One entry to remember. */
export function entry(key: string, held: StoredIncident | null): SinkStateChange {
  return new Map([[key, held]]);
}

/** Opens, changes and closes a marked test alarm at a receiver, and says of each step what came of it. */
export async function tryOut(
  options: {
    readonly receiver: Receiver;
    readonly told: (held: StoredIncident) => IncidentMessage;
    readonly clock: Pick<Clock, "now">;
    readonly say: (line: string) => void;
  },
  signal: AbortSignal,
): Promise<void> {
  const { receiver, clock, say } = options;
  const incident = testIncident(clock.now());
  const told = (done: string, state: Partial<StoredIncident>) =>
    options.told({ ...incident, ...state, changeId: `${incident.changeId}.${done}` });
  const report = (done: string, { ticket, link }: IncidentReference) =>
    say([done, ticket, link].filter((text) => text !== null).join(" "));

  const opened = await receiver.open(told("opened", {}), signal);
  report("opened", opened);
  const acknowledged = told("changed", { status: "acknowledged", change: "acknowledged" });
  const changed = await receiver.update(acknowledged, opened, signal);
  if (changed === "gone") return say("changed: it is not there any more");
  report("changed", changed);
  const over = told("closed", { status: "resolved", change: "resolved", endedAt: isoUtc(clock.now()) });
  const closed = await receiver.close(over, changed, signal);
  if (closed === "gone") return say("closed: it is not there any more");
  report("closed", closed);
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
