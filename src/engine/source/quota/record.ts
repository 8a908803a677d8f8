import type { Clock } from "../../../core/runtime/clock.ts";
import type { ReadClock, TimePoint } from "../../../core/runtime/elapsed-time.ts";
import { insertSorted } from "../../../core/runtime/last-median.ts";
import type { QuotaSlot, QuotaStore } from "../../store/store.ts";
import { QUOTA_ENDPOINTS, type QuotaEndpoint } from "../source.ts";

export type PauseScope = QuotaEndpoint | "everything";

interface QuotaRecordOptions {
  readonly store: QuotaStore;
  readonly source: string;
  readonly clock: Clock;
  readonly occupiedMs: number;
  readonly longestWayMs: number;
  readonly mark: ReadClock;
}

const FIRST_SAVE_LIMIT_MS = 250;
/** Smaller changes of the wall clock are gradual corrections by a time server. */
const CLOCK_STEP_MIN_MS = 100;
const SLOT_RETENTION_MS = 3_600_000;
const FORGET_EVERY_REPLIES = 500;
const RECORD_AHEAD_MS = 10_000;

export type QuotaRecord = ReturnType<typeof createQuotaRecord>;

/** Stores each slot before its request leaves, so after a kill the record contains at least what the service counts. */
export function createQuotaRecord(options: QuotaRecordOptions) {
  const { store, source, clock, occupiedMs, longestWayMs, mark } = options;
  const keyOf = (endpoint: QuotaEndpoint) => `${source}/${endpoint}`;
  let liveSlots: SpentSlot[] = [];
  let lastId = 0;
  let replies = 0;
  let wallOffset = clock.now() - clock.monotonic();
  let clockSetByMs = 0;
  let jumps = 0;
  const slotIdsAhead = new Map<QuotaEndpoint, number>();
  const lastSentAtMs = new Map<QuotaEndpoint, number>();
  const usableUntilMs = new Map<number, number>();

  const stored = (slot: SpentSlot): QuotaSlot => ({
    id: slot.id,
    sentAtMs: Math.floor(slot.sentAt + wallOffset),
    countedByMs: Math.ceil(slot.countedBy + wallOffset),
  });

  const save = (slot: SpentSlot) => store.save(keyOf(slot.endpoint), stored(slot));

  const followWallClock = async () => {
    const offset = clock.now() - clock.monotonic();
    const byMs = offset - wallOffset;
    wallOffset = offset;
    if (Math.abs(byMs) <= CLOCK_STEP_MIN_MS) return;
    jumps += 1;
    usableUntilMs.clear();
    await rewrite(byMs);
  };

  async function rewrite(byMs: number): Promise<void> {
    // After a kill in between, the next start takes the slots for later than they were, never for earlier.
    if (byMs < 0) await markClock();
    for (const slot of liveSlots) if (Number.isFinite(slot.countedBy)) await save(slot);
    if (byMs > 0) await markClock();
  }

  async function markClock(): Promise<void> {
    const since = clock.sinceBoot?.() ?? null;
    if (since === null) return;
    await store.saveClock(source, since.boot, { wallMs: clock.now(), sinceBootMs: since.ms });
  }

  /** Milliseconds by which the wall clock was set since the record was written; null if unknown or after a reboot. */
  async function clockSetMeanwhileMs(): Promise<number | null> {
    const since = clock.sinceBoot?.() ?? null;
    const before = since === null ? undefined : await store.loadClock(source, since.boot);
    if (since === null || before === undefined || before.sinceBootMs > since.ms) return null;
    return clock.now() - since.ms - (before.wallMs - before.sinceBootMs);
  }

  function isFollowed({ endpoint, sentAt }: SpentSlot): boolean {
    const before = lastSentAtMs.get(endpoint) ?? Number.NEGATIVE_INFINITY;
    lastSentAtMs.set(endpoint, Math.max(before, sentAt));
    return sentAt - before <= RECORD_AHEAD_MS;
  }

  async function recordAhead(endpoint: QuotaEndpoint): Promise<void> {
    lastId += 1;
    const id = lastId;
    const untilMs = clock.monotonic() + RECORD_AHEAD_MS;
    slotIdsAhead.set(endpoint, id);
    const slot = { id, endpoint, sentAt: clock.monotonic(), countedBy: untilMs + longestWayMs };
    const jumpsBefore = jumps;
    await store.saveDeferred(keyOf(endpoint), stored(slot));
    if (jumps === jumpsBefore && slotIdsAhead.get(endpoint) === id) usableUntilMs.set(id, untilMs);
  }

  return {
    async loadPauses() {
      const holds = new Map<PauseScope, number>();
      for (const scope of [...QUOTA_ENDPOINTS, "everything"] as const) {
        const hold = await store.loadPause(`${source}/${scope}`);
        if (hold === undefined) continue;
        // If the clock was set back by an unknown amount, the complete pause counts again.
        const leftMs = Math.min(hold.untilMs + clockSetByMs - clock.now(), hold.untilMs - hold.orderedAtMs);
        if (leftMs > 0) holds.set(scope, clock.monotonic() + leftMs);
      }
      return holds;
    },
    async savePause(scope: PauseScope, untilMs: number): Promise<void> {
      const saidAtMs = Math.floor(clock.now());
      const leftMs = untilMs - clock.monotonic();
      await store.savePause(`${source}/${scope}`, { orderedAtMs: saidAtMs, untilMs: Math.ceil(saidAtMs + leftMs) });
    },
    async load() {
      const now = clock.monotonic();
      wallOffset = clock.now() - now;
      const byMs = await clockSetMeanwhileMs();
      clockSetByMs = byMs !== null && Math.abs(byMs) > CLOCK_STEP_MIN_MS ? byMs : 0;
      let found = false;
      for (const endpoint of QUOTA_ENDPOINTS) {
        for (const stored of await store.load(keyOf(endpoint))) {
          found = true;
          lastId = Math.max(lastId, stored.id);
          // A stored time in the future shows that the clock was set back.
          const latest = now + longestWayMs + FIRST_SAVE_LIMIT_MS;
          const countedByMs = stored.countedByMs + clockSetByMs - wallOffset;
          const slot = { id: stored.id, endpoint, sentAt: now, countedBy: Math.min(countedByMs, latest) };
          if (slot.countedBy + occupiedMs <= now) continue;
          liveSlots.push(slot);
          if (countedByMs > latest) await save(slot);
        }
      }
      if (clockSetByMs !== 0) await rewrite(clockSetByMs);
      else if (byMs === null) await markClock();
      return { slots: [...liveSlots], found };
    },
    idFor(endpoint: QuotaEndpoint): number {
      const id = slotIdsAhead.get(endpoint);
      slotIdsAhead.delete(endpoint);
      if (id !== undefined && usableUntilMs.has(id)) return id;
      lastId += 1;
      return lastId;
    },
    /** Makes a slot durable. Returns the time of the record: a later request may exceed the recorded bound. */
    async beforeSend(slot: SpentSlot): Promise<TimePoint> {
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
      for (let withinMs = FIRST_SAVE_LIMIT_MS; ; withinMs *= 4) {
        const since = mark();
        const began = since.monotonicMs;
        const bound = began + withinMs + longestWayMs;
        try {
          await save({ ...slot, sentAt: began, countedBy: bound });
        } catch (error) {
          liveSlots = liveSlots.filter((each) => each !== slot);
          throw error;
        }
        slot.sentAt = clock.monotonic();
        slot.countedBy = slot.sentAt + longestWayMs;
        if (slot.countedBy <= bound) return since;
      }
    },
    /** Stores the reply time; busy endpoints record their next slot in the same transaction. */
    async afterReply(slot: SpentSlot): Promise<void> {
      await followWallClock();
      const noted = store.saveDeferred(keyOf(slot.endpoint), stored(slot));
      if (isFollowed(slot) && !slotIdsAhead.has(slot.endpoint)) await recordAhead(slot.endpoint);
      await noted;
      replies += 1;
      if (replies % FORGET_EVERY_REPLIES === 0)
        await store.forget(keyOf(slot.endpoint), clock.now() - SLOT_RETENTION_MS);
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
  let ends = new Float64Array(64);
  return {
    add(slot: SpentSlot): void {
      const oldest = slot.sentAt - FREED_SLOT_RETENTION_MS - occupiedMs;
      slots = slots.filter((each) => each.countedBy > oldest);
      slots.push(slot);
    },
    drop(slot: SpentSlot): void {
      slots = slots.filter((each) => each !== slot);
    },
    used: (now: number) => countSlots(slots, now - occupiedMs),
    /** Requests in the service's count beyond our own, by the widest usual way of counting (two windows). */
    unexplained(counted: number, since: number): number {
      if (counted <= countSlots(slots, since - occupiedMs)) return 0;
      return Math.max(0, counted - Math.ceil(highestWindowCount(slots, since, occupiedMs) - ROUNDING_TOLERANCE));
    },
    /** Returns when a slot is free: `now`, a later time, or infinity if unknown. */
    freeAt(now: number, allowed: number): number {
      if (allowed < 1) return Number.POSITIVE_INFINITY;
      if (ends.length < slots.length) ends = new Float64Array(2 * slots.length);
      let occupied = 0;
      for (const { countedBy } of slots) {
        const end = countedBy + occupiedMs;
        if (end > now) insertSorted(end, ends, occupied++);
      }
      if (occupied < allowed) return now;
      // With 21 occupied slots and 20 allowed, a slot is free when the second slot ends.
      return ends[occupied - allowed] ?? now;
    },
    slots: (): readonly SpentSlot[] => slots,
  };
}

const ROUNDING_TOLERANCE = 1e-9;

/** Returns the highest two-window count over every possible alignment of the windows. */
function highestWindowCount(slots: readonly SpentSlot[], now: number, windowMs: number): number {
  const ages = slots.map((slot) => now - slot.countedBy).filter((age) => age < 2 * windowMs);
  let highest = 0;
  for (const edge of [0, ...ages]) {
    const elapsed = edge > windowMs ? edge - windowMs : Math.max(0, edge);
    let sum = 0;
    for (const age of ages) {
      if (age <= elapsed) sum += 1;
      else if (age <= elapsed + windowMs) sum += 1 - elapsed / windowMs;
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
