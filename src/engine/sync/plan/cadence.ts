/** A read class whose tags are each read once per interval; overload makes intervals longer than configured. */
export interface CadenceClass {
  readonly name: string;
  readonly intervalMs: number;
  readonly tags: number;
}

/** Remaining tags of one or more classes that share one request, e.g. 8 tags of 30 s and 9 tags of 60 s. */
interface SharedGroup {
  readonly intervalMs: number;
  readonly firstClass: string;
  readonly classNames: string[];
  tags: number;
}

/** Offsets in the interval by group: the tag at position 45 of its class belongs to group 2. */
export type GroupPhases = ReadonlyMap<string, readonly number[]>;

/** A reading up to one and a half slots before a planned time counts as the reading of that time. */
const EARLY_SLOTS_MAX = 1.5;
const GOLDEN_RATIO = (Math.sqrt(5) - 1) / 2;
/** Maximum offsets to compare, in addition to four per group, because an interval may last 30 days. */
const OTHER_OFFSETS_MAX = 1_000;

/**
 * Chooses when each group of `size` tags is read within its interval. The groups of one class are spread over the
 * interval, and avoid the offsets of classes with shorter intervals. A group keeps its offset when tags are added.
 */
export function assignGroupPhases(classes: readonly CadenceClass[], slotMs: number, size: number): GroupPhases {
  const phases = new Map<string, number[]>();
  const sharedGroups = shareRemainders(classes, size);
  const placed: { readonly intervalMs: number; readonly offsetsMs: readonly number[] }[] = [];
  for (const { name, intervalMs, tags } of sortByInterval(classes)) {
    // The first offset is for the incomplete last group, so that new tags in this group move no full group.
    const [remainderMs = 0, ...fullMs] = spreadOffsets(intervalMs, Math.floor(tags / size) + 1, slotMs, placed);
    const sharedGroup = sharedGroups.find(({ classNames }) => classNames.includes(name));
    const isFirst = sharedGroup?.firstClass === name;
    const sharedMs = isFirst || sharedGroup === undefined ? remainderMs : phases.get(sharedGroup.firstClass)?.at(-1);
    phases.set(name, sharedGroup === undefined ? fullMs : [...fullMs, sharedMs ?? remainderMs]);
    placed.push({ intervalMs, offsetsMs: isFirst ? [remainderMs, ...fullMs] : fullMs });
  }
  return phases;
}

/** Requests per minute of each class: 50 tags every 60 s need 3. Tags in a request of another class cost nothing. */
export function cadenceRequestsPerMinute(classes: readonly CadenceClass[], size: number): ReadonlyMap<string, number> {
  const sharedGroups = shareRemainders(classes, size);
  return new Map(
    classes.map(({ name, intervalMs, tags }) => {
      const remainders = sharedGroups.some(({ firstClass }) => firstClass === name) ? 1 : 0;
      return [name, ((Math.floor(tags / size) + remainders) * 60_000) / intervalMs];
    }),
  );
}

/** Keeps the positions of tags in their class: new tags and the last ones fill the holes of removed tags. */
export function keepPositions(
  idsBefore: readonly string[],
  isPresent: (id: string) => boolean,
  newIds: string[],
): string[] {
  const presentIds = idsBefore.filter(isPresent);
  const places = idsBefore.slice(0, presentIds.length + newIds.length);
  const idsToPlace = [...newIds, ...idsBefore.slice(places.length).filter(isPresent).toReversed()];
  const filled = places.map((id) => (isPresent(id) ? id : (idsToPlace.shift() as string)));
  return [...filled, ...idsToPlace];
}

/** Planned time of a reading, e.g. 10:00:20 for a reading at 10:00:18.5 with interval 30 s and offset 20 s. */
export function nominalReadMs(readMs: number, gridMs: number, intervalMs: number, slotMs: number): number {
  const earlyMs = Math.min(EARLY_SLOTS_MAX * slotMs, intervalMs / 2);
  return Math.floor((readMs + earlyMs - gridMs) / intervalMs) * intervalMs + gridMs;
}

function sortByInterval(classes: readonly CadenceClass[]): readonly CadenceClass[] {
  return classes.toSorted((a, b) => a.intervalMs - b.intervalMs || (a.name < b.name ? -1 : 1));
}

/** Joins incomplete groups that fit into one request and are due together, e.g. every 30 s and every 60 s. */
function shareRemainders(classes: readonly CadenceClass[], size: number): readonly SharedGroup[] {
  const groups: SharedGroup[] = [];
  for (const { name, intervalMs, tags } of sortByInterval(classes)) {
    const remainder = tags % size;
    if (remainder === 0) continue;
    const fitting = groups.find((group) => group.tags + remainder <= size && isMultiple(intervalMs, group.intervalMs));
    if (fitting === undefined) groups.push({ intervalMs, firstClass: name, classNames: [name], tags: remainder });
    else {
      fitting.classNames.push(name);
      fitting.tags += remainder;
    }
  }
  return groups;
}

function isMultiple(longMs: number, shortMs: number): boolean {
  const ratio = longMs / shortMs;
  return Math.abs(ratio - Math.round(ratio)) < 1e-6;
}

/** Returns `count` offsets, one per slot of the interval, first those that no earlier class uses. */
function spreadOffsets(
  intervalMs: number,
  count: number,
  slotMs: number,
  placed: readonly { readonly intervalMs: number; readonly offsetsMs: readonly number[] }[],
): readonly number[] {
  const slots = Math.max(1, Math.floor(intervalMs / slotMs));
  const slotsInOrder = listSlotsInOrder(slots, 4 * count + OTHER_OFFSETS_MAX);
  // Offsets are the middles of slots, so that readings keep a distance from the interval's boundary.
  const offsetMs = (slot: number) => (slot + 0.5) * slotMs;
  const costs = new Map(slotsInOrder.map((slot) => [slot, 0]));
  for (const { intervalMs: otherIntervalMs, offsetsMs } of placed) {
    // Readings of two classes meet at differences that are multiples of the common divisor of their intervals.
    const commonMs = commonDivisor(intervalMs, otherIntervalMs, slotMs / 10);
    const usedSlots = Map.groupBy(offsetsMs, (ms) => Math.floor((ms % commonMs) / slotMs));
    if (commonMs < 2 * slotMs) continue;
    for (const [slot, cost] of costs) {
      const meetings = usedSlots.get(Math.floor((offsetMs(slot) % commonMs) / slotMs))?.length ?? 0;
      costs.set(slot, cost + (meetings * commonMs) / otherIntervalMs);
    }
  }
  return chooseSlots(slotsInOrder, costs, count).map(offsetMs);
}

/** Lists the slots so that each next one is far from those before; the slots at the interval's boundary come last. */
function listSlotsInOrder(slots: number, max: number): readonly number[] {
  const stride = findCoprimeStride(slots);
  const slotsInOrder = Array.from({ length: Math.min(slots, max) }, (_, n) => ((n + 1) * stride) % slots);
  const isAtBoundary = (slot: number) => slot === 0 || slot === slots - 1;
  return [...slotsInOrder.filter((slot) => !isAtBoundary(slot)), ...slotsInOrder.filter(isAtBoundary)];
}

/** Stride near the golden ratio that visits every slot once: 13 for 20 slots. */
function findCoprimeStride(slots: number): number {
  const idealStride = Math.max(1, Math.round(slots * GOLDEN_RATIO));
  for (let distance = 0; distance < idealStride; distance++)
    for (const stride of [idealStride + distance, idealStride - distance])
      if (commonDivisor(slots, stride, 0.5) === 1) return stride;
  return 1;
}

/** Gives group n the n-th slot if it is free, otherwise one of the cheapest slots that are left. */
function chooseSlots(slotsInOrder: readonly number[], costs: ReadonlyMap<number, number>, count: number) {
  const costOf = (slot: number) => costs.get(slot) ?? 0;
  const chosen: (number | undefined)[] = Array.from({ length: count }, (_, group) => {
    const slot = slotsInOrder[group];
    return slot !== undefined && costOf(slot) === 0 ? slot : undefined;
  });
  const taken = new Set(chosen);
  const cheapestFirst = slotsInOrder.toSorted((a, b) => costOf(a) - costOf(b));
  const unused = cheapestFirst.filter((slot) => !taken.has(slot));
  let next = 0;
  return chosen.map((slot): number => {
    if (slot !== undefined) return slot;
    next += 1;
    return unused[next - 1] ?? (cheapestFirst[(next - 1) % cheapestFirst.length] as number);
  });
}

/** Largest common divisor of two numbers that need not be whole: 30 s for 60 s and 90 s. */
function commonDivisor(a: number, b: number, tolerance: number): number {
  const [long, short] = a > b ? [a, b] : [b, a];
  const remainder = long % short;
  if (remainder < tolerance || short - remainder < tolerance) return short;
  return commonDivisor(short, remainder, tolerance);
}
