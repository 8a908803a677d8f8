import PQueue from "p-queue";
import { LocalFailure } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type ClockReader, readClocks, type TimeReading } from "../../core/runtime/elapsed-time.ts";
import { createWakeup, sleepUntilWoken } from "../../core/runtime/waiting.ts";
import type { ListRate } from "./source.ts";

/** `urgent`: requests that alarms depend on. `tags`: the long lists of tags. `other`: gateways, hosts and systems. */
export type ListLane = "alarms" | "urgent" | "other" | "tags";

/** Window of the limit: a minute of the service, and a second for requests that travel at different speeds. */
const WINDOW_MS = 61_000;
/** Wait after which a list request may use any free slot, also one reserved for alarms. */
const QUEUE_WAIT_MAX_MS = 2 * WINDOW_MS;
const REFUSAL_WINDOW_MS = 60_000;
const RATE_RECOVERY_INTERVAL_MS = 600_000;
const REFUSAL_LIFETIME_MS = 86_400_000;
const URGENT_SHARE = 1 / 3;
/** Requests a minute that only the active alarms use: a page every 30 s. */
const ALARM_SLOTS_PER_MINUTE = 2;
const RESERVED_SLOTS = ALARM_SLOTS_PER_MINUTE + 1;
const OTHER_SLOTS_PER_TAGS_SLOT = 2;
/** Pause after a list of tags, so that the next short list can start first. */
const PAUSE_AFTER_TAG_LIST_MS = 1_000;
const LIST_RATE_MIN = ALARM_SLOTS_PER_MINUTE + 1;
/** Minutes in a row with refusals (429, wait of 0 s) that prove a limit of the service. */
const MINUTES_WITH_ZERO_WAIT_MIN = 3;
const NEVER_MS = Number.NEGATIVE_INFINITY;
const UNKNOWN_START_MS = Number.POSITIVE_INFINITY;

export type ListRateLimit = ReturnType<typeof createListRateLimit>;

/**
 * Limits requests to lists, for which the interface states no limit. Refusals of one minute halve the rate once, at
 * most to what that minute granted. Two requests a minute are for active alarms, a third of the rate is for urgent
 * lists. Other lanes borrow all but three slots of that third: of 30 a minute, 20 at once and 27 in a minute.
 */
export function createListRateLimit(perMinute: number, clock: Clock, mark: ClockReader = () => readClocks(clock)) {
  const oneAtATime = () => new PQueue({ concurrency: 1 });
  const queues = { alarms: oneAtATime(), urgent: oneAtATime(), other: oneAtATime(), tags: oneAtATime() };
  const waitingLanes = new Set<ListLane>();
  const slotsChanged = createWakeup();
  let usedSlots: { readonly atMs: number; readonly lane: ListLane }[] = [];
  let othersInARow = 0;
  let lastOtherMs = NEVER_MS;
  let lastNotAlarmsMs = NEVER_MS;
  let pausedUntilMs = NEVER_MS;
  let isTrialPermitted = false;
  let lowRate: { readonly atMs: number; readonly rate: number; readonly ceiling: number } | null = null;
  let zeroWaitRefusals = { atMs: NEVER_MS, minutes: 0 };
  let statedLimit = UNKNOWN_START_MS;

  function ratePerMinuteAt(nowMs: number): number {
    const limit = Math.min(perMinute, statedLimit);
    if (lowRate === null) return limit;
    const ageMs = nowMs - lowRate.atMs;
    const recoveredRate = lowRate.rate + Math.floor(ageMs / RATE_RECOVERY_INTERVAL_MS);
    return Math.min(limit, recoveredRate, ageMs < REFUSAL_LIFETIME_MS ? lowRate.ceiling : limit);
  }

  function slotFreeAtMs(among: typeof usedSlots, most: number, windowMs = WINDOW_MS): number {
    const blockingStart = among.at(-most);
    return blockingStart === undefined ? NEVER_MS : blockingStart.atMs + windowMs;
  }

  /** Time of the next borrowed slot: at 30 a minute, start 21 comes 7.6 s after the first, start 27 after 53 s. */
  function borrowedSlotAtMs(allowed: number): number {
    const urgentSlots = Math.floor(allowed * URGENT_SHARE);
    const lendable = Math.max(0, urgentSlots - RESERVED_SLOTS);
    const slotTimesMs = Array.from({ length: lendable + 1 }, (_, lent) =>
      slotFreeAtMs(usedSlots, Math.max(1, allowed - urgentSlots + lent), (WINDOW_MS * (lent + 1)) / (lendable + 1)),
    );
    return Math.max(...slotTimesMs);
  }

  function turnOfLaneAtMs(lane: ListLane): number {
    const isTurnOfTagLists = othersInARow >= OTHER_SLOTS_PER_TAGS_SLOT;
    if (lane === "tags" && !isTurnOfTagLists)
      return waitingLanes.has("other") ? UNKNOWN_START_MS : lastOtherMs + PAUSE_AFTER_TAG_LIST_MS;
    return lane === "other" && isTurnOfTagLists && waitingLanes.has("tags") ? UNKNOWN_START_MS : NEVER_MS;
  }

  function waitMs(lane: ListLane, sinceMs: number): number {
    const nowMs = clock.monotonic();
    usedSlots = usedSlots.filter(({ atMs }) => atMs > nowMs - WINDOW_MS);
    const maxSlots = ratePerMinuteAt(nowMs);
    const mayTakeAnySlot = lane === "alarms" || lane === "urgent" || nowMs - sinceMs >= QUEUE_WAIT_MAX_MS;
    const slotAtMs = mayTakeAnySlot ? slotFreeAtMs(usedSlots, maxSlots) : borrowedSlotAtMs(maxSlots);
    let atMs = Math.max(slotAtMs, turnOfLaneAtMs(lane));
    if (lane !== "alarms") {
      const maxOther = maxSlots - ALARM_SLOTS_PER_MINUTE;
      const otherSlots = usedSlots.filter((start) => start.lane !== "alarms");
      // If the service permits no more than the alarms need, other lists get one request in two minutes.
      atMs = Math.max(atMs, maxOther >= 1 ? slotFreeAtMs(otherSlots, maxOther) : lastNotAlarmsMs + QUEUE_WAIT_MAX_MS);
    }
    return Math.max(atMs - nowMs, isTrialPermitted ? 0 : pausedUntilMs - nowMs, 0);
  }

  async function takeSlot(lane: ListLane, signal: AbortSignal): Promise<TimeReading> {
    const queuedSinceMs = clock.monotonic();
    waitingLanes.add(lane);
    try {
      signal.throwIfAborted();
      for (let ms = waitMs(lane, queuedSinceMs); ms > 0; ms = waitMs(lane, queuedSinceMs)) {
        await sleepUntilWoken(clock, ms, slotsChanged, signal);
        signal.throwIfAborted();
      }
      isTrialPermitted = false;
      const slotTakenAt = mark();
      usedSlots.push({ atMs: slotTakenAt.monotonicMs, lane });
      if (lane !== "alarms") lastNotAlarmsMs = slotTakenAt.monotonicMs;
      if (lane === "other") lastOtherMs = slotTakenAt.monotonicMs;
      if (lane === "other") othersInARow += 1;
      if (lane === "tags") othersInARow = 0;
      return slotTakenAt;
    } finally {
      waitingLanes.delete(lane);
      slotsChanged.wakeUp();
    }
  }

  function pause(forMs: number): void {
    pausedUntilMs = Math.max(pausedUntilMs, clock.monotonic() + forMs);
  }

  function isZeroWaitRepeated(nowMs: number): boolean {
    const ageMs = nowMs - zeroWaitRefusals.atMs;
    if (ageMs > MINUTES_WITH_ZERO_WAIT_MIN * REFUSAL_WINDOW_MS) zeroWaitRefusals = { atMs: nowMs, minutes: 1 };
    else if (ageMs >= REFUSAL_WINDOW_MS) zeroWaitRefusals = { atMs: nowMs, minutes: zeroWaitRefusals.minutes + 1 };
    return zeroWaitRefusals.minutes >= MINUTES_WITH_ZERO_WAIT_MIN;
  }

  return {
    run<T>(task: (slotTaken: TimeReading) => Promise<T>, signal: AbortSignal, lane: ListLane = "other"): Promise<T> {
      const runInSlot = async () => {
        const slotTakenAt = await takeSlot(lane, signal);
        try {
          return await task(slotTakenAt);
        } catch (error) {
          // The request never left this machine, so the service has not counted it.
          const unsentStartMs = error instanceof LocalFailure ? slotTakenAt.monotonicMs : null;
          const unsentIndex = usedSlots.findLastIndex(({ atMs }) => atMs === unsentStartMs);
          if (unsentIndex >= 0) usedSlots.splice(unsentIndex, 1);
          throw error;
        }
      };
      return queues[lane].add(runInSlot, { signal });
    },
    pause,
    release(): void {
      pausedUntilMs = NEVER_MS;
      slotsChanged.wakeUp();
    },
    permitTrial(isPermitted: boolean): void {
      isTrialPermitted = isPermitted;
      if (isPermitted) slotsChanged.wakeUp();
    },
    /** `startedMs`: monotonic time at which the refused request left. `saysNow`: the service said to wait 0 s. */
    refused(startedMs: number, forMs: number, saysNow = false): void {
      const nowMs = clock.monotonic();
      const isEvidence = !saysNow || isZeroWaitRepeated(nowMs);
      // A refusal within a minute, or of a request under way, says nothing new about the limit.
      const isNew = lowRate === null || (startedMs > lowRate.atMs && nowMs - lowRate.atMs >= REFUSAL_WINDOW_MS);
      if (isEvidence && isNew) {
        const rate = ratePerMinuteAt(nowMs);
        const grantedCount = usedSlots.filter(({ atMs }) => atMs > nowMs - WINDOW_MS && atMs < startedMs).length;
        const halfRate = Math.max(Math.min(LIST_RATE_MIN, rate), Math.floor(rate / 2));
        // A refusal after a few requests shows another client and must not slow the alarms down for a day.
        const rateCeiling = Math.max(1, grantedCount >= rate / 3 ? grantedCount : perMinute);
        lowRate = { atMs: nowMs, ceiling: rateCeiling, rate: Math.min(halfRate, rateCeiling) };
      }
      pause(forMs);
    },
    observe({ limit, remaining }: { readonly limit: number | null; readonly remaining: number | null }): void {
      if (limit === 0) return;
      if (limit !== null) statedLimit = limit;
      const oldestStart = usedSlots[0];
      if (remaining === 0 && oldestStart !== undefined) pause(oldestStart.atMs + WINDOW_MS - clock.monotonic());
    },
    rate: (): ListRate => ({ perMinute: ratePerMinuteAt(clock.monotonic()), configured: perMinute }),
  };
}
