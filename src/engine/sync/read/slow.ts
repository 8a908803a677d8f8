import { createLastMedian } from "../../../core/runtime/last-median.ts";

/**
 * Finds the tags that make whole requests slow, because a request waits for its slowest gateway. Deterministic.
 *
 * Every tag of a slow request is under suspicion. A suspected group is read apart, in halves, until a half is fast
 * (its tags are cleared) or one tag is left (it is slow, and shares its requests with the other slow ones).
 */
export interface SlowTags {
  /** Whether any tag is slow, or suspected of it. */
  any(): boolean;
  /** Tags with the same text travel together, apart from the others; null for ordinary tags. */
  labelOf(id: string): string | null;
  /** A request came back; no answer in time counts as `Infinity`. */
  replied(ids: readonly string[], latencyMs: number): void;
  /** Nobody is slow, or suspected of it. */
  forget(): void;
  /** The middle of the latest latencies, milliseconds; 0 before the first. */
  typicalMs(): number;
}

/** A request is slow when it takes this many times the typical time, and this long at least. */
const SLOW_FACTOR = 4;
const SLOW_MS = 3_000;
/** Replies that make up the typical time, and how many are needed before anything is called slow. */
const REMEMBERED = 50;
const NEEDED = 5;

const SLOW = "slow";

export function createSlowTags(): SlowTags {
  const labels = new Map<string, string>();
  const latencies = createLastMedian(REMEMBERED);
  let suspicions = 0;

  const typicalMs = () => latencies.value() ?? 0;
  const suspect = (ids: readonly string[]) => {
    suspicions++;
    for (const id of ids) labels.set(id, `suspects ${suspicions}`);
  };

  return {
    any: () => labels.size > 0,
    labelOf: (id) => labels.get(id) ?? null,
    typicalMs,
    forget: () => labels.clear(),
    replied(ids, latencyMs) {
      const isSlow = latencyMs > Math.max(SLOW_MS, SLOW_FACTOR * typicalMs()) && latencies.count() >= NEEDED;
      const wasApart = ids.some((id) => labels.has(id));
      // Slow tags do not make slow typical: only ordinary requests do, and an answer that never came has no time.
      if (!wasApart && Number.isFinite(latencyMs)) latencies.add(latencyMs);
      if (!isSlow) {
        for (const id of ids) labels.delete(id);
        return;
      }
      const [only] = ids;
      if (ids.length === 1 && only !== undefined) {
        labels.set(only, SLOW);
        return;
      }
      if (ids.every((id) => labels.get(id) === SLOW)) return;
      const middle = Math.ceil(ids.length / 2);
      suspect(ids.slice(0, middle));
      suspect(ids.slice(middle));
    },
  };
}
