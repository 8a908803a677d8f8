import { formatDuration } from "../../../core/values/duration.ts";
import { type Demand, type Overload, slotsPerSlot } from "./overload.ts";

/** One change of the configuration after which the wishes fit. */
export interface PlanChange {
  /** For a person. */
  readonly text: string;
  /** The lines of the configuration, below the source. */
  readonly yaml: string;
  /** What it costs: tags, each times how much older its value may become than wished (1 = twice as old). */
  readonly cost: number;
}

export interface AdviceFacts {
  readonly wishes: readonly Demand[];
  readonly stretched: Overload;
  readonly size: number;
  /** Share of the polls' requests that live reads may plan with. */
  readonly share: number;
  readonly replyMs: number;
  /** Requests per minute that polls get, now and at most; why not now, as a change. */
  readonly perMinute: number;
  readonly unused: readonly { readonly perMinute: number; readonly text: string; readonly yaml: string }[];
}

const MOST_FACTOR = 1_000;

/** The changes that make the wishes fit, each by itself, cheapest first; empty when they fit. Pure. */
export function changesThatFit(facts: AdviceFacts): readonly PlanChange[] {
  const { wishes, size, share, replyMs, stretched, unused } = facts;
  const slotMs = 60_000 / facts.perMinute;
  const demandWith = (factorOf: (wish: Demand) => number, slot = slotMs) =>
    wishes.reduce((sum, wish) => sum + slotsPerSlot(wish, factorOf(wish), slot, size, replyMs), 0);
  if (demandWith(() => 1) <= share) return [];

  const free = unused
    .filter(({ perMinute }) => demandWith(() => 1, 60_000 / perMinute) <= share)
    .map(({ text, yaml }) => ({ text, yaml, cost: 0 }));
  const single = wishes.flatMap((wish) => {
    const others = demandWith((each) => (each === wish ? MOST_FACTOR : 1));
    if (others > share) return [];
    const everyMs = smallestInterval(
      wish.everyMs,
      (ms) => demandWith((each) => (each === wish ? ms / wish.everyMs : 1)) <= share,
    );
    const every = formatDuration(everyMs);
    return {
      text: `Let the values of class ${wish.name} become ${every} old instead of ${formatDuration(wish.everyMs)}.`,
      yaml: `read: [{name: ${wish.name}, every: ${every}}]`,
      cost: wish.tags * (everyMs / wish.everyMs - 1) * wish.importance,
    };
  });
  const longer = wishes.map((wish) => ({ wish, factor: stretched.factors.get(wish.name) ?? 1 }));
  const everyOf = ({ wish, factor }: (typeof longer)[number]) =>
    formatDuration(roundedUp(wish.everyMs * factor));
  const all = {
    text: `Let every class become ${Math.max(...longer.map(({ factor }) => factor)).toFixed(2)} times older, which is what happens without a change.`,
    yaml: `read: [${longer.map((each) => `{name: ${each.wish.name}, every: ${everyOf(each)}}`).join(", ")}]`,
    cost: longer.reduce((sum, { wish, factor }) => sum + wish.tags * (factor - 1) * wish.importance, 0),
  };
  return [...free, ...single, ...(wishes.length > 1 ? [all] : [])].toSorted((a, b) => a.cost - b.cost);
}

/** By bisection, then rounded up to what a person would write. */
function smallestInterval(fromMs: number, fits: (ms: number) => boolean): number {
  let low = fromMs;
  let high = fromMs * MOST_FACTOR;
  for (let step = 0; step < 50; step++) {
    const middle = (low + high) / 2;
    if (fits(middle)) high = middle;
    else low = middle;
  }
  return roundedUp(high);
}

const STEPS: readonly (readonly [below: number, stepMs: number])[] = [
  [60_000, 1_000],
  [600_000, 10_000],
  [3_600_000, 60_000],
  [Number.POSITIVE_INFINITY, 600_000],
];

function roundedUp(ms: number): number {
  const [, stepMs] = STEPS.find(([below]) => ms < below) ?? [0, 600_000];
  return Math.ceil((ms - 1e-6) / stepMs) * stepMs;
}
