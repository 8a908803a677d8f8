import type { DocumentChange, Store } from "../../engine/store/store.ts";
import { readChunk, readPart, writeChunk } from "./chunk.ts";
import type { GrowingForm } from "./samples.ts";

/**
 * One kind of thing for each tag and stretch of time, in a ring of texts: the text of a stretch lies where that of the same
 * length of time ago lay, so that the store never grows beyond the ring and nothing has to be cleared away.
 *
 *   stretch   … 06:00  06:10  06:20 …          a leaf of 50 tags each
 *   key         "0 s12" "0 s13" "0 s14"        group, letter, stretch modulo the ring's length
 */
export interface Track<T, Reading> {
  /** Adds a reading of a tag to a stretch; in memory until it is written. */
  add(place: number, begin: number, atS: number, reading: Reading): void;
  /** Stretches in which a tag has something, by time. From the memory and the store. */
  of(place: number, fromS: number, toS: number): Promise<readonly (readonly [begin: number, value: T])[]>;
  /** Documents to write for ranges that began before a time, in changes of about `most` documents. */
  changes(beforeS: number, most: number): AsyncGenerator<DocumentChange>;
  /** Forgets in memory what is written and over. */
  settled(nowS: number): void;
}

export interface TrackOptions<T, Reading> {
  readonly store: Pick<Store, "document">;
  readonly set: string;
  readonly letter: string;
  readonly form: GrowingForm<T, Reading>;
  /** Length of a stretch, seconds. */
  readonly stepS: number;
  /** Stretches that are kept. */
  readonly length: number;
}

/**
 * Tags that lie together: their leaf stays below the thousand bytes that lie in a row itself, where a longer one takes a
 * page of its own (https://sqlite.org/fileformat2.html#payload).
 */
export const GROUP = 50;
/** Stretches that wait in memory because nothing can be written; the oldest goes first. */
const MOST_WAITING = 12;

interface Leaf<T> {
  readonly parts: Map<number, T>;
  /** Whether what the store has of it is in memory as well. */
  isWhole: boolean;
  isChanged: boolean;
}

export function createTrack<T, Reading>(options: TrackOptions<T, Reading>): Track<T, Reading> {
  const { store, set, letter, form, stepS, length } = options;
  /** By begin, then by group. */
  const stretches = new Map<number, Map<number, Leaf<T>>>();
  const keyOf = (group: number, begin: number) => `${group} ${letter}${(begin / stepS) % length}`;

  function leafOf(group: number, begin: number): Leaf<T> {
    let leaves = stretches.get(begin);
    if (leaves === undefined) {
      leaves = new Map();
      stretches.set(begin, leaves);
    }
    let leaf = leaves.get(group);
    if (leaf === undefined) {
      leaf = { parts: new Map(), isWhole: false, isChanged: false };
      leaves.set(group, leaf);
    }
    return leaf;
  }

  /** Loads the stored part of a range before it is changed. */
  async function makeWhole(leaf: Leaf<T>, group: number, begin: number): Promise<void> {
    if (leaf.isWhole) return;
    const stored = readChunk(form, begin, await store.document(set, keyOf(group, begin)));
    for (const [place, before] of stored) {
      const after = leaf.parts.get(place);
      leaf.parts.set(place, after === undefined ? before : form.join(before, after));
    }
    leaf.isWhole = true;
  }

  return {
    add(place, begin, atS, reading) {
      const leaf = leafOf(Math.floor(place / GROUP), begin);
      const held = leaf.parts.get(place % GROUP);
      const grown = held === undefined ? form.first(atS, reading) : form.more(held, atS, reading);
      if (grown !== held) leaf.parts.set(place % GROUP, grown);
      leaf.isChanged = true;
      if (stretches.size > MOST_WAITING) stretches.delete(Math.min(...stretches.keys()));
    },

    async of(place, fromS, toS) {
      const group = Math.floor(place / GROUP);
      const found: (readonly [number, T])[] = [];
      for (let begin = Math.floor(fromS / stepS) * stepS; begin <= toS; begin += stepS) {
        const leaf = stretches.get(begin)?.get(group);
        const now = leaf?.parts.get(place % GROUP);
        const before =
          leaf?.isWhole === true
            ? undefined
            : readPart(form, begin, await store.document(set, keyOf(group, begin)), place % GROUP);
        const value = before !== undefined && now !== undefined ? form.join(before, now) : (now ?? before);
        if (value !== undefined) found.push([begin, value]);
      }
      return found;
    },

    async *changes(beforeS, most) {
      let put: (readonly [string, string])[] = [];
      let written: Leaf<T>[] = [];
      const change = () => ({ set, put });
      for (const [begin, leaves] of [...stretches]) {
        if (begin >= beforeS) continue;
        for (const [group, leaf] of leaves) {
          if (!leaf.isChanged) continue;
          await makeWhole(leaf, group, begin);
          leaf.isChanged = false;
          written.push(leaf);
          put.push([keyOf(group, begin), writeChunk(form, begin, leaf.parts)]);
          if (put.length < most) continue;
          yield* given(change(), written);
          put = [];
          written = [];
        }
      }
      if (put.length > 0) yield* given(change(), written);
    },

    settled(nowS) {
      for (const [begin, leaves] of stretches) {
        const isOver = begin + stepS <= nowS;
        if (isOver && ![...leaves.values()].some(({ isChanged }) => isChanged)) stretches.delete(begin);
      }
    },
  };

  /** Yields a change; when the caller throws because it could not write, the change is yielded again. */
  function* given(change: DocumentChange, leaves: readonly Leaf<T>[]): Generator<DocumentChange> {
    let isTaken = false;
    try {
      yield change;
      isTaken = true;
    } finally {
      if (!isTaken) for (const leaf of leaves) leaf.isChanged = true;
    }
  }
}
