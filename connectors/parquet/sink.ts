import { createHash } from "node:crypto";
import type {
  ConnectorContext,
  Offered,
  Receipt,
  Rejection,
  Sink,
  SinkStateChange,
} from "../../src/core/connector.ts";
import { ConfigError } from "../../src/core/errors/errors.ts";
import type { Event } from "../../src/core/model/event.ts";
import type { Clock } from "../../src/core/runtime/clock.ts";
import { pause } from "./columns.ts";
import { createAlone, createGathering, type Gathering } from "./commits.ts";
import { endpointOf, type ParquetConfig } from "./config.ts";
import { createDeltaFormat } from "./delta-format.ts";
import { listMergedDay, sealDay } from "./finalize-day.ts";
import { createFolderStore, probeFolder } from "./folder-store.ts";
import type { ObjectStore } from "./object-store.ts";
import { createPlainFormat } from "./plain-format.ts";
import { createHand, Untold } from "./row-buffer.ts";
import { createS3Store } from "./s3-store.ts";
import { agreeOnSchemas } from "./schemas.ts";
import { isCompacting, openBook, type Seal, sealed, sealIn, toSeal, withSeals } from "./sink-state.ts";
import type { Arrived } from "./table-format.ts";
import { createUpkeep, type Upkeep } from "./upkeep.ts";

/** Events of one write at most. */
const MAX_BATCH = 5_000;
/** A year of backfill is many days to compact: new ones are begun for so long before what is offered has its turn, milliseconds. */
const COMPACTING_MS = 500;
/** How often it is looked, at least, whether something is old enough or a day is to be compacted; in milliseconds. */
const LOOK_MS = 5_000;

/** Accepted means: the rows are in the lake, in files that are whole. Until then events are only gathered. */
export function createParquetSink(config: ParquetConfig, context: ConnectorContext): Sink {
  const { clock, log, memory } = context;
  const { store, ...lake } = createLakeStore(config, clock);
  const format =
    config.table_format === "delta"
      ? createDeltaFormat(store, context)
      : createPlainFormat({ store, memory, clock });
  const alone = createAlone(format, store.where);
  const arrived: Arrived = new Map();
  let gathering: Gathering | null = null;
  let upkeep: Upkeep | null = null;
  let isPrepared = false;
  let seals: readonly Seal[] = [];

  /** At the start, and after every failure: what is remembered counts, and what is offered from the cursor on. */
  async function ready(signal: AbortSignal): Promise<Gathering> {
    if (gathering !== null) return gathering;
    alone.forget();
    await agreeOnSchemas(store, format, signal);
    if (!isPrepared) await format.prepare(signal);
    isPrepared = true;
    const book = await openBook(context, store, signal);
    if (book.compactions.length > 0) await format.finishCompaction(book.compactions, signal);
    seals = book.seals;
    upkeep ??= createUpkeep({
      book,
      format,
      clock,
      onMerged: (day, until) => listMergedDay(day, { ...toolsFor(until), hasLedger }),
    });
    const { max_age: maxAgeMs, max_rows: maxRows } = config;
    gathering = createGathering({ book, store, format, memory, clock, arrived, maxRows, maxAgeMs });
    return gathering;
  }

  const toolsFor = (signal: AbortSignal) => ({ store, format, clock, signal });
  const hasLedger = context.followsHistory === true;

  async function orForget<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      gathering = null;
      throw error;
    }
  }

  async function gather(batch: readonly Event[], offer: Offered, signal: AbortSignal): Promise<Receipt> {
    if (gathering?.hasTaken(offer.positions[0] ?? 0) === true) gathering = null;
    const here = await ready(signal);
    const rejected = await taken(batch, (event, n) =>
      here.take(event, offer.positions[n] ?? 0, offer.committedAt[n] ?? "", signal),
    );
    await here.land(signal);
    const done = settled(here);
    return done === null ? { rejected, gathered: true } : { rejected, remember: done };
  }

  /** What goes with a settlement; null where something is not in the lake yet. */
  function settled(here: Gathering) {
    const done = here.settle();
    if (done === null) return null;
    alone.forget();
    seals = withSeals(seals, done.seals);
    return new Map([...done.remember, ...(upkeep?.landed(done.partitions) ?? [])]);
  }

  /** Finalizes a day, or does a part of the hourly compaction; null where nothing is due. */
  async function compactNext(signal: AbortSignal): Promise<SinkStateChange | null> {
    const [seal, ...rest] = seals;
    if (seal === undefined) {
      const done = await upkept(signal);
      if (done !== null) alone.forget();
      return done;
    }
    await sealDay(seal, toolsFor(signal));
    alone.forget();
    seals = rest;
    return sealed(seal);
  }

  /** A file that cannot be read keeps its day from being compacted, and nothing else. */
  async function upkept(signal: AbortSignal): Promise<SinkStateChange | null> {
    try {
      return (await upkeep?.step(signal)) ?? null;
    } catch (error) {
      if (!(error instanceof ConfigError) || (await isCompacting(memory))) throw error;
      log.warn({ err: error }, "files of a day could not be compacted; this is tried again in an hour");
      return new Map();
    }
  }

  /** What comes again, or stands nowhere in the log. */
  async function landAlone(
    batch: readonly Event[],
    offer: Offered | undefined,
    signal: AbortSignal,
  ): Promise<Receipt> {
    await ready(signal);
    const hand = createHand();
    const rejected = await taken(batch, async (event, n) =>
      hand.add(event, offer?.positions[n] ?? 0, offer?.committedAt[n] ?? ""),
    );
    await alone.land(hand, signal);
    const loose = upkeep?.landed(hand.portions().map(({ partition }) => partition)) ?? [];
    const more = batch.map(sealIn).filter((seal) => seal !== null);
    seals = withSeals(seals, more);
    return { rejected, remember: new Map([...toSeal(more), ...loose]) };
  }

  return {
    maxBatch: MAX_BATCH,
    oneOrder: true,
    farEnd: lake.farEnd,
    ...(lake.lastStepMs === undefined ? {} : { lastStepMs: lake.lastStepMs }),

    async open(signal) {
      signal.throwIfAborted();
      await orForget(() => ready(signal));
    },

    async write(batch, signal, _accepted, offer) {
      signal.throwIfAborted();
      const isAlone = offer === undefined || offer.again || offer.positions.includes(0);
      return orForget(() => (isAlone ? landAlone(batch, offer, signal) : gather(batch, offer, signal)));
    },

    async tick(signal) {
      signal.throwIfAborted();
      return orForget(async () => {
        const inMs = Math.min(LOOK_MS, config.max_age);
        const here = await ready(signal);
        await format.tidy?.(signal);
        await here.land(signal);
        const remember = settled(here);
        if (remember !== null) return { remember, settled: true, inMs };
        // A file that may have to be made again must not be made a part of another one.
        if (!here.isSettled) return { inMs };
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

    probe: (signal) => lake.probe(signal),

    async close() {
      gathering = null;
      await lake.close();
    },
  };
}

/** Takes event by event, and answers which make no rows. */
async function taken(
  batch: readonly Event[],
  take: (event: Event, index: number) => Promise<void>,
): Promise<readonly Rejection[]> {
  const rejected: Rejection[] = [];
  for (const [index, event] of batch.entries()) {
    try {
      await pause();
      await take(event, index);
    } catch (error) {
      if (!(error instanceof Untold)) throw error;
      rejected.push({ index, reason: error.message });
    }
  }
  return rejected;
}

/** Where the lake is, by the configuration. */
interface LakeStore {
  readonly store: ObjectStore;
  /** As in `Sink`. */
  readonly farEnd: string;
  /** As in `Sink`. */
  lastStepMs(): number;
  /** Writes nothing. */
  probe(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

function createLakeStore({ folder, mode, s3 }: ParquetConfig, clock: Clock): LakeStore {
  if (s3 !== undefined) {
    const store = createS3Store(s3, clock);
    const farEnd = hashOf(`${endpointOf(s3)} ${store.where}`);
    const { lastStepMs } = store;
    return { store, farEnd, lastStepMs, probe: (signal) => store.probe(signal), close: () => store.close() };
  }
  if (folder === undefined) throw new Error("A lake without a place passed the schema.");
  const store = createFolderStore(folder, Number.parseInt(mode, 8), clock);
  return {
    store,
    lastStepMs: () => store.lastStepMs(),
    farEnd: hashOf(store.where),
    probe: () => probeFolder(folder),
    close: async () => undefined,
  };
}

function hashOf(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
