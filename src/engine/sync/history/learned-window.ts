import type { Clock } from "../../../core/runtime/clock.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { DocumentChange, Store } from "../../store/store.ts";
import { type StoredCut, type StoredWindow, syncSet } from "../snapshot.ts";
import { bucketsEach, type Counts, provedCut, valuesBelow } from "./cuts.ts";
import { answered, failed, UNKNOWN_WINDOW, type WindowLimits, windowValues } from "./window.ts";

/** How much one request of a source may ask for; learned while it is used, remembered over restarts. */
export interface LearnedWindow {
  load(): Promise<void>;
  /** Values that the next request may ask for. */
  values(): number;
  /** A request for so many values was answered; returns what is to be remembered of it, with the answer. */
  answered(values: number): readonly DocumentChange[];
  failed(values: number): Promise<void>;
  /** An answer left off at one of these counts, without an error. */
  cutAt(counts: Counts): Promise<void>;
  /** Buckets that each of so many tags may be asked for; infinite where no answer left off. */
  bucketsEach(tags: number): number;
}

export function createLearnedWindow(
  store: Store,
  source: string,
  limits: WindowLimits,
  clock: Pick<Clock, "now">,
): LearnedWindow {
  const set = syncSet("history-window", source);
  const key = "values";
  let window: StoredWindow = UNKNOWN_WINDOW;
  let cut: StoredCut | null = null;

  const learn = (next: StoredWindow): readonly DocumentChange[] => {
    const isNews = next.good !== window.good || next.bad !== window.bad || next.failures !== window.failures;
    window = next;
    return isNews ? [{ set, put: [[key, next]] }] : [];
  };

  return {
    async load() {
      window = (await store.document<StoredWindow>(set, key)) ?? UNKNOWN_WINDOW;
      cut = (await store.document<StoredCut>(set, "cut")) ?? null;
    },
    values: () => Math.min(windowValues(window, limits), valuesBelow(cut, clock.now())),
    bucketsEach: (tags) => bucketsEach(cut, tags, clock.now()),
    async cutAt(counts) {
      cut = provedCut(cut, counts, isoUtc(clock.now()));
      await store.commit({ documents: [{ set, put: [["cut", cut]] }] });
    },
    answered: (values) => learn(answered(window, values, limits)),
    async failed(values) {
      const documents = learn(failed(window, values));
      if (documents.length > 0) await store.commit({ documents });
    },
  };
}
