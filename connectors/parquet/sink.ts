import { hash } from "node:crypto";
import type {
  BatchInfo,
  ConnectorContext,
  EventRejection,
  Receipt,
  Sink,
  SinkStateChange,
} from "../../src/core/connector.ts";
import { ConfigError } from "../../src/core/errors/errors.ts";
import { checkFolderWritable } from "../../src/core/errors/folder-access.ts";
import type { Event } from "../../src/core/model/event.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { type ParquetConfig, resolveS3Endpoint } from "./config.ts";
import { finalizeDay, updateManifestAfterMerge } from "./day-manifest.ts";
import { createDeltaTableFormat } from "./delta-table-format.ts";
import { createFolderStore } from "./folder-store.ts";
import { createHourlyCompaction, type HourlyCompaction } from "./hourly-compaction-job.ts";
import { updateLakeSchemas } from "./lake-schemas.ts";
import { createPlainTableFormat } from "./plain-table-format.ts";
import { createRowBuffer, UnmappableEventError } from "./row-buffer.ts";
import { yieldIfBusy } from "./rows-to-columns.ts";
import { createS3Store } from "./s3-store.ts";
import {
  type CompleteDay,
  combineCompleteDays,
  encodeSinkStateChange,
  isCompacting,
  loadSinkState,
  parseCompleteDay,
} from "./sink-state.ts";
import { createIdempotentRowInserts, createStagedCommits, type StagedCommits } from "./staged-commits.ts";
import type { UploadedFileDigests } from "./table-format.ts";

const MAX_BATCH_EVENTS = 5_000;
/** Maximum compaction time in one tick, because events wait while files are compacted. */
const MAX_COMPACTION_MS_PER_TICK = 500;
const COMPACTION_CHECK_INTERVAL_MS = 5_000;

/** Sink that accepts an event when its rows are in complete files of the lake. Until then, events are only buffered. */
export function createParquetSink(config: ParquetConfig, context: ConnectorContext): Sink {
  const { clock, log, sinkState } = context;
  const { store, serverId, probe, close, progressMs } = openLakeStore(config, clock);
  const format =
    config.table_format === "delta" ? createDeltaTableFormat(store, context) : createPlainTableFormat(store, context);
  const idempotentInserts = createIdempotentRowInserts(format);
  const uploaded: UploadedFileDigests = new Map();
  let commits: StagedCommits | null = null;
  let hourlyCompaction: HourlyCompaction | null = null;
  let areFilesRepaired = false;
  let completeDays: readonly CompleteDay[] = [];

  /** Loads the state at the start and after every failure; events are then redelivered from the cursor. */
  async function prepareStagedCommits(signal: AbortSignal): Promise<StagedCommits> {
    if (commits !== null) return commits;
    idempotentInserts.clearCache();
    await updateLakeSchemas(store, format, signal);
    if (!areFilesRepaired) await format.repairFiles(signal);
    areFilesRepaired = true;
    const savedState = await loadSinkState(context, store, signal);
    if (savedState.compactions.length > 0) await format.finishCompaction(savedState.compactions, signal);
    completeDays = savedState.completeDays;
    hourlyCompaction ??= createHourlyCompaction(savedState, format, clock, (day, signal) =>
      updateManifestAfterMerge(day, context.readsHistory === true, { store, format, clock, signal }),
    );
    const { max_age: maxAgeMs, max_rows: maxRows } = config;
    commits = createStagedCommits({ state: savedState, store, format, sinkState, clock, uploaded, maxRows, maxAgeMs });
    return commits;
  }

  async function reloadStateOnError<T>(signal: AbortSignal, operation: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    try {
      return await operation();
    } catch (error) {
      commits = null;
      throw error;
    }
  }

  async function stageEventBatch(batch: readonly Event[], batchInfo: BatchInfo, signal: AbortSignal): Promise<Receipt> {
    if (commits?.hasPosition(batchInfo.positions[0] ?? 0) === true) commits = null;
    const stagedCommits = await prepareStagedCommits(signal);
    const rejections = await collectEventRejections(batch, (event, n) =>
      stagedCommits.addEvent(event, batchInfo.positions[n] ?? 0, batchInfo.committedAt[n] ?? "", signal),
    );
    await stagedCommits.commit(signal);
    const stateChanges = settleCommits(stagedCommits);
    return stateChanges === null ? { rejected: rejections, buffered: true } : { rejected: rejections, stateChanges };
  }

  /** Returns the state change that marks all buffered events as delivered; null while a row is not in the lake. */
  function settleCommits(staged: StagedCommits): SinkStateChange | null {
    const settlement = staged.settleCommits();
    if (settlement === null) return null;
    idempotentInserts.clearCache();
    completeDays = combineCompleteDays(completeDays, settlement.completeDays);
    return new Map([...settlement.stateChanges, ...(hourlyCompaction?.noteCommit(settlement.partitions) ?? [])]);
  }

  /** Finalizes a complete day, or does a step of the hourly compaction. Returns null if neither is due. */
  async function compactNextDay(signal: AbortSignal): Promise<SinkStateChange | null> {
    const [day, ...laterDays] = completeDays;
    if (day === undefined) {
      const stateChange = await runCompactionStep(signal);
      if (stateChange !== null) idempotentInserts.clearCache();
      return stateChange;
    }
    await finalizeDay(day, { store, format, clock, signal });
    idempotentInserts.clearCache();
    completeDays = laterDays;
    return encodeSinkStateChange({ finalizedDay: day });
  }

  /** Does a step of the hourly compaction. An unreadable file prevents only the compaction of its own day. */
  async function runCompactionStep(signal: AbortSignal): Promise<SinkStateChange | null> {
    try {
      return (await hourlyCompaction?.runStep(signal)) ?? null;
    } catch (error) {
      if (!(error instanceof ConfigError) || (await isCompacting(sinkState))) throw error;
      log.warn({ err: error }, "files of a day could not be compacted; this is tried again in an hour");
      return new Map();
    }
  }

  /** Inserts redelivered events, and events without a position in the event log, without duplicate rows. */
  async function insertIdempotently(batch: readonly Event[], batchInfo: BatchInfo | undefined, signal: AbortSignal) {
    await prepareStagedCommits(signal);
    const rowBuffer = createRowBuffer();
    const rejections = await collectEventRejections(batch, async (event, n) =>
      rowBuffer.addEvent(event, batchInfo?.positions[n] ?? 0, batchInfo?.committedAt[n] ?? ""),
    );
    await idempotentInserts.commit(rowBuffer, signal);
    const uncompactedDays = hourlyCompaction?.noteCommit(rowBuffer.batches().map(({ partition }) => partition)) ?? [];
    const completeDaysOfBatch = batch.map(parseCompleteDay).filter((day) => day !== null);
    completeDays = combineCompleteDays(completeDays, completeDaysOfBatch);
    const stateChanges = new Map([...encodeSinkStateChange({ completeDays: completeDaysOfBatch }), ...uncompactedDays]);
    return { rejected: rejections, stateChanges };
  }

  return {
    maxBatch: MAX_BATCH_EVENTS,
    strictOrder: true,
    serverId,
    progressMs,
    probe,
    async open(signal) {
      await reloadStateOnError(signal, () => prepareStagedCommits(signal));
    },
    async write(batch, signal, _acceptEvents, offer) {
      const mustInsertIdempotently = offer === undefined || offer.isRedelivery || offer.positions.includes(0);
      return reloadStateOnError(signal, () =>
        mustInsertIdempotently ? insertIdempotently(batch, offer, signal) : stageEventBatch(batch, offer, signal),
      );
    },
    async tick(signal) {
      return reloadStateOnError(signal, async () => {
        const tickInMs = Math.min(COMPACTION_CHECK_INTERVAL_MS, config.max_age);
        const stagedCommits = await prepareStagedCommits(signal);
        await format.vacuum?.(signal);
        await stagedCommits.commit(signal);
        const stateChanges = settleCommits(stagedCommits);
        if (stateChanges !== null) return { stateChanges, settled: true, tickInMs };
        // Do not compact before interrupted commits are complete.
        if (!stagedCommits.isSettled()) return { tickInMs };
        const compactionChanges = new Map<string, unknown>();
        const compactionDeadlineMs = clock.monotonic() + MAX_COMPACTION_MS_PER_TICK;
        do {
          const compactionChange = await compactNextDay(signal);
          if (compactionChange === null) break;
          for (const [key, value] of compactionChange) compactionChanges.set(key, value);
        } while (clock.monotonic() < compactionDeadlineMs);
        return compactionChanges.size === 0 ? { tickInMs } : { stateChanges: compactionChanges, tickInMs };
      });
    },
    async close() {
      commits = null;
      await close();
    },
  };
}

async function collectEventRejections(
  batch: readonly Event[],
  addEvent: (event: Event, index: number) => Promise<void>,
) {
  const rejections: EventRejection[] = [];
  for (const [index, event] of batch.entries()) {
    try {
      await yieldIfBusy();
      await addEvent(event, index);
    } catch (error) {
      if (!(error instanceof UnmappableEventError)) throw error;
      rejections.push({ index, reason: error.message });
    }
  }
  return rejections;
}

function openLakeStore({ folder, mode, s3 }: ParquetConfig, clock: Clock) {
  if (s3 !== undefined) {
    const store = createS3Store(s3, clock);
    const { close, progressMs, probe } = store;
    return { store, serverId: hash("sha256", `${resolveS3Endpoint(s3)} ${store.location}`), progressMs, probe, close };
  }
  if (folder === undefined) throw new Error("The configuration names neither a folder nor S3.");
  const store = createFolderStore(folder, Number.parseInt(mode, 8), clock);
  return {
    store,
    serverId: hash("sha256", store.location),
    progressMs: store.progressMs,
    probe: () => checkFolderWritable(folder, "Free some space"),
    close: async () => undefined,
  };
}
