import type { Clock } from "../../../core/runtime/clock.ts";
import { sleepFor, yieldToEventLoop } from "../../../core/runtime/waiting.ts";
import type { Change, Store } from "../../store/store.ts";

/**
 * Puts what the replies of several sources brought into one transaction, because each is a sync of the disk, a write of
 * every index and an offer to each sink. 20 sources at their full quota bring 7 replies a second, and with them a
 * transaction each second holds 140 values instead of 20. A source that is the only one never waits: each of its replies
 * is committed as it comes.
 */
export interface GroupCommit {
  /**
   * Resolves when the change is durable. `change` is called at that moment, so that it builds on what was committed
   * before; of one source there is never more than one in a transaction. Rejects with what the change itself rejects
   * with, or with the trouble of the transaction, which is everybody's.
   */
  commit(source: string, change: () => Promise<Change>, hurry: AbortSignal): Promise<void>;
}

/** From one transaction to the next, in milliseconds. What is read is seconds old anyway when it is told. */
const GATHER_MS = 1_000;
/**
 * From the first reply after a pause to its transaction, in milliseconds. Sources that were started together ask together
 * for as long as they live, every 3 s, and so their replies come within the time that the service takes: without this
 * wait the first of 20 had a transaction for itself, and the others another one a second later.
 */
const COMPANY_MS = 250;
/**
 * Replies in one transaction at most: a transaction stops the event loop, and sources that were started together are
 * answered together. 200 replies of 20 values at once stopped it for 140 ms; so many take a fifth of that.
 */
const REPLIES_MAX = 20;

interface Waiting {
  readonly source: string;
  readonly change: () => Promise<Change>;
  readonly hurry: AbortSignal;
  readonly done: PromiseWithResolvers<void>;
}

export interface GroupCommitOptions {
  readonly store: Pick<Store, "commit">;
  readonly clock: Clock;
  /** How many share it. */
  readonly sources: number;
}

export function createGroupCommit({ store, clock, sources }: GroupCommitOptions): GroupCommit {
  /** Shortened in place: one that is given up would keep its changes from the collector once it is old, as in tail.ts. */
  const waiting: Waiting[] = [];
  let isRunning = false;
  let lastMs = Number.NEGATIVE_INFINITY;

  async function run(): Promise<void> {
    isRunning = true;
    for (let [first] = waiting; first !== undefined; [first] = waiting) {
      const restMs = lastMs + GATHER_MS - clock.monotonic();
      const companyMs = sources > 1 ? COMPANY_MS : 0;
      const waitMs = Math.max(restMs, companyMs);
      if (waitMs > 0) await sleepFor(clock, waitMs, first.hurry);
      lastMs = clock.monotonic();
      // A second reply of one source is told after the first, and need not wait for it any longer.
      for (let [next] = waiting; next !== undefined; [next] = waiting) {
        await commitAll(takeOneOfEach());
        if (waiting.length > 0) await yieldToEventLoop();
      }
    }
    isRunning = false;
  }

  function takeOneOfEach(): readonly Waiting[] {
    const among = new Set<string>();
    const taken: Waiting[] = [];
    let left = 0;
    for (const each of waiting) {
      if (taken.length === REPLIES_MAX || among.has(each.source)) waiting[left++] = each;
      else taken.push(each);
      among.add(each.source);
    }
    waiting.length = left;
    return taken;
  }

  return {
    commit(source, change, hurry) {
      const done = Promise.withResolvers<void>();
      waiting.push({ source, change, hurry, done });
      if (!isRunning) void run();
      return done.promise;
    },
  };

  async function commitAll(taken: readonly Waiting[]): Promise<void> {
    const made = await Promise.all(
      taken.map(async (each) => {
        try {
          return { each, change: await each.change() };
        } catch (error) {
          each.done.reject(error);
          return null;
        }
      }),
    );
    const sound = made.filter((one) => one !== null);
    try {
      if (sound.length > 0) await store.commit(merged(sound.map(({ change }) => change)));
      for (const { each } of sound) each.done.resolve();
    } catch (error) {
      for (const { each } of sound) each.done.reject(error);
    }
  }
}

function merged(changes: readonly Change[]): Change {
  const [only] = changes;
  if (only !== undefined && changes.length === 1) return only;
  return {
    documents: changes.flatMap(({ documents = [] }) => documents),
    events: changes.flatMap(({ events = [] }) => events),
    records: changes.flatMap(({ records = [] }) => records),
  };
}
