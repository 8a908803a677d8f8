import type { TagValue } from "../building.ts";
import type { Clock } from "../clock.ts";
import { isStopping } from "../lifecycle.ts";
import type { Log } from "../log.ts";
import { type Source, TAGS_PER_REQUEST } from "../source/source.ts";
import type { Command } from "./command.ts";
import type { Finish, Journal } from "./journal.ts";

/**
 * The proof: reads written tags back and ends their commands.
 *
 * | the POST was         | tag holds the value | holds another | cannot be read        |
 * | -------------------- | ------------------- | ------------- | --------------------- |
 * | answered             | `confirmed`         | `mismatch`    | `accepted-unverified` |
 * | in doubt (time-out…) | `confirmed`         | `mismatch`    | `unknown`             |
 * | refused as a group   | `confirmed`         | `rejected`    | `unknown`             |
 */
export type Sent = "answered" | "in-doubt" | "group-refused";

export interface AwaitingProof {
  readonly command: Command;
  readonly sent: Sent;
  /** What the service said when it refused, for a person. */
  readonly complaint: string | null;
  readonly before: TagValue;
}

export interface ReadBack {
  add(proofs: readonly AwaitingProof[]): void;
  /** Works until the signal aborts. What is still awaited then stays `sending` and is proved at the next start. */
  run(signal: AbortSignal): Promise<void>;
}

/** Attempts at reading before we say that we cannot know. */
const ATTEMPTS = 3;

export function createReadBack(options: {
  readonly source: Source;
  readonly journal: Journal;
  readonly clock: Clock;
  readonly log: Log;
  readonly settleMs: number;
  readonly onFinished: (outcome: string) => void;
}): ReadBack {
  const { clock, journal, source } = options;
  let waiting: AwaitingProof[] = [];
  let wake = (): void => {};

  async function prove(group: readonly AwaitingProof[], signal: AbortSignal): Promise<void> {
    const values = await readValues(
      group.map((proof) => proof.command.tagId),
      signal,
    );
    for (const proof of group) {
      const finish = judge(proof, values?.get(proof.command.tagId));
      await journal.finish(proof.command, finish);
      options.onFinished(finish.outcome);
    }
  }

  /** Null when it could not be read at all. */
  async function readValues(
    tagIds: readonly string[],
    signal: AbortSignal,
  ): Promise<ReadonlyMap<string, TagValue> | null> {
    for (let attempt = 1; attempt <= ATTEMPTS; attempt += 1) {
      try {
        const reply = await source.read([...new Set(tagIds)], "on-demand", signal);
        return new Map(reply.readings.map((reading) => [reading.id, reading.value]));
      } catch (error) {
        if (signal.aborted || isStopping(error)) throw error;
        options.log.warn({ err: error, attempt }, "reading back failed");
        if (attempt < ATTEMPTS) await clock.sleep(options.settleMs * 2 ** attempt, signal);
      }
    }
    return null;
  }

  return {
    add(proofs) {
      waiting.push(...proofs);
      if (proofs.length > 0) wake();
    },
    async run(signal) {
      signal.addEventListener("abort", () => wake(), { once: true });
      while (!signal.aborted) {
        if (waiting.length === 0) {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
          continue;
        }
        try {
          await clock.sleep(options.settleMs, signal);
          const group = waiting.slice(0, TAGS_PER_REQUEST);
          await prove(group, signal);
          waiting = waiting.slice(group.length);
        } catch (error) {
          if (!signal.aborted) options.log.error({ err: error }, "a command result could not be recorded");
        }
      }
    },
  };
}

export function judge(proof: AwaitingProof, present: TagValue | undefined): Finish {
  const { command, sent, before, complaint } = proof;
  const readBack = present ?? null;
  const common = { before, readBack };
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
    return { ...common, outcome: "accepted-unverified", reason: "unreadable", message };
  }
  const message = "It is not known whether the write happened; it is not repeated.";
  return { ...common, outcome: "unknown", reason: "in-doubt", message };
}

/** A device may hold a number in single precision, so equal means equal to about seven digits. */
export function sameValue(a: TagValue, b: TagValue): boolean {
  if (typeof a !== "number" || typeof b !== "number") return a === b;
  return Math.abs(a - b) <= 1e-6 * Math.max(1, Math.abs(a), Math.abs(b));
}
