/**
 * The freshness planner: which tags the next live read takes, and when. Pure and deterministic.
 *
 * Time is divided into slots: the quota lets one request of `size` tags leave per slot. With 20 requests a minute a
 * slot is 3 s, with 20 tags a request it has 20 places. In each slot there are two questions.
 *
 * 1. *Which tags must go now?* Take the tags by due time and suppose that this slot were left out. If some
 *    later slot then had more tags due than places up to there (tags that come round again counted each time),
 *    as many as are too many must go now. A tag that would be late before the next slot is the simplest case.
 * 2. *Who rides along?* A request costs the same with 20 tags as with one, so the free places go to the tags
 *    that are worst off: largest age relative to their interval.
 *
 * When nothing must go, the slot is left to history, or, when history does not want it (`eager`), it is spent
 * on the tags that are worst off, so that all ages shrink alike.
 */
export interface PlannedTag {
  readonly id: string;
  /** The interval to keep, milliseconds: already stretched and backed off. */
  readonly intervalMs: number;
  /** When its value was last asked for and answered; null when never. Same clock as `nowMs`. */
  readonly lastMs: number | null;
  /**
   * For one that was never answered: since when it is to be read. It is due some time after that, so that it gets a value
   * also where the others need every slot for ever. Same clock as `nowMs`.
   */
  readonly sinceMs?: number;
  /**
   * Tags that may hold up others travel apart: only tags with the same text share a request. Null for the
   * ordinary ones.
   */
  readonly apart: string | null;
  /**
   * Among those that travel apart: `punctual` has its turn as the ordinary ones have, because it holds up nobody;
   * `patient` takes only what nobody needs.
   */
  readonly turn?: "punctual" | "patient" | null;
  /**
   * For those that are `patient`: when one of its site was last asked for, answered or not; absent when never. The sites
   * take turns by it, because by age one that is always refused would keep the others waiting. Same clock as `nowMs`.
   */
  readonly siteAskedMs?: number | undefined;
  /** It is being read: it is not to be chosen, but it comes round again. */
  readonly underWay?: boolean;
}

export interface PlanRules {
  /** Milliseconds from one request to the next that the quota leaves to live reads. */
  readonly slotMs: number;
  /** Tags in one request. */
  readonly size: number;
  /** How long a request takes from this decision until its reply, milliseconds: network, gateway. */
  readonly leadMs: number;
  /** By how much two readings may come further apart than meant, milliseconds: one reply was quick, the next slow. */
  readonly jitterMs?: number;
  /** Nobody else wants the slot. */
  readonly eager: boolean;
  /**
   * False after a slot that starving tags took from the ordinary ones: seven that travel each alone would otherwise take
   * seven slots in a row, 42 s where one lasts 6 s, and make everybody late.
   */
  readonly mayDisplace?: boolean;
}

/** The tags of the next request, most urgent first; empty when the slot is free for others. */
export interface Plan {
  readonly group: readonly string[];
  /** It is a search among those that are `patient`, in a slot that no promise needs. */
  readonly isSearch?: true;
  /** It takes a slot that ordinary tags need. */
  readonly displaces?: true;
}

/** Stands for the time of what never was; finite, so that the difference of two is a number. */
export const NEVER_MS = -Number.MAX_SAFE_INTEGER;

/** Slots that the look-ahead covers, 65 minutes at 20 requests a minute: a whole round of hourly tags. */
const HORIZON_SLOTS = 1_300;

/**
 * Share of the coming places that the look-ahead counts on: of the 800 in 40 slots, 780. A tag that goes before its
 * time comes round earlier, which the count does not see; simulated, 0.975 keeps the usual mixes up to 94 % demand free
 * of late values. Among 1,050 random ones at 88 to 97 % five were not, all with a class of 6 to 10 s: 1 to 90 values an
 * hour came late by a slot.
 */
const USABLE_SHARE = 0.975;

/**
 * Places that are counted on besides that share, as a part of one request: 0.25 of 20 places = 5, so that the next 10
 * slots count in full. Without them a slot before a full bunch of tags with short intervals could never be left out,
 * and everything would be read too often for ever; with more, simulated, some values come late.
 */
const NEAR_SHARE = 0.25;

/**
 * Age as a multiple of the interval, up to which tags that travel apart wait for a slot that nobody needs: one of 60 s
 * takes a slot from the others once its value is 120 s old.
 */
const STARVING = 2;

/**
 * How long a tag may be without its first value before that is due, beside its interval, milliseconds: the first round of
 * 4,000 tags takes 10 minutes of the whole quota, and everything that is new is equally late in it.
 */
const FIRST_ROUND_MS = 600_000;

/**
 * Age as a part of the interval, from which on a tag may ride along for the sake of a later slot: one of 60 s may when
 * it was read 30 s ago, not when it was read 25 s ago.
 */
const HALF_WAY = 0.5;

interface Urgency {
  tag: PlannedTag;
  /** Slots that may still be left out before it is late; 0 = it must go now. */
  slotsLeft: number;
  /** Slots from one reading to the next. */
  periodSlots: number;
  /** Age relative to the interval: 1 = due. */
  index: number;
  /**
   * How much is lost by reading it now already; slots left, divided by the slots of its interval to the power of 0.75.
   * With 10 slots left an hourly tag (1,200 slots) has 0.05, one of a minute (20 slots) 1.06, so the hourly one goes.
   * Slots left alone would favour the short intervals, which then come round too often; relative to the interval
   * the next slots would fill up. The power in between was found by simulation.
   */
  earliness: number;
}

/**
 * Lent to one plan after the other: a building of 50,000 tags is planned twice in each slot, and new objects for all of
 * them would cost more than everything else that the worker does.
 */
const lent: Urgency[] = [];
let lentCount = 0;
/** The same of those that travel with all others: written from its beginning and cut where it ends, never emptied. */
const ordinary: Urgency[] = [];

export function planGroup(tags: readonly PlannedTag[], nowMs: number, rules: PlanRules): Plan {
  if (tags.length === 0) return { group: [] };
  lentCount = 0;
  let ordinaryCount = 0;
  const comingRound: Urgency[] = [];
  const apart = new Map<string, Urgency[]>();
  for (const tag of tags) {
    if (tag.underWay === true) {
      // As if its reply came just now.
      comingRound.push(urgencyOf(tag, nowMs, rules, nowMs));
      continue;
    }
    const candidate = urgencyOf(tag, nowMs, rules, tag.lastMs);
    if (tag.apart === null) ordinary[ordinaryCount++] = candidate;
    else apart.set(tag.apart, [...(apart.get(tag.apart) ?? []), candidate]);
  }
  ordinary.length = ordinaryCount;
  const needs = needsByDeadline(ordinary, comingRound, rules);
  const worstOrdinary = ordinary.reduce((worst, { index }) => Math.max(worst, index), 0);
  // Who is searched comes last, and in turn.
  const groups = [...apart.values()].sort((a, b) => patience(a) - patience(b) || turnAmongPatient(a, b));
  for (const candidates of groups) {
    // One that was never read rides along and makes nobody wait.
    const aged = candidates.filter(({ tag }) => tag.lastMs !== null);
    const worst = Math.max(...(aged.length === 0 ? candidates : aged).map(({ index }) => index));
    // They do not displace an ordinary tag in need, but they do not starve either; what never had a value is not
    // starving before every ordinary tag has its first.
    const isUnread = worst === Number.POSITIVE_INFINITY;
    const isFree = needs.length === 0 && !(isUnread && ordinary.some(({ tag }) => tag.lastMs === null));
    const turn = candidates[0]?.tag.turn ?? null;
    // The sooner a site in doubt is answered, the sooner its tags share requests with others again.
    const isLastSlot = candidates.some(({ slotsLeft }) => slotsLeft === 0);
    const isDue = isLastSlot && worst >= worstOrdinary;
    const isSoonDue = needs.length === 0 && worst >= HALF_WAY;
    const hasTurn = turn === "punctual" && !isUnread && (isDue || isSoonDue);
    // Nobody wants the slot: what is oldest goes, and who is slow is found before the next promise is due.
    const isOldest = rules.eager && isSoonDue && worst >= worstOrdinary && turn !== "patient";
    const mayDisplace = needs.length === 0 || rules.mayDisplace !== false;
    const isStarving = worst >= STARVING && !isUnread && turn !== "patient" && mayDisplace;
    const isWaiting = worst >= 1 || (isLastSlot && turn !== "patient");
    if (hasTurn || isOldest || isStarving || (isWaiting && isFree)) {
      const group = fill(candidates, [], rules.size);
      if (turn === "patient") return { group, isSearch: true };
      return needs.length > 0 && !hasTurn ? { group, displaces: true } : { group };
    }
  }
  if (needs.length > 0) return { group: fill(ordinary, needs, rules.size, rules.eager ? worse : sooner) };
  // A tag that was never read takes any slot that the promises to the others leave.
  const eager = rules.eager || ordinary.some((candidate) => candidate.tag.lastMs === null);
  if (!eager || ordinary.length === 0) return { group: [] };
  return { group: fill(ordinary, [], rules.size) };
}

function patience([first]: readonly Urgency[]): number {
  return first?.tag.turn === "patient" ? 1 : 0;
}

/** An order: whose site has not been asked for longest. */
function turnAmongPatient(a: readonly Urgency[], b: readonly Urgency[]): number {
  if (patience(a) === 0 || patience(b) === 0) return 0;
  const [first = 0, second = 0] = [a, b].map((each) =>
    Math.min(...each.map(({ tag }) => tag.siteAskedMs ?? NEVER_MS)),
  );
  return first - second;
}

function urgencyOf(tag: PlannedTag, nowMs: number, rules: PlanRules, lastMs: number | null): Urgency {
  const periodSlots = Math.max(
    1,
    Math.floor((tag.intervalMs - (rules.jitterMs ?? rules.leadMs)) / rules.slotMs),
  );
  // What has no value yet rides along in the first round; only where it could not it is due.
  const unreadMs = Math.max(0, nowMs - (tag.sinceMs ?? nowMs) - FIRST_ROUND_MS);
  const ageMs = lastMs === null ? unreadMs : nowMs - lastMs;
  const left = Math.floor((tag.intervalMs - rules.leadMs - ageMs) / rules.slotMs);
  const slotsLeft = Math.max(0, left);
  // Square roots are the same on every machine, other powers need not be.
  const root = Math.sqrt(periodSlots);
  const earliness = slotsLeft / (root * Math.sqrt(root));
  const index = lastMs === null ? Number.POSITIVE_INFINITY : ageMs / tag.intervalMs;
  const urgency = lent[lentCount];
  lentCount += 1;
  if (urgency === undefined) {
    const made = { tag, slotsLeft, periodSlots, index, earliness };
    lent.push(made);
    return made;
  }
  urgency.tag = tag;
  urgency.slotsLeft = slotsLeft;
  urgency.periodSlots = periodSlots;
  urgency.index = index;
  urgency.earliness = earliness;
  return urgency;
}

/** At least `count` of the tags that have at most `slotsLeft` slots left must go in this slot. */
interface Need {
  readonly slotsLeft: number;
  readonly count: number;
}

/** Lent to one count at a time, because it takes more memory than all else that a plan makes. */
const demand = new Float64Array(HORIZON_SLOTS);

/**
 * Tags, by the slots that they have left at most, that must go in this slot so that nothing is late later; with rising
 * deadlines and counts, and empty when the slot can be left out. 45 tags with 2 slots left and 20 places a request: the
 * two other slots have 40 places, so 5 must go now; with 40 such tags the slot is free.
 *
 * `demand[d]` counts the places needed at slot d: a tag that goes there is needed again one interval later.
 */
function needsByDeadline(
  candidates: readonly Urgency[],
  comingRound: readonly Urgency[],
  rules: PlanRules,
): readonly Need[] {
  demand.fill(0);
  countPlaces(candidates);
  countPlaces(comingRound);
  const needs: Need[] = [];
  let needed = 0;
  let most = 0;
  for (let slot = 0; slot < HORIZON_SLOTS && most < rules.size; slot++) {
    needed += demand[slot] ?? 0;
    // Without this slot there are `slot` others up to and including slot number `slot`.
    const usable = Math.min(slot, USABLE_SHARE * slot + NEAR_SHARE);
    const tooMany = Math.min(rules.size, Math.ceil(needed - rules.size * usable));
    if (tooMany <= most) continue;
    most = tooMany;
    needs.push({ slotsLeft: slot, count: tooMany });
  }
  return needs;
}

/** Tags that were read together come round together: 20 of them are one walk along the slots. */
function countPlaces(group: readonly Urgency[]): void {
  for (let first = 0, next = 0; first < group.length; first = next) {
    const { slotsLeft, periodSlots } = group[first] as Urgency;
    next = first + 1;
    while (group[next]?.slotsLeft === slotsLeft && group[next]?.periodSlots === periodSlots) next++;
    for (let slot = slotsLeft; slot < HORIZON_SLOTS; slot += periodSlots) {
      demand[slot] = (demand[slot] as number) + next - first;
    }
  }
}

/** The ids of a request: at first those that meet the needs, then in the order of `compare` as many as fit. */
function fill(
  candidates: readonly Urgency[],
  needs: readonly Need[],
  size: number,
  compare = worse,
): readonly string[] {
  const chosen = new Set<Urgency>();
  for (const need of needs) {
    let missing = need.count;
    for (const candidate of chosen) if (relieves(candidate, need.slotsLeft)) missing--;
    missing = Math.min(missing, size - chosen.size);
    if (missing <= 0) continue;
    const helps = (candidate: Urgency) => !chosen.has(candidate) && relieves(candidate, need.slotsLeft);
    const helpers =
      need.slotsLeft === 0
        ? bunchesTorn(candidates).filter(helps).slice(0, missing)
        : firstOf(candidates, missing, worse, helps);
    for (const candidate of helpers) chosen.add(candidate);
  }
  const riders = firstOf(candidates, size - chosen.size, compare, (candidate) => !chosen.has(candidate));
  return [...chosen, ...riders].map((candidate) => candidate.tag.id);
}

/** The first `count` in an order, of those that fit: of 50,000 tags 20, without sorting them all. */
function firstOf(
  candidates: readonly Urgency[],
  count: number,
  compare: (a: Urgency, b: Urgency) => number,
  fits: (candidate: Urgency) => boolean,
): readonly Urgency[] {
  const first: Urgency[] = [];
  if (count <= 0) return first;
  for (const candidate of candidates) {
    const last = first[count - 1];
    if (last !== undefined && compare(candidate, last) >= 0) continue;
    if (!fits(candidate)) continue;
    let place = Math.min(first.length, count - 1);
    for (; place > 0; place--) {
      const before = first[place - 1] as Urgency;
      if (compare(candidate, before) >= 0) break;
      first[place] = before;
    }
    first[place] = candidate;
  }
  return first;
}

/**
 * The tags that have to go now, one of each interval in turn, short intervals first: 15 tags of 60 s and 15 of 120 s
 * have no slot left, so with 20 places 10 of each go. When there are more than fit, some of the largest bunch are late
 * by a slot, and the bunch is torn: whole, it would meet the others again, and the same tags could be late for ever.
 */
function bunchesTorn(candidates: readonly Urgency[]): readonly Urgency[] {
  const taken = new Map<number, number>();
  return candidates
    .filter((candidate) => candidate.slotsLeft === 0)
    .sort(worse)
    .map((candidate) => {
      const turn = taken.get(candidate.periodSlots) ?? 0;
      taken.set(candidate.periodSlots, turn + 1);
      return { candidate, turn };
    })
    .sort((a, b) => a.turn - b.turn || a.candidate.periodSlots - b.candidate.periodSlots)
    .map(({ candidate }) => candidate);
}

/**
 * True when reading it now, instead of when it is due, saves a place up to that slot. A tag with 2 slots left that comes
 * round every 20: up to slot 10 it does, up to slot 20 it does not, for then it would have come round again.
 */
function relieves({ slotsLeft, periodSlots }: Urgency, slot: number): boolean {
  return slotsLeft <= slot && Math.floor((slot - slotsLeft) / periodSlots) === Math.floor(slot / periodSlots);
}

/**
 * An order, for riding along when a later slot shall become free: first the tags without a value, then by `earliness`,
 * the least first, so that the hourly tag with 0.05 goes before the one of a minute with 1.06. A tag that is not half
 * way to its next reading comes by its age instead: more would be lost than won.
 */
function sooner(a: Urgency, b: Urgency): number {
  const isNew = a.tag.lastMs === null || b.tag.lastMs === null;
  if (isNew || a.index < HALF_WAY || b.index < HALF_WAY) return worse(a, b);
  return a.earliness - b.earliness || worse(a, b);
}

/** An order: the largest age relative to the interval first; ties by interval and id, so that it is repeatable. */
function worse(a: Urgency, b: Urgency): number {
  if (a.index !== b.index) return b.index - a.index;
  if (a.periodSlots !== b.periodSlots) return a.periodSlots - b.periodSlots;
  return a.tag.id < b.tag.id ? -1 : a.tag.id > b.tag.id ? 1 : 0;
}
