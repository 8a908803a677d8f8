import type { TagValue } from "../../core/model/building.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import type { Store } from "../../engine/store/store.ts";
import { HOUR_FORMAT, readChunk, SAMPLE_FORMAT, type Samples, type SeriesFormat, writeChunk } from "./tag-samples.ts";

/** Seconds of readings in a chunk. The ring has the chunks of one day and the current chunk. */
export const CHUNK_S = 600;
const CHUNK_COUNT = 150;
const HOUR_S = 3_600;
const HOUR_COUNT = 768;
const DAY_MS = 86_400_000;
const MAX_CHUNKS_PER_WRITE = 100;
const GROUPS_KEY = "groups";

export function plotSet(source: string): string {
  return `plot/${source}`;
}

/** Readings of one source's tags for a day, and the lowest, highest and last value of each hour for a month. */
export function createTagPlots({ store, source }: { readonly store: RingStore; readonly source: string }) {
  const set = plotSet(source);
  const indexes = createTagIndexes();
  const recent = createRing(SAMPLE_FORMAT, { store, set, letter: "s", stepS: CHUNK_S, length: CHUNK_COUNT });
  const hours = createRing(HOUR_FORMAT, { store, set, letter: "h", stepS: HOUR_S, length: HOUR_COUNT });
  let writtenMs = 0;
  async function writeIndexes(): Promise<void> {
    const groups = indexes.takeChanged().map((group) => [String(group), indexes.pack(group)] as const);
    const header = { count: indexes.groups(), writtenMs };
    await store.commit({ documents: [{ set, put: [[GROUPS_KEY, header], ...groups] }] });
  }
  return {
    /** Loads the indexes of the tags; call it first. */
    async load(nowMs: number): Promise<void> {
      const header = await store.document<{ readonly count: number; readonly writtenMs: number }>(set, GROUPS_KEY);
      if (header === undefined) {
        // Without the number of groups, no chunk can be assigned to its tags.
        const remove = [...(await store.documents(set)).keys()];
        if (remove.length > 0) await store.commit({ documents: [{ set, remove }] });
        return;
      }
      writtenMs = header.writtenMs;
      for (let group = 0; group < header.count; group++)
        indexes.load(group, await store.document<PackedIndexes>(set, String(group)), dayOf(nowMs));
    },
    add(id: string, value: TagValue, atMs: number): void {
      const atS = Math.round(atMs / 1_000);
      const number = value === null ? null : Number(value);
      const index = indexes.use(id, dayOf(atMs));
      recent.add(index, atS, number);
      if (number !== null) hours.add(index, atS, number);
    },
    async write({ all, nowMs }: { readonly nowMs: number; readonly all: boolean }): Promise<void> {
      const nowS = Math.floor(nowMs / 1_000);
      const untilS = all ? Number.POSITIVE_INFINITY : nowS - (nowS % CHUNK_S);
      // Write new indexes before the chunks that use them.
      if (indexes.hasChanged()) await writeIndexes();
      await recent.write(untilS);
      await hours.write(Number.POSITIVE_INFINITY);
      writtenMs = Math.min(nowMs, untilS * 1_000);
      await writeIndexes();
      recent.dropFinished(nowS);
      hours.dropFinished(nowS);
    },
    /** Time until which all values are written, milliseconds since 1970; 0 for none. */
    writtenMs: () => writtenMs,
    async samples(id: string, fromMs: number, toMs: number): Promise<Samples> {
      const chunks = await recent.read(indexes.find(id), fromMs, toMs);
      return chunks.map(([, samples]) => samples).reduce(SAMPLE_FORMAT.join, { times: [], values: [] });
    },
    hours: (id: string, fromMs: number, toMs: number) => hours.read(indexes.find(id), fromMs, toMs),
  };
}

function dayOf(ms: number): number {
  return Math.floor(ms / DAY_MS);
}

/** Tags of a chunk. A chunk stays below 1,000 bytes, so SQLite stores it in the row and needs no overflow page. */
const GROUP_SIZE = 50;
/** Days without a reading after which a tag's index may be reused: the rings then have no data of the tag. */
const REUSE_AFTER_DAYS = 33;

/** Up to 50 tags by index, and the last day of a reading of each, in days since 1970. */
interface PackedIndexes {
  readonly ids: readonly string[];
  readonly days: readonly number[];
}

/** Numbers the tags, so that chunks need not contain tag ids. */
export function createTagIndexes() {
  const indexes = new Map<string, number>();
  const ids: string[] = [];
  const days: number[] = [];
  const freeIndexes: number[] = [];
  const changedGroups = new Set<number>();
  return {
    /** Returns the index of a tag that was read on a day; assigns one to a new tag. */
    use(id: string, day: number): number {
      let index = indexes.get(id);
      if (index === undefined) {
        index = freeIndexes.pop() ?? ids.length;
        const previousId = ids[index];
        if (previousId !== undefined) indexes.delete(previousId);
        ids[index] = id;
        indexes.set(id, index);
      }
      if (days[index] !== day) {
        days[index] = day;
        changedGroups.add(Math.floor(index / GROUP_SIZE));
      }
      return index;
    },
    find: (id: string) => indexes.get(id),
    groups: () => Math.ceil(ids.length / GROUP_SIZE),
    hasChanged: () => changedGroups.size > 0,
    takeChanged(): readonly number[] {
      const groups = [...changedGroups];
      changedGroups.clear();
      return groups;
    },
    pack(group: number): PackedIndexes {
      const [from, to] = [group * GROUP_SIZE, (group + 1) * GROUP_SIZE];
      return { ids: ids.slice(from, to), days: days.slice(from, to) };
    },
    /** Loads a group. The indexes of a missing group stay unused, because their tags are unknown. */
    load(group: number, packed: PackedIndexes | undefined, today: number): void {
      if (packed === undefined) ids.length = Math.max(ids.length, (group + 1) * GROUP_SIZE);
      for (const [n, id] of packed?.ids.entries() ?? []) {
        const index = group * GROUP_SIZE + n;
        const day = packed?.days[n] ?? 0;
        ids[index] = id;
        days[index] = day;
        indexes.set(id, index);
        if (today - day > REUSE_AFTER_DAYS) freeIndexes.push(index);
      }
    },
  };
}

type RingStore = Pick<Store, "commit" | "document" | "documents">;

/** Time ranges that wait in memory while writes fail; a further range displaces the oldest. */
const MAX_WAITING_TIME_RANGES = 12;

interface Chunk<T> {
  readonly parts: Map<number, T>;
  isLoaded: boolean;
  isChanged: boolean;
}

/**
 * Data of tags by time range in a ring of documents. A new chunk overwrites the one from a ring's length ago, so the store
 * never grows beyond the ring and needs no cleanup.
 *
 *   time range  … 06:00  06:10  06:20 …         one chunk of 50 tags each
 *   key           "0 s12" "0 s13" "0 s14"       group, letter, number of the range modulo the ring's length
 */
function createRing<T, Reading>(
  form: SeriesFormat<T, Reading>,
  options: {
    readonly store: RingStore;
    readonly set: string;
    readonly letter: string;
    readonly stepS: number;
    readonly length: number;
  },
) {
  const { store, set, letter, stepS, length } = options;
  const chunksByBegin = new Map<number, Map<number, Chunk<T>>>();
  const chunkKey = (group: number, begin: number) => `${group} ${letter}${(begin / stepS) % length}`;
  async function load(chunk: Chunk<T>, group: number, begin: number): Promise<void> {
    if (chunk.isLoaded) return;
    const storedData = readChunk(form, begin, await store.document(set, chunkKey(group, begin)));
    for (const [index, olderData] of storedData) {
      const newerData = chunk.parts.get(index);
      chunk.parts.set(index, newerData === undefined ? olderData : form.join(olderData, newerData));
    }
    chunk.isLoaded = true;
  }
  return {
    add(tag: number, atS: number, reading: Reading): void {
      const [group, index, begin] = [Math.floor(tag / GROUP_SIZE), tag % GROUP_SIZE, atS - (atS % stepS)];
      const chunks = chunksByBegin.get(begin) ?? new Map<number, Chunk<T>>();
      const chunk = chunks.get(group) ?? { parts: new Map<number, T>(), isLoaded: false, isChanged: true };
      chunksByBegin.set(begin, chunks);
      chunks.set(group, chunk);
      const data = chunk.parts.get(index);
      chunk.parts.set(index, data === undefined ? form.first(atS, reading) : form.more(data, atS, reading));
      chunk.isChanged = true;
      if (chunksByBegin.size > MAX_WAITING_TIME_RANGES) chunksByBegin.delete(Math.min(...chunksByBegin.keys()));
    },
    async read(tag: number | undefined, fromMs: number, toMs: number) {
      const foundData: (readonly [begin: number, value: T])[] = [];
      if (tag === undefined) return foundData;
      const [group, index] = [Math.floor(tag / GROUP_SIZE), tag % GROUP_SIZE];
      for (let begin = Math.floor(fromMs / 1_000 / stepS) * stepS; begin <= toMs / 1_000; begin += stepS) {
        const chunk = chunksByBegin.get(begin)?.get(group);
        const newData = chunk?.parts.get(index);
        const storedText = chunk?.isLoaded === true ? null : await store.document(set, chunkKey(group, begin));
        const oldData = readChunk(form, begin, storedText, index).get(index);
        const value = oldData && newData ? form.join(oldData, newData) : (newData ?? oldData);
        if (value !== undefined) foundData.push([begin, value]);
      }
      return foundData;
    },
    /** Writes changed chunks of time ranges that began before a time. After a failed write they stay changed. */
    async write(beforeS: number): Promise<void> {
      const changedChunks = [...chunksByBegin]
        .filter(([begin]) => begin < beforeS)
        .flatMap(([begin, chunks]) => [...chunks].map(([group, chunk]) => ({ begin, group, chunk })))
        .filter(({ chunk }) => chunk.isChanged);
      for (let batchStart = 0; batchStart < changedChunks.length; batchStart += MAX_CHUNKS_PER_WRITE) {
        const batch = changedChunks.slice(batchStart, batchStart + MAX_CHUNKS_PER_WRITE);
        const put: (readonly [string, string])[] = [];
        for (const { begin, group, chunk } of batch) {
          await load(chunk, group, begin);
          chunk.isChanged = false;
          put.push([chunkKey(group, begin), writeChunk(form, begin, chunk.parts)]);
        }
        try {
          await store.commit({ documents: [{ set, put }] });
        } catch (error) {
          for (const { chunk } of batch) chunk.isChanged = true;
          throw error;
        }
        await yieldToEventLoop();
      }
    },
    dropFinished(nowS: number): void {
      for (const [begin, chunks] of chunksByBegin)
        if (begin + stepS <= nowS && !chunks.values().some(({ isChanged }) => isChanged)) chunksByBegin.delete(begin);
    },
  };
}
