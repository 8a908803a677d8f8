/** A read class whose tags are each read once per interval; overload makes intervals longer than configured. */
export interface CadenceClass {
  readonly name: string;
  readonly intervalMs: number;
  readonly tags: number;
}

/** Tags that do not fill a request of their class alone and so share one, e.g. 8 tags of 30 s and 9 tags of 60 s. */
interface SharedGroup {
  readonly intervalMs: number;
  readonly firstClass: string;
  readonly classNames: string[];
  tags: number;
}

interface ScheduledClass {
  readonly intervalMs: number;
  readonly offsetsMs: readonly number[];
}

/** Request slots by which a reading may precede its planned time and still count for this time. */
const EARLY_SLOTS_MAX = 1.5;
const GOLDEN_RATIO = (Math.sqrt(5) - 1) / 2;
/** Maximum number of offsets to compare, in addition to four per group: an interval of 30 days has 864,000 slots. */
const OTHER_OFFSETS_MAX = 1_000;

/**
 * Chooses when each group of `tagsPerRequest` tags is read within its interval. The groups of one class are spread over
 * the interval, and avoid the offsets of classes with shorter intervals. A group keeps its offset when tags are added.
 * Returns the offsets by class and group: the tag at position 45 of its class belongs to group 2.
 */
export function assignGroupPhases(classes: readonly CadenceClass[], slotMs: number, tagsPerRequest: number) {
  const phases = new Map<string, readonly number[]>();
  const sharedGroups = shareRemainders(classes, tagsPerRequest);
  const scheduledClasses: ScheduledClass[] = [];
  for (const { name, intervalMs, tags } of sortByInterval(classes)) {
    const groupCount = Math.floor(tags / tagsPerRequest) + 1;
    // Reserve the first offset for the incomplete last group, so that new tags change no offset of a full group.
    const [remainderMs = 0, ...fullOffsetsMs] = spreadOffsets(intervalMs, groupCount, slotMs, scheduledClasses);
    const sharedGroup = sharedGroups.find(({ classNames }) => classNames.includes(name));
    const isFirst = sharedGroup?.firstClass === name;
    const sharedMs = isFirst || sharedGroup === undefined ? remainderMs : phases.get(sharedGroup.firstClass)?.at(-1);
    phases.set(name, sharedGroup === undefined ? fullOffsetsMs : [...fullOffsetsMs, sharedMs ?? remainderMs]);
    scheduledClasses.push({ intervalMs, offsetsMs: isFirst ? [remainderMs, ...fullOffsetsMs] : fullOffsetsMs });
  }
  return phases;
}

/** Requests per minute of each class: 50 tags every 60 s need 3. Tags in a shared request count in its first class. */
export function cadenceRequestsPerMinute(classes: readonly CadenceClass[], tagsPerRequest: number) {
  const sharedGroups = shareRemainders(classes, tagsPerRequest);
  const requestRates = classes.map(({ name, intervalMs, tags }) => {
    const extraGroupCount = sharedGroups.some(({ firstClass }) => firstClass === name) ? 1 : 0;
    return [name, ((Math.floor(tags / tagsPerRequest) + extraGroupCount) * 60_000) / intervalMs] as const;
  });
  return new Map(requestRates);
}

/** Keeps the positions of tags in their class: new tags, then the last tags, take the positions of removed tags. */
export function keepPositions(idsBefore: readonly string[], isPresent: (id: string) => boolean, newIds: string[]) {
  const presentIds = idsBefore.filter(isPresent);
  const keptPositions = idsBefore.slice(0, presentIds.length + newIds.length);
  const idsToPlace = [...newIds, ...idsBefore.slice(keptPositions.length).filter(isPresent).toReversed()];
  const filledPositions = keptPositions.map((id) => (isPresent(id) ? id : (idsToPlace.shift() as string)));
  return [...filledPositions, ...idsToPlace];
}

/** Planned time of a reading, e.g. 10:00:20 for a reading at 10:00:18.5 with interval 30 s and offset 20 s. */
export function plannedReadMs(readMs: number, offsetMs: number, intervalMs: number, slotMs: number): number {
  const maxEarlyMs = Math.min(EARLY_SLOTS_MAX * slotMs, intervalMs / 2);
  return Math.floor((readMs + maxEarlyMs - offsetMs) / intervalMs) * intervalMs + offsetMs;
}

function sortByInterval(classes: readonly CadenceClass[]): readonly CadenceClass[] {
  return classes.toSorted((a, b) => a.intervalMs - b.intervalMs || (a.name < b.name ? -1 : 1));
}

/** Joins incomplete groups that fit into one request and are due together, e.g. every 30 s and every 60 s. */
function shareRemainders(classes: readonly CadenceClass[], tagsPerRequest: number): readonly SharedGroup[] {
  const groups: SharedGroup[] = [];
  for (const { name, intervalMs, tags } of sortByInterval(classes)) {
    const remainder = tags % tagsPerRequest;
    if (remainder === 0) continue;
    const fittingGroup = groups.find(
      (group) => group.tags + remainder <= tagsPerRequest && isMultiple(intervalMs, group.intervalMs),
    );
    if (fittingGroup === undefined) groups.push({ intervalMs, firstClass: name, classNames: [name], tags: remainder });
    else {
      fittingGroup.classNames.push(name);
      fittingGroup.tags += remainder;
    }
  }
  return groups;
}

function isMultiple(longMs: number, shortMs: number): boolean {
  const ratio = longMs / shortMs;
  return Math.abs(ratio - Math.round(ratio)) < 1e-6;
}

/** Returns `groupCount` offsets within the interval, first those in slots that no earlier class uses. */
function spreadOffsets(
  intervalMs: number,
  groupCount: number,
  slotMs: number,
  scheduledClasses: readonly ScheduledClass[],
): readonly number[] {
  const slotCount = Math.max(1, Math.floor(intervalMs / slotMs));
  const spreadSlots = listSpreadSlots(slotCount, 4 * groupCount + OTHER_OFFSETS_MAX);
  // Offsets are the middles of slots, so that readings keep a distance from the interval's boundary.
  const offsetMs = (slot: number) => (slot + 0.5) * slotMs;
  const costBySlot = new Map(spreadSlots.map((slot) => [slot, 0]));
  for (const { intervalMs: otherIntervalMs, offsetsMs } of scheduledClasses) {
    // Two classes are read in the same slot if their offsets differ by a multiple of their intervals' common divisor.
    const commonMs = commonDivisor(intervalMs, otherIntervalMs, slotMs / 10);
    const usedSlots = Map.groupBy(offsetsMs, (ms) => Math.floor((ms % commonMs) / slotMs));
    if (commonMs < 2 * slotMs) continue;
    for (const [slot, cost] of costBySlot) {
      const collisions = usedSlots.get(Math.floor((offsetMs(slot) % commonMs) / slotMs))?.length ?? 0;
      costBySlot.set(slot, cost + (collisions * commonMs) / otherIntervalMs);
    }
  }
  return chooseSlots(spreadSlots, costBySlot, groupCount).map(offsetMs);
}

/** Lists the slots so that each one is far from the slots before it; slots at the interval's boundary come last. */
function listSpreadSlots(slotCount: number, maxSlots: number): readonly number[] {
  const stride = findCoprimeStride(slotCount);
  const spreadSlots = Array.from({ length: Math.min(slotCount, maxSlots) }, (_, n) => ((n + 1) * stride) % slotCount);
  const isAtBoundary = (slot: number) => slot === 0 || slot === slotCount - 1;
  return [...spreadSlots.filter((slot) => !isAtBoundary(slot)), ...spreadSlots.filter(isAtBoundary)];
}

/** Stride near the golden ratio that visits every slot once: 13 for 20 slots. */
function findCoprimeStride(slotCount: number): number {
  const idealStride = Math.max(1, Math.round(slotCount * GOLDEN_RATIO));
  for (let distance = 0; distance < idealStride; distance++)
    for (const stride of [idealStride + distance, idealStride - distance])
      if (commonDivisor(slotCount, stride, 0.5) === 1) return stride;
  return 1;
}

/** Gives group n the n-th slot if it is free, otherwise one of the remaining slots with the fewest collisions. */
function chooseSlots(spreadSlots: readonly number[], costBySlot: ReadonlyMap<number, number>, groupCount: number) {
  const costOf = (slot: number) => costBySlot.get(slot) ?? 0;
  const chosenSlots: (number | undefined)[] = Array.from({ length: groupCount }, (_, group) => {
    const slot = spreadSlots[group];
    return slot !== undefined && costOf(slot) === 0 ? slot : undefined;
  });
  const takenSlots = new Set(chosenSlots);
  const slotsByCost = spreadSlots.toSorted((a, b) => costOf(a) - costOf(b));
  const unusedSlots = slotsByCost.filter((slot) => !takenSlots.has(slot));
  let nextUnusedIndex = 0;
  return chosenSlots.map((slot): number => {
    if (slot !== undefined) return slot;
    nextUnusedIndex += 1;
    return unusedSlots[nextUnusedIndex - 1] ?? (slotsByCost[(nextUnusedIndex - 1) % slotsByCost.length] as number);
  });
}

/** Largest common divisor of two numbers that need not be whole: 30 s for 60 s and 90 s. */
function commonDivisor(a: number, b: number, tolerance: number): number {
  const [long, short] = a > b ? [a, b] : [b, a];
  const remainder = long % short;
  if (remainder < tolerance || short - remainder < tolerance) return short;
  return commonDivisor(short, remainder, tolerance);
}
