import { type Apart, NEVER_MS, type Plan, type PlannedTags, type PlanRules } from "./planned.ts";

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

/** Lent to one plan after the other. */
let lent = urgenciesFor(0);

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
export function planGroup(tags: PlannedTags, nowMs: number, rules: PlanRules): Plan {
  const { count } = tags;
  if (count === 0) return { group: [] };
  if (lent.index.length < count) lent = urgenciesFor(count);
  judge(lent, tags, nowMs, rules);
  const ordinaryCount = takeOrdinary(lent.ordinary, tags);
  const ordinary = lent.ordinary.subarray(0, ordinaryCount);
  const comingRound = lent.comingRound.subarray(0, takeUnderWay(lent.comingRound, tags));
  const needs = needsByDeadline(ordinary, comingRound, rules);
  const order = orderOf(tags);
  const turn = slotOfBisection(tags, lent, { needSlot: needs.length > 0, places: ordinary }, rules);
  if (turn !== null) {
    const { places, ...how } = turn;
    return { group: fill(places, [], rules.size, order), ...how };
  }
  if (needs.length > 0) {
    const riders = rules.eager ? order.isWorse : order.isSooner;
    return { group: fill(ordinary, needs, rules.size, order, riders) };
  }
  // A tag that was never read takes any slot that the promises to the others leave.
  if (ordinaryCount === 0 || !(rules.eager || worstOf(ordinary, lent) === Number.POSITIVE_INFINITY))
    return { group: [] };
  return { group: fill(ordinary, [], rules.size, order) };
}

/**
 * Fills in the column indexes of the ordinary tags and returns their number. A separate function, as each of these
 * loops: inside `planGroup` V8 compiled it again for every plan.
 */
function takeOrdinary(into: Places, { count, underWay, apart }: PlannedTags): number {
  const anyApart = apart.size > 0;
  let taken = 0;
  for (let place = 0; place < count; place++) {
    if (underWay[place] === 1 || (anyApart && apart.has(place))) continue;
    into[taken] = place;
    taken += 1;
  }
  return taken;
}

/** The same of those that are being read, apart or not. */
function takeUnderWay(into: Places, { count, underWay }: PlannedTags): number {
  let taken = 0;
  for (let place = 0; place < count; place++) {
    if (underWay[place] !== 1) continue;
    into[taken] = place;
    taken += 1;
  }
  return taken;
}

/**
 * How much is lost by reading it now already; slots left, divided by the slots of its interval to the power of 0.75.
 * With 10 slots left an hourly tag (1,200 slots) has 0.05, one of a minute (20 slots) 1.06, so the hourly one goes.
 * Slots left alone would favour the short intervals, which then come round too often; relative to the interval
 * the next slots would fill up. The power in between was found by simulation.
 */
function earlinessOf(place: number): number {
  // Square roots are the same on every machine, other powers need not be.
  const root = Math.sqrt(lent.periodSlots[place] as number);
  return (lent.slotsLeft[place] as number) / (root * Math.sqrt(root));
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
function needsByDeadline(candidates: Places, comingRound: Places, rules: PlanRules): readonly Need[] {
  demand.fill(0);
  countDemand(candidates);
  countDemand(comingRound);
  const needs: Need[] = [];
  let needed = 0;
  let most = 0;
  for (let slot = 0; slot < HORIZON_SLOTS && most < rules.size; slot++) {
    needed += demand[slot] as number;
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
function countDemand(places: Places): void {
  const { slotsLeft, periodSlots } = lent;
  for (let first = 0, next = 0; first < places.length; first = next) {
    const left = slotsLeft[places[first] as number] as number;
    const period = periodSlots[places[first] as number] as number;
    next = first + 1;
    while (
      next < places.length &&
      slotsLeft[places[next] as number] === left &&
      periodSlots[places[next] as number] === period
    )
      next++;
    for (let slot = left; slot < HORIZON_SLOTS; slot += period) demand[slot] = (demand[slot] as number) + next - first;
  }
}

/** The ids of a request: at first those that meet the needs, then in the order of `isBefore` as many as fit. */
function fill(
  places: Places,
  needs: readonly Need[],
  size: number,
  order: Order,
  isBefore = order.isWorse,
): readonly string[] {
  const chosen = new Set<number>();
  for (const need of needs) {
    let missing = need.count;
    for (const place of chosen) if (relieves(place, need.slotsLeft)) missing--;
    missing = Math.min(missing, size - chosen.size);
    if (missing <= 0) continue;
    const helps = (place: number) => !chosen.has(place) && relieves(place, need.slotsLeft);
    const helpers =
      need.slotsLeft === 0
        ? bunchesTorn(places, order).filter(helps).slice(0, missing)
        : firstOf(places, missing, order.isWorse, helps);
    for (const place of helpers) chosen.add(place);
  }
  const riders = firstOf(places, size - chosen.size, isBefore, (place) => !chosen.has(place));
  return [...chosen, ...riders].map(order.idOf);
}

/**
 * The tags that have to go now, one of each interval in turn, short intervals first: 15 tags of 60 s and 15 of 120 s
 * have no slot left, so with 20 places 10 of each go. When there are more than fit, some of the largest bunch are late
 * by a slot, and the bunch is torn: whole, it would meet the others again, and the same tags could be late for ever.
 */
function bunchesTorn(places: Places, { isWorse }: Order): readonly number[] {
  const { slotsLeft, periodSlots } = lent;
  const taken = new Map<number, number>();
  return [...places.filter((place) => slotsLeft[place] === 0)]
    .sort((a, b) => (isWorse(a, b) ? -1 : 1))
    .map((place) => {
      const period = periodSlots[place] as number;
      const turn = taken.get(period) ?? 0;
      taken.set(period, turn + 1);
      return { place, turn, period };
    })
    .sort((a, b) => a.turn - b.turn || a.period - b.period)
    .map(({ place }) => place);
}

/**
 * True when reading it now, instead of when it is due, saves a place up to that slot. A tag with 2 slots left that comes
 * round every 20: up to slot 10 it does, up to slot 20 it does not, for then it would have come round again.
 */
function relieves(place: number, slot: number): boolean {
  const left = lent.slotsLeft[place] as number;
  const period = lent.periodSlots[place] as number;
  return left <= slot && Math.floor((slot - left) / period) === Math.floor(slot / period);
}

interface Order {
  /** The largest age relative to the interval first; ties by interval and id, so that it is repeatable. */
  readonly isWorse: IsBefore;
  /**
   * For riding along when a later slot shall become free: first the tags without a value, then by `earlinessOf`, the least
   * first, so that the hourly tag with 0.05 goes before the one of a minute with 1.06. A tag that is not half way to its
   * next reading comes by its age instead: more would be lost than won.
   */
  readonly isSooner: IsBefore;
  readonly idOf: (place: number) => string;
}

function orderOf({ ids }: PlannedTags): Order {
  const { index, periodSlots } = lent;
  const idOf = (place: number) => ids[place] as string;
  const isWorse: IsBefore = (a, b) => {
    const age = index[a] as number;
    const otherAge = index[b] as number;
    if (age !== otherAge) return age > otherAge;
    const period = periodSlots[a] as number;
    const otherPeriod = periodSlots[b] as number;
    return period === otherPeriod ? idOf(a) < idOf(b) : period < otherPeriod;
  };
  const isByAge = (place: number) => (index[place] as number) < HALF_WAY || index[place] === Number.POSITIVE_INFINITY;
  const isSooner: IsBefore = (a, b) => {
    if (isByAge(a) || isByAge(b)) return isWorse(a, b);
    const earliness = earlinessOf(a);
    const otherEarliness = earlinessOf(b);
    return earliness === otherEarliness ? isWorse(a, b) : earliness < otherEarliness;
  };
  return { idOf, isWorse, isSooner };
}

/**
 * Age, as a multiple of the interval, from which tags that are read apart may take a slot from others: a 60 s tag
 * waits for spare slots until its value is 120 s old.
 */
const STARVING = 2;

/** Tags that travel apart and whose turn it is: all of a label, which may be more than a request takes. */
interface BisectionSlot extends Omit<Plan, "group"> {
  readonly places: Places;
}

/** Urgency of the ordinary tags. */
interface Ordinary {
  /** Some of them must go in this slot. */
  readonly needSlot: boolean;
  readonly places: Places;
}

/** Whose turn it is of those that travel apart; null when the slot is for the others. */
function slotOfBisection(
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
    // A tag that was never read shares the request and delays no other.
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
    // Spare slot: read the stalest tags, and find slow tags before the next interval is due.
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
  const [first = 0, second = 0] = [a, b].map((each) => Math.min(...each.map(([, { siteAskedMs }]) => siteAskedMs)));
  return first - second;
}

/**
 * Whether the tag at place `a` goes before the one at `b`; of two tags one does, and none before itself. A yes or no and
 * not a difference, which would be an object for each of 50,000 tags.
 */
type IsBefore = (a: number, b: number) => boolean;

/** The first `count` in an order, of those that fit: of 50,000 tags 20, without sorting them all. */
export function firstOf(
  places: Uint32Array,
  count: number,
  isBefore: IsBefore,
  fits: (place: number) => boolean,
): readonly number[] {
  const first: number[] = [];
  if (count <= 0) return first;
  for (let n = 0; n < places.length; n++) {
    const candidate = places[n] as number;
    const isFull = first.length === count;
    if (isFull && !isBefore(candidate, first[count - 1] as number)) continue;
    if (!fits(candidate)) continue;
    let at = isFull ? count - 1 : first.length;
    for (; at > 0; at--) {
      const before = first[at - 1] as number;
      if (!isBefore(candidate, before)) break;
      first[at] = before;
    }
    first[at] = candidate;
  }
  return first;
}

/**
 * Extra time until the first value of a tag is due, in milliseconds: the first round of 4,000 tags takes 10 minutes of
 * the complete quota, so all new tags are equally late.
 */
const FIRST_ROUND_MS = 600_000;

/**
 * Age as a part of the interval, from which on a tag may ride along for the sake of a later slot: one of 60 s may when
 * it was read 30 s ago, not when it was read 25 s ago.
 */
const HALF_WAY = 0.5;

/**
 * How urgent each tag is, in columns as the tags themselves, and lent to one plan after the other: a building of 50,000
 * tags is planned twice in each slot, and new objects for all of them would cost more than everything else that the worker
 * does.
 */
interface Urgencies {
  /** Slots that may still be left out before it is late; 0 = it must go now. */
  readonly slotsLeft: Float64Array;
  /** Slots from one reading to the next. */
  readonly periodSlots: Float64Array;
  /** Age relative to the interval: 1 = due; infinite where it has no value yet. */
  readonly index: Float64Array;
  /** Places of the tags that travel with all others, and of those that are being read. */
  readonly ordinary: Uint32Array;
  readonly comingRound: Uint32Array;
}

/** Some of the tags, by their places. */
export type Places = Uint32Array;

function urgenciesFor(count: number): Urgencies {
  return {
    slotsLeft: new Float64Array(count),
    periodSlots: new Float64Array(count),
    index: new Float64Array(count),
    ordinary: new Uint32Array(count),
    comingRound: new Uint32Array(count),
  };
}

/** Works out how urgent each tag is, into those columns. */
export function judge(urgencies: Urgencies, tags: PlannedTags, nowMs: number, rules: PlanRules): void {
  const { slotsLeft, periodSlots, index } = urgencies;
  const { count, intervalMs: intervals, lastMs, sinceMs, underWay } = tags;
  const { slotMs, leadMs, jitterMs = leadMs } = rules;
  for (let place = 0; place < count; place++) {
    const intervalMs = intervals[place] as number;
    const readMs = lastMs[place] as number;
    // As if the reply of one that is being read came just now.
    const isAsked = underWay[place] === 1;
    const isNew = !isAsked && readMs === NEVER_MS;
    // A tag without a value shares requests of the first round and becomes due only after it. Keep this an expression
    // of computed numbers: choosing between one and `nowMs` made V8 allocate an object for each.
    const newMs = Math.max(0, nowMs - (sinceMs[place] as number) - FIRST_ROUND_MS);
    const ageMs = isAsked ? 0 : isNew ? newMs : nowMs - readMs;
    periodSlots[place] = Math.max(1, Math.floor((intervalMs - jitterMs) / slotMs));
    slotsLeft[place] = Math.max(0, Math.floor((intervalMs - leadMs - ageMs) / slotMs));
    index[place] = isNew ? Number.POSITIVE_INFINITY : ageMs / intervalMs;
  }
}

/** The largest age relative to the interval; 0 where there is no tag. */
function worstOf(places: Places, { index }: Urgencies): number {
  let worst = 0;
  for (let n = 0; n < places.length; n++) worst = Math.max(worst, index[places[n] as number] as number);
  return worst;
}
