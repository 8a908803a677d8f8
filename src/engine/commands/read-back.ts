import { meaningOf } from "../../core/errors/errors.ts";
import type { TagValue } from "../../core/model/building.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import type { Log } from "../../core/runtime/log.ts";
import { createWakeup, loop } from "../../core/runtime/waiting.ts";
import { type Source, TAGS_PER_REQUEST } from "../source/source.ts";
import type { BuildingView } from "./building-view.ts";
import type { Command, Finish } from "./command.ts";
import type { Endings } from "./endings.ts";
import type { FreshValues } from "./fresh-values.ts";
import { sameValue } from "./gate.ts";

/**
 * The proof: reads written tags back and ends their commands.
 *
 * | the POST was         | tag holds the value | holds another | cannot be read        |
 * | -------------------- | ------------------- | ------------- | --------------------- |
 * | answered             | `confirmed`         | `mismatch`    | `accepted-unverified` |
 * | in doubt (time-out…) | `confirmed`         | `mismatch`    | `unknown`             |
 * | refused as a group   | `confirmed`         | `rejected`    | `unknown`             |
 *
 * A live read that shows the value proves it without a request. While polls wait for the quota, it is given some
 * time to do so; another value than ours is believed only from a request of our own, the second in a row. That goes for
 * a refused group too: of five tags four may have been written, and their readings lag behind by seconds.
 */
export type SendResult = "answered" | "in-doubt" | "group-refused";

export interface AwaitingProof {
  readonly command: Command;
  readonly sent: SendResult;
  /** The service's reason for a rejected write, for people. */
  readonly complaint: string | null;
  readonly before: TagValue;
  /** Wall time of the write, milliseconds since 1970: earlier readings prove nothing. */
  readonly sentAtMs: number;
}

export interface ReadBack {
  add(proofs: readonly AwaitingProof[]): void;
  /** Works until the signal aborts. Commands that still wait stay `sending` and are verified at the next start. */
  run(signal: AbortSignal): Promise<void>;
}

/** Attempts at reading before we say that we cannot know: with 2 s to begin with, within about a minute. */
const ATTEMPTS = 5;
/** How long a busy quota may put off a reading of our own, in milliseconds. */
const RIDE_MS = 10_000;
const LOOK_AGAIN_MS = 1_000;

/** One proof on its way. */
interface Case {
  readonly proof: AwaitingProof;
  readonly rideUntilMs: number;
  dueMs: number;
  attempts: number;
  /** A first reading showed another value; a slow device gets a second reading. */
  sawOther: boolean;
  /** A reading together with others was refused as a whole. */
  isSuspect: boolean;
}

export function createReadBack(options: {
  readonly source: Source;
  readonly view: BuildingView;
  readonly values: FreshValues;
  readonly endings: Endings;
  readonly clock: Clock;
  readonly log: Log;
  readonly settleMs: () => number;
}): ReadBack {
  const { clock, endings, log, settleMs, source, values, view } = options;
  const cases = new Set<Case>();
  const added = createWakeup();

  async function close(each: Case, present: TagValue | undefined, signal: AbortSignal): Promise<void> {
    await endings.end(each.proof.command, judge(each.proof, present), signal);
    cases.delete(each);
  }

  /** Last live value. One that cannot be loaded proves nothing and must not delay the others. */
  async function heldValue({ tagId }: Command) {
    try {
      return await view.value(source.name, tagId);
    } catch (error) {
      log.warn({ err: error, tagId }, "what a live read showed is not known");
      return undefined;
    }
  }

  /** Ends what a live read has shown since the write; answers the others. */
  async function rideOn(due: readonly Case[], signal: AbortSignal): Promise<readonly Case[]> {
    const others: Case[] = [];
    for (const each of due) {
      const { command, sentAtMs } = each.proof;
      const held = await heldValue(command);
      const isShown = held !== undefined && Date.parse(held.time) > sentAtMs && sameValue(held.value, command.value);
      if (isShown) await close(each, held.value, signal);
      else others.push(each);
    }
    return others;
  }

  async function read(due: readonly Case[], signal: AbortSignal): Promise<void> {
    const [first] = due;
    const group = first?.isSuspect ? [first] : due.filter((each) => !each.isSuspect).slice(0, TAGS_PER_REQUEST);
    let present: ReadonlyMap<string, TagValue> = new Map();
    try {
      const ids = new Set(group.map(({ proof }) => proof.command.tagId));
      const reply = await source.read([...ids], "on-demand", signal);
      values.learn(reply);
      present = new Map(reply.readings.map((reading) => [reading.id, reading.value]));
    } catch (error) {
      if (signal.aborted) throw error;
      log.warn({ err: error }, "reading back failed");
      if (group.length > 1 && isRefusal(error)) {
        for (const each of group) each.isSuspect = true;
        return;
      }
    }
    for (const each of group) {
      const value = present.get(each.proof.command.tagId) ?? null;
      each.attempts += 1;
      const isOurs = value !== null && sameValue(value, each.proof.command.value);
      const isOther = value !== null && !isOurs;
      const isCertain = isOurs || (isOther && each.sawOther);
      each.sawOther ||= isOther;
      if (isCertain || each.attempts >= ATTEMPTS) await close(each, value, signal);
      else each.dueMs = clock.monotonic() + Math.max(LOOK_AGAIN_MS, settleMs()) * 2 ** each.attempts;
    }
  }

  async function prove(due: readonly Case[], signal: AbortSignal): Promise<void> {
    const others = await rideOn(due, signal);
    const now = clock.monotonic();
    const urgent = others.filter((each) => !isBusy(source) || now >= each.rideUntilMs);
    for (const each of others) if (!urgent.includes(each)) each.dueMs = now + LOOK_AGAIN_MS;
    if (urgent.length > 0) await read(urgent, signal);
  }

  return {
    add(proofs) {
      const dueMs = clock.monotonic() + settleMs();
      for (const proof of proofs) {
        cases.add({
          proof,
          dueMs,
          rideUntilMs: dueMs + RIDE_MS,
          attempts: 0,
          sawOther: false,
          isSuspect: false,
        });
      }
      added.wakeUp();
    },
    run: (signal) =>
      loop({
        clock,
        signal,
        bell: added,
        async turn() {
          const due = [...cases].filter((each) => each.dueMs <= clock.monotonic());
          if (due.length > 0) await prove(due, signal);
          return Math.min(...[...cases].map((each) => each.dueMs)) - clock.monotonic();
        },
        fault: (error) => log.error({ err: error }, "a written tag could not be proved"),
      }),
  };
}

/** One tag that the service does not show makes it refuse a whole group. */
function isRefusal(error: unknown): boolean {
  const { kind } = meaningOf(error);
  return kind === "rejected" || kind === "config";
}

/** Whether polls wait for the quota: then a live read may soon show the value, and a request would cost them one. */
function isBusy(source: Source): boolean {
  return source.quota().buckets.some(({ waiting }) => waiting.live + waiting.history > 0);
}

export function judge(proof: AwaitingProof, present: TagValue | undefined): Finish {
  const { command, sent, before, complaint } = proof;
  const readBack = present ?? null;
  const common = { before, readBack, answer: complaint ?? sent };
  if (readBack !== null && sameValue(readBack, command.value)) {
    return { ...common, outcome: "confirmed", reason: null, message: `The tag holds ${readBack}.` };
  }
  if (readBack !== null) {
    const held = `The tag holds ${readBack}, not ${command.value}.`;
    return sent === "group-refused"
      ? {
          ...common,
          outcome: "rejected",
          reason: "refused-by-service",
          message: `${complaint ?? "Refused."} ${held}`,
        }
      : { ...common, outcome: "mismatch", reason: "mismatch", message: held };
  }
  if (sent === "answered") {
    const message = "The service took the write; the tag could not be read back.";
    return { ...common, outcome: "accepted-unverified", reason: "unreadable-device", message };
  }
  const message = "It is not known whether the write happened; it is not repeated.";
  return { ...common, outcome: "unknown", reason: "in-doubt", message };
}
