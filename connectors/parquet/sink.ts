import { createHash } from "node:crypto";
import type { ConnectorContext, Offered, Receipt, Rejection, Sink, SinkStateChange } from "../../src/core/connector.ts";
import { ConfigError } from "../../src/core/errors/errors.ts";
import type { Event } from "../../src/core/model/event.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { yieldIfBusy } from "./columns.ts";
import { createIdempotentInserts, createStagedCommits, type StagedCommits } from "./commits.ts";
import { endpointOf, type ParquetConfig } from "./config.ts";
import { createDeltaFormat } from "./delta-format.ts";
import { finalizeDay, listUnaccountedDay } from "./finalize-day.ts";
import { createFolderStore, probeFolder } from "./folder-store.ts";
import { createHourlyCompaction, type HourlyCompaction } from "./hourly-compaction.ts";
import { updateSchemas } from "./lake-schemas.ts";
import { createPlainFormat } from "./plain-format.ts";
import { createRowBuffer, UnmappableEvent } from "./row-buffer.ts";
import { createS3Store } from "./s3-store.ts";
import { type CompleteDay, completeDayIn, isCompacting, mergeDays, openSinkState, stateChange } from "./sink-state.ts";
import type { UploadedFiles } from "./table-format.ts";

const MAX_BATCH = 5_000;
/** Compaction time in one tick: a year of backfill has many days, and offered events wait. */
const COMPACTING_MS = 500;
/** Interval of checks for old rows and compactions. */
const CHECK_MS = 5_000;

/** Accepts an event when its rows are in complete files of the lake. Until then events are only buffered. */
export function createParquetSink(config: ParquetConfig, context: ConnectorContext): Sink {
  const { clock, log, memory } = context;
  const { store, farEnd, probe, close, lastStepMs } = openLake(config, clock);
  const format =
    config.table_format === "delta" ? createDeltaFormat(store, context) : createPlainFormat(store, context);
  const inserts = createIdempotentInserts(format);
  const uploaded: UploadedFiles = new Map();
  let commits: StagedCommits | null = null;
  let upkeep: HourlyCompaction | null = null;
  let isPrepared = false;
  let completeDays: readonly CompleteDay[] = [];

  /** Loads the state at the start and after every failure; events are then redelivered from the cursor. */
  async function prepareCommits(signal: AbortSignal): Promise<StagedCommits> {
    if (commits !== null) return commits;
    inserts.clearCache();
    await updateSchemas(store, format, signal);
    if (!isPrepared) await format.repairFiles(signal);
    isPrepared = true;
    const state = await openSinkState(context, store, signal);
    if (state.compactions.length > 0) await format.finishCompaction(state.compactions, signal);
    completeDays = state.completeDays;
    upkeep ??= createHourlyCompaction(state, format, clock, (day, until) =>
      listUnaccountedDay(day, context.followsHistory === true, { store, format, clock, signal: until }),
    );
    const { max_age: maxAgeMs, max_rows: maxRows } = config;
    commits = createStagedCommits({ state, store, format, memory, clock, uploaded, maxRows, maxAgeMs });
    return commits;
  }

  async function resetOnError<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    signal.throwIfAborted();
    try {
      return await work();
    } catch (error) {
      commits = null;
      throw error;
    }
  }

  async function stageBatch(batch: readonly Event[], offer: Offered, signal: AbortSignal): Promise<Receipt> {
    if (commits?.hasPosition(offer.positions[0] ?? 0) === true) commits = null;
    const staged = await prepareCommits(signal);
    const rejected = await collectRejections(batch, (event, n) =>
      staged.addEvent(event, offer.positions[n] ?? 0, offer.committedAt[n] ?? "", signal),
    );
    await staged.commit(signal);
    const remember = settleCommits(staged);
    return remember === null ? { rejected, gathered: true } : { rejected, remember };
  }

  /** Returns null while some row is not in the lake. */
  function settleCommits(staged: StagedCommits): SinkStateChange | null {
    const settled = staged.settleCommits();
    if (settled === null) return null;
    inserts.clearCache();
    completeDays = mergeDays(completeDays, settled.completeDays);
    return new Map([...settled.remember, ...(upkeep?.noteCommit(settled.partitions) ?? [])]);
  }

  /** Finalizes a day, or does a step of the hourly compaction; null where nothing is due. */
  async function compactNext(signal: AbortSignal): Promise<SinkStateChange | null> {
    const [day, ...rest] = completeDays;
    if (day === undefined) {
      const change = await upkeepStep(signal);
      if (change !== null) inserts.clearCache();
      return change;
    }
    await finalizeDay(day, { store, format, clock, signal });
    inserts.clearCache();
    completeDays = rest;
    return stateChange({ finalizedDay: day });
  }

  /** An unreadable file keeps only its own day from being compacted. */
  async function upkeepStep(signal: AbortSignal): Promise<SinkStateChange | null> {
    try {
      return (await upkeep?.step(signal)) ?? null;
    } catch (error) {
      if (!(error instanceof ConfigError) || (await isCompacting(memory))) throw error;
      log.warn({ err: error }, "files of a day could not be compacted; this is tried again in an hour");
      return new Map();
    }
  }

  /** Inserts redelivered events and events without a log position. */
  async function insertIdempotently(
    batch: readonly Event[],
    offer: Offered | undefined,
    signal: AbortSignal,
  ): Promise<Receipt> {
    await prepareCommits(signal);
    const buffer = createRowBuffer();
    const rejected = await collectRejections(batch, async (event, n) =>
      buffer.add(event, offer?.positions[n] ?? 0, offer?.committedAt[n] ?? ""),
    );
    await inserts.commit(buffer, signal);
    const uncompacted = upkeep?.noteCommit(buffer.batches().map(({ partition }) => partition)) ?? [];
    const days = batch.map(completeDayIn).filter((day) => day !== null);
    completeDays = mergeDays(completeDays, days);
    return { rejected, remember: new Map([...stateChange({ completeDays: days }), ...uncompacted]) };
  }

  return {
    maxBatch: MAX_BATCH,
    oneOrder: true,
    farEnd,
    lastStepMs,
    probe,

    async open(signal) {
      await resetOnError(signal, () => prepareCommits(signal));
    },

    async write(batch, signal, _accepted, offer) {
      const isIdempotent = offer === undefined || offer.again || offer.positions.includes(0);
      return resetOnError(signal, () =>
        isIdempotent ? insertIdempotently(batch, offer, signal) : stageBatch(batch, offer, signal),
      );
    },

    async tick(signal) {
      return resetOnError(signal, async () => {
        const inMs = Math.min(CHECK_MS, config.max_age);
        const staged = await prepareCommits(signal);
        await format.vacuum?.(signal);
        await staged.commit(signal);
        const remember = settleCommits(staged);
        if (remember !== null) return { remember, settled: true, inMs };
        // Do not compact while a file may have to be written again.
        if (!staged.isSettled()) return { inMs };
        const done = new Map<string, unknown>();
        const untilMs = clock.monotonic() + COMPACTING_MS;
        do {
          const step = await compactNext(signal);
          if (step === null) break;
          for (const [key, value] of step) done.set(key, value);
        } while (clock.monotonic() < untilMs);
        return done.size === 0 ? { inMs } : { remember: done, inMs };
      });
    },

    async close() {
      commits = null;
      await close();
    },
  };
}

/** Returns the events that cannot be mapped to rows. */
async function collectRejections(
  batch: readonly Event[],
  take: (event: Event, index: number) => Promise<void>,
): Promise<readonly Rejection[]> {
  const rejected: Rejection[] = [];
  for (const [index, event] of batch.entries()) {
    try {
      await yieldIfBusy();
      await take(event, index);
    } catch (error) {
      if (!(error instanceof UnmappableEvent)) throw error;
      rejected.push({ index, reason: error.message });
    }
  }
  return rejected;
}

function openLake({ folder, mode, s3 }: ParquetConfig, clock: Clock) {
  if (s3 !== undefined) {
    const store = createS3Store(s3, clock);
    const { close, lastStepMs, probe } = store;
    return { store, farEnd: hashOf(`${endpointOf(s3)} ${store.where}`), lastStepMs, probe, close };
  }
  if (folder === undefined) throw new Error("The configuration names neither a folder nor S3.");
  const store = createFolderStore(folder, Number.parseInt(mode, 8), clock);
  const probe = () => probeFolder(folder);
  return { store, farEnd: hashOf(store.where), lastStepMs: store.lastStepMs, probe, close: async () => undefined };
}

function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
