import type { TagValue } from "../../core/model/building.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import type { Store } from "../../engine/store/store.ts";
import { type ChunkFormat, decodeChunk, encodeChunk, HOUR_FORMAT, SAMPLE_FORMAT, type Samples } from "./tag-samples.ts";

export const CHUNK_SECONDS = 600;
const CHUNK_COUNT = 150;
const HOUR_SECONDS = 3_600;
const HOUR_COUNT = 768;
const DAY_MS = 86_400_000;
const MAX_CHUNKS_PER_WRITE = 100;
const HEADER_KEY = "groups";

export const plotDocumentSet = (source: string): string => `plot/${source}`;

export async function deleteDocumentSet(store: Pick<Store, "commit" | "documents">, set: string): Promise<void> {
  const documentKeys = [...(await store.documents(set)).keys()];
  if (documentKeys.length > 0) await store.commit({ documents: [{ set, remove: documentKeys }] });
}

/** Stores readings of a source for a day, and the lowest, highest and last value of each hour for a month. */
export function createTagPlots({ store, source }: { readonly store: RingDocumentStore; readonly source: string }) {
  const set = plotDocumentSet(source);
  const tagIndexes = createTagIndexes();
  const readings = createTagRing(SAMPLE_FORMAT, { store, set, prefix: "s", stepS: CHUNK_SECONDS, length: CHUNK_COUNT });
  const hourValues = createTagRing(HOUR_FORMAT, { store, set, prefix: "h", stepS: HOUR_SECONDS, length: HOUR_COUNT });
  let writtenUntilMs = 0;
  async function writeTagIndexes(): Promise<void> {
    const changedGroups = tagIndexes.takeChanged().map((group) => [String(group), tagIndexes.pack(group)] as const);
    const header = { count: tagIndexes.groupCount(), writtenMs: writtenUntilMs };
    await store.commit({ documents: [{ set, put: [[HEADER_KEY, header], ...changedGroups] }] });
  }
  return {
    async loadTagIndexes(nowMs: number): Promise<void> {
      const header = await store.document<{ readonly count: number; readonly writtenMs: number }>(set, HEADER_KEY);
      // Without the header, the tags of the stored chunks are unknown, so delete all chunks.
      if (header === undefined) return deleteDocumentSet(store, set);
      writtenUntilMs = header.writtenMs;
      for (let group = 0; group < header.count; group++)
        tagIndexes.load(group, await store.document<PackedTagIndexes>(set, String(group)), dayNumberOf(nowMs));
    },
    addReading(id: string, value: TagValue, atMs: number): void {
      const atS = Math.round(atMs / 1_000);
      const numericValue = value === null ? null : Number(value);
      const index = tagIndexes.assignIndex(id, dayNumberOf(atMs));
      readings.add(index, atS, numericValue);
      if (numericValue !== null) hourValues.add(index, atS, numericValue);
    },
    async writeChunks({ all: includesOpen, nowMs }: { readonly nowMs: number; readonly all: boolean }): Promise<void> {
      const nowSeconds = Math.floor(nowMs / 1_000);
      const writtenUntilS = includesOpen ? Number.POSITIVE_INFINITY : nowSeconds - (nowSeconds % CHUNK_SECONDS);
      // Write new tag indexes before the chunks that contain these indexes.
      if (tagIndexes.hasChanged()) await writeTagIndexes();
      await readings.write(writtenUntilS);
      await hourValues.write(Number.POSITIVE_INFINITY);
      writtenUntilMs = Math.min(nowMs, writtenUntilS * 1_000);
      await writeTagIndexes();
      readings.dropWrittenChunks(nowSeconds);
      hourValues.dropWrittenChunks(nowSeconds);
    },
    /** Returns the time (milliseconds since 1970) until which all values are written; 0 if none is written. */
    writtenUntilMs: () => writtenUntilMs,
    async samples(id: string, fromMs: number, toMs: number): Promise<Samples> {
      const chunks = await readings.read(tagIndexes.find(id), fromMs, toMs);
      return chunks.map(([, samples]) => samples).reduce(SAMPLE_FORMAT.mergeData, { times: [], values: [] });
    },
    hours: (id: string, fromMs: number, toMs: number) => hourValues.read(tagIndexes.find(id), fromMs, toMs),
  };
}

const dayNumberOf = (atMs: number): number => Math.floor(atMs / DAY_MS);

/** A chunk of 50 tags has less than 1,000 bytes, so SQLite needs no overflow page for the chunk. */
const TAGS_PER_GROUP = 50;
/** After 33 days without a reading, no stored data of a tag is left, so another tag may get its index. */
const INDEX_REUSE_DAYS = 33;

/** Stored ids of up to 50 tags in the order of their indexes. `days`: last day with a reading, in days since 1970. */
interface PackedTagIndexes {
  readonly ids: readonly string[];
  readonly days: readonly number[];
}

/** Gives each tag a number, so that stored chunks need not contain tag ids. */
export function createTagIndexes() {
  const indexByTagId = new Map<string, number>();
  const ids: string[] = [];
  const lastReadDays: number[] = [];
  const freeTagIndexes: number[] = [];
  const changedIndexGroups = new Set<number>();
  return {
    assignIndex(id: string, day: number): number {
      let index = indexByTagId.get(id);
      if (index === undefined) {
        index = freeTagIndexes.pop() ?? ids.length;
        const previousTagId = ids[index];
        if (previousTagId !== undefined) indexByTagId.delete(previousTagId);
        ids[index] = id;
        indexByTagId.set(id, index);
      }
      if (lastReadDays[index] !== day) {
        lastReadDays[index] = day;
        changedIndexGroups.add(Math.floor(index / TAGS_PER_GROUP));
      }
      return index;
    },
    find: (id: string) => indexByTagId.get(id),
    groupCount: () => Math.ceil(ids.length / TAGS_PER_GROUP),
    hasChanged: () => changedIndexGroups.size > 0,
    takeChanged(): readonly number[] {
      const changedGroupNumbers = [...changedIndexGroups];
      changedIndexGroups.clear();
      return changedGroupNumbers;
    },
    pack(group: number): PackedTagIndexes {
      const [from, to] = [group * TAGS_PER_GROUP, (group + 1) * TAGS_PER_GROUP];
      return { ids: ids.slice(from, to), days: lastReadDays.slice(from, to) };
    },
    /** Loads the ids of a group of 50 tags. If no ids are stored, the group's indexes stay unused. */
    load(group: number, packed: PackedTagIndexes | undefined, today: number): void {
      if (packed === undefined) ids.length = Math.max(ids.length, (group + 1) * TAGS_PER_GROUP);
      for (const [n, id] of packed?.ids.entries() ?? []) {
        const index = group * TAGS_PER_GROUP + n;
        const lastReadDay = packed?.days[n] ?? 0;
        ids[index] = id;
        lastReadDays[index] = lastReadDay;
        indexByTagId.set(id, index);
        if (today - lastReadDay > INDEX_REUSE_DAYS) freeTagIndexes.push(index);
      }
    },
  };
}

type RingDocumentStore = Pick<Store, "commit" | "document" | "documents">;

/** While writes fail, memory holds at most this number of unwritten time ranges; older ranges are dropped. */
const MAX_UNWRITTEN_TIME_RANGES = 12;

interface TagDataChunk<T> {
  readonly dataByTagIndex: Map<number, T>;
  isLoaded: boolean;
  isChanged: boolean;
}

/**
 * Ring of stored chunks: a new chunk overwrites the oldest chunk, so the stored data never grows and needs no cleanup.
 *   time range  … 06:00  06:10  06:20 …         one chunk of 50 tags each
 *   key           "0 s12" "0 s13" "0 s14"       group, letter, number of the range modulo the ring's length
 */
function createTagRing<T, Reading>(
  format: ChunkFormat<T, Reading>,
  options: {
    readonly store: RingDocumentStore;
    readonly set: string;
    readonly prefix: string;
    readonly stepS: number;
    readonly length: number;
  },
) {
  const { store, set, prefix, stepS, length } = options;
  const chunksByStart = new Map<number, Map<number, TagDataChunk<T>>>();
  const chunkKey = (group: number, startS: number) => `${group} ${prefix}${(startS / stepS) % length}`;
  async function loadStoredChunk(chunk: TagDataChunk<T>, group: number, startS: number): Promise<void> {
    if (chunk.isLoaded) return;
    const storedTagData = decodeChunk(format, startS, await store.document(set, chunkKey(group, startS)));
    for (const [index, olderData] of storedTagData) {
      const unstoredData = chunk.dataByTagIndex.get(index);
      chunk.dataByTagIndex.set(index, unstoredData ? format.mergeData(olderData, unstoredData) : olderData);
    }
    chunk.isLoaded = true;
  }
  return {
    add(tagIndex: number, atS: number, reading: Reading): void {
      const [group, index] = [Math.floor(tagIndex / TAGS_PER_GROUP), tagIndex % TAGS_PER_GROUP];
      const startS = atS - (atS % stepS);
      const chunksByGroup = chunksByStart.get(startS) ?? new Map<number, TagDataChunk<T>>();
      const chunk = chunksByGroup.get(group) ?? { dataByTagIndex: new Map(), isLoaded: false, isChanged: true };
      chunksByStart.set(startS, chunksByGroup);
      chunksByGroup.set(group, chunk);
      chunk.dataByTagIndex.set(index, format.addReading(chunk.dataByTagIndex.get(index), atS, reading));
      chunk.isChanged = true;
      if (chunksByStart.size > MAX_UNWRITTEN_TIME_RANGES) chunksByStart.delete(Math.min(...chunksByStart.keys()));
    },
    async read(tagIndex: number | undefined, fromMs: number, toMs: number) {
      const foundTagData: (readonly [begin: number, value: T])[] = [];
      if (tagIndex === undefined) return foundTagData;
      const [group, index] = [Math.floor(tagIndex / TAGS_PER_GROUP), tagIndex % TAGS_PER_GROUP];
      for (let startS = Math.floor(fromMs / 1_000 / stepS) * stepS; startS <= toMs / 1_000; startS += stepS) {
        const chunk = chunksByStart.get(startS)?.get(group);
        const unwrittenData = chunk?.dataByTagIndex.get(index);
        const storedChunkText = chunk?.isLoaded === true ? null : await store.document(set, chunkKey(group, startS));
        const writtenData = decodeChunk(format, startS, storedChunkText, index).get(index);
        const mergedData =
          writtenData && unwrittenData ? format.mergeData(writtenData, unwrittenData) : (unwrittenData ?? writtenData);
        if (mergedData !== undefined) foundTagData.push([startS, mergedData]);
      }
      return foundTagData;
    },
    /** Writes changed chunks that start before `endS`. The next call repeats a failed write. */
    async write(endS: number): Promise<void> {
      const changedChunks = [...chunksByStart]
        .filter(([startS]) => startS < endS)
        .flatMap(([begin, chunks]) => [...chunks].map(([group, chunk]) => ({ begin, group, chunk })))
        .filter(({ chunk }) => chunk.isChanged);
      for (let batchStart = 0; batchStart < changedChunks.length; batchStart += MAX_CHUNKS_PER_WRITE) {
        const chunkBatch = changedChunks.slice(batchStart, batchStart + MAX_CHUNKS_PER_WRITE);
        const chunkDocuments: (readonly [string, string])[] = [];
        for (const { begin, group, chunk } of chunkBatch) {
          await loadStoredChunk(chunk, group, begin);
          chunk.isChanged = false;
          chunkDocuments.push([chunkKey(group, begin), encodeChunk(format, begin, chunk.dataByTagIndex)]);
        }
        try {
          await store.commit({ documents: [{ set, put: chunkDocuments }] });
        } catch (error) {
          for (const { chunk } of chunkBatch) chunk.isChanged = true;
          throw error;
        }
        await yieldToEventLoop();
      }
    },
    dropWrittenChunks(nowS: number): void {
      for (const [startS, chunks] of chunksByStart)
        if (startS + stepS <= nowS && !chunks.values().some(({ isChanged }) => isChanged)) chunksByStart.delete(startS);
    },
  };
}
