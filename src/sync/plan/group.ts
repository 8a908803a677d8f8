/**
 * The freshness planner: which tags the next live read takes, and when. Pure and deterministic.
 *
 * Time is divided into slots: the quota lets one request of `size` tags leave per slot. In each slot there are
 * two questions.
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
   * Tags that may hold up others travel apart: only tags with the same text share a request. Null for the
   * ordinary ones.
   */
  readonly apart: string | null;
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
}

/** The tags of the next request, most urgent first; empty when the slot is free for others. */
export interface Plan {
  readonly group: readonly string[];
}

/** Slots that the look-ahead covers, 65 minutes at 20 requests a minute: a whole round of hourly tags. */
const HORIZON_SLOTS = 1_300;

/**
 * Share of the places that the look-ahead counts on. A tag that goes before its time comes round earlier, which
 * the count does not see; simulated, 0.975 keeps the usual mixes up to 94 % demand free of late values. Of 1,050 random
 * ones at 88 to 97 % five were not, all with a class of 6 to 10 s: 1 to 90 values an hour came late by a slot.
 */
const USABLE_SHARE = 0.975;

/**
 * Of a request, the part of the next slots' places that is counted on in full. Where none were, a slot before a full
 * bunch of tags with short intervals could never be left out, and everything would be read too often for ever; with
 * more, simulated, some values come late.
 */
const NEAR_SHARE = 0.25;

/** Those that travel apart wait for a slot that nobody needs until they are this many times too old. */
const STARVING = 2;

/** Of its interval, before which a tag does not ride along for the sake of a later slot. */
const HALF_WAY = 0.5;

interface Urgency {
  readonly tag: PlannedTag;
  /** Slots that may still be left out before it is late; 0 = it must go now. */
  readonly slotsLeft: number;
  /** Slots from one reading to the next. */
  readonly periodSlots: number;
  /** Age relative to the interval: 1 = due. */
  readonly index: number;
  /**
   * What it costs to read it now already. Slots left alone would favour the short intervals, which then come round
   * too often; relative to the interval the next slots would fill up. In between, by simulation: to the power of 0.75.
   */
  readonly earliness: number;
}

export function planGroup(tags: readonly PlannedTag[], nowMs: number, rules: PlanRules): Plan {
  if (tags.length === 0) return { group: [] };
  const ordinary: Urgency[] = [];
  const comingRound: Urgency[] = [];
  const apart = new Map<string, Urgency[]>();
  for (const tag of tags) {
    if (tag.underWay === true) {
      // As if its reply came just now.
      comingRound.push(urgencyOf({ ...tag, lastMs: nowMs }, nowMs, rules));
      continue;
    }
    const candidate = urgencyOf(tag, nowMs, rules);
    if (tag.apart === null) ordinary.push(candidate);
    else apart.set(tag.apart, [...(apart.get(tag.apart) ?? []), candidate]);
  }
  const needs = needsByDeadline([...ordinary, ...comingRound], rules);
  for (const candidates of apart.values()) {
    const worst = Math.max(...candidates.map((candidate) => candidate.index));
    // They do not displace an ordinary tag in need, but they do not starve either; what never had a value is not
    // starving before every ordinary tag has its first.
    const isUnread = worst === Number.POSITIVE_INFINITY;
    const isFree = needs.length === 0 && !(isUnread && ordinary.some(({ tag }) => tag.lastMs === null));
    if ((worst >= STARVING && !isUnread) || (worst >= 1 && isFree)) {
      return { group: fill(candidates, [], rules.size) };
    }
  }
  if (needs.length > 0) return { group: fill(ordinary, needs, rules.size, rules.eager ? worse : sooner) };
  // A tag that was never read takes any slot that the promises to the others leave.
  const eager = rules.eager || ordinary.some((candidate) => candidate.tag.lastMs === null);
  if (!eager || ordinary.length === 0) return { group: [] };
  return { group: fill(ordinary, [], rules.size) };
}

function urgencyOf(tag: PlannedTag, nowMs: number, rules: PlanRules): Urgency {
  const periodSlots = Math.max(
    1,
    Math.floor((tag.intervalMs - (rules.jitterMs ?? rules.leadMs)) / rules.slotMs),
  );
  if (tag.lastMs === null)
    return { tag, slotsLeft: periodSlots, periodSlots, index: Number.POSITIVE_INFINITY, earliness: 0 };
  const ageMs = nowMs - tag.lastMs;
  const left = Math.floor((tag.intervalMs - rules.leadMs - ageMs) / rules.slotMs);
  const slotsLeft = Math.max(0, left);
  // Square roots are the same on every machine, other powers need not be.
  const root = Math.sqrt(periodSlots);
  const earliness = slotsLeft / (root * Math.sqrt(root));
  return { tag, slotsLeft, periodSlots, index: ageMs / tag.intervalMs, earliness };
}

/** At least `count` of the tags that have at most `slotsLeft` slots left must go in this slot. */
interface Need {
  readonly slotsLeft: number;
  readonly count: number;
}

/**
 * What must go in this slot so that nothing is late later, with rising deadlines and counts; empty when the slot
 * can be left out. `demand[d]` counts the places needed at slot d: a tag that goes there is needed again one
 * interval later.
 */
function needsByDeadline(candidates: readonly Urgency[], rules: PlanRules): readonly Need[] {
  const demand = new Float64Array(HORIZON_SLOTS);
  for (const { slotsLeft, periodSlots } of candidates) {
    for (let slot = slotsLeft; slot < HORIZON_SLOTS; slot += periodSlots) {
      demand[slot] = (demand[slot] ?? 0) + 1;
    }
  }
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

/** Meets the needs, then takes the tags that are worst off; ties by interval and id, so that it is repeatable. */
function fill(
  candidates: readonly Urgency[],
  needs: readonly Need[],
  size: number,
  compare = worse,
): readonly string[] {
  const worstFirst = [...candidates].sort(worse);
  const chosen = new Set<Urgency>();
  for (const need of needs) {
    let missing = need.count - [...chosen].filter((candidate) => relieves(candidate, need.slotsLeft)).length;
    for (const candidate of need.slotsLeft === 0 ? bunchesTorn(worstFirst) : worstFirst) {
      if (missing <= 0 || chosen.size >= size) break;
      if (chosen.has(candidate) || !relieves(candidate, need.slotsLeft)) continue;
      chosen.add(candidate);
      missing--;
    }
  }
  for (const candidate of compare === worse ? worstFirst : [...candidates].sort(compare)) {
    if (chosen.size >= size) break;
    chosen.add(candidate);
  }
  return [...chosen].map((candidate) => candidate.tag.id);
}

/**
 * What has to go now, one of each interval in turn, short intervals first. When that is more than fit, some of the
 * largest bunch are late by a slot, whose bunch is then torn: whole, it would meet the others again, and the same tags
 * could be late for ever.
 */
function bunchesTorn(candidates: readonly Urgency[]): readonly Urgency[] {
  const taken = new Map<number, number>();
  return candidates
    .filter((candidate) => candidate.slotsLeft === 0)
    .map((candidate) => {
      const turn = taken.get(candidate.periodSlots) ?? 0;
      taken.set(candidate.periodSlots, turn + 1);
      return { candidate, turn };
    })
    .sort((a, b) => a.turn - b.turn || a.candidate.periodSlots - b.candidate.periodSlots)
    .map(({ candidate }) => candidate);
}

/** Whether reading it now, instead of when it is due, saves a place up to that slot. */
function relieves({ slotsLeft, periodSlots }: Urgency, slot: number): boolean {
  return slotsLeft <= slot && Math.floor((slot - slotsLeft) / periodSlots) === Math.floor(slot / periodSlots);
}

/**
 * What has no value yet; then what would need one of the next slots, so that it may be left out then, weighed with how
 * much earlier it comes round. Not what has just been read: then more is lost than won.
 */
function sooner(a: Urgency, b: Urgency): number {
  const isNew = a.tag.lastMs === null || b.tag.lastMs === null;
  if (isNew || a.index < HALF_WAY || b.index < HALF_WAY) return worse(a, b);
  return a.earliness - b.earliness || worse(a, b);
}

function worse(a: Urgency, b: Urgency): number {
  if (a.index !== b.index) return b.index - a.index;
  if (a.periodSlots !== b.periodSlots) return a.periodSlots - b.periodSlots;
  return a.tag.id < b.tag.id ? -1 : a.tag.id > b.tag.id ? 1 : 0;
}
