/** Tags as columns: row n of each column is the same tag. This halves the time of a plan with 50,000 tags. */
export interface PlannedTags {
  readonly count: number;
  readonly ids: readonly string[];
  readonly intervalMs: Float64Array;
  /** Start of the value's age: the planned time of the last reading; with `fresher`, the actual time. */
  readonly lastMs: Float64Array;
  readonly sinceMs: Float64Array;
  readonly underWay: Uint8Array;
  /**
   * Share of the interval after which the tag may be read: 0 with `fresher`, 0.5 for a tag of 60 s that is stretched
   * to 120 s, infinite for a tag with a fixed time, which is read only within the last slot of its interval.
   */
  readonly earliestAge: Float64Array;
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
export const NEVER_READ_MS = -Number.MAX_SAFE_INTEGER;

/** `PlannedTags` whose columns can be filled. */
export type WritablePlannedTags = { count: number } & Omit<PlannedTags, "count" | "ids" | "isolated"> & {
    readonly ids: string[];
    readonly isolated: Map<number, IsolatedTag>;
  };

export function createPlannedTags(rows: number): WritablePlannedTags {
  return {
    ...{ count: 0, ids: [], isolated: new Map() },
    intervalMs: new Float64Array(rows),
    earliestAge: new Float64Array(rows),
    lastMs: new Float64Array(rows),
    sinceMs: new Float64Array(rows),
    underWay: new Uint8Array(rows),
  };
}

export interface ReadPlanRules {
  readonly slotMs: number;
  readonly size: number;
  readonly leadMs: number;
  readonly eager: boolean;
  /** False right after long overdue tags took a slot, so that these tags do not take several slots in a row. */
  readonly mayDisplace?: boolean;
}

export interface LiveReadPlan {
  readonly group: readonly string[];
  readonly isSearch?: true;
  readonly displaces?: true;
}

type TagRows = Uint32Array;

/** Number of request slots that a plan covers: 65 minutes at 20 requests a minute, so that hourly tags are included. */
const PLANNED_REQUEST_SLOTS = 1_300;
/** Share of future slots that a plan uses, because tags that are read early are due early again. */
const USABLE_SLOT_SHARE = 0.975;
/** Part of a request that is added to the usable slots, so that the plan can use the next 10 slots completely. */
const NEAR_SLOT_TOLERANCE = 0.25;
const STARVING_RELATIVE_AGE = 2;
const MIN_EARLY_READ_AGE = 0.5;
/** Extra time until a tag's first value is due: the first reading of 4,000 tags takes 10 minutes. */
const FIRST_READ_ROUND_MS = 600_000;

interface TagUrgencies {
  /** Request slots left until the tag is late; 0: the tag must be read now. */
  readonly slotsLeft: Float64Array;
  readonly periodSlots: Float64Array;
  readonly age: Float64Array;
  readonly ordinary: TagRows;
  readonly readable: TagRows;
  readonly underWay: TagRows;
}
let tagUrgencies = createTagUrgencies(0);
const tagsDuePerSlot = new Float64Array(PLANNED_REQUEST_SLOTS);

/**
 * Chooses the tags of the next live read, one request of `size` tags per slot. First the tags that make later slots
 * exceed their capacity if this slot is left out, then the largest relative ages. Without such tags the slot is left to
 * history, or with `eager` spent on the largest ages. Only tags without a fixed time are read before their last slot.
 */
export function planNextLiveRead(tags: PlannedTags, nowMs: number, rules: ReadPlanRules): LiveReadPlan {
  if (tags.count === 0) return { group: [] };
  if (tagUrgencies.age.length < tags.count) tagUrgencies = createTagUrgencies(tags.count);
  computeTagUrgencies(tags, nowMs, rules);
  const ordinary = tagUrgencies.ordinary.subarray(0, fillOrdinaryTagRows(tagUrgencies.ordinary, tags));
  const underWayTagRows = tagUrgencies.underWay.subarray(0, fillUnderWayTagRows(tagUrgencies.underWay, tags));
  const readable = tagUrgencies.readable.subarray(0, fillReadableTagRows(tagUrgencies.readable, ordinary, tags));
  const slotNeeds = readable.length === 0 ? [] : countTagsNeededBySlot(ordinary, underWayTagRows, rules);
  const order = createTagRowOrder(tags);
  const isolatedGroup = chooseIsolatedTagGroup(tags, ordinary, slotNeeds.length > 0, rules);
  if (isolatedGroup !== null) {
    const { rows, ...how } = isolatedGroup;
    return { group: pickRows(rows, [], rules.size, order), ...how };
  }
  if (slotNeeds.length > 0)
    return { group: pickRows(readable, slotNeeds, rules.size, order, rules.eager ? order.isOlder : order.isCheaper) };
  // A tag without a value takes any slot that no interval needs.
  const isSlotWanted = readable.length > 0 && (rules.eager || findWorstAge(readable) === Number.POSITIVE_INFINITY);
  return { group: isSlotWanted ? pickRows(readable, [], rules.size, order) : [] };
}

/** Milliseconds until the last slot of an interval begins, or with `eager` until a tag may be read; at most one slot. */
export function msUntilNextDue(tags: PlannedTags, nowMs: number, { slotMs, leadMs, eager }: ReadPlanRules): number {
  let untilMs = slotMs;
  for (let row = 0; row < tags.count; row++) {
    if (tags.underWay[row] === 1) continue;
    const ageMs = nowMs - (tags.lastMs[row] as number);
    const intervalMs = tags.intervalMs[row] as number;
    const rowUntilMs = intervalMs - leadMs - ageMs - slotMs;
    if (rowUntilMs >= 0 && rowUntilMs < untilMs) untilMs = rowUntilMs;
    const readableInMs = intervalMs * (tags.earliestAge[row] as number) - ageMs;
    if (eager && readableInMs > 0 && readableInMs < untilMs) untilMs = readableInMs;
  }
  return untilMs + 1;
}

function createTagUrgencies(count: number): TagUrgencies {
  return {
    slotsLeft: new Float64Array(count),
    periodSlots: new Float64Array(count),
    age: new Float64Array(count),
    ordinary: new Uint32Array(count),
    readable: new Uint32Array(count),
    underWay: new Uint32Array(count),
  };
}

function computeTagUrgencies(tags: PlannedTags, nowMs: number, rules: ReadPlanRules) {
  const { count, intervalMs, lastMs, sinceMs, underWay, earliestAge } = tags;
  const { slotsLeft, periodSlots, age } = tagUrgencies;
  const { slotMs, leadMs } = rules;
  for (let row = 0; row < count; row++) {
    const tagIntervalMs = intervalMs[row] as number;
    const lastReadMs = lastMs[row] as number;
    const isTagUnderWay = underWay[row] === 1;
    const isTagNew = !isTagUnderWay && lastReadMs === NEVER_READ_MS;
    // Keep this form of the expression: with a conditional, V8 allocates an object for each tag.
    const firstRoundAgeMs = Math.max(0, nowMs - (sinceMs[row] as number) - FIRST_READ_ROUND_MS);
    const valueAgeMs = isTagUnderWay ? 0 : isTagNew ? firstRoundAgeMs : nowMs - lastReadMs;
    // Without a fixed time, the age counts from the actual reading, so the period is a whole number of slots.
    periodSlots[row] =
      earliestAge[row] === Number.POSITIVE_INFINITY
        ? Math.max(1, tagIntervalMs / slotMs)
        : Math.max(1, Math.floor((tagIntervalMs - leadMs) / slotMs));
    slotsLeft[row] = Math.max(0, Math.floor((tagIntervalMs - leadMs - valueAgeMs) / slotMs));
    age[row] = isTagNew ? Number.POSITIVE_INFINITY : valueAgeMs / tagIntervalMs;
  }
}

/** Separate from `planNextLiveRead`, where V8 recompiled this loop. */
function fillOrdinaryTagRows(into: TagRows, { count, underWay, isolated }: PlannedTags): number {
  const hasIsolatedTags = isolated.size > 0;
  let rowCount = 0;
  for (let row = 0; row < count; row++) {
    if (underWay[row] === 1 || (hasIsolatedTags && isolated.has(row))) continue;
    into[rowCount] = row;
    rowCount += 1;
  }
  return rowCount;
}

function fillReadableTagRows(into: TagRows, ordinary: TagRows, { earliestAge }: PlannedTags): number {
  const { slotsLeft, age } = tagUrgencies;
  let rowCount = 0;
  for (let n = 0; n < ordinary.length; n++) {
    const row = ordinary[n] as number;
    if (slotsLeft[row] !== 0 && (age[row] as number) < (earliestAge[row] as number)) continue;
    into[rowCount] = row;
    rowCount += 1;
  }
  return rowCount;
}

function fillUnderWayTagRows(into: TagRows, { count, underWay }: PlannedTags): number {
  let rowCount = 0;
  for (let row = 0; row < count; row++) {
    if (underWay[row] !== 1) continue;
    into[rowCount] = row;
    rowCount += 1;
  }
  return rowCount;
}

interface SlotNeed {
  readonly slotsLeft: number;
  readonly count: number;
}

/** Counts tags that must be read now: if 45 tags are due within 2 later slots of 20 tags each, 5 must be read now. */
function countTagsNeededBySlot(ordinary: TagRows, underWay: TagRows, rules: ReadPlanRules): readonly SlotNeed[] {
  tagsDuePerSlot.fill(0);
  addTagsDuePerSlot(ordinary);
  addTagsDuePerSlot(underWay);
  const slotNeeds: SlotNeed[] = [];
  let tagsNeeded = 0;
  let maxExcess = 0;
  for (let slot = 0; slot < PLANNED_REQUEST_SLOTS && maxExcess < rules.size; slot++) {
    tagsNeeded += tagsDuePerSlot[slot] as number;
    const usableSlots = Math.min(slot, USABLE_SLOT_SHARE * slot + NEAR_SLOT_TOLERANCE);
    const excessTags = Math.min(rules.size, Math.ceil(tagsNeeded - rules.size * usableSlots));
    if (excessTags <= maxExcess) continue;
    maxExcess = excessTags;
    slotNeeds.push({ slotsLeft: slot, count: excessTags });
  }
  return slotNeeds;
}

function addTagsDuePerSlot(rows: TagRows): void {
  const { slotsLeft, periodSlots } = tagUrgencies;
  for (let firstRow = 0, nextRow = 0; firstRow < rows.length; firstRow = nextRow) {
    const firstSlotsLeft = slotsLeft[rows[firstRow] as number] as number;
    const firstPeriodSlots = periodSlots[rows[firstRow] as number] as number;
    nextRow = firstRow + 1;
    while (
      nextRow < rows.length &&
      slotsLeft[rows[nextRow] as number] === firstSlotsLeft &&
      periodSlots[rows[nextRow] as number] === firstPeriodSlots
    )
      nextRow++;
    for (let slot = firstSlotsLeft; slot < PLANNED_REQUEST_SLOTS; slot += firstPeriodSlots)
      tagsDuePerSlot[Math.floor(slot)] = (tagsDuePerSlot[Math.floor(slot)] as number) + nextRow - firstRow;
  }
}

function pickRows(rows: TagRows, needs: readonly SlotNeed[], size: number, order: RowOrder, isBefore = order.isOlder) {
  const chosenTagRows = new Set<number>();
  for (const { slotsLeft, count } of needs) {
    let missingRows = count;
    for (const row of chosenTagRows) if (savesLaterReading(row, slotsLeft)) missingRows--;
    missingRows = Math.min(missingRows, size - chosenTagRows.size);
    if (missingRows <= 0) continue;
    const helpsNow = (row: number) => !chosenTagRows.has(row) && savesLaterReading(row, slotsLeft);
    const pickLateTagRows = () => sortLateTagRows(rows, order).filter(helpsNow).slice(0, missingRows);
    const helpfulTagRows = slotsLeft === 0 ? pickLateTagRows() : firstRows(rows, missingRows, order.isOlder, helpsNow);
    for (const row of helpfulTagRows) chosenTagRows.add(row);
  }
  const fillingTagRows = firstRows(rows, size - chosenTagRows.size, isBefore, (row) => !chosenTagRows.has(row));
  return [...chosenTagRows, ...fillingTagRows].map(order.idOf);
}

/** Puts tags with a fixed time first, the longest due before others, so that tags of one group stay together. */
function sortLateTagRows(rows: TagRows, order: RowOrder): readonly number[] {
  const lateTagRows = [...rows.filter((row) => tagUrgencies.slotsLeft[row] === 0)];
  const fixedTagRows = lateTagRows.filter(order.hasFixedTime).sort((a, b) => (order.isDueBefore(a, b) ? -1 : 1));
  return [
    ...fixedTagRows,
    ...alternateTagIntervals(
      lateTagRows.filter((row) => !order.hasFixedTime(row)),
      order,
    ),
  ];
}

/** Takes one tag of each interval in turn: of 15 tags of 60 s and 15 of 120 s, 10 of each fill a request. */
function alternateTagIntervals(rows: readonly number[], { isOlder }: RowOrder): readonly number[] {
  const { periodSlots } = tagUrgencies;
  const lateTagRows = rows.toSorted((a, b) => (isOlder(a, b) ? -1 : 1));
  const lateTagRowsByPeriod = Map.groupBy(lateTagRows, (row) => periodSlots[row] as number);
  return [...lateTagRowsByPeriod]
    .flatMap(([period, same]) => same.map((row, turn) => ({ row, turn, period })))
    .sort((a, b) => a.turn - b.turn || a.period - b.period)
    .map(({ row }) => row);
}

/** True if reading the tag now saves a later reading of the tag up to a slot. */
function savesLaterReading(row: number, slot: number): boolean {
  const slotsLeftOfTag = tagUrgencies.slotsLeft[row] as number;
  const periodOfTag = tagUrgencies.periodSlots[row] as number;
  return slotsLeftOfTag <= slot && Math.floor((slot - slotsLeftOfTag) / periodOfTag) === Math.floor(slot / periodOfTag);
}

/** Compares two rows by a boolean, because V8 would allocate a difference for each of 50,000 tags. */
type IsBefore = (a: number, b: number) => boolean;

interface RowOrder {
  /** Puts the largest relative age first; ties by interval and id, so that plans are repeatable. */
  readonly isOlder: IsBefore;
  /** Puts tags without a value first, then the tags least early for their interval; tags before half an interval come last. */
  readonly isCheaper: IsBefore;
  readonly isDueBefore: IsBefore;
  readonly hasFixedTime: (row: number) => boolean;
  readonly idOf: (row: number) => string;
}

function createTagRowOrder({ ids, lastMs, intervalMs, earliestAge }: PlannedTags): RowOrder {
  const { age, periodSlots } = tagUrgencies;
  const tagIdOfRow = (row: number) => ids[row] as string;
  const hasOlderValue: IsBefore = (a, b) => {
    if (age[a] !== age[b]) return (age[a] as number) > (age[b] as number);
    const periodOfTag = periodSlots[a] as number;
    const periodOfOtherTag = periodSlots[b] as number;
    return periodOfTag === periodOfOtherTag ? tagIdOfRow(a) < tagIdOfRow(b) : periodOfTag < periodOfOtherTag;
  };
  const isByAge = (row: number) => (age[row] as number) < MIN_EARLY_READ_AGE || age[row] === Number.POSITIVE_INFINITY;
  const isCheaperToRead: IsBefore = (a, b) => {
    if (isByAge(a) || isByAge(b)) return hasOlderValue(a, b);
    const earlinessOfTag = computeTagEarliness(a);
    const earlinessOfOtherTag = computeTagEarliness(b);
    return earlinessOfTag === earlinessOfOtherTag ? hasOlderValue(a, b) : earlinessOfTag < earlinessOfOtherTag;
  };
  const dueMsOf = (row: number) => (lastMs[row] as number) + (intervalMs[row] as number);
  const isDueBefore: IsBefore = (a, b) => (dueMsOf(a) === dueMsOf(b) ? hasOlderValue(a, b) : dueMsOf(a) < dueMsOf(b));
  const hasFixedTime = (row: number) => earliestAge[row] === Number.POSITIVE_INFINITY;
  return { idOf: tagIdOfRow, isOlder: hasOlderValue, isCheaper: isCheaperToRead, isDueBefore, hasFixedTime };
}

/** Returns how early a reading would be: (slots left) / (period in slots)^0.75, an exponent found by simulation. */
function computeTagEarliness(row: number): number {
  // Square roots are the same on every machine; other powers may differ.
  const periodSquareRoot = Math.sqrt(tagUrgencies.periodSlots[row] as number);
  return (tagUrgencies.slotsLeft[row] as number) / (periodSquareRoot * Math.sqrt(periodSquareRoot));
}

type IsolatedTagGroup = readonly (readonly [row: number, tag: IsolatedTag])[];

function chooseIsolatedTagGroup(
  { isolated, underWay, lastMs, earliestAge }: PlannedTags,
  ordinary: TagRows,
  needsSlot: boolean,
  rules: ReadPlanRules,
): (Omit<LiveReadPlan, "group"> & { readonly rows: TagRows }) | null {
  if (isolated.size === 0) return null;
  const idleIsolatedTags = [...isolated].filter(([row]) => underWay[row] !== 1);
  const patientRank = ([first]: IsolatedTagGroup) => (first?.[1].timing === "patient" ? 1 : 0);
  const requestedMs = (group: IsolatedTagGroup) => Math.min(...group.map(([, { siteRequestedMs }]) => siteRequestedMs));
  const isolatedTagGroups = [...Map.groupBy(idleIsolatedTags, ([, { label }]) => label).values()].sort(
    (a, b) => patientRank(a) - patientRank(b) || (patientRank(a) === 0 ? 0 : requestedMs(a) - requestedMs(b)),
  );
  const worstOrdinaryTagAge = findWorstAge(ordinary);
  for (const group of isolatedTagGroups) {
    const tagRowsOfGroup = Uint32Array.from(group, ([row]) => row);
    const tagRowsWithValue = tagRowsOfGroup.filter((row) => lastMs[row] !== NEVER_READ_MS);
    const maxAge = findWorstAge(tagRowsWithValue.length === 0 ? tagRowsOfGroup : tagRowsWithValue);
    const isUnread = maxAge === Number.POSITIVE_INFINITY;
    const isSlotFree = !needsSlot && !(isUnread && worstOrdinaryTagAge === Number.POSITIVE_INFINITY);
    const isolationTiming = group[0]?.[1].timing ?? null;
    const isLastSlot = tagRowsOfGroup.some((row) => tagUrgencies.slotsLeft[row] === 0);
    const isSoonDue = !needsSlot && maxAge >= MIN_EARLY_READ_AGE;
    const isPunctualGroupDue =
      isolationTiming === "punctual" && !isUnread && ((isLastSlot && maxAge >= worstOrdinaryTagAge) || isSoonDue);
    // In a spare slot, read the oldest values, and find slow tags before the next interval is due.
    const isReadable = tagRowsOfGroup.some((row) => (tagUrgencies.age[row] as number) >= (earliestAge[row] as number));
    const isOldestGroup =
      rules.eager && isReadable && isSoonDue && maxAge >= worstOrdinaryTagAge && isolationTiming !== "patient";
    const mayDisplace = !needsSlot || rules.mayDisplace !== false;
    const isStarving = maxAge >= STARVING_RELATIVE_AGE && !isUnread && isolationTiming !== "patient" && mayDisplace;
    const isGroupDue = maxAge >= 1 || (isLastSlot && isolationTiming !== "patient");
    if (!(isPunctualGroupDue || isOldestGroup || isStarving || (isGroupDue && isSlotFree))) continue;
    if (isolationTiming === "patient") return { rows: tagRowsOfGroup, isSearch: true };
    return needsSlot && !isPunctualGroupDue ? { rows: tagRowsOfGroup, displaces: true } : { rows: tagRowsOfGroup };
  }
  return null;
}

/** Selects the first `count` fitting rows in an order: 20 of 50,000, without sorting all rows. */
function firstRows(rows: TagRows, count: number, isBefore: IsBefore, fits: (row: number) => boolean) {
  const firstRowsInOrder: number[] = [];
  if (count <= 0) return firstRowsInOrder;
  for (let n = 0; n < rows.length; n++) {
    const candidateRow = rows[n] as number;
    const isSelectionFull = firstRowsInOrder.length === count;
    if (isSelectionFull && !isBefore(candidateRow, firstRowsInOrder[count - 1] as number)) continue;
    if (!fits(candidateRow)) continue;
    let at = isSelectionFull ? count - 1 : firstRowsInOrder.length;
    for (; at > 0; at--) {
      const previousRow = firstRowsInOrder[at - 1] as number;
      if (!isBefore(candidateRow, previousRow)) break;
      firstRowsInOrder[at] = previousRow;
    }
    firstRowsInOrder[at] = candidateRow;
  }
  return firstRowsInOrder;
}

function findWorstAge(rows: TagRows): number {
  let worstAge = 0;
  for (let n = 0; n < rows.length; n++) worstAge = Math.max(worstAge, tagUrgencies.age[rows[n] as number] as number);
  return worstAge;
}
