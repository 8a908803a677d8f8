import PQueue from "p-queue";
import { LocalFailure } from "../../core/errors/errors.ts";
import type { Clock } from "../../core/runtime/clock.ts";
import { type ClockReader, readClocks, type TimeReading } from "../../core/runtime/elapsed-time.ts";
import { createWakeup, sleepUntilWoken } from "../../core/runtime/waiting.ts";
import type { ListRequestRate } from "./source.ts";

/** `urgent`: requests that alarms depend on. `tags`: the long lists of tags. `other`: gateways, hosts and systems. */
export type ListLane = "alarms" | "urgent" | "other" | "tags";

/** Time window of the rate limit of lists: a minute, and a second for delays of the network. */
const LIST_WINDOW_MS = 61_000;
/** Wait after which a list request may use any free slot, also one reserved for alarms. */
const QUEUE_WAIT_MAX_MS = 2 * LIST_WINDOW_MS;
const REFUSAL_WINDOW_MS = 60_000;
const LIST_RATE_RECOVERY_INTERVAL_MS = 600_000;
const REFUSAL_LIFETIME_MS = 86_400_000;
const URGENT_LIST_RATE_SHARE = 1 / 3;
const ALARM_REQUESTS_PER_MINUTE = 2;
const RESERVED_REQUESTS_PER_MINUTE = ALARM_REQUESTS_PER_MINUTE + 1;
const OTHER_LISTS_PER_TAG_LIST = 2;
const PAUSE_AFTER_TAG_LIST_MS = 1_000;
const LIST_RATE_MIN = ALARM_REQUESTS_PER_MINUTE + 1;
const ZERO_WAIT_MINUTES_MIN = 3;
const LONG_AGO_MS = Number.NEGATIVE_INFINITY;
const NEVER_MS = Number.POSITIVE_INFINITY;

export type ListRateLimit = ReturnType<typeof createListRateLimit>;

/** Limits list requests. A minute with refusals halves the rate; a third of the rate is reserved for urgent lists. */
export function createListRateLimit(perMinute: number, clock: Clock, readClock: ClockReader = () => readClocks(clock)) {
  const serialQueue = () => new PQueue({ concurrency: 1 });
  const listQueues = { alarms: serialQueue(), urgent: serialQueue(), other: serialQueue(), tags: serialQueue() };
  const waitingListLanes = new Set<ListLane>();
  const requestSlotsChanged = createWakeup();
  let usedSlots: { readonly atMs: number; readonly lane: ListLane }[] = [];
  let otherListsInARow = 0;
  let lastOtherListMs = LONG_AGO_MS;
  let lastNonAlarmListMs = LONG_AGO_MS;
  let listsPausedUntilMs = LONG_AGO_MS;
  let isTrialRequestPermitted = false;
  let reducedRate: { readonly atMs: number; readonly rate: number; readonly ceiling: number } | null = null;
  let zeroWaitRefusals = { atMs: LONG_AGO_MS, minutes: 0 };
  let statedListLimit = NEVER_MS;

  function listRatePerMinuteAt(nowMs: number): number {
    const listLimit = Math.min(perMinute, statedListLimit);
    if (reducedRate === null) return listLimit;
    const refusalAgeMs = nowMs - reducedRate.atMs;
    const recoveredRate = reducedRate.rate + Math.floor(refusalAgeMs / LIST_RATE_RECOVERY_INTERVAL_MS);
    return Math.min(listLimit, recoveredRate, refusalAgeMs < REFUSAL_LIFETIME_MS ? reducedRate.ceiling : listLimit);
  }

  function slotFreeAtMs(slots: typeof usedSlots, maxSlots: number, windowMs = LIST_WINDOW_MS): number {
    const blockingRequest = slots.at(-maxSlots);
    return blockingRequest === undefined ? LONG_AGO_MS : blockingRequest.atMs + windowMs;
  }

  /** Returns the time at which a list request that is not urgent may use a slot reserved for urgent lists. */
  function sharedSlotFreeAtMs(maxSlots: number): number {
    const urgentSlots = Math.floor(maxSlots * URGENT_LIST_RATE_SHARE);
    const shareableSlots = Math.max(0, urgentSlots - RESERVED_REQUESTS_PER_MINUTE);
    const requestSlotTimesMs = Array.from({ length: shareableSlots + 1 }, (_, sharedCount) =>
      slotFreeAtMs(
        usedSlots,
        Math.max(1, maxSlots - urgentSlots + sharedCount),
        (LIST_WINDOW_MS * (sharedCount + 1)) / (shareableSlots + 1),
      ),
    );
    return Math.max(...requestSlotTimesMs);
  }

  function laneAllowedAtMs(lane: ListLane): number {
    const areTagListsNext = otherListsInARow >= OTHER_LISTS_PER_TAG_LIST;
    if (lane === "tags" && !areTagListsNext)
      return waitingListLanes.has("other") ? NEVER_MS : lastOtherListMs + PAUSE_AFTER_TAG_LIST_MS;
    return lane === "other" && areTagListsNext && waitingListLanes.has("tags") ? NEVER_MS : LONG_AGO_MS;
  }

  function listWaitMs(lane: ListLane, queuedSinceMs: number): number {
    const nowMs = clock.monotonic();
    usedSlots = usedSlots.filter(({ atMs }) => atMs > nowMs - LIST_WINDOW_MS);
    const maxSlots = listRatePerMinuteAt(nowMs);
    const mayTakeAnySlot = lane === "alarms" || lane === "urgent" || nowMs - queuedSinceMs >= QUEUE_WAIT_MAX_MS;
    const slotAtMs = mayTakeAnySlot ? slotFreeAtMs(usedSlots, maxSlots) : sharedSlotFreeAtMs(maxSlots);
    let freeAtMs = Math.max(slotAtMs, laneAllowedAtMs(lane));
    if (lane !== "alarms") {
      const maxOtherLists = maxSlots - ALARM_REQUESTS_PER_MINUTE;
      const otherListSlots = usedSlots.filter((slot) => slot.lane !== "alarms");
      // If the service permits no more than the alarms need, other lists get one request in two minutes.
      freeAtMs = Math.max(
        freeAtMs,
        maxOtherLists >= 1 ? slotFreeAtMs(otherListSlots, maxOtherLists) : lastNonAlarmListMs + QUEUE_WAIT_MAX_MS,
      );
    }
    return Math.max(freeAtMs - nowMs, isTrialRequestPermitted ? 0 : listsPausedUntilMs - nowMs, 0);
  }

  async function takeListRequestSlot(lane: ListLane, signal: AbortSignal): Promise<TimeReading> {
    const requestQueuedSinceMs = clock.monotonic();
    waitingListLanes.add(lane);
    try {
      signal.throwIfAborted();
      for (let ms = listWaitMs(lane, requestQueuedSinceMs); ms > 0; ms = listWaitMs(lane, requestQueuedSinceMs)) {
        await sleepUntilWoken(clock, ms, requestSlotsChanged, signal);
        signal.throwIfAborted();
      }
      isTrialRequestPermitted = false;
      const requestSlotTakenAt = readClock();
      usedSlots.push({ atMs: requestSlotTakenAt.monotonicMs, lane });
      if (lane !== "alarms") lastNonAlarmListMs = requestSlotTakenAt.monotonicMs;
      if (lane === "other") lastOtherListMs = requestSlotTakenAt.monotonicMs;
      if (lane === "other") otherListsInARow += 1;
      if (lane === "tags") otherListsInARow = 0;
      return requestSlotTakenAt;
    } finally {
      waitingListLanes.delete(lane);
      requestSlotsChanged.wakeUp();
    }
  }

  function pauseLists(durationMs: number): void {
    listsPausedUntilMs = Math.max(listsPausedUntilMs, clock.monotonic() + durationMs);
  }

  function isZeroWaitRefusalRepeated(nowMs: number): boolean {
    const refusalAgeMs = nowMs - zeroWaitRefusals.atMs;
    if (refusalAgeMs > ZERO_WAIT_MINUTES_MIN * REFUSAL_WINDOW_MS) zeroWaitRefusals = { atMs: nowMs, minutes: 1 };
    else if (refusalAgeMs >= REFUSAL_WINDOW_MS)
      zeroWaitRefusals = { atMs: nowMs, minutes: zeroWaitRefusals.minutes + 1 };
    return zeroWaitRefusals.minutes >= ZERO_WAIT_MINUTES_MIN;
  }

  return {
    run<T>(task: (slotTime: TimeReading) => Promise<T>, signal: AbortSignal, lane: ListLane = "other"): Promise<T> {
      const runInListRequestSlot = async () => {
        const requestSlotTakenAt = await takeListRequestSlot(lane, signal);
        try {
          return await task(requestSlotTakenAt);
        } catch (error) {
          // The service has not counted a request that never left this machine.
          const unsentRequestStartMs = error instanceof LocalFailure ? requestSlotTakenAt.monotonicMs : null;
          const unsentRequestIndex = usedSlots.findLastIndex(({ atMs }) => atMs === unsentRequestStartMs);
          if (unsentRequestIndex >= 0) usedSlots.splice(unsentRequestIndex, 1);
          throw error;
        }
      };
      return listQueues[lane].add(runInListRequestSlot, { signal });
    },
    pause: pauseLists,
    endPause(): void {
      listsPausedUntilMs = LONG_AGO_MS;
      requestSlotsChanged.wakeUp();
    },
    permitTrial(isPermitted: boolean): void {
      isTrialRequestPermitted = isPermitted;
      if (isPermitted) requestSlotsChanged.wakeUp();
    },
    /** `startedMs`: monotonic time at which the refused request left. `noWait`: the service said to wait 0 s. */
    noteRefusal(startedMs: number, durationMs: number, noWait = false): void {
      const nowMs = clock.monotonic();
      const provesListRateLimit = !noWait || isZeroWaitRefusalRepeated(nowMs);
      // Ignore a second refusal within a minute: it proves no lower limit than the first.
      const isNewRefusal =
        reducedRate === null || (startedMs > reducedRate.atMs && nowMs - reducedRate.atMs >= REFUSAL_WINDOW_MS);
      if (provesListRateLimit && isNewRefusal) {
        const listRate = listRatePerMinuteAt(nowMs);
        const sentCount = usedSlots.filter(({ atMs }) => atMs > nowMs - LIST_WINDOW_MS && atMs < startedMs).length;
        const halfListRate = Math.max(Math.min(LIST_RATE_MIN, listRate), Math.floor(listRate / 2));
        // A refusal after only a few requests points to another client and must not slow the alarm lists for a day.
        const maxListRate = Math.max(1, sentCount >= listRate / 3 ? sentCount : perMinute);
        reducedRate = { atMs: nowMs, ceiling: maxListRate, rate: Math.min(halfListRate, maxListRate) };
      }
      pauseLists(durationMs);
    },
    observeRateLimit({ limit, remaining }: { readonly limit: number | null; readonly remaining: number | null }): void {
      if (limit === 0) return;
      if (limit !== null) statedListLimit = limit;
      const oldestRequest = usedSlots[0];
      if (remaining === 0 && oldestRequest !== undefined)
        pauseLists(oldestRequest.atMs + LIST_WINDOW_MS - clock.monotonic());
    },
    rate: (): ListRequestRate => ({ perMinute: listRatePerMinuteAt(clock.monotonic()), configured: perMinute }),
  };
}
