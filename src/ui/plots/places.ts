import { GROUP } from "./track.ts";

/** Which tag has which place, so that no leaf has to name its tags. Places of tags that were not read for long go to others. */
export interface Places {
  /** The place of a tag that was read on a day; a new one where it has none. */
  take(id: string, day: number): number;
  find(id: string): number | undefined;
  groups(): number;
  /** Groups that have changed since they were packed last. */
  changed(): readonly number[];
  pack(group: number): PackedPlaces;
  /** Loads a group. A damaged one (undefined) keeps its indexes empty, because their tags are unknown. */
  load(group: number, packed: PackedPlaces | undefined, today: number): void;
}

/** Up to 50 tags by place, and when each was read last, in days since 1970. */
export interface PackedPlaces {
  readonly ids: readonly string[];
  readonly days: readonly number[];
}

/** Days without a reading after which the rings hold no data of a tag. */
const FORGOTTEN_DAYS = 33;

export function createPlaces(): Places {
  const places = new Map<string, number>();
  const ids: string[] = [];
  const days: number[] = [];
  const free: number[] = [];
  const changed = new Set<number>();

  return {
    take(id, day) {
      let place = places.get(id);
      if (place === undefined) {
        place = free.pop() ?? ids.length;
        const before = ids[place];
        if (before !== undefined) places.delete(before);
        ids[place] = id;
        places.set(id, place);
      }
      if (days[place] !== day) {
        days[place] = day;
        changed.add(Math.floor(place / GROUP));
      }
      return place;
    },
    find: (id) => places.get(id),
    groups: () => Math.ceil(ids.length / GROUP),
    changed: () => [...changed],
    pack(group) {
      changed.delete(group);
      const [from, to] = [group * GROUP, (group + 1) * GROUP];
      return { ids: ids.slice(from, to), days: days.slice(from, to) };
    },
    load(group, packed, today) {
      if (packed === undefined) ids.length = Math.max(ids.length, (group + 1) * GROUP);
      if (packed === undefined) return;
      for (const [n, id] of packed.ids.entries()) {
        const place = group * GROUP + n;
        ids[place] = id;
        days[place] = packed.days[n] ?? 0;
        places.set(id, place);
        if (today - (days[place] ?? 0) > FORGOTTEN_DAYS) free.push(place);
      }
    },
  };
}
