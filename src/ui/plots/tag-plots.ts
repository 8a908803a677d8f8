import type { TagValue } from "../../core/model/building.ts";
import { yieldToEventLoop } from "../../core/runtime/waiting.ts";
import type { DocumentChange, Store } from "../../engine/store/store.ts";
import { createPlaces, type PackedPlaces } from "./places.ts";
import { HOUR, type Hour, SAMPLES, type Samples } from "./samples.ts";
import { createTrack, type Track } from "./track.ts";

/**
 * Values of one source's tags: readings of a day, and for a month the lowest, highest and last value of each hour. Values since the last
 * write are in memory.
 */
export interface TagPlots {
  /** Reads which tags there are; before this nothing is answered. */
  load(nowMs: number): Promise<void>;
  add(id: string, value: TagValue, atMs: number): void;
  write(how: { readonly nowMs: number; readonly all: boolean }): Promise<void>;
  /** Up to when everything is written, milliseconds since 1970; 0 when nothing is. */
  writtenMs(): number;
  samples(id: string, fromMs: number, toMs: number): Promise<Samples>;
  hours(id: string, fromMs: number, toMs: number): Promise<readonly (readonly [begin: number, hour: Hour])[]>;
}

/** Seconds: what is read is written in pieces of ten minutes, and a day of them is kept besides the one under way. */
export const PIECE_S = 600;
const PIECES = 150;
const HOUR_S = 3_600;
/** 31 days and the hours that are under way. */
const HOURS = 768;
const DAY_MS = 86_400_000;
/** Texts in one transaction: 100 of a kilobyte. */
const MOST_AT_ONCE = 100;
const GROUPS = "groups";

interface HeldGroups {
  readonly count: number;
  readonly writtenMs: number;
}

export function plotSet(source: string): string {
  return `plot/${source}`;
}

export function createTagPlots({
  store,
  source,
}: {
  readonly store: Pick<Store, "commit" | "document" | "documents">;
  readonly source: string;
}): TagPlots {
  const set = plotSet(source);
  const places = createPlaces();
  const pieces = createTrack({
    ...{ store, set, letter: "s", form: SAMPLES },
    ...{ stepS: PIECE_S, length: PIECES },
  });
  const hours = createTrack({ ...{ store, set, letter: "h", form: HOUR }, stepS: HOUR_S, length: HOURS });
  let writtenMs = 0;

  /** Deletes all texts: without the list of groups their tags are unknown. */
  async function beginAnew(): Promise<void> {
    const left = [...(await store.documents(set)).keys()];
    if (left.length > 0) await store.commit({ documents: [{ set, remove: left }] });
  }

  async function writePlaces(): Promise<void> {
    const groups = places.changed();
    const put = groups.map((group): readonly [string, unknown] => [String(group), places.pack(group)]);
    const held: HeldGroups = { count: places.groups(), writtenMs };
    await store.commit({ documents: [{ set, put: [[GROUPS, held], ...put] }] });
  }

  return {
    async load(nowMs) {
      const held = await store.document<HeldGroups>(set, GROUPS);
      if (held === undefined) return beginAnew();
      writtenMs = held.writtenMs;
      for (let group = 0; group < held.count; group++)
        places.load(group, await store.document<PackedPlaces>(set, String(group)), dayOf(nowMs));
    },

    add(id, value, atMs) {
      const at = Math.round(atMs / 1_000);
      const number = value === null ? null : Number(value);
      const place = places.take(id, dayOf(atMs));
      pieces.add(place, at - (at % PIECE_S), at, number);
      if (number !== null) hours.add(place, at - (at % HOUR_S), at, number);
    },

    async write({ all, nowMs }) {
      const nowS = Math.floor(nowMs / 1_000);
      const untilS = all ? Number.POSITIVE_INFINITY : nowS - (nowS % PIECE_S);
      // Write the list of tags before the texts that depend on it.
      if (places.changed().length > 0) await writePlaces();
      await commitAll(store, pieces.changes(untilS, MOST_AT_ONCE));
      await commitAll(store, hours.changes(Number.POSITIVE_INFINITY, MOST_AT_ONCE));
      writtenMs = Math.min(nowMs, untilS * 1_000);
      await writePlaces();
      pieces.settled(nowS);
      hours.settled(nowS);
    },

    writtenMs: () => writtenMs,

    async samples(id, fromMs, toMs) {
      const parts = await ofTag(pieces, id, fromMs, toMs);
      return parts.map(([, samples]) => samples).reduce(SAMPLES.join, { times: [], values: [] });
    },
    hours: (id, fromMs, toMs) => ofTag(hours, id, fromMs, toMs),
  };

  async function ofTag<T>(track: Pick<Track<T, never>, "of">, id: string, fromMs: number, toMs: number) {
    const place = places.find(id);
    return place === undefined ? [] : track.of(place, fromMs / 1_000, toMs / 1_000);
  }
}

async function commitAll(store: Pick<Store, "commit">, changes: AsyncGenerator<DocumentChange>): Promise<void> {
  for await (const change of changes) {
    await store.commit({ documents: [change] });
    await yieldToEventLoop();
  }
}

function dayOf(ms: number): number {
  return Math.floor(ms / DAY_MS);
}
