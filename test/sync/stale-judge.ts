import type { AnyEvent, Event } from "#src/core/model/event.ts";
import type { StaleReason, TagValueQuality } from "#src/core/model/tag-event-data.ts";
import type { StoreChange } from "#src/engine/store/store.ts";
import type { ReadClass } from "#src/engine/sync/read/config.ts";
import type { StoredValue } from "#src/engine/sync/stored-documents.ts";
import type { Problem } from "../campaign/campaign.ts";
import type { VirtualClock } from "../virtual-clock.ts";

const SECOND = 1_000;
/** Time between two requests at 20 requests a minute. */
export const SLOT_MS = 60_000 / 20;
/** Quota share that live reads plan with, and the lower one at which stretched intervals end. */
const PLANNED_SHARE = 0.97;
const FITTING_SHARE = 0.92;
/** Growth of a stretch factor below which the former one stays. */
const FACTOR_TOLERANCE = 1.06;
/** Fresher and stretched tags are read after whole slots, less one for the reply and a part of one for jitter. */
const WHOLE_SLOTS_MAX = 2.25;
/** Time for the bucket of due times and the transaction, 1 s each. */
const DETECTION_MS = 2 * SECOND;
/** Time until changed classes or the stored values of a started worker count. */
const CHANGE_MS = 5 * SECOND;
const COMMIT_MS = 3 * SECOND;
/** Time from a transaction to a sink that is up: a batch of 100 events takes up to 210 ms. */
const DELIVERY_MS = 3 * SECOND;
/** Longest wait between two attempts to deliver, 5 minutes, and the delivery of what waits. */
const CATCH_UP_MS = 6 * 60 * SECOND;
/** Time after which a service that failed a request counts as unavailable: two polls of the token and a probe. */
const DEAD_MS = 150 * SECOND;
const PROBLEMS_PER_RULE_MAX = 3;
const FAULT_EFFECT_MS = 30 * 60 * SECOND;

/** Truth of the simulated service, to judge the reason of a stale value. */
export interface ServiceTruth {
  /** Sites and abilities of the last `GET me`. */
  readonly knownSites: () => ReadonlySet<number>;
  readonly knownAbilities: () => readonly string[];
  readonly siteOf: (id: string) => number;
  readonly isGatewayOffline: (siteId: number) => boolean;
  readonly wasRefused: (id: string) => boolean;
  /** Monotonic time since when no request is answered; null while requests are answered. */
  readonly deadSinceMs: () => number | null;
}

interface ValueView {
  readonly isUsable: boolean;
  readonly staleReason: StaleReason | undefined;
  /** Time of the emitted reading, monotonic. */
  readonly emittedMs: number;
  /** Time of the last reading that equals it, monotonic. */
  readMs: number;
  /** True after a start with another wall clock, from which the age then counts. */
  isAgeUnknown: boolean;
  /** Wall clock minus monotonic clock at the emission, and at the last equal reading. */
  readonly emittedOffsetMs: number;
  readOffsetMs: number;
}

/** Upper bound of the factor by which the intervals of all tags are stretched; 1 if they fit into the quota. */
function overloadMax(tags: readonly ReadClass[]): number {
  const demandAt = (factor: number, isComplete: (readClass: ReadClass) => boolean) =>
    tags.reduce((sum, readClass) => {
      const intervalMs = readClass.every * factor - (isComplete(readClass) ? WHOLE_SLOTS_MAX * SLOT_MS : 0);
      return sum + SLOT_MS / (20 * Math.max(SLOT_MS, intervalMs));
    }, 0);
  if (demandAt(1, ({ fresher }) => fresher) <= FITTING_SHARE) return 1;
  let factor = 1;
  while (demandAt(factor, () => true) > PLANNED_SHARE) factor *= 1.01;
  return factor * FACTOR_TOLERANCE;
}

const isUsable = (quality: TagValueQuality) => quality === "good" || quality === "uncertain";

/** Judges what a sink shows: no value longer as good than promised, and none as stale that was read in time. */
export function createStaleJudge(clock: VirtualClock, service: ServiceTruth) {
  const problems: Problem[] = [];
  const staleCounts = new Map<StaleReason, number>();
  const emitted = new Map<string, ValueView>();
  /** Values that the sink shows, by tag. */
  const retained = new Map<string, ValueView>();
  const valueOfEvent = new Map<string, ValueView>();
  /** Monotonic commit times of events that the sink does not have, by id. */
  const undeliveredMs = new Map<string, number>();
  const repliedMs = new Map<string, number>();
  /** Tags without a value in the last reply to a request for them. */
  const leftOutIds = new Set<string>();
  const committedMs = new Map<string, number>();
  let classOf: ReadonlyMap<string, ReadClass> = new Map();
  let maxOverload = 1;
  let isWorkerUp = false;
  let isSinkUp = true;
  /** True if the sink had every event since it was last down, and since the last start of the worker. */
  let hasSinkCaughtUp = false;
  const times = {
    changedMs: 0,
    startedMs: 0,
    sinkUpMs: 0,
    troubleMs: Number.NEGATIVE_INFINITY,
    failedMs: Number.NEGATIVE_INFINITY,
  };
  const wallOffsetMs = () => clock.now() - clock.monotonic();

  function note(rule: string, id: string, text: string): void {
    const at = `${Math.round(clock.monotonic() / SECOND)} s:`;
    if (problems.filter((problem) => problem.rule === rule).length < PROBLEMS_PER_RULE_MAX)
      problems.push({ rule, text: `${at} tag ${id} ${text}` });
  }

  function checkAge(id: string, { isUsable: isViewUsable, readMs, isAgeUnknown }: ValueView, deliveryMs = 0): void {
    if (!isViewUsable) return;
    const readClass = classOf.get(id);
    const promiseMs = readClass === undefined ? 0 : readClass.every * maxOverload + 2 * SLOT_MS;
    const countedMs = isAgeUnknown ? Math.max(readMs, times.startedMs) : readMs;
    const dueMs = Math.max(
      countedMs + promiseMs + DETECTION_MS,
      Math.max(times.changedMs, times.startedMs) + CHANGE_MS,
    );
    const lateMs = clock.monotonic() - dueMs - deliveryMs;
    if (lateMs > 0)
      note("no old value is good", id, `read at ${Math.round(readMs)} is good ${Math.round(lateMs)} ms too long`);
  }

  function show(id: string, eventId: string, value: ValueView): void {
    const before = emitted.get(id);
    if (before !== undefined) checkAge(id, before);
    emitted.set(id, value);
    // After the clock was set back, a reading at the same millisecond as an earlier one has the same id: it is not sent again.
    if (valueOfEvent.has(eventId)) retained.set(id, value);
    else undeliveredMs.set(eventId, clock.monotonic());
    valueOfEvent.set(eventId, value);
  }

  function checkSink(): void {
    if (!isSinkUp) return;
    const nowMs = clock.monotonic();
    const [firstMs = nowMs] = undeliveredMs.values();
    const caughtUpMs = Math.max(times.sinkUpMs, times.startedMs) + CATCH_UP_MS;
    // Until then, the sink may wait to send an event without a value, e.g. `source-unavailable`.
    hasSinkCaughtUp ||= undeliveredMs.size === 0 && nowMs > caughtUpMs;
    const sinceMs = hasSinkCaughtUp ? firstMs + DELIVERY_MS : caughtUpMs;
    if (nowMs > sinceMs) note("the sink follows", "all", `${undeliveredMs.size} events are not delivered`);
    if (hasSinkCaughtUp) for (const [id, value] of retained) checkAge(id, value, DELIVERY_MS);
  }

  function checkStaleValue(id: string, reason: StaleReason): void {
    staleCounts.set(reason, (staleCounts.get(reason) ?? 0) + 1);
    const nowMs = clock.monotonic();
    const siteId = service.siteOf(id);
    const readClass = classOf.get(id);
    const before = emitted.get(id);
    const isLate = reason !== "out-of-scope" && reason !== "no-ability" && readClass !== undefined;
    if (before?.isUsable === false && [undefined, reason].includes(before.staleReason))
      note("a value becomes stale once for each reason", id, reason);
    const sinceMs = readClass?.on_change === true ? before?.readMs : before?.emittedMs;
    const ageMs = nowMs - (sinceMs ?? Number.NaN);
    if (isLate && before?.isUsable && !before.isAgeUnknown && ageMs < readClass.every + 2 * SLOT_MS - 1)
      note("no value in time is stale", id, `${reason} ${Math.round(ageMs)} ms after its reading`);
    const deadSinceMs = service.deadSinceMs();
    const isResponding = deadSinceMs === null || nowMs - deadSinceMs < DEAD_MS || times.failedMs < deadSinceMs;
    const isTrue = {
      "out-of-scope": () => !service.knownSites().has(siteId),
      "no-ability": () => !service.knownAbilities().includes("read:tags"),
      quarantined: () => service.wasRefused(id),
      "gateway-offline": () => service.isGatewayOffline(siteId),
      "source-unavailable": () => leftOutIds.has(id) || nowMs - times.troubleMs < FAULT_EFFECT_MS,
      "not-scheduled": () => readClass === undefined || isResponding,
    }[reason];
    const isStarting = nowMs - times.startedMs < DEAD_MS;
    if (!isTrue() && !isStarting) note("the reason is true", id, reason);
  }

  return {
    problems,
    counts: () => Object.fromEntries([...staleCounts].map(([reason, count]) => [`values stale: ${reason}`, count])),
    /** Notes that the service answers late, or with a failure. */
    recordFault(kind: "late" | "failed"): void {
      times.troubleMs = clock.monotonic();
      if (kind === "failed") times.failedMs = clock.monotonic();
    },
    replied(requestedIds: readonly string[], ids: readonly string[]): void {
      for (const id of requestedIds) leftOutIds.add(id);
      for (const id of ids) {
        leftOutIds.delete(id);
        repliedMs.set(id, clock.monotonic());
      }
    },
    committed({ documents = [], events = [] }: StoreChange, valueSet: string): void {
      const eventIds = new Map(
        (events as readonly AnyEvent[]).flatMap(({ id, type, data }) =>
          type === "tag-value" ? [[data.tag.id, id] as const] : [],
        ),
      );
      for (const [id, document] of documents.flatMap(({ set, put = [] }) => (set === valueSet ? [...put] : []))) {
        const { quality, staleReason } = document as StoredValue;
        const offsets = { emittedOffsetMs: wallOffsetMs(), readOffsetMs: wallOffsetMs() };
        const value = { isUsable: isUsable(quality), staleReason, isAgeUnknown: false, ...offsets };
        const readMs = repliedMs.get(id) ?? Number.NaN;
        if (staleReason !== undefined) checkStaleValue(id, staleReason);
        else committedMs.set(id, readMs);
        const shown = emitted.get(id);
        const eventId = eventIds.get(id);
        if (eventId !== undefined) show(id, eventId, { ...value, readMs, emittedMs: readMs });
        else if (shown?.isUsable !== value.isUsable) note("every reading is emitted", id, `${quality} is not emitted`);
        else if (classOf.get(id)?.on_change === true) {
          checkAge(id, shown);
          Object.assign(shown, { readMs, isAgeUnknown: false, readOffsetMs: value.readOffsetMs });
        }
      }
    },
    classesChanged(next: ReadonlyMap<string, ReadClass>): void {
      classOf = next;
      times.changedMs = clock.monotonic();
      maxOverload = overloadMax([...next.values()]);
    },
    workerStarted(): void {
      isWorkerUp = true;
      hasSinkCaughtUp = false;
      times.startedMs = clock.monotonic();
      repliedMs.clear();
      for (const [id, shown] of emitted) {
        const offsetMs = classOf.get(id)?.on_change === true ? shown.readOffsetMs : shown.emittedOffsetMs;
        shown.isAgeUnknown ||= Math.abs(offsetMs - wallOffsetMs()) > 1;
      }
    },
    workerKilled(): void {
      isWorkerUp = false;
    },
    sinkStopped(): void {
      isSinkUp = false;
      hasSinkCaughtUp = false;
    },
    sinkReturned(): void {
      isSinkUp = true;
      times.sinkUpMs = clock.monotonic();
    },
    delivered(batch: readonly Event[]): void {
      for (const { id, type, data } of batch as readonly AnyEvent[]) {
        const value = valueOfEvent.get(id);
        if (type !== "tag-value" || value === undefined) continue;
        retained.set(data.tag.id, value);
        undeliveredMs.delete(id);
      }
      hasSinkCaughtUp ||= isSinkUp && undeliveredMs.size === 0;
    },
    /** Judges all values that the sink shows. */
    checkValueViews(): void {
      if (!isWorkerUp) return;
      for (const [id, value] of emitted) checkAge(id, value);
      checkSink();
      for (const [id, atMs] of repliedMs)
        if (clock.monotonic() - atMs > COMMIT_MS && committedMs.get(id) !== atMs) {
          repliedMs.delete(id);
          // A reply for a tag that no class selects any more is not stored.
          if (atMs > times.changedMs + COMMIT_MS && classOf.has(id))
            note("every reading is committed", id, `was read at ${atMs}`);
        }
    },
    /** Judges that every tag has a usable value after a time without faults. */
    end(isExpected: (id: string) => boolean): void {
      for (const id of classOf.keys())
        if (isExpected(id) && emitted.get(id)?.isUsable !== true) note("every tag is good at the end", id, "is not");
    },
  };
}
