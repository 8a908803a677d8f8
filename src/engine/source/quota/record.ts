import type { Clock } from "../../../core/runtime/clock.ts";
import { insertSorted } from "../../../core/runtime/last-median.ts";
import type { Mark, Moment } from "../../../core/runtime/moment.ts";
import type { QuotaSlot, QuotaStore } from "../../store/store.ts";
import { QUOTA_ENDPOINTS, type QuotaEndpoint } from "../source.ts";

export type PauseScope = QuotaEndpoint | "everything";

interface QuotaRecordOptions {
  readonly store: QuotaStore;
  readonly source: string;
  readonly clock: Clock;
  /** How long a slot is occupied after the service counted it, in milliseconds. */
  readonly occupiedMs: number;
  /** The longest believable way of a request to the service, in milliseconds. */
  readonly longestWayMs: number;
  readonly mark: Mark;
}

/** A slower save is repeated with a later bound. */
const SAVE_WITHIN_MS = 250;
/** Smallest change of the wall clock that is a step and no slewing of a time server. */
const JUMP_MS = 100;
/** Age after which stored slots are dropped; the newest stay as proof that a record exists. */
const KEEP_MS = 3_600_000;
const FORGET_EVERY_REPLIES = 500;
/** How long a slot that was recorded ahead is usable, in milliseconds. */
const AHEAD_MS = 10_000;

export type QuotaRecord = ReturnType<typeof createQuotaRecord>;

/**
 * Stores the spent slots for the next process. A slot is durable before its request leaves, with the latest time at which
 * the service can count it. So after a kill at any moment the record contains at least what the service counts. Stored
 * times are wall times; where the wall clock was set, they are corrected first.
 */
export function createQuotaRecord(options: QuotaRecordOptions) {
  const { store, source, clock, occupiedMs, longestWayMs, mark } = options;
  const keyOf = (endpoint: QuotaEndpoint) => `${source}/${endpoint}`;
  let live: Slot[] = [];
  let lastId = 0;
  let replies = 0;
  let wallOffset = clock.now() - clock.monotonic();
  /** How far the wall clock was set between the last process and this one; 0 if unknown. */
  let setByMs = 0;
  /** How often the wall clock was set since the start. */
  let jumps = 0;
  /** Ids of the slots recorded ahead and times of the last requests, by endpoint. */
  const ahead = new Map<QuotaEndpoint, number>();
  const leftAtMs = new Map<QuotaEndpoint, number>();
  const usableUntilMs = new Map<number, number>();

  const stored = (slot: Slot): QuotaSlot => ({
    id: slot.id,
    sentAtMs: Math.floor(slot.sentAt + wallOffset),
    countedByMs: Math.ceil(slot.countedBy + wallOffset),
  });

  const save = (slot: Slot) => store.save(keyOf(slot.endpoint), stored(slot));

  const followWallClock = async () => {
    const offset = clock.now() - clock.monotonic();
    const byMs = offset - wallOffset;
    wallOffset = offset;
    if (Math.abs(byMs) <= JUMP_MS) return;
    jumps += 1;
    // Their stored times have another meaning now.
    usableUntilMs.clear();
    await rewrite(byMs);
  };

  /** Stores the slots again after the wall clock was set. */
  async function rewrite(byMs: number): Promise<void> {
    // After a kill in between, the next start takes the slots for later than they were, never for earlier.
    if (byMs < 0) await markClock();
    for (const slot of live) if (Number.isFinite(slot.countedBy)) await save(slot);
    if (byMs > 0) await markClock();
  }

  async function markClock(): Promise<void> {
    const since = clock.sinceBoot?.() ?? null;
    if (since === null) return;
    await store.saveClock(source, since.boot, { wallMs: clock.now(), sinceBootMs: since.ms });
  }

  /**
   * Returns by how many milliseconds the wall clock was set since the record was written, even while no process ran.
   * Null if unknown, or after a restart of the machine.
   */
  async function setMeanwhileMs(): Promise<number | null> {
    const since = clock.sinceBoot?.() ?? null;
    const before = since === null ? undefined : await store.loadClock(source, since.boot);
    if (since === null || before === undefined || before.sinceBootMs > since.ms) return null;
    return clock.now() - since.ms - (before.wallMs - before.sinceBootMs);
  }

  /** True if a request follows another of its endpoint within 10 s. */
  function isFollowed({ endpoint, sentAt }: Slot): boolean {
    const before = leftAtMs.get(endpoint) ?? Number.NEGATIVE_INFINITY;
    leftAtMs.set(endpoint, Math.max(before, sentAt));
    return sentAt - before <= AHEAD_MS;
  }

  async function recordAhead(endpoint: QuotaEndpoint): Promise<void> {
    lastId += 1;
    const id = lastId;
    const untilMs = clock.monotonic() + AHEAD_MS;
    ahead.set(endpoint, id);
    const slot = { id, endpoint, sentAt: clock.monotonic(), countedBy: untilMs + longestWayMs };
    const jumpsBefore = jumps;
    await store.saveDeferred(keyOf(endpoint), stored(slot));
    if (jumps === jumpsBefore && ahead.get(endpoint) === id) usableUntilMs.set(id, untilMs);
  }

  return {
    /** Stored pauses that are not over, as monotonic times. */
    async loadPauses() {
      const holds = new Map<PauseScope, number>();
      for (const scope of [...QUOTA_ENDPOINTS, "everything"] as const) {
        const hold = await store.loadHold(`${source}/${scope}`);
        if (hold === undefined) continue;
        // If the clock was set back by an unknown amount, the complete pause counts again.
        const leftMs = Math.min(hold.untilMs + setByMs - clock.now(), hold.untilMs - hold.saidAtMs);
        if (leftMs > 0) holds.set(scope, clock.monotonic() + leftMs);
      }
      return holds;
    },
    async savePause(scope: PauseScope, untilMs: number): Promise<void> {
      const saidAtMs = Math.floor(clock.now());
      const leftMs = untilMs - clock.monotonic();
      await store.saveHold(`${source}/${scope}`, { saidAtMs, untilMs: Math.ceil(saidAtMs + leftMs) });
    },
    /** Spent slots of earlier processes, and whether there is a record at all. */
    async load() {
      const now = clock.monotonic();
      wallOffset = clock.now() - now;
      const byMs = await setMeanwhileMs();
      setByMs = byMs !== null && Math.abs(byMs) > JUMP_MS ? byMs : 0;
      let found = false;
      for (const endpoint of QUOTA_ENDPOINTS) {
        for (const stored of await store.load(keyOf(endpoint))) {
          found = true;
          lastId = Math.max(lastId, stored.id);
          // A stamp that lies in the future shows that the clock was set back; the request was sent by now.
          const latest = now + longestWayMs + SAVE_WITHIN_MS;
          const told = stored.countedByMs + setByMs - wallOffset;
          const slot = { id: stored.id, endpoint, sentAt: now, countedBy: Math.min(told, latest) };
          if (slot.countedBy + occupiedMs <= now) continue;
          live.push(slot);
          if (told > latest) await save(slot);
        }
      }
      if (setByMs !== 0) await rewrite(setByMs);
      else if (byMs === null) await markClock();
      return { slots: [...live], found };
    },
    /** Id of the next slot; of the one recorded ahead if there is one. */
    idFor(endpoint: QuotaEndpoint): number {
      const id = ahead.get(endpoint);
      ahead.delete(endpoint);
      if (id !== undefined && usableUntilMs.has(id)) return id;
      lastId += 1;
      return lastId;
    },
    /**
     * Makes a slot durable and sets its times as if the request left now. Returns the time of the record: a request that
     * leaves much later may be counted after the recorded bound.
     */
    async beforeSend(slot: Slot): Promise<Moment> {
      await followWallClock();
      live = live.filter((each) => each.countedBy + occupiedMs > clock.monotonic());
      live.push(slot);
      const untilMs = usableUntilMs.get(slot.id) ?? Number.NEGATIVE_INFINITY;
      usableUntilMs.delete(slot.id);
      if (clock.monotonic() <= untilMs) {
        slot.sentAt = clock.monotonic();
        slot.countedBy = slot.sentAt + longestWayMs;
        return mark();
      }
      for (let withinMs = SAVE_WITHIN_MS; ; withinMs *= 4) {
        const since = mark();
        const began = since.monotonicMs;
        const bound = began + withinMs + longestWayMs;
        try {
          await save({ ...slot, sentAt: began, countedBy: bound });
        } catch (error) {
          live = live.filter((each) => each !== slot);
          throw error;
        }
        slot.sentAt = clock.monotonic();
        slot.countedBy = slot.sentAt + longestWayMs;
        if (slot.countedBy <= bound) return since;
      }
    },
    /**
     * Stores the time of the reply in the next transaction, up to seconds later. Where requests follow each other, the
     * same transaction records the next slot ahead: a request every 3 s takes one transaction instead of two. After a
     * kill the next start then waits for one unused slot of the 20, for a minute.
     */
    async afterReply(slot: Slot): Promise<void> {
      await followWallClock();
      const noted = store.saveDeferred(keyOf(slot.endpoint), stored(slot));
      if (isFollowed(slot) && !ahead.has(slot.endpoint)) await recordAhead(slot.endpoint);
      await noted;
      replies += 1;
      if (replies % FORGET_EVERY_REPLIES === 0) {
        await store.forget(keyOf(slot.endpoint), clock.now() - KEEP_MS);
      }
    },
  };
}

/**
 * The requests that may count against a window of the service, seen from both sides.
 *
 * The service counts a request somewhere between its send and its response, and forgets it one window later.
 * So a request occupies its slot from the send until `countedBy` + window, where `countedBy` is the response or
 * the send + the longest believable way, whichever is earlier. A client that never has more than N slots by this
 * measure is never refused by a sliding log of N, by a fixed window however it is aligned, or by a token bucket
 * of N: any 21 arrivals are then more than one window apart.
 *
 * All times are milliseconds of `Clock.monotonic()`.
 */
export interface Slot {
  readonly id: number;
  readonly endpoint: QuotaEndpoint;
  sentAt: number;
  /** The latest moment at which the service can have counted it; infinite until it is known when it leaves. */
  countedBy: number;
}

/** Freed slots are remembered for another window, to judge what the service says it has counted. */
const REMEMBER_MS = 60_000;

export function createSpentSlots(occupiedMs: number, inherited: readonly Slot[] = []) {
  let slots = [...inherited];
  /** Buffer of the sorted ends, reused because each request needs them about ten times. */
  let ends = new Float64Array(64);
  return {
    add(slot: Slot): void {
      const oldest = slot.sentAt - REMEMBER_MS - occupiedMs;
      slots = slots.filter((each) => each.countedBy > oldest);
      slots.push(slot);
    },
    /** Removes a slot whose request never left. */
    drop(slot: Slot): void {
      slots = slots.filter((each) => each !== slot);
    },
    used: (now: number) => count(slots, now - occupiedMs),
    /**
     * By how much a count of the service, made after `since`, exceeds our own requests, by any usual way of counting. The
     * widest is the two-window counter: of the last window it counts the share that lies within the last minute.
     */
    unexplained(counted: number, since: number): number {
      if (counted <= count(slots, since - occupiedMs)) return 0;
      return Math.max(0, counted - Math.ceil(widestCount(slots, since, occupiedMs) - ROUNDING));
    },
    /** When fewer than `allowed` slots are occupied: `now`, a later time, or infinity if that is unknown. */
    freeAt(now: number, allowed: number): number {
      if (allowed < 1) return Number.POSITIVE_INFINITY;
      if (ends.length < slots.length) ends = new Float64Array(2 * slots.length);
      let occupied = 0;
      for (const { countedBy } of slots) {
        const end = countedBy + occupiedMs;
        // The ends are nearly sorted already.
        if (end > now) insertSorted(end, ends, occupied++);
      }
      if (occupied < allowed) return now;
      // With 21 ends and 20 allowed, a slot is free at the second end.
      return ends[occupied - allowed] ?? now;
    },
    slots: (): readonly Slot[] => slots,
  };
}

/** Tolerance for sums of fractions. */
const ROUNDING = 1e-9;

/** The two-window count at `now`, at its highest over every possible alignment of the windows. */
function widestCount(slots: readonly Slot[], now: number, windowMs: number): number {
  const ages = slots.map((slot) => now - slot.countedBy).filter((age) => age < 2 * windowMs);
  let highest = 0;
  // Between these alignments the count only falls.
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

function count(slots: readonly Slot[], countedAfter: number): number {
  let sum = 0;
  for (const slot of slots) if (slot.countedBy > countedAfter) sum += 1;
  return sum;
}
