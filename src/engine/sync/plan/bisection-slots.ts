import { type Apart, NEVER_MS, type Plan, type PlannedTags, type PlanRules } from "./planned.ts";
import { HALF_WAY, type Places, type Urgencies, worstOf } from "./urgency.ts";

/**
 * Age as a multiple of the interval, up to which tags that travel apart wait for a slot that nobody needs: one of 60 s
 * takes a slot from the others once its value is 120 s old.
 */
const STARVING = 2;

/** Tags that travel apart and whose turn it is: all of a label, which may be more than a request takes. */
export interface BisectionSlot extends Omit<Plan, "group"> {
  readonly places: Places;
}

/** What the ordinary tags, those that travel with all others, have to say to it. */
export interface Ordinary {
  /** Some of them must go in this slot. */
  readonly needSlot: boolean;
  readonly places: Places;
}

/** Whose turn it is of those that travel apart; null when the slot is for the others. */
export function slotOfBisection(
  tags: PlannedTags,
  urgencies: Urgencies,
  ordinary: Ordinary,
  rules: PlanRules,
): BisectionSlot | null {
  if (tags.apart.size === 0) return null;
  const free = [...tags.apart].filter(([place]) => tags.underWay[place] !== 1);
  // Who is searched comes last, and in turn.
  const groups = [...Map.groupBy(free, ([, { label }]) => label).values()].sort(
    (a, b) => patience(a) - patience(b) || turnAmongPatient(a, b),
  );
  const worstOrdinary = worstOf(ordinary.places, urgencies);
  for (const group of groups) {
    const places = Uint32Array.from(group, ([place]) => place);
    // One that was never read rides along and makes nobody wait.
    const aged = places.filter((place) => tags.lastMs[place] !== NEVER_MS);
    const worst = worstOf(aged.length === 0 ? places : aged, urgencies);
    // They do not displace an ordinary tag in need, but they do not starve either; what never had a value is not
    // starving before every ordinary tag has its first.
    const isUnread = worst === Number.POSITIVE_INFINITY;
    const isFree = !ordinary.needSlot && !(isUnread && worstOrdinary === Number.POSITIVE_INFINITY);
    const turn = group[0]?.[1].turn ?? null;
    // The sooner a site in doubt is answered, the sooner its tags share requests with others again.
    const isLastSlot = places.some((place) => urgencies.slotsLeft[place] === 0);
    const isDue = isLastSlot && worst >= worstOrdinary;
    const isSoonDue = !ordinary.needSlot && worst >= HALF_WAY;
    const hasTurn = turn === "punctual" && !isUnread && (isDue || isSoonDue);
    // Nobody wants the slot: what is oldest goes, and who is slow is found before the next promise is due.
    const isOldest = rules.eager && isSoonDue && worst >= worstOrdinary && turn !== "patient";
    const mayDisplace = !ordinary.needSlot || rules.mayDisplace !== false;
    const isStarving = worst >= STARVING && !isUnread && turn !== "patient" && mayDisplace;
    const isWaiting = worst >= 1 || (isLastSlot && turn !== "patient");
    if (!(hasTurn || isOldest || isStarving || (isWaiting && isFree))) continue;
    if (turn === "patient") return { places, isSearch: true };
    return ordinary.needSlot && !hasTurn ? { places, displaces: true } : { places };
  }
  return null;
}

type Grouped = readonly (readonly [place: number, apart: Apart])[];

function patience([first]: Grouped): number {
  return first?.[1].turn === "patient" ? 1 : 0;
}

/** An order: whose site has not been asked for longest. */
function turnAmongPatient(a: Grouped, b: Grouped): number {
  if (patience(a) === 0 || patience(b) === 0) return 0;
  const [first = 0, second = 0] = [a, b].map((each) =>
    Math.min(...each.map(([, { siteAskedMs }]) => siteAskedMs)),
  );
  return first - second;
}
