import type { ServerResponse } from "node:http";
import type { StubAnswer } from "../connectors/stub-server.ts";

/**
 * The far end of a receiver, in process, with the rules of the real one: what it asks for, what it answers, what it
 * does with a key that it knows, how its search lags. Each receiver has one, for its own tests and for the battery of
 * crashes that all of them pass.
 */
export interface ReceiverFarEnd {
  /** The connector's block of a configuration that leads here. */
  readonly config: Readonly<Record<string, unknown>>;
  /** What people see there, in the order in which it was made. */
  things(): readonly Thing[];
  /** The next so many requests that change something are carried out, and their answers are lost: the connection ends. */
  loseAnswers(count: number): void;
  /** The next so many requests are answered with 429 (or what the receiver says instead), and not carried out. */
  tellToWait(count: number): void;
  /** What becomes of each request that changes something, as long as nothing else is ordered; null for what it should. */
  troubleBy?(draw: Draw | null): void;
  /** How many requests came, for limits and for waste. */
  requests(): number;
  stop(): Promise<void>;
}

/** Carried out with its answer lost; not carried out and answered with an error; told to wait for so many seconds. */
export type Trouble = "lost" | "failed" | { readonly waitSeconds: number };

/** `isLimited`: whether the request counts for the rate limit. */
export type Draw = (isLimited: boolean) => Trouble | null;

export interface Thing {
  /** The incident's key, as the far end got it in whatever form; null where it has no place for one. */
  readonly key: string | null;
  readonly isOpen: boolean;
  /** All that was ever said in it: the title, edits, replies; one text each. */
  readonly texts: readonly string[];
  /** How many messages it is, where nothing that was sent is ever edited. */
  readonly messages?: number;
}

interface Interruptions extends Required<Pick<ReceiverFarEnd, "loseAnswers" | "tellToWait" | "troubleBy">> {
  /** Has a request that changes something answered, unless it is to wait or its answer is to be lost. */
  answer(carryOut: () => StubAnswer, response: ServerResponse): StubAnswer | null;
}

/** What comes between a far end over HTTP and who asks it; `busy` is what it says to who has to wait. */
export function createInterruptions(busy: StubAnswer): Interruptions {
  let toLose = 0;
  let toWait = 0;
  let draw: Draw | null = null;
  return {
    troubleBy(by) {
      draw = by;
    },
    loseAnswers(count) {
      toLose = count;
    },
    tellToWait(count) {
      toWait = count;
    },
    answer(carryOut, response) {
      if (toWait > 0) {
        toWait -= 1;
        return busy;
      }
      const trouble = draw?.(true) ?? null;
      if (trouble === "failed") return { status: 500 };
      if (trouble !== null && trouble !== "lost")
        return { ...busy, headers: { ...busy.headers, "retry-after": String(trouble.waitSeconds) } };
      const answer = carryOut();
      if (toLose === 0 && trouble !== "lost") return answer;
      toLose = Math.max(0, toLose - 1);
      response.destroy();
      return null;
    },
  };
}
