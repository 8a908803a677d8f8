import { errorText } from "../../../core/errors/errors.ts";
import type { TagValue } from "../../../core/model/building.ts";
import type { StaleReason, TagValueQuality } from "../../../core/model/tag-event-data.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import type { Log } from "../../../core/runtime/log.ts";
import type { Metrics } from "../../../core/runtime/metrics.ts";
import { sleepFor, yieldToEventLoop } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { Source, TagReadReply } from "../../source/source.ts";
import { documentSet, type Store, type StoreChange } from "../../store/store.ts";
import type { PollTime } from "../job.ts";
import { type StoredTagQuarantine, type StoredValue, syncSet } from "../stored-documents.ts";
import { tagQuarantineMs } from "./refused-tag-search.ts";
import { buildStaleValueEvent, type CommitStaleValues } from "./stale-values.ts";
import type { TagSchedule } from "./tag-schedule.ts";
import { createLeftOutTags, haveManyTypesChanged, type JudgedReading, watchSuddenChanges } from "./unusual-replies.ts";
import { buildValueEvent, judgeType, tagValuesById } from "./value-event.ts";

export interface LiveReadCommitOptions {
  readonly source: Source;
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Pick<Log, "info" | "warn" | "error">;
  readonly metrics: Pick<Metrics, "tagsRead" | "tagsStale" | "freshnessPromised" | "freshnessAchieved">;
  readonly offlineGatewayOf?: (siteId: number) => string | null;
  readonly clockSkewMs?: () => number | null;
  readonly onRead?: (id: string, value: TagValue, atMs: number) => void;
  readonly onSuddenNulls?: (siteId: number) => void;
  readonly groupCommit: GroupCommit;
}

const CACHED_VALUES_MAX = 1_000;
/** Aborted signal: stale values are committed at once, without waiting for other sources. */
const COMMIT_AT_ONCE = AbortSignal.abort();
const CLOCK_SKEW_MAX_MS = 300_000;

/** Commits the replies of live reads, then updates the tag schedule. */
export function createLiveReadCommit(
  options: LiveReadCommitOptions,
  schedule: TagSchedule,
  onReadingCommitted: (id: string, quality: TagValueQuality, readMs: number) => void,
) {
  const { source, store, clock, log, metrics, offlineGatewayOf = () => null } = options;
  const valueDocumentSet = documentSet("value", source.name);
  const quarantineDocumentSet = syncSet("quarantine", source.name);
  const leftOutTags = createLeftOutTags({ store, source: source.name, log, clock });
  const suddenChanges = watchSuddenChanges(clock, log, (id) => schedule.watchedTag(id) !== undefined);
  const cachedValues = new Map<string, StoredValue>();
  let lastReadTime: PollTime | null = null;

  async function readUncachedValues(ids: readonly string[]): Promise<ReadonlyMap<string, StoredValue | undefined>> {
    const uncachedTagIds = ids.filter((id) => !cachedValues.has(id));
    const loadValue = async (id: string) => [id, await store.document<StoredValue>(valueDocumentSet, id)] as const;
    return new Map(await Promise.all(uncachedTagIds.map(loadValue)));
  }

  function cacheTagValue(id: string, storedValue: StoredValue): void {
    if (cachedValues.size >= CACHED_VALUES_MAX && !cachedValues.has(id)) cachedValues.clear();
    cachedValues.set(id, storedValue);
  }

  async function buildStoreChange(
    requestedIds: readonly string[],
    values: ReadonlyMap<string, TagValue>,
    reply: TagReadReply,
    isClockUncertain: boolean,
    nowMs: number,
  ) {
    const uncachedValues = await readUncachedValues(requestedIds);
    const checkedReadings = requestedIds.flatMap((id) => {
      const watched = schedule.watchedTag(id);
      const value = values.get(id);
      if (watched === undefined || value === undefined) return [];
      const before = cachedValues.get(id) ?? uncachedValues.get(id);
      return [{ id, watched, value, before, type: judgeType(watched.tag.unit, before, value) }];
    });
    const readings = checkedReadings.map(
      ({ id, watched, value, before, type }): JudgedReading => ({
        ...{ id, siteId: watched.siteId, isNull: value === null },
        hasTurnedNull: value === null && before !== undefined && (before.value !== null || before.quality === "stale"),
        ...{ wasTypeKnown: value !== null && type.wasTypeKnown, hasTypeChanged: type.hasTypeChanged },
        isTypeUnverified: type.unverifiedType !== null,
      }),
    );
    const isReplyUnverified = isClockUncertain || haveManyTypesChanged(readings);
    const valueOutcomes = checkedReadings.map(({ id, watched, value, before, type }) => {
      const behindGateway = value === null ? offlineGatewayOf(watched.siteId) : null;
      const isNewInterval = (emittedAt: string) =>
        schedule.isNewInterval(id, reply.receivedAtMs, Date.parse(emittedAt));
      const valueEventContext = { source: source.name, isReplyUnverified, behindGateway, isNewInterval };
      return { id, ...buildValueEvent(watched, value, before, reply, type, valueEventContext) };
    });
    const unreadableTagsChange = await leftOutTags.prepareChange(requestedIds, values, reply);
    // A successful request ends the quarantine of its tags, even of tags without a value.
    const releasedTagIds = schedule.quarantinedIds().filter((id) => requestedIds.includes(id));
    const change: StoreChange = {
      documents: [
        { set: valueDocumentSet, put: valueOutcomes.map(({ id, stored }) => [id, stored] as const) },
        { set: quarantineDocumentSet, remove: releasedTagIds },
        unreadableTagsChange.documents,
      ],
      events: valueOutcomes.flatMap(({ event }) => event ?? []),
    };
    const onCommitted = () => {
      unreadableTagsChange.onCommitted();
      for (const id of releasedTagIds) schedule.setQuarantine(id, null);
      const countsByQuality = new Map<TagValueQuality, number>();
      for (const { id, stored, event } of valueOutcomes) {
        cacheTagValue(id, stored);
        // A second reading within an interval is not emitted and does not change when the emitted value becomes stale.
        const isConfirmedForSinks = event !== null || schedule.watchedTag(id)?.readClass.on_change === true;
        if (isConfirmedForSinks) onReadingCommitted(id, stored.quality, nowMs);
        countsByQuality.set(stored.quality, (countsByQuality.get(stored.quality) ?? 0) + 1);
      }
      for (const [quality, count] of countsByQuality) metrics.tagsRead.inc({ source: source.name, quality }, count);
      for (const siteId of suddenChanges.noteCommittedReadings(readings)) options.onSuddenNulls?.(siteId);
    };
    return { change, onCommitted };
  }

  return {
    leftOut: leftOutTags,
    lastRead: (): PollTime | null => lastReadTime,
    suddenChanges: suddenChanges.openChanges,

    async commitReply(requestedIds: readonly string[], reply: TagReadReply, commitNow: AbortSignal): Promise<void> {
      const nowMs = clock.monotonic();
      const values = tagValuesById(requestedIds, reply.readings);
      const isClockUncertain = Math.abs(options.clockSkewMs?.() ?? 0) > CLOCK_SKEW_MAX_MS;
      let onCommitted = () => {};
      const prepareChange = async () => {
        const preparedReply = await buildStoreChange(requestedIds, values, reply, isClockUncertain, nowMs);
        onCommitted = preparedReply.onCommitted;
        return preparedReply.change;
      };
      await options.groupCommit.commit(source.name, prepareChange, commitNow);
      onCommitted();
      if (values.size > 0) lastReadTime = { atMs: reply.receivedAtMs, monotonicMs: nowMs };
      for (const id of requestedIds) {
        const value = values.get(id);
        if (value !== undefined) options.onRead?.(id, value, reply.receivedAtMs);
        schedule.recordReading(id, value === undefined ? "absent" : value === null ? "null" : "value", nowMs);
      }
    },

    commitStaleValues: (async (ids, findStaleTag) => {
      let committedValues: readonly { readonly id: string; readonly reason: StaleReason; stored: StoredValue }[] = [];
      const prepareChange = async () => {
        const uncachedValues = await readUncachedValues(ids);
        const time = isoUtc(clock.now());
        const outcomes = ids.flatMap((id) => {
          const staleTag = findStaleTag(id);
          const before = cachedValues.get(id) ?? uncachedValues.get(id);
          if (staleTag === null || before === undefined || before.quality === "bad") return [];
          const { siteTag, reason } = staleTag;
          const context = { source: source.name, time, behindGateway: offlineGatewayOf(siteTag.siteId) };
          return [{ id, reason, ...buildStaleValueEvent(siteTag, before, reason, context) }];
        });
        committedValues = outcomes;
        const put = outcomes.map(({ id, stored }) => [id, stored] as const);
        return { documents: [{ set: valueDocumentSet, put }], events: outcomes.map(({ event }) => event) };
      };
      await options.groupCommit.commit(source.name, prepareChange, COMMIT_AT_ONCE);
      for (const { id, stored } of committedValues) cacheTagValue(id, stored);
      return new Map(committedValues.map(({ id, reason }) => [id, reason]));
    }) satisfies CommitStaleValues,

    async quarantineTag(id: string, reason: unknown): Promise<void> {
      const previousQuarantine = await store.document<StoredTagQuarantine>(quarantineDocumentSet, id);
      const times = (previousQuarantine?.times ?? 0) + 1;
      const waitMs = tagQuarantineMs(times);
      const [until, at] = [isoUtc(clock.now() + waitMs), isoUtc(clock.now())];
      const quarantine: StoredTagQuarantine = { until, reason: errorText(reason), at, times };
      await store.commit({ documents: [{ set: quarantineDocumentSet, put: [[id, quarantine]] }] });
      schedule.setQuarantine(id, clock.monotonic() + waitMs);
    },
  };
}

const COMMIT_INTERVAL_MS = 1_000;
/** Wait before each transaction, so that replies of several sources that arrive together share the transaction. */
const FIRST_WAIT_MS = 250;
/** Replies in one transaction: 20 replies block the event loop for 28 ms, 200 replies for 140 ms. */
const REPLIES_PER_COMMIT_MAX = 20;

interface WaitingStoreChange {
  readonly source: string;
  readonly prepareChange: () => Promise<StoreChange>;
  readonly commitNow: AbortSignal;
  readonly completion: PromiseWithResolvers<void>;
}

export type GroupCommit = ReturnType<typeof createGroupCommit>;

/** Commits replies of several sources in one transaction, because each is a disk sync. A single source never waits. */
export function createGroupCommit(options: {
  readonly store: Pick<Store, "commit">;
  readonly clock: Clock;
  readonly sourceCount: number;
}) {
  const { store, clock, sourceCount } = options;
  const waitingChanges: WaitingStoreChange[] = [];
  let isCommitLoopRunning = false;
  let lastCommitMs = Number.NEGATIVE_INFINITY;

  async function runCommitLoop(): Promise<void> {
    isCommitLoopRunning = true;
    for (let [firstChange] = waitingChanges; firstChange !== undefined; [firstChange] = waitingChanges) {
      const firstWaitMs = sourceCount > 1 ? FIRST_WAIT_MS : 0;
      const waitMs = Math.max(firstWaitMs, lastCommitMs + COMMIT_INTERVAL_MS - clock.monotonic());
      if (waitMs > 0) await sleepFor(clock, waitMs, firstChange.commitNow);
      lastCommitMs = clock.monotonic();
      while (waitingChanges.length > 0) {
        await commitStoreChanges(takeOneChangePerSource());
        if (waitingChanges.length > 0) await yieldToEventLoop();
      }
    }
    isCommitLoopRunning = false;
  }

  function takeOneChangePerSource(): readonly WaitingStoreChange[] {
    const takenSources = new Set<string>();
    const takenChanges: WaitingStoreChange[] = [];
    let remainingCount = 0;
    for (const waitingChange of waitingChanges) {
      const isTransactionFull = takenChanges.length === REPLIES_PER_COMMIT_MAX;
      if (isTransactionFull || takenSources.has(waitingChange.source)) waitingChanges[remainingCount++] = waitingChange;
      else takenChanges.push(waitingChange);
      takenSources.add(waitingChange.source);
    }
    waitingChanges.length = remainingCount;
    return takenChanges;
  }

  async function commitStoreChanges(changesToCommit: readonly WaitingStoreChange[]): Promise<void> {
    const preparedChanges = await Promise.all(
      changesToCommit.map(async ({ prepareChange, completion }) => {
        try {
          return [{ completion, change: await prepareChange() }];
        } catch (error) {
          completion.reject(error);
          return [];
        }
      }),
    );
    const validChanges = preparedChanges.flat();
    try {
      if (validChanges.length > 0) await store.commit(mergeStoreChanges(validChanges.map(({ change }) => change)));
      for (const { completion } of validChanges) completion.resolve();
    } catch (error) {
      for (const { completion } of validChanges) completion.reject(error);
    }
  }

  return {
    /** `prepareChange` runs just before the transaction, so that it can use the results of earlier commits. */
    commit(source: string, prepareChange: () => Promise<StoreChange>, commitNow: AbortSignal): Promise<void> {
      const completion = Promise.withResolvers<void>();
      waitingChanges.push({ source, prepareChange, commitNow, completion });
      if (!isCommitLoopRunning) void runCommitLoop();
      return completion.promise;
    },
  };
}

function mergeStoreChanges(changes: readonly StoreChange[]): StoreChange {
  const [singleChange] = changes;
  if (singleChange !== undefined && changes.length === 1) return singleChange;
  return {
    documents: changes.flatMap(({ documents = [] }) => documents),
    events: changes.flatMap(({ events = [] }) => events),
    records: changes.flatMap(({ records = [] }) => records),
  };
}
