/** Tags as columns: row n of each column is the same tag. This halves the time of a plan with 50,000 tags. */
export interface PlannedTags {
  readonly count: number;
  readonly ids: readonly string[];
  readonly intervalMs: Float64Array;
  /** Start of the value's age: the planned time of the last reading; with `fresher`, the actual time. */
  readonly ageStartMs: Float64Array;
  readonly scheduledSinceMs: Float64Array;
  readonly isUnderWay: Uint8Array;
  /**
   * Share of the interval after which the tag may be read: 0 with `fresher`, 0.5 for a tag of 60 s that is extended
   * to 120 s, infinite for a tag with a fixed time, which is read only within the last slot of its interval.
   */
  readonly earliestReadAge: Float64Array;
  /** Tags that are each read in a request of their own, because such a tag may delay others. Key: row, ascending. */
  readonly isolated: ReadonlyMap<number, IsolatedTag>;
}

export interface RequestIsolation {
  readonly label: string;
  /** `punctual`: read at the usual interval. `patient`: read in spare slots. Null: a slow tag. */
  readonly timing: "punctual" | "patient" | null;
}

export interface IsolatedTag extends RequestIsolation {
  /** Time of the last request for this tag's site. The site that waited longest is next, so that sites take turns. */
  readonly siteRequestedMs: number;
}

/** Time of a tag that was never read; finite, so that the difference of two times is a number. */
export const NEVER_READ_MS = -Number.MAX_SAFE_INTEGER;

/** `PlannedTags` whose columns can be filled. */
export type WritablePlannedTags = { count: number } & Omit<PlannedTags, "count" | "ids" | "isolated"> & {
    readonly ids: string[];
    readonly isolated: Map<number, IsolatedTag>;
  };

export function createPlannedTags(rowCount: number): WritablePlannedTags {
  return {
    ...{ count: 0, ids: [], isolated: new Map() },
    intervalMs: new Float64Array(rowCount),
    earliestReadAge: new Float64Array(rowCount),
    ageStartMs: new Float64Array(rowCount),
    scheduledSinceMs: new Float64Array(rowCount),
    isUnderWay: new Uint8Array(rowCount),
  };
}

export interface ReadPlanRules {
  readonly slotMs: number;
  readonly tagsPerRequest: number;
  readonly expectedReplyMs: number;
  readonly isSpareSlot: boolean;
  /** False right after long overdue tags took a slot, so that these tags do not take several slots in a row. */
  readonly mayDisplace?: boolean;
}

export interface LiveReadPlan {
  readonly group: readonly string[];
  readonly isBisection?: true;
  readonly displacesDueTags?: true;
}

type TagRows = Uint32Array;

/** Number of request slots that a plan covers: 65 minutes at 20 requests a minute, so that hourly tags are included. */
const PLANNED_REQUEST_SLOTS = 1_300;
/** Share of future slots that a plan uses, because tags that are read early are due early again. */
const USABLE_SLOT_SHARE = 0.975;
/** A plan uses min(n, 0.975 × n + 0.25) of the next n slots: all of the next 10, but 19.75 of the next 20. */
const NEAR_SLOT_TOLERANCE = 0.25;
const STARVING_RELATIVE_AGE = 2;
const MIN_EARLY_READ_AGE = 0.5;
/** Extra time until a tag's first value is due: the first reading of 4,000 tags takes 10 minutes. */
const FIRST_READ_ROUND_MS = 600_000;

let tagUrgencies = createTagUrgencies(0);
const tagsDuePerSlot = new Float64Array(PLANNED_REQUEST_SLOTS);

/**
 * Chooses up to 20 tags for the next live read. First come tags that must be read now because later slots are too full,
 * then those with the largest age relative to their interval. If no tag must be read, history gets the slot; a spare
 * slot goes to the largest relative ages. Only tags without a fixed time are read before the last slot of an interval.
 */
export function planNextLiveRead(tags: PlannedTags, nowMs: number, rules: ReadPlanRules): LiveReadPlan {
  if (tags.count === 0) return { group: [] };
  if (tagUrgencies.relativeAge.length < tags.count) tagUrgencies = createTagUrgencies(tags.count);
  computeTagUrgencies(tags, nowMs, rules);
  const ordinaryRows = fillOrdinaryRows(tagUrgencies.ordinaryRows, tags);
  const underWayRows = fillUnderWayRows(tagUrgencies.underWayRows, tags);
  const readableRows = fillReadableRows(tagUrgencies.readableRows, ordinaryRows, tags);
  const slotNeeds = readableRows.length === 0 ? [] : countTagsNeededBySlot(ordinaryRows, underWayRows, rules);
  const rowOrder = createTagRowOrder(tags);
  const isolatedGroup = chooseIsolatedTagGroup(tags, ordinaryRows, slotNeeds.length > 0, rules);
  if (isolatedGroup !== null) {
    const { rows, ...planFlags } = isolatedGroup;
    return { group: pickRows(rows, [], rules.tagsPerRequest, rowOrder), ...planFlags };
  }
  if (slotNeeds.length > 0) {
    const isBefore = rules.isSpareSlot ? rowOrder.isOlder : rowOrder.isLessEarly;
    return { group: pickRows(readableRows, slotNeeds, rules.tagsPerRequest, rowOrder, isBefore) };
  }
  // Read a tag without a value in a slot that no other tag needs to meet its interval.
  const isSlotWanted =
    readableRows.length > 0 && (rules.isSpareSlot || findWorstAge(readableRows) === Number.POSITIVE_INFINITY);
  return { group: isSlotWanted ? pickRows(readableRows, [], rules.tagsPerRequest, rowOrder) : [] };
}

/** Milliseconds until the last slot of a tag's interval; for a spare slot, until a tag may be read. At most a slot. */
export function msUntilNextDue(
  tags: PlannedTags,
  nowMs: number,
  { slotMs, expectedReplyMs, isSpareSlot }: ReadPlanRules,
): number {
  let msUntilDue = slotMs;
  for (let row = 0; row < tags.count; row++) {
    if (tags.isUnderWay[row] === 1) continue;
    const ageMs = nowMs - (tags.ageStartMs[row] as number);
    const intervalMs = tags.intervalMs[row] as number;
    const msUntilRowDue = intervalMs - expectedReplyMs - ageMs - slotMs;
    if (msUntilRowDue >= 0 && msUntilRowDue < msUntilDue) msUntilDue = msUntilRowDue;
    const msUntilReadable = intervalMs * (tags.earliestReadAge[row] as number) - ageMs;
    if (isSpareSlot && msUntilReadable > 0 && msUntilReadable < msUntilDue) msUntilDue = msUntilReadable;
  }
  return msUntilDue + 1;
}

function createTagUrgencies(rowCount: number) {
  return {
    /** Request slots left until the tag is late; 0: the tag must be read now. */
    slotsLeft: new Float64Array(rowCount),
    periodSlots: new Float64Array(rowCount),
    relativeAge: new Float64Array(rowCount),
    ordinaryRows: new Uint32Array(rowCount),
    readableRows: new Uint32Array(rowCount),
    underWayRows: new Uint32Array(rowCount),
  };
}

function computeTagUrgencies(tags: PlannedTags, nowMs: number, rules: ReadPlanRules) {
  const { count, intervalMs, ageStartMs, scheduledSinceMs, isUnderWay, earliestReadAge } = tags;
  const { slotsLeft, periodSlots, relativeAge } = tagUrgencies;
  const { slotMs, expectedReplyMs } = rules;
  for (let row = 0; row < count; row++) {
    const tagIntervalMs = intervalMs[row] as number;
    const lastReadMs = ageStartMs[row] as number;
    const isTagUnderWay = isUnderWay[row] === 1;
    const isTagNew = !isTagUnderWay && lastReadMs === NEVER_READ_MS;
    // Keep this form of the expression: with a conditional, V8 allocates an object for each tag.
    const firstRoundAgeMs = Math.max(0, nowMs - (scheduledSinceMs[row] as number) - FIRST_READ_ROUND_MS);
    const valueAgeMs = isTagUnderWay ? 0 : isTagNew ? firstRoundAgeMs : nowMs - lastReadMs;
    // Without a fixed time, the age counts from the actual reading, so the period is a whole number of slots.
    periodSlots[row] =
      earliestReadAge[row] === Number.POSITIVE_INFINITY
        ? Math.max(1, tagIntervalMs / slotMs)
        : Math.max(1, Math.floor((tagIntervalMs - expectedReplyMs) / slotMs));
    slotsLeft[row] = Math.max(0, Math.floor((tagIntervalMs - expectedReplyMs - valueAgeMs) / slotMs));
    relativeAge[row] = isTagNew ? Number.POSITIVE_INFINITY : valueAgeMs / tagIntervalMs;
  }
}

/** Returns rows that are neither isolated nor in a running request. V8 recompiles the loop if it is inlined. */
function fillOrdinaryRows(targetRows: TagRows, { count, isUnderWay, isolated }: PlannedTags): TagRows {
  const hasIsolatedTags = isolated.size > 0;
  let rowCount = 0;
  for (let row = 0; row < count; row++) {
    if (isUnderWay[row] === 1 || (hasIsolatedTags && isolated.has(row))) continue;
    targetRows[rowCount] = row;
    rowCount += 1;
  }
  return targetRows.subarray(0, rowCount);
}

function fillReadableRows(targetRows: TagRows, ordinaryRows: TagRows, { earliestReadAge }: PlannedTags): TagRows {
  const { slotsLeft, relativeAge } = tagUrgencies;
  let rowCount = 0;
  for (let n = 0; n < ordinaryRows.length; n++) {
    const row = ordinaryRows[n] as number;
    if (slotsLeft[row] !== 0 && (relativeAge[row] as number) < (earliestReadAge[row] as number)) continue;
    targetRows[rowCount] = row;
    rowCount += 1;
  }
  return targetRows.subarray(0, rowCount);
}

function fillUnderWayRows(targetRows: TagRows, { count, isUnderWay }: PlannedTags): TagRows {
  let rowCount = 0;
  for (let row = 0; row < count; row++) {
    if (isUnderWay[row] !== 1) continue;
    targetRows[rowCount] = row;
    rowCount += 1;
  }
  return targetRows.subarray(0, rowCount);
}

interface SlotNeed {
  readonly slotsLeft: number;
  readonly tagCount: number;
}

/** Counts tags that must be read now: if 45 tags are due within 2 later slots of 20 tags each, 5 must be read now. */
function countTagsNeededBySlot(ordinaryRows: TagRows, underWayRows: TagRows, rules: ReadPlanRules) {
  tagsDuePerSlot.fill(0);
  addTagsDuePerSlot(ordinaryRows);
  addTagsDuePerSlot(underWayRows);
  const slotNeeds: SlotNeed[] = [];
  let tagsNeeded = 0;
  let maxExcess = 0;
  for (let slot = 0; slot < PLANNED_REQUEST_SLOTS && maxExcess < rules.tagsPerRequest; slot++) {
    tagsNeeded += tagsDuePerSlot[slot] as number;
    const usableSlots = Math.min(slot, USABLE_SLOT_SHARE * slot + NEAR_SLOT_TOLERANCE);
    const excessTags = Math.min(rules.tagsPerRequest, Math.ceil(tagsNeeded - rules.tagsPerRequest * usableSlots));
    if (excessTags <= maxExcess) continue;
    maxExcess = excessTags;
    slotNeeds.push({ slotsLeft: slot, tagCount: excessTags });
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

function pickRows(
  rows: TagRows,
  slotNeeds: readonly SlotNeed[],
  tagsPerRequest: number,
  rowOrder: RowOrder,
  isBefore = rowOrder.isOlder,
) {
  const chosenRows = new Set<number>();
  for (const { slotsLeft, tagCount } of slotNeeds) {
    let missingRowCount = tagCount;
    for (const row of chosenRows) if (savesLaterReading(row, slotsLeft)) missingRowCount--;
    missingRowCount = Math.min(missingRowCount, tagsPerRequest - chosenRows.size);
    if (missingRowCount <= 0) continue;
    const helpsNow = (row: number) => !chosenRows.has(row) && savesLaterReading(row, slotsLeft);
    const pickLateRows = () => sortLateRows(rows, rowOrder).filter(helpsNow).slice(0, missingRowCount);
    const helpfulRows =
      slotsLeft === 0 ? pickLateRows() : selectFirstRows(rows, missingRowCount, rowOrder.isOlder, helpsNow);
    for (const row of helpfulRows) chosenRows.add(row);
  }
  const placesLeft = tagsPerRequest - chosenRows.size;
  const fillerRows = selectFirstRows(rows, placesLeft, isBefore, (row) => !chosenRows.has(row));
  return [...chosenRows, ...fillerRows].map(rowOrder.idOf);
}

/** Sorts late tags: first those with a fixed time, by due time, so that tags of one group share a request. */
function sortLateRows(rows: TagRows, rowOrder: RowOrder): readonly number[] {
  const { hasFixedTime, isDueBefore } = rowOrder;
  const lateRows = [...rows.filter((row) => tagUrgencies.slotsLeft[row] === 0)];
  const fixedTimeRows = lateRows.filter(hasFixedTime).sort((a, b) => (isDueBefore(a, b) ? -1 : 1));
  const otherRows = lateRows.filter((row) => !hasFixedTime(row));
  return [...fixedTimeRows, ...alternateTagIntervals(otherRows, rowOrder)];
}

/** Takes one tag of each interval in turn: of 15 tags of 60 s and 15 of 120 s, 10 of each fill a request. */
function alternateTagIntervals(rows: readonly number[], { isOlder }: RowOrder): readonly number[] {
  const { periodSlots } = tagUrgencies;
  const sortedRows = rows.toSorted((a, b) => (isOlder(a, b) ? -1 : 1));
  return [...Map.groupBy(sortedRows, (row) => periodSlots[row] as number)]
    .flatMap(([period, rowsOfPeriod]) => rowsOfPeriod.map((row, position) => ({ row, position, period })))
    .sort((a, b) => a.position - b.position || a.period - b.period)
    .map(({ row }) => row);
}

/** True if reading the tag now makes one of its readings within the next `slot` slots unnecessary. */
function savesLaterReading(row: number, slot: number): boolean {
  const slotsLeftOfTag = tagUrgencies.slotsLeft[row] as number;
  const periodOfTag = tagUrgencies.periodSlots[row] as number;
  return slotsLeftOfTag <= slot && Math.floor((slot - slotsLeftOfTag) / periodOfTag) === Math.floor(slot / periodOfTag);
}

/** True if row `a` comes before row `b`. A numeric difference would make V8 allocate memory for each of 50,000 tags. */
type IsBefore = (a: number, b: number) => boolean;

type RowOrder = ReturnType<typeof createTagRowOrder>;

function createTagRowOrder({ ids, ageStartMs, intervalMs, earliestReadAge }: PlannedTags) {
  const { relativeAge, periodSlots } = tagUrgencies;
  const tagIdOfRow = (row: number) => ids[row] as string;
  /** Puts the largest relative age first; ties by interval and id, so that plans are repeatable. */
  const isOlder: IsBefore = (a, b) => {
    if (relativeAge[a] !== relativeAge[b]) return (relativeAge[a] as number) > (relativeAge[b] as number);
    const periodOfTag = periodSlots[a] as number;
    const periodOfOtherTag = periodSlots[b] as number;
    return periodOfTag === periodOfOtherTag ? tagIdOfRow(a) < tagIdOfRow(b) : periodOfTag < periodOfOtherTag;
  };
  const isComparedByAge = (row: number) =>
    (relativeAge[row] as number) < MIN_EARLY_READ_AGE || relativeAge[row] === Number.POSITIVE_INFINITY;
  /** Puts tags without a value first, then tags closest to their due time, last tags before half of their interval. */
  const isLessEarly: IsBefore = (a, b) => {
    if (isComparedByAge(a) || isComparedByAge(b)) return isOlder(a, b);
    const earlinessOfTag = computeTagEarliness(a);
    const earlinessOfOtherTag = computeTagEarliness(b);
    return earlinessOfTag === earlinessOfOtherTag ? isOlder(a, b) : earlinessOfTag < earlinessOfOtherTag;
  };
  const dueMsOf = (row: number) => (ageStartMs[row] as number) + (intervalMs[row] as number);
  const isDueBefore: IsBefore = (a, b) => (dueMsOf(a) === dueMsOf(b) ? isOlder(a, b) : dueMsOf(a) < dueMsOf(b));
  const hasFixedTime = (row: number) => earliestReadAge[row] === Number.POSITIVE_INFINITY;
  return { idOf: tagIdOfRow, isOlder, isLessEarly, isDueBefore, hasFixedTime };
}

/** Returns how early a reading would be: (slots left) / (period in slots)^0.75, an exponent found by simulation. */
function computeTagEarliness(row: number): number {
  // Square roots are the same on every machine; other powers may differ.
  const periodSquareRoot = Math.sqrt(tagUrgencies.periodSlots[row] as number);
  return (tagUrgencies.slotsLeft[row] as number) / (periodSquareRoot * Math.sqrt(periodSquareRoot));
}

type IsolatedTagGroup = readonly (readonly [row: number, tag: IsolatedTag])[];

function chooseIsolatedTagGroup(
  { isolated, isUnderWay, ageStartMs, earliestReadAge }: PlannedTags,
  ordinaryRows: TagRows,
  isSlotNeeded: boolean,
  rules: ReadPlanRules,
): (Omit<LiveReadPlan, "group"> & { readonly rows: TagRows }) | null {
  if (isolated.size === 0) return null;
  const idleIsolatedTags = [...isolated].filter(([row]) => isUnderWay[row] !== 1);
  const patientRank = ([first]: IsolatedTagGroup) => (first?.[1].timing === "patient" ? 1 : 0);
  const requestedMs = (group: IsolatedTagGroup) => Math.min(...group.map(([, { siteRequestedMs }]) => siteRequestedMs));
  const isolatedTagGroups = [...Map.groupBy(idleIsolatedTags, ([, { label }]) => label).values()].sort(
    (a, b) => patientRank(a) - patientRank(b) || (patientRank(a) === 0 ? 0 : requestedMs(a) - requestedMs(b)),
  );
  const worstOrdinaryTagAge = findWorstAge(ordinaryRows);
  for (const group of isolatedTagGroups) {
    const rows = Uint32Array.from(group, ([row]) => row);
    const rowsWithValue = rows.filter((row) => ageStartMs[row] !== NEVER_READ_MS);
    const maxAge = findWorstAge(rowsWithValue.length === 0 ? rows : rowsWithValue);
    const isUnread = maxAge === Number.POSITIVE_INFINITY;
    const isSlotFree = !isSlotNeeded && !(isUnread && worstOrdinaryTagAge === Number.POSITIVE_INFINITY);
    const timing = group[0]?.[1].timing ?? null;
    const isLastSlot = rows.some((row) => tagUrgencies.slotsLeft[row] === 0);
    const isDueNext = !isSlotNeeded && maxAge >= MIN_EARLY_READ_AGE;
    const isPunctualGroupDue =
      timing === "punctual" && !isUnread && ((isLastSlot && maxAge >= worstOrdinaryTagAge) || isDueNext);
    // In a spare slot, read the oldest values, and find slow tags before the next interval is due.
    const { relativeAge } = tagUrgencies;
    const isReadable = rows.some((row) => (relativeAge[row] as number) >= (earliestReadAge[row] as number));
    const isOldestGroup =
      rules.isSpareSlot && isReadable && isDueNext && maxAge >= worstOrdinaryTagAge && timing !== "patient";
    const mayDisplace = !isSlotNeeded || rules.mayDisplace !== false;
    const isStarving = maxAge >= STARVING_RELATIVE_AGE && !isUnread && timing !== "patient" && mayDisplace;
    const isGroupDue = maxAge >= 1 || (isLastSlot && timing !== "patient");
    if (!(isPunctualGroupDue || isOldestGroup || isStarving || (isGroupDue && isSlotFree))) continue;
    if (timing === "patient") return { rows, isBisection: true };
    return isSlotNeeded && !isPunctualGroupDue ? { rows, displacesDueTags: true } : { rows };
  }
  return null;
}

/** Selects the first `count` fitting rows in an order: 20 of 50,000, without sorting all rows. */
function selectFirstRows(rows: TagRows, count: number, isBefore: IsBefore, isEligible: (row: number) => boolean) {
  const firstRowsInOrder: number[] = [];
  if (count <= 0) return firstRowsInOrder;
  for (let n = 0; n < rows.length; n++) {
    const candidateRow = rows[n] as number;
    const isSelectionFull = firstRowsInOrder.length === count;
    if (isSelectionFull && !isBefore(candidateRow, firstRowsInOrder[count - 1] as number)) continue;
    if (!isEligible(candidateRow)) continue;
    let insertIndex = isSelectionFull ? count - 1 : firstRowsInOrder.length;
    for (; insertIndex > 0; insertIndex--) {
      const previousRow = firstRowsInOrder[insertIndex - 1] as number;
      if (!isBefore(candidateRow, previousRow)) break;
      firstRowsInOrder[insertIndex] = previousRow;
    }
    firstRowsInOrder[insertIndex] = candidateRow;
  }
  return firstRowsInOrder;
}

function findWorstAge(rows: TagRows): number {
  let worstAge = 0;
  for (let n = 0; n < rows.length; n++)
    worstAge = Math.max(worstAge, tagUrgencies.relativeAge[rows[n] as number] as number);
  return worstAge;
}
