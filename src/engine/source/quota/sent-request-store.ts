import type { Clock } from "../../../core/runtime/clock.ts";
import type { ClockReader, TimeReading } from "../../../core/runtime/elapsed-time.ts";
import { insertSortedNumber } from "../../../core/runtime/moving-median.ts";
import type { QuotaSlot, QuotaStore } from "../../store/store.ts";
import { QUOTA_ENDPOINTS, type QuotaEndpoint } from "../source.ts";

export type QuotaPauseScope = QuotaEndpoint | "everything";

const FIRST_SLOT_SAVE_TIMEOUT_MS = 250;
const CLOCK_STEP_MIN_MS = 100;
const STORED_SLOT_RETENTION_MS = 3_600_000;
const FORGET_SLOTS_EVERY_REPLIES = 500;
const SLOT_PREPARED_AHEAD_MS = 10_000;

export type RequestStore = ReturnType<typeof createRequestStore>;

/** Stores each request before it leaves, so that all requests that the service counted are known after a crash. */
export function createRequestStore(options: {
  readonly store: QuotaStore;
  readonly source: string;
  readonly clock: Clock;
  readonly slotOccupiedMs: number;
  readonly maxTransitMs: number;
  readonly readClock: ClockReader;
}) {
  const { store, source, clock, slotOccupiedMs, maxTransitMs, readClock } = options;
  const endpointKey = (endpoint: QuotaEndpoint) => `${source}/${endpoint}`;
  let recentSlots: SpentRequestSlot[] = [];
  let lastSlotId = 0;
  let replyCount = 0;
  let wallClockOffsetMs = clock.now() - clock.monotonic();
  let clockStepMs = 0;
  let clockJumps = 0;
  const preparedSlotIds = new Map<QuotaEndpoint, number>();
  const lastRequestTimesMs = new Map<QuotaEndpoint, number>();
  const slotUsableUntilMs = new Map<number, number>();
  const toStoredRequestSlot = (slot: SpentRequestSlot): QuotaSlot => ({
    id: slot.id,
    sentAtMs: Math.floor(slot.sentAtMs + wallClockOffsetMs),
    countedByMs: Math.ceil(slot.countedByMs + wallClockOffsetMs),
  });
  const saveRequestSlot = (slot: SpentRequestSlot) => store.save(endpointKey(slot.endpoint), toStoredRequestSlot(slot));
  const updateWallClockOffset = async () => {
    const newWallClockOffsetMs = clock.now() - clock.monotonic();
    const clockShiftMs = newWallClockOffsetMs - wallClockOffsetMs;
    wallClockOffsetMs = newWallClockOffsetMs;
    if (Math.abs(clockShiftMs) <= CLOCK_STEP_MIN_MS) return;
    clockJumps += 1;
    slotUsableUntilMs.clear();
    await rewriteRequestSlots(clockShiftMs);
  };

  async function rewriteRequestSlots(shiftMs: number): Promise<void> {
    // This order of writes is safe in a crash: stored slots may seem later than they were, never earlier.
    if (shiftMs < 0) await saveClockReading();
    for (const slot of recentSlots) if (Number.isFinite(slot.countedByMs)) await saveRequestSlot(slot);
    if (shiftMs > 0) await saveClockReading();
  }

  async function saveClockReading(): Promise<void> {
    const sinceBoot = clock.sinceBoot?.() ?? null;
    if (sinceBoot === null) return;
    await store.saveClock(source, sinceBoot.bootId, { wallMs: clock.now(), sinceBootMs: sinceBoot.ms });
  }

  /** Returns by how much the wall clock was set while Plenum was stopped; null if unknown or after a reboot. */
  async function clockShiftWhileStoppedMs(): Promise<number | null> {
    const sinceBoot = clock.sinceBoot?.() ?? null;
    const savedClock = sinceBoot === null ? undefined : await store.loadClock(source, sinceBoot.bootId);
    if (sinceBoot === null || savedClock === undefined || savedClock.sinceBootMs > sinceBoot.ms) return null;
    return clock.now() - sinceBoot.ms - (savedClock.wallMs - savedClock.sinceBootMs);
  }

  function isEndpointBusy({ endpoint, sentAtMs }: SpentRequestSlot): boolean {
    const lastRequestSentMs = lastRequestTimesMs.get(endpoint) ?? Number.NEGATIVE_INFINITY;
    lastRequestTimesMs.set(endpoint, Math.max(lastRequestSentMs, sentAtMs));
    return sentAtMs - lastRequestSentMs <= SLOT_PREPARED_AHEAD_MS;
  }

  async function saveNextRequestSlot(endpoint: QuotaEndpoint): Promise<void> {
    lastSlotId += 1;
    const id = lastSlotId;
    const untilMs = clock.monotonic() + SLOT_PREPARED_AHEAD_MS;
    preparedSlotIds.set(endpoint, id);
    const nextRequestSlot = { id, endpoint, sentAtMs: clock.monotonic(), countedByMs: untilMs + maxTransitMs };
    const clockJumpCountBefore = clockJumps;
    await store.saveDeferred(endpointKey(endpoint), toStoredRequestSlot(nextRequestSlot));
    if (clockJumps === clockJumpCountBefore && preparedSlotIds.get(endpoint) === id) slotUsableUntilMs.set(id, untilMs);
  }

  return {
    async loadPauses() {
      const activeRequestPauses = new Map<QuotaPauseScope, number>();
      for (const pauseScope of [...QUOTA_ENDPOINTS, "everything"] as const) {
        const pause = await store.loadPause(`${source}/${pauseScope}`);
        if (pause === undefined) continue;
        // If the clock was set back by an unknown amount, the pause starts again with its full duration.
        const pauseLeftMs = Math.min(pause.untilMs + clockStepMs - clock.now(), pause.untilMs - pause.orderedAtMs);
        if (pauseLeftMs > 0) activeRequestPauses.set(pauseScope, clock.monotonic() + pauseLeftMs);
      }
      return activeRequestPauses;
    },
    async savePause(scope: QuotaPauseScope, untilMs: number): Promise<void> {
      const orderedAtMs = Math.floor(clock.now());
      const pauseLeftMs = untilMs - clock.monotonic();
      await store.savePause(`${source}/${scope}`, { orderedAtMs, untilMs: Math.ceil(orderedAtMs + pauseLeftMs) });
    },
    async loadSlots() {
      const now = clock.monotonic();
      wallClockOffsetMs = clock.now() - now;
      const clockShiftMs = await clockShiftWhileStoppedMs();
      clockStepMs = clockShiftMs !== null && Math.abs(clockShiftMs) > CLOCK_STEP_MIN_MS ? clockShiftMs : 0;
      let hasStoredSlots = false;
      for (const endpoint of QUOTA_ENDPOINTS) {
        for (const storedSlot of await store.load(endpointKey(endpoint))) {
          hasStoredSlots = true;
          lastSlotId = Math.max(lastSlotId, storedSlot.id);
          // A stored request time in the future means that the clock was set back.
          const latestCountedMs = now + maxTransitMs + FIRST_SLOT_SAVE_TIMEOUT_MS;
          const countedByMs = storedSlot.countedByMs + clockStepMs - wallClockOffsetMs;
          const slot = {
            id: storedSlot.id,
            endpoint,
            sentAtMs: now,
            countedByMs: Math.min(countedByMs, latestCountedMs),
          };
          if (slot.countedByMs + slotOccupiedMs <= now) continue;
          recentSlots.push(slot);
          if (countedByMs > latestCountedMs) await saveRequestSlot(slot);
        }
      }
      if (clockStepMs !== 0) await rewriteRequestSlots(clockStepMs);
      else if (clockShiftMs === null) await saveClockReading();
      return { slots: [...recentSlots], hasStoredSlots };
    },
    takeSlotId(endpoint: QuotaEndpoint): number {
      const id = preparedSlotIds.get(endpoint);
      preparedSlotIds.delete(endpoint);
      if (id !== undefined && slotUsableUntilMs.has(id)) return id;
      lastSlotId += 1;
      return lastSlotId;
    },
    async saveBeforeSend(slot: SpentRequestSlot): Promise<TimeReading> {
      await updateWallClockOffset();
      recentSlots = recentSlots.filter((each) => each.countedByMs + slotOccupiedMs > clock.monotonic());
      recentSlots.push(slot);
      const untilMs = slotUsableUntilMs.get(slot.id) ?? Number.NEGATIVE_INFINITY;
      slotUsableUntilMs.delete(slot.id);
      if (clock.monotonic() <= untilMs) {
        slot.sentAtMs = clock.monotonic();
        slot.countedByMs = slot.sentAtMs + maxTransitMs;
        return readClock();
      }
      for (let saveTimeMaxMs = FIRST_SLOT_SAVE_TIMEOUT_MS; ; saveTimeMaxMs *= 4) {
        const slotTakenAt = readClock();
        const startedMs = slotTakenAt.monotonicMs;
        const latestRequestCountTimeMs = startedMs + saveTimeMaxMs + maxTransitMs;
        try {
          await saveRequestSlot({ ...slot, sentAtMs: startedMs, countedByMs: latestRequestCountTimeMs });
        } catch (error) {
          recentSlots = recentSlots.filter((each) => each !== slot);
          throw error;
        }
        slot.sentAtMs = clock.monotonic();
        slot.countedByMs = slot.sentAtMs + maxTransitMs;
        if (slot.countedByMs <= latestRequestCountTimeMs) return slotTakenAt;
      }
    },
    /** Stores the reply time; for a busy endpoint, also stores its next request in the same transaction. */
    async saveAfterReply(slot: SpentRequestSlot): Promise<void> {
      await updateWallClockOffset();
      const replyTimeSave = store.saveDeferred(endpointKey(slot.endpoint), toStoredRequestSlot(slot));
      if (isEndpointBusy(slot) && !preparedSlotIds.has(slot.endpoint)) await saveNextRequestSlot(slot.endpoint);
      await replyTimeSave;
      replyCount += 1;
      if (replyCount % FORGET_SLOTS_EVERY_REPLIES === 0)
        await store.forgetSlots(endpointKey(slot.endpoint), clock.now() - STORED_SLOT_RETENTION_MS);
    },
  };
}

/** Slot of one request in the quota, free again a minute after the service counted it. Times are monotonic. */
export interface SpentRequestSlot {
  readonly id: number;
  readonly endpoint: QuotaEndpoint;
  sentAtMs: number;
  /** Latest moment at which the service can have counted the request; infinite until the request leaves. */
  countedByMs: number;
}

/** Expired slots stay stored for a minute, because the request count that the service states may include them. */
const FREED_SLOT_RETENTION_MS = 60_000;

export function createSpentRequestSlots(slotOccupiedMs: number, initialSlots: readonly SpentRequestSlot[] = []) {
  let slots = [...initialSlots];
  /** Buffer for the sorted end times of slots, reused because each request sorts them about ten times. */
  let slotEnds = new Float64Array(64);
  return {
    add(slot: SpentRequestSlot): void {
      slots = slots.filter((each) => each.countedByMs > slot.sentAtMs - FREED_SLOT_RETENTION_MS - slotOccupiedMs);
      slots.push(slot);
    },
    drop(slot: SpentRequestSlot): void {
      slots = slots.filter((each) => each !== slot);
    },
    countAt: (nowMs: number) => countRequestSlots(slots, nowMs - slotOccupiedMs),
    /** Returns the minimum number of requests that the service counted in addition to ours. */
    countUnexplained(serviceCount: number, sinceMs: number): number {
      if (serviceCount <= countRequestSlots(slots, sinceMs - slotOccupiedMs)) return 0;
      return Math.max(
        0,
        serviceCount - Math.ceil(maxSlidingWindowCount(slots, sinceMs, slotOccupiedMs) - COUNT_ROUNDING_TOLERANCE),
      );
    },
    slotFreeAtMs(nowMs: number, maxSlots: number): number {
      if (maxSlots < 1) return Number.POSITIVE_INFINITY;
      if (slotEnds.length < slots.length) slotEnds = new Float64Array(2 * slots.length);
      let occupiedCount = 0;
      for (const { countedByMs } of slots) {
        const slotEndMs = countedByMs + slotOccupiedMs;
        if (slotEndMs > nowMs) insertSortedNumber(slotEndMs, slotEnds, occupiedCount++);
      }
      if (occupiedCount < maxSlots) return nowMs;
      return slotEnds[occupiedCount - maxSlots] ?? nowMs;
    },
    slots: (): readonly SpentRequestSlot[] => slots,
  };
}

const COUNT_ROUNDING_TOLERANCE = 1e-9;

/** Returns the highest count that a sliding window of the service can have, e.g. half of the previous window plus this one. */
function maxSlidingWindowCount(slots: readonly SpentRequestSlot[], nowMs: number, windowMs: number): number {
  const requestSlotAgesMs = slots.map((slot) => nowMs - slot.countedByMs).filter((age) => age < 2 * windowMs);
  let highestCount = 0;
  for (const windowEdgeAgeMs of [0, ...requestSlotAgesMs]) {
    const elapsedMs = windowEdgeAgeMs > windowMs ? windowEdgeAgeMs - windowMs : Math.max(0, windowEdgeAgeMs);
    let requestCount = 0;
    for (const age of requestSlotAgesMs) {
      if (age <= elapsedMs) requestCount += 1;
      else if (age <= elapsedMs + windowMs) requestCount += 1 - elapsedMs / windowMs;
    }
    highestCount = Math.max(highestCount, requestCount);
  }
  return highestCount;
}

function countRequestSlots(slots: readonly SpentRequestSlot[], countedAfterMs: number): number {
  let slotCount = 0;
  for (const slot of slots) if (slot.countedByMs > countedAfterMs) slotCount += 1;
  return slotCount;
}
