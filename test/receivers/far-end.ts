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
  /** How many requests came, for limits and for waste. */
  requests(): number;
  stop(): Promise<void>;
}

export interface Thing {
  /** The incident's key, as the far end got it in whatever form; null where it has no place for one. */
  readonly key: string | null;
  readonly isOpen: boolean;
  /** All that was ever said in it: the title, edits, replies; one text each. */
  readonly texts: readonly string[];
  /** How many messages it is, where nothing that was sent is ever edited. */
  readonly messages?: number;
}

interface Interruptions extends Pick<ReceiverFarEnd, "loseAnswers" | "tellToWait"> {
  /** Has a request that changes something answered, unless it is to wait or its answer is to be lost. */
  answer(carryOut: () => StubAnswer, response: ServerResponse): StubAnswer | null;
}

/** What comes between a far end over HTTP and who asks it; `busy` is what it says to who has to wait. */
export function createInterruptions(busy: StubAnswer): Interruptions {
  let toLose = 0;
  let toWait = 0;
  return {
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
      const answer = carryOut();
      if (toLose === 0) return answer;
      toLose -= 1;
      response.destroy();
      return null;
    },
  };
}
