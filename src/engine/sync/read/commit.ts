import { errorText } from "../../../core/errors/errors.ts";
import type { TagValue } from "../../../core/model/building.ts";
import type { TagValueQuality } from "../../../core/model/tag-event-data.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { sleepFor, yieldToEventLoop } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { ReadReply, Source } from "../../source/source.ts";
import { documentSet, type Store, type StoreChange } from "../../store/store.ts";
import type { PollTime } from "../job.ts";
import { type StoredTagQuarantine, type StoredValue, syncSet } from "../snapshot.ts";
import { quarantineMs } from "./bisection.ts";
import type { TagSchedule } from "./tag-schedule.ts";
import { createLeftOutTags, type JudgedReading, manyTypesChanged, watchSuddenChanges } from "./unusual-replies.ts";
import { buildValueEvent, judgeType, valuesById } from "./value-event.ts";

export interface ReadCommitOptions {
  readonly source: Source;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn" | "error">;
  readonly metrics: Pick<Metrics, "tagsRead" | "freshnessPromised" | "freshnessAchieved">;
  readonly offlineGatewayOf?: (siteId: number) => string | null;
  readonly clockSkewMs?: () => number | null;
  readonly onRead?: (id: string, value: TagValue, atMs: number) => void;
  readonly onSuddenNulls?: (siteId: number) => void;
  readonly groupCommit: GroupCommit;
}

const CACHED_VALUES_MAX = 1_000;
const CLOCK_SKEW_MAX_MS = 300_000;

/** Commits the replies of live reads, one transaction for each, and then updates the tag schedule. */
export function createReadCommit(options: ReadCommitOptions, schedule: TagSchedule) {
  const { source, store, clock, log, metrics, offlineGatewayOf = () => null } = options;
  const valueSet = documentSet("value", source.name);
  const quarantineSet = syncSet("quarantine", source.name);
  const leftOut = createLeftOutTags({ store, source: source.name, log, clock });
  const suddenChanges = watchSuddenChanges(clock, log, (id) => schedule.watched(id) !== undefined);
  const cachedValues = new Map<string, StoredValue>();
  let lastRead: PollTime | null = null;

  async function readUncached(ids: readonly string[]): Promise<ReadonlyMap<string, StoredValue | undefined>> {
    const uncachedIds = ids.filter((id) => !cachedValues.has(id));
    const load = async (id: string) => [id, await store.document<StoredValue>(valueSet, id)] as const;
    return new Map(await Promise.all(uncachedIds.map(load)));
  }

  function cache(id: string, stored: StoredValue): void {
    if (cachedValues.size >= CACHED_VALUES_MAX && !cachedValues.has(id)) cachedValues.clear();
    cachedValues.set(id, stored);
  }

  async function prepare(
    requested: readonly string[],
    values: ReadonlyMap<string, TagValue>,
    reply: ReadReply,
    isClockUncertain: boolean,
  ) {
    const uncachedIds = await readUncached(requested);
    const checkedReadings = requested.flatMap((id) => {
      const watched = schedule.watched(id);
      const value = values.get(id);
      if (watched === undefined || value === undefined) return [];
      const before = cachedValues.get(id) ?? uncachedIds.get(id);
      return [{ id, watched, value, before, type: judgeType(watched.tag.unit, before, value) }];
    });
    const readings = checkedReadings.map(
      ({ id, watched, value, before, type }): JudgedReading => ({
        ...{ id, siteId: watched.siteId, isNull: value === null },
        turnedNull: value === null && before !== undefined && before.value !== null,
        ...{ wasKnown: value !== null && type.wasKnown, isNewType: type.isNew },
        isTypeInDoubt: type.doubt !== null,
      }),
    );
    const inDoubt = isClockUncertain || manyTypesChanged(readings);
    const outcomes = checkedReadings.map(({ id, watched, value, before, type }) => {
      const behindGateway = value === null ? offlineGatewayOf(watched.siteId) : null;
      const context = { source: source.name, inDoubt, behindGateway };
      return { id, ...buildValueEvent(watched, value, before, reply, type, context) };
    });
    const unreadableTagsChange = await leftOut.change(requested, values, reply);
    // A successful request ends the quarantine of a tag, even without a value of the tag.
    const releasedIds = schedule.quarantined().filter((id) => requested.includes(id));
    const change: StoreChange = {
      documents: [
        { set: valueSet, put: outcomes.map(({ id, stored }) => [id, stored] as const) },
        { set: quarantineSet, remove: releasedIds },
        unreadableTagsChange.documents,
      ],
      events: outcomes.flatMap(({ event }) => event ?? []),
    };
    const committed = () => {
      unreadableTagsChange.committed();
      for (const id of releasedIds) schedule.release(id);
      const counts = new Map<TagValueQuality, number>();
      for (const { id, stored } of outcomes) {
        cache(id, stored);
        counts.set(stored.quality, (counts.get(stored.quality) ?? 0) + 1);
      }
      for (const [quality, count] of counts) metrics.tagsRead.inc({ source: source.name, quality }, count);
      for (const siteId of suddenChanges.committed(readings)) options.onSuddenNulls?.(siteId);
    };
    return { change, committed };
  }

  return {
    leftOut,
    lastRead: (): PollTime | null => lastRead,
    suddenChanges: suddenChanges.current,

    async values(requested: readonly string[], reply: ReadReply, hurry: AbortSignal): Promise<void> {
      // Time of the reply; the transaction may follow up to a second later.
      const nowMs = clock.monotonic();
      const values = valuesById(requested, reply.readings);
      const isClockUncertain = Math.abs(options.clockSkewMs?.() ?? 0) > CLOCK_SKEW_MAX_MS;
      let committed = () => {};
      const prepareChange = async () => {
        const prepared = await prepare(requested, values, reply, isClockUncertain);
        committed = prepared.committed;
        return prepared.change;
      };
      await options.groupCommit.commit(source.name, prepareChange, hurry);
      committed();
      if (values.size > 0) lastRead = { atMs: reply.receivedAtMs, monotonicMs: nowMs };
      for (const id of requested) {
        const value = values.get(id);
        if (value !== undefined) options.onRead?.(id, value, reply.receivedAtMs);
        schedule.answered(id, value === undefined ? "absent" : value === null ? "null" : "value", nowMs);
      }
    },

    async quarantine(id: string, reason: unknown): Promise<void> {
      const previousQuarantine = await store.document<StoredTagQuarantine>(quarantineSet, id);
      const times = (previousQuarantine?.times ?? 0) + 1;
      const waitMs = quarantineMs(times);
      const until = isoUtc(clock.now() + waitMs);
      const quarantineEntry: StoredTagQuarantine = { until, reason: errorText(reason), at: isoUtc(clock.now()), times };
      await store.commit({ documents: [{ set: quarantineSet, put: [[id, quarantineEntry]] }] });
      schedule.quarantine(id, clock.monotonic() + waitMs);
    },
  };
}

/** Commits several sources in one transaction, because each transaction is a disk sync. A single source never waits. */
export interface GroupCommit {
  /** `change` runs just before the transaction, so that the change builds on earlier commits; its error rejects. */
  commit(source: string, change: () => Promise<StoreChange>, hurry: AbortSignal): Promise<void>;
}

/** Interval between transactions; a value is seconds old anyway, so one more second does not matter. */
const COMMIT_INTERVAL_MS = 1_000;
/** Wait before the first transaction: sources started together send their requests at the same times. */
const FIRST_WAIT_MS = 250;
/** Replies in one transaction: 200 replies of 20 values stop the event loop for 140 ms, 20 replies for 28 ms. */
const REPLIES_PER_COMMIT_MAX = 20;

interface WaitingChange {
  readonly source: string;
  readonly change: () => Promise<StoreChange>;
  readonly hurry: AbortSignal;
  readonly done: PromiseWithResolvers<void>;
}

interface GroupCommitOptions {
  readonly store: Pick<Store, "commit">;
  readonly clock: Clock;
  readonly sources: number;
}

export function createGroupCommit({ store, clock, sources }: GroupCommitOptions): GroupCommit {
  /** Shortened in place: a new array for each transaction would keep old changes from being collected. */
  const waitingChanges: WaitingChange[] = [];
  let isRunning = false;
  let lastCommitMs = Number.NEGATIVE_INFINITY;

  async function run(): Promise<void> {
    isRunning = true;
    for (let [first] = waitingChanges; first !== undefined; [first] = waitingChanges) {
      const waitMs = Math.max(lastCommitMs + COMMIT_INTERVAL_MS - clock.monotonic(), sources > 1 ? FIRST_WAIT_MS : 0);
      if (waitMs > 0) await sleepFor(clock, waitMs, first.hurry);
      lastCommitMs = clock.monotonic();
      while (waitingChanges.length > 0) {
        await commitAll(takeOnePerSource());
        if (waitingChanges.length > 0) await yieldToEventLoop();
      }
    }
    isRunning = false;
  }

  function takeOnePerSource(): readonly WaitingChange[] {
    const takenSources = new Set<string>();
    const takenChanges: WaitingChange[] = [];
    let remainingCount = 0;
    for (const waitingChange of waitingChanges) {
      const isFull = takenChanges.length === REPLIES_PER_COMMIT_MAX;
      if (isFull || takenSources.has(waitingChange.source)) waitingChanges[remainingCount++] = waitingChange;
      else takenChanges.push(waitingChange);
      takenSources.add(waitingChange.source);
    }
    waitingChanges.length = remainingCount;
    return takenChanges;
  }

  async function commitAll(taken: readonly WaitingChange[]): Promise<void> {
    const preparedChanges = await Promise.all(
      taken.map(async ({ change, done }) => {
        try {
          return [{ done, change: await change() }];
        } catch (error) {
          done.reject(error);
          return [];
        }
      }),
    );
    const validChanges = preparedChanges.flat();
    try {
      if (validChanges.length > 0) await store.commit(mergeChanges(validChanges.map(({ change }) => change)));
      for (const { done } of validChanges) done.resolve();
    } catch (error) {
      for (const { done } of validChanges) done.reject(error);
    }
  }

  return {
    commit(source, change, hurry) {
      const done = Promise.withResolvers<void>();
      waitingChanges.push({ source, change, hurry, done });
      if (!isRunning) void run();
      return done.promise;
    },
  };
}

function mergeChanges(changes: readonly StoreChange[]): StoreChange {
  const [singleChange] = changes;
  if (singleChange !== undefined && changes.length === 1) return singleChange;
  return {
    documents: changes.flatMap(({ documents = [] }) => documents),
    events: changes.flatMap(({ events = [] }) => events),
    records: changes.flatMap(({ records = [] }) => records),
  };
}
