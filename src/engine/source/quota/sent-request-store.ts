import type { Clock } from "../../../core/runtime/clock.ts";
import type { ClockReader, TimeReading } from "../../../core/runtime/elapsed-time.ts";
import { insertSortedNumber } from "../../../core/runtime/moving-median.ts";
import type { QuotaSlot, QuotaStore } from "../../store/store.ts";
import { QUOTA_ENDPOINTS, type QuotaEndpoint } from "../source.ts";

export type PauseScope = QuotaEndpoint | "everything";

interface QuotaRecordOptions {
  readonly store: QuotaStore;
  readonly source: string;
  readonly clock: Clock;
  readonly occupiedMs: number;
  readonly longestWayMs: number;
  readonly mark: ClockReader;
}

const FIRST_SAVE_TIMEOUT_MS = 250;
const CLOCK_STEP_MIN_MS = 100;
const SLOT_RETENTION_MS = 3_600_000;
const FORGET_EVERY_REPLIES = 500;
const SLOT_RECORDED_AHEAD_MS = 10_000;

export type QuotaRecord = ReturnType<typeof createQuotaRecord>;

/** Stores each slot before its request leaves, so after a kill the record contains at least what the service counts. */
export function createQuotaRecord(options: QuotaRecordOptions) {
  const { store, source, clock, occupiedMs, longestWayMs, mark } = options;
  const recordKey = (endpoint: QuotaEndpoint) => `${source}/${endpoint}`;
  let liveSlots: SpentSlot[] = [];
  let lastId = 0;
  let replyCount = 0;
  let wallOffsetMs = clock.now() - clock.monotonic();
  let clockSetByMs = 0;
  let clockJumps = 0;
  const slotIdsAhead = new Map<QuotaEndpoint, number>();
  const lastSentAtMs = new Map<QuotaEndpoint, number>();
  const usableUntilMs = new Map<number, number>();
  const toStoredSlot = (slot: SpentSlot): QuotaSlot => ({
    id: slot.id,
    sentAtMs: Math.floor(slot.sentAt + wallOffsetMs),
    countedByMs: Math.ceil(slot.countedBy + wallOffsetMs),
  });
  const saveSlot = (slot: SpentSlot) => store.save(recordKey(slot.endpoint), toStoredSlot(slot));
  const followWallClock = async () => {
    const newOffsetMs = clock.now() - clock.monotonic();
    const clockShiftMs = newOffsetMs - wallOffsetMs;
    wallOffsetMs = newOffsetMs;
    if (Math.abs(clockShiftMs) <= CLOCK_STEP_MIN_MS) return;
    clockJumps += 1;
    usableUntilMs.clear();
    await rewriteSlots(clockShiftMs);
  };

  async function rewriteSlots(byMs: number): Promise<void> {
    // After a kill in between, the next start takes the slots for later than they were, never for earlier.
    if (byMs < 0) await saveClockReading();
    for (const slot of liveSlots) if (Number.isFinite(slot.countedBy)) await saveSlot(slot);
    if (byMs > 0) await saveClockReading();
  }

  async function saveClockReading(): Promise<void> {
    const sinceBoot = clock.sinceBoot?.() ?? null;
    if (sinceBoot === null) return;
    await store.saveClock(source, sinceBoot.boot, { wallMs: clock.now(), sinceBootMs: sinceBoot.ms });
  }

  /** Milliseconds by which the wall clock was set since the record was written; null if unknown or after a reboot. */
  async function clockSetWhileStoppedMs(): Promise<number | null> {
    const sinceBoot = clock.sinceBoot?.() ?? null;
    const storedClock = sinceBoot === null ? undefined : await store.loadClock(source, sinceBoot.boot);
    if (sinceBoot === null || storedClock === undefined || storedClock.sinceBootMs > sinceBoot.ms) return null;
    return clock.now() - sinceBoot.ms - (storedClock.wallMs - storedClock.sinceBootMs);
  }

  function isEndpointBusy({ endpoint, sentAt }: SpentSlot): boolean {
    const lastSentMs = lastSentAtMs.get(endpoint) ?? Number.NEGATIVE_INFINITY;
    lastSentAtMs.set(endpoint, Math.max(lastSentMs, sentAt));
    return sentAt - lastSentMs <= SLOT_RECORDED_AHEAD_MS;
  }

  async function recordNextSlot(endpoint: QuotaEndpoint): Promise<void> {
    lastId += 1;
    const id = lastId;
    const untilMs = clock.monotonic() + SLOT_RECORDED_AHEAD_MS;
    slotIdsAhead.set(endpoint, id);
    const nextSlot = { id, endpoint, sentAt: clock.monotonic(), countedBy: untilMs + longestWayMs };
    const clockJumpsBefore = clockJumps;
    await store.saveDeferred(recordKey(endpoint), toStoredSlot(nextSlot));
    if (clockJumps === clockJumpsBefore && slotIdsAhead.get(endpoint) === id) usableUntilMs.set(id, untilMs);
  }

  return {
    async loadPauses() {
      const activePauses = new Map<PauseScope, number>();
      for (const pauseScope of [...QUOTA_ENDPOINTS, "everything"] as const) {
        const pause = await store.loadPause(`${source}/${pauseScope}`);
        if (pause === undefined) continue;
        // If the clock was set back by an unknown amount, the complete pause counts again.
        const leftMs = Math.min(pause.untilMs + clockSetByMs - clock.now(), pause.untilMs - pause.orderedAtMs);
        if (leftMs > 0) activePauses.set(pauseScope, clock.monotonic() + leftMs);
      }
      return activePauses;
    },
    async savePause(scope: PauseScope, untilMs: number): Promise<void> {
      const saidAtMs = Math.floor(clock.now());
      const leftMs = untilMs - clock.monotonic();
      await store.savePause(`${source}/${scope}`, { orderedAtMs: saidAtMs, untilMs: Math.ceil(saidAtMs + leftMs) });
    },
    async load() {
      const now = clock.monotonic();
      wallOffsetMs = clock.now() - now;
      const clockShiftMs = await clockSetWhileStoppedMs();
      clockSetByMs = clockShiftMs !== null && Math.abs(clockShiftMs) > CLOCK_STEP_MIN_MS ? clockShiftMs : 0;
      let hasRecord = false;
      for (const endpoint of QUOTA_ENDPOINTS) {
        for (const storedSlot of await store.load(recordKey(endpoint))) {
          hasRecord = true;
          lastId = Math.max(lastId, storedSlot.id);
          // A stored time in the future shows that the clock was set back.
          const latestCountedMs = now + longestWayMs + FIRST_SAVE_TIMEOUT_MS;
          const countedByMs = storedSlot.countedByMs + clockSetByMs - wallOffsetMs;
          const slot = { id: storedSlot.id, endpoint, sentAt: now, countedBy: Math.min(countedByMs, latestCountedMs) };
          if (slot.countedBy + occupiedMs <= now) continue;
          liveSlots.push(slot);
          if (countedByMs > latestCountedMs) await saveSlot(slot);
        }
      }
      if (clockSetByMs !== 0) await rewriteSlots(clockSetByMs);
      else if (clockShiftMs === null) await saveClockReading();
      return { slots: [...liveSlots], found: hasRecord };
    },
    idFor(endpoint: QuotaEndpoint): number {
      const id = slotIdsAhead.get(endpoint);
      slotIdsAhead.delete(endpoint);
      if (id !== undefined && usableUntilMs.has(id)) return id;
      lastId += 1;
      return lastId;
    },
    /** Makes a slot durable. Returns the time of the record: a later request may exceed the recorded bound. */
    async beforeSend(slot: SpentSlot): Promise<TimeReading> {
      await followWallClock();
      liveSlots = liveSlots.filter((each) => each.countedBy + occupiedMs > clock.monotonic());
      liveSlots.push(slot);
      const untilMs = usableUntilMs.get(slot.id) ?? Number.NEGATIVE_INFINITY;
      usableUntilMs.delete(slot.id);
      if (clock.monotonic() <= untilMs) {
        slot.sentAt = clock.monotonic();
        slot.countedBy = slot.sentAt + longestWayMs;
        return mark();
      }
      for (let withinMs = FIRST_SAVE_TIMEOUT_MS; ; withinMs *= 4) {
        const slotTakenAt = mark();
        const startedMs = slotTakenAt.monotonicMs;
        const latestCountTimeMs = startedMs + withinMs + longestWayMs;
        try {
          await saveSlot({ ...slot, sentAt: startedMs, countedBy: latestCountTimeMs });
        } catch (error) {
          liveSlots = liveSlots.filter((each) => each !== slot);
          throw error;
        }
        slot.sentAt = clock.monotonic();
        slot.countedBy = slot.sentAt + longestWayMs;
        if (slot.countedBy <= latestCountTimeMs) return slotTakenAt;
      }
    },
    /** Stores the reply time; busy endpoints record their next slot in the same transaction. */
    async afterReply(slot: SpentSlot): Promise<void> {
      await followWallClock();
      const replyTimeSaved = store.saveDeferred(recordKey(slot.endpoint), toStoredSlot(slot));
      if (isEndpointBusy(slot) && !slotIdsAhead.has(slot.endpoint)) await recordNextSlot(slot.endpoint);
      await replyTimeSaved;
      replyCount += 1;
      if (replyCount % FORGET_EVERY_REPLIES === 0)
        await store.forget(recordKey(slot.endpoint), clock.now() - SLOT_RETENTION_MS);
    },
  };
}

/** Slot of a request, occupied until `countedBy` + window: with at most N slots, no limiter of N refuses. Monotonic. */
export interface SpentSlot {
  readonly id: number;
  readonly endpoint: QuotaEndpoint;
  sentAt: number;
  /** Latest moment at which the service can have counted the request; infinite until the request leaves. */
  countedBy: number;
}

/** Freed slots are kept to explain the count that the service states. */
const FREED_SLOT_RETENTION_MS = 60_000;

export function createSpentSlots(occupiedMs: number, inherited: readonly SpentSlot[] = []) {
  let slots = [...inherited];
  /** Buffer for the sorted ends of slots, reused because each request sorts about ten times. */
  let slotEnds = new Float64Array(64);
  return {
    add(slot: SpentSlot): void {
      const oldestCountedBy = slot.sentAt - FREED_SLOT_RETENTION_MS - occupiedMs;
      slots = slots.filter((each) => each.countedBy > oldestCountedBy);
      slots.push(slot);
    },
    drop(slot: SpentSlot): void {
      slots = slots.filter((each) => each !== slot);
    },
    used: (now: number) => countSlots(slots, now - occupiedMs),
    /** Requests in the service's count beyond our own, by the widest usual way of counting (two windows). */
    unexplained(counted: number, since: number): number {
      if (counted <= countSlots(slots, since - occupiedMs)) return 0;
      return Math.max(0, counted - Math.ceil(highestWindowCount(slots, since, occupiedMs) - SLOT_TIME_TOLERANCE));
    },
    /** Returns when a slot is free: `now`, a later time, or infinity if unknown. */
    freeAt(now: number, allowed: number): number {
      if (allowed < 1) return Number.POSITIVE_INFINITY;
      if (slotEnds.length < slots.length) slotEnds = new Float64Array(2 * slots.length);
      let occupiedCount = 0;
      for (const { countedBy } of slots) {
        const end = countedBy + occupiedMs;
        if (end > now) insertSortedNumber(end, slotEnds, occupiedCount++);
      }
      if (occupiedCount < allowed) return now;
      // With 21 occupied slots and 20 allowed, a slot is free when the second slot ends.
      return slotEnds[occupiedCount - allowed] ?? now;
    },
    slots: (): readonly SpentSlot[] => slots,
  };
}

const SLOT_TIME_TOLERANCE = 1e-9;

/** Returns the highest two-window count over every possible alignment of the windows. */
function highestWindowCount(slots: readonly SpentSlot[], now: number, windowMs: number): number {
  const slotAgesMs = slots.map((slot) => now - slot.countedBy).filter((age) => age < 2 * windowMs);
  let highest = 0;
  for (const windowEdge of [0, ...slotAgesMs]) {
    const elapsedMs = windowEdge > windowMs ? windowEdge - windowMs : Math.max(0, windowEdge);
    let sum = 0;
    for (const age of slotAgesMs) {
      if (age <= elapsedMs) sum += 1;
      else if (age <= elapsedMs + windowMs) sum += 1 - elapsedMs / windowMs;
    }
    highest = Math.max(highest, sum);
  }
  return highest;
}

function countSlots(slots: readonly SpentSlot[], countedAfter: number): number {
  let sum = 0;
  for (const slot of slots) if (slot.countedBy > countedAfter) sum += 1;
  return sum;
}
