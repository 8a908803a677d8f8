/** Tags as columns: row n of each column is the same tag. A plan of 50,000 tags takes 2.5 ms, with objects 5 ms. */
export interface PlannedTags {
  readonly count: number;
  readonly ids: readonly string[];
  readonly intervalMs: Float64Array;
  readonly lastMs: Float64Array;
  readonly sinceMs: Float64Array;
  readonly underWay: Uint8Array;
  /** Rows of the tags that are each read alone, because such a tag may delay others; ascending. */
  readonly isolated: ReadonlyMap<number, IsolatedTag>;
}

export interface RequestIsolation {
  readonly label: string;
  /** `punctual`: read at the usual interval. `patient`: read in spare slots. Null: a slow tag. */
  readonly timing: "punctual" | "patient" | null;
}

export interface IsolatedTag extends RequestIsolation {
  /** Sites take turns by this time, so that no refused site goes first for ever. */
  readonly siteRequestedMs: number;
}

/** Time of a tag that was never read; finite, so that the difference of two times is a number. */
export const NEVER_MS = -Number.MAX_SAFE_INTEGER;

export interface PlanRules {
  readonly slotMs: number;
  readonly size: number;
  readonly leadMs: number;
  readonly eager: boolean;
  /** False right after starving tags took a slot, so that seven groups do not take seven slots in a row. */
  readonly mayDisplace?: boolean;
}

export interface Plan {
  readonly group: readonly string[];
  readonly isSearch?: true;
  readonly displaces?: true;
}

type Rows = Uint32Array;

/** Slots that the plan looks ahead: 65 minutes at 20 requests a minute, a complete round of hourly tags. */
const PLANNED_SLOTS = 1_300;
/** Share of later slots to rely on, because tags read early are due early again. No late values up to 94 % demand. */
const USABLE_SLOT_SHARE = 0.975;
/** Requests added to the usable slots: 0.25 of 20 tags = 5, so the next 10 slots count in full. */
const NEAR_SLOT_TOLERANCE = 0.25;
const STARVING_RELATIVE_AGE = 2;
const EARLY_AGE_MIN = 0.5;
/** Extra time until a first value is due: 4,000 tags take 10 minutes of the complete quota. */
const FIRST_READ_ROUND_MS = 600_000;

interface TagUrgencies {
  /** Request slots left until the tag is late; 0: the tag must be read now. */
  readonly slotsLeft: Float64Array;
  readonly periodSlots: Float64Array;
  readonly age: Float64Array;
  readonly ordinary: Rows;
  readonly underWay: Rows;
}
let urgencies = createUrgencies(0);
const slotDemand = new Float64Array(PLANNED_SLOTS);

/**
 * Chooses the tags of the next live read, one request of `size` tags per slot. First the tags that make later slots
 * exceed their capacity if this slot is left out, then the largest relative ages. Without such tags the slot is left to
 * history, or with `eager` spent on the largest ages.
 */
export function planGroup(tags: PlannedTags, nowMs: number, rules: PlanRules): Plan {
  if (tags.count === 0) return { group: [] };
  if (urgencies.age.length < tags.count) urgencies = createUrgencies(tags.count);
  computeUrgencies(tags, nowMs, rules);
  const ordinary = urgencies.ordinary.subarray(0, findOrdinaryRows(urgencies.ordinary, tags));
  const underWay = urgencies.underWay.subarray(0, findUnderWayRows(urgencies.underWay, tags));
  const slotNeeds = countNeeds(ordinary, underWay, rules);
  const order = createOrder(tags.ids);
  const isolatedGroup = chooseIsolated(tags, ordinary, slotNeeds.length > 0, rules);
  if (isolatedGroup !== null) {
    const { rows, ...how } = isolatedGroup;
    return { group: pickRows(rows, [], rules.size, order), ...how };
  }
  if (slotNeeds.length > 0)
    return { group: pickRows(ordinary, slotNeeds, rules.size, order, rules.eager ? order.isOlder : order.isCheaper) };
  // A tag without a value takes any slot that no interval needs.
  const isWanted = ordinary.length > 0 && (rules.eager || findWorstAge(ordinary) === Number.POSITIVE_INFINITY);
  return { group: isWanted ? pickRows(ordinary, [], rules.size, order) : [] };
}

function createUrgencies(count: number): TagUrgencies {
  return {
    slotsLeft: new Float64Array(count),
    periodSlots: new Float64Array(count),
    age: new Float64Array(count),
    ordinary: new Uint32Array(count),
    underWay: new Uint32Array(count),
  };
}

function computeUrgencies(tags: PlannedTags, nowMs: number, rules: PlanRules) {
  const { count, intervalMs, lastMs, sinceMs, underWay } = tags;
  const { slotsLeft, periodSlots, age } = urgencies;
  const { slotMs, leadMs } = rules;
  for (let row = 0; row < count; row++) {
    const everyMs = intervalMs[row] as number;
    const readMs = lastMs[row] as number;
    const isUnderWay = underWay[row] === 1;
    const isNew = !isUnderWay && readMs === NEVER_MS;
    // Keep this expression: choosing between one and `nowMs` made V8 allocate an object for each tag.
    const firstRoundAgeMs = Math.max(0, nowMs - (sinceMs[row] as number) - FIRST_READ_ROUND_MS);
    const ageMs = isUnderWay ? 0 : isNew ? firstRoundAgeMs : nowMs - readMs;
    periodSlots[row] = Math.max(1, Math.floor((everyMs - leadMs) / slotMs));
    slotsLeft[row] = Math.max(0, Math.floor((everyMs - leadMs - ageMs) / slotMs));
    age[row] = isNew ? Number.POSITIVE_INFINITY : ageMs / everyMs;
  }
}

/** Separate from `planGroup`, where V8 recompiled this loop. */
function findOrdinaryRows(into: Rows, { count, underWay, isolated }: PlannedTags): number {
  const anyIsolated = isolated.size > 0;
  let rowCount = 0;
  for (let row = 0; row < count; row++) {
    if (underWay[row] === 1 || (anyIsolated && isolated.has(row))) continue;
    into[rowCount] = row;
    rowCount += 1;
  }
  return rowCount;
}

function findUnderWayRows(into: Rows, { count, underWay }: PlannedTags): number {
  let rowCount = 0;
  for (let row = 0; row < count; row++) {
    if (underWay[row] !== 1) continue;
    into[rowCount] = row;
    rowCount += 1;
  }
  return rowCount;
}

interface Need {
  readonly slotsLeft: number;
  readonly count: number;
}

/** Counts the tags to read now: of 45 tags with 2 slots left, the two later slots take 40, so 5 must be read now. */
function countNeeds(ordinary: Rows, underWay: Rows, rules: PlanRules): readonly Need[] {
  slotDemand.fill(0);
  countDemand(ordinary);
  countDemand(underWay);
  const slotNeeds: Need[] = [];
  let tagsNeeded = 0;
  let maxExcess = 0;
  for (let slot = 0; slot < PLANNED_SLOTS && maxExcess < rules.size; slot++) {
    tagsNeeded += slotDemand[slot] as number;
    const usableSlots = Math.min(slot, USABLE_SLOT_SHARE * slot + NEAR_SLOT_TOLERANCE);
    const excessTags = Math.min(rules.size, Math.ceil(tagsNeeded - rules.size * usableSlots));
    if (excessTags <= maxExcess) continue;
    maxExcess = excessTags;
    slotNeeds.push({ slotsLeft: slot, count: excessTags });
  }
  return slotNeeds;
}

/** Adds each tag to the demand of the slot of its deadline and of every interval after the deadline. */
function countDemand(rows: Rows): void {
  const { slotsLeft, periodSlots } = urgencies;
  for (let firstRow = 0, nextRow = 0; firstRow < rows.length; firstRow = nextRow) {
    const firstSlotsLeft = slotsLeft[rows[firstRow] as number] as number;
    const firstPeriod = periodSlots[rows[firstRow] as number] as number;
    nextRow = firstRow + 1;
    while (
      nextRow < rows.length &&
      slotsLeft[rows[nextRow] as number] === firstSlotsLeft &&
      periodSlots[rows[nextRow] as number] === firstPeriod
    )
      nextRow++;
    for (let slot = firstSlotsLeft; slot < PLANNED_SLOTS; slot += firstPeriod)
      slotDemand[slot] = (slotDemand[slot] as number) + nextRow - firstRow;
  }
}

function pickRows(rows: Rows, needs: readonly Need[], size: number, order: Order, isBefore = order.isOlder): string[] {
  const chosenRows = new Set<number>();
  for (const { slotsLeft, count } of needs) {
    let missingRows = count;
    for (const row of chosenRows) if (savesReading(row, slotsLeft)) missingRows--;
    missingRows = Math.min(missingRows, size - chosenRows.size);
    if (missingRows <= 0) continue;
    const helpsNow = (row: number) => !chosenRows.has(row) && savesReading(row, slotsLeft);
    const pickLateRows = () => alternateIntervals(rows, order).filter(helpsNow).slice(0, missingRows);
    const helpfulRows = slotsLeft === 0 ? pickLateRows() : firstRows(rows, missingRows, order.isOlder, helpsNow);
    for (const row of helpfulRows) chosenRows.add(row);
  }
  const otherRows = firstRows(rows, size - chosenRows.size, isBefore, (row) => !chosenRows.has(row));
  return [...chosenRows, ...otherRows].map(order.idOf);
}

/** Takes one tag of each interval in turn: of 15 tags of 60 s and 15 of 120 s, 10 of each fill a request. */
function alternateIntervals(rows: Rows, { isOlder }: Order): readonly number[] {
  const { slotsLeft, periodSlots } = urgencies;
  const lateRows = [...rows.filter((row) => slotsLeft[row] === 0)].sort((a, b) => (isOlder(a, b) ? -1 : 1));
  const lateRowsByPeriod = Map.groupBy(lateRows, (row) => periodSlots[row] as number);
  return [...lateRowsByPeriod]
    .flatMap(([period, same]) => same.map((row, turn) => ({ row, turn, period })))
    .sort((a, b) => a.turn - b.turn || a.period - b.period)
    .map(({ row }) => row);
}

/** True if reading the tag now saves a reading up to a slot: with 2 slots left and a period of 20, up to slot 10. */
function savesReading(row: number, slot: number): boolean {
  const ownSlotsLeft = urgencies.slotsLeft[row] as number;
  const period = urgencies.periodSlots[row] as number;
  return ownSlotsLeft <= slot && Math.floor((slot - ownSlotsLeft) / period) === Math.floor(slot / period);
}

/** Compares two rows by a boolean, because V8 would allocate a difference for each of 50,000 tags. */
type IsBefore = (a: number, b: number) => boolean;

interface Order {
  /** Puts the largest relative age first; ties by interval and id, so that plans are repeatable. */
  readonly isOlder: IsBefore;
  /** Puts tags without a value first, then the least early; tags before half of their interval come last, by age. */
  readonly isCheaper: IsBefore;
  readonly idOf: (row: number) => string;
}

function createOrder(ids: readonly string[]): Order {
  const { age, periodSlots } = urgencies;
  const tagIdOfRow = (row: number) => ids[row] as string;
  const isOlder: IsBefore = (a, b) => {
    if (age[a] !== age[b]) return (age[a] as number) > (age[b] as number);
    const period = periodSlots[a] as number;
    const otherPeriod = periodSlots[b] as number;
    return period === otherPeriod ? tagIdOfRow(a) < tagIdOfRow(b) : period < otherPeriod;
  };
  const isByAge = (row: number) => (age[row] as number) < EARLY_AGE_MIN || age[row] === Number.POSITIVE_INFINITY;
  const isCheaper: IsBefore = (a, b) => {
    if (isByAge(a) || isByAge(b)) return isOlder(a, b);
    const rowEarliness = computeEarliness(a);
    const otherEarliness = computeEarliness(b);
    return rowEarliness === otherEarliness ? isOlder(a, b) : rowEarliness < otherEarliness;
  };
  return { idOf: tagIdOfRow, isOlder, isCheaper };
}

/** Slots left / period^0.75, found by simulation: with 10 slots left 0.05 for an hourly tag, 1.06 for a minute tag. */
function computeEarliness(row: number): number {
  // Square roots are the same on every machine; other powers may differ.
  const periodRoot = Math.sqrt(urgencies.periodSlots[row] as number);
  return (urgencies.slotsLeft[row] as number) / (periodRoot * Math.sqrt(periodRoot));
}

type IsolatedGroup = readonly (readonly [row: number, tag: IsolatedTag])[];

function chooseIsolated(
  { isolated, underWay, lastMs }: PlannedTags,
  ordinary: Rows,
  needsSlot: boolean,
  rules: PlanRules,
): (Omit<Plan, "group"> & { readonly rows: Rows }) | null {
  if (isolated.size === 0) return null;
  const idleTags = [...isolated].filter(([row]) => underWay[row] !== 1);
  // Patient groups come last, the site that was requested longest ago first.
  const patientRank = ([first]: IsolatedGroup) => (first?.[1].timing === "patient" ? 1 : 0);
  const requestedMs = (group: IsolatedGroup) => Math.min(...group.map(([, { siteRequestedMs }]) => siteRequestedMs));
  const groups = [...Map.groupBy(idleTags, ([, { label }]) => label).values()].sort(
    (a, b) => patientRank(a) - patientRank(b) || (patientRank(a) === 0 ? 0 : requestedMs(a) - requestedMs(b)),
  );
  const worstOrdinary = findWorstAge(ordinary);
  for (const group of groups) {
    const groupRows = Uint32Array.from(group, ([row]) => row);
    // Ignore tags without a value, unless the group has no other tags.
    const readRows = groupRows.filter((row) => lastMs[row] !== NEVER_MS);
    const maxAge = findWorstAge(readRows.length === 0 ? groupRows : readRows);
    const isUnread = maxAge === Number.POSITIVE_INFINITY;
    const isFree = !needsSlot && !(isUnread && worstOrdinary === Number.POSITIVE_INFINITY);
    const groupTiming = group[0]?.[1].timing ?? null;
    const isLastSlot = groupRows.some((row) => urgencies.slotsLeft[row] === 0);
    const isSoonDue = !needsSlot && maxAge >= EARLY_AGE_MIN;
    // The sooner a suspected site responds, the sooner its tags share requests with other sites again.
    const isPunctual =
      groupTiming === "punctual" && !isUnread && ((isLastSlot && maxAge >= worstOrdinary) || isSoonDue);
    // Spare slot: read the oldest values, and find slow tags before the next interval is due.
    const isOldest = rules.eager && isSoonDue && maxAge >= worstOrdinary && groupTiming !== "patient";
    const mayDisplace = !needsSlot || rules.mayDisplace !== false;
    const isStarving = maxAge >= STARVING_RELATIVE_AGE && !isUnread && groupTiming !== "patient" && mayDisplace;
    const isDue = maxAge >= 1 || (isLastSlot && groupTiming !== "patient");
    if (!(isPunctual || isOldest || isStarving || (isDue && isFree))) continue;
    if (groupTiming === "patient") return { rows: groupRows, isSearch: true };
    return needsSlot && !isPunctual ? { rows: groupRows, displaces: true } : { rows: groupRows };
  }
  return null;
}

/** Selects the first `count` fitting rows in an order: 20 of 50,000, without sorting all rows. */
function firstRows(rows: Rows, count: number, isBefore: IsBefore, fits: (row: number) => boolean): readonly number[] {
  const firstRowsInOrder: number[] = [];
  if (count <= 0) return firstRowsInOrder;
  for (let n = 0; n < rows.length; n++) {
    const candidate = rows[n] as number;
    const isFull = firstRowsInOrder.length === count;
    if (isFull && !isBefore(candidate, firstRowsInOrder[count - 1] as number)) continue;
    if (!fits(candidate)) continue;
    let at = isFull ? count - 1 : firstRowsInOrder.length;
    for (; at > 0; at--) {
      const previousRow = firstRowsInOrder[at - 1] as number;
      if (!isBefore(candidate, previousRow)) break;
      firstRowsInOrder[at] = previousRow;
    }
    firstRowsInOrder[at] = candidate;
  }
  return firstRowsInOrder;
}

function findWorstAge(rows: Rows): number {
  let worstAge = 0;
  for (let n = 0; n < rows.length; n++) worstAge = Math.max(worstAge, urgencies.age[rows[n] as number] as number);
  return worstAge;
}
