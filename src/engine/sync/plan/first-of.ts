/**
 * Whether the tag at place `a` goes before the one at `b`; of two tags one does, and none before itself. A yes or no and
 * not a difference, which would be an object for each of 50,000 tags.
 */
export type IsBefore = (a: number, b: number) => boolean;

/** The first `count` in an order, of those that fit: of 50,000 tags 20, without sorting them all. */
export function firstOf(
  places: Uint32Array,
  count: number,
  isBefore: IsBefore,
  fits: (place: number) => boolean,
): readonly number[] {
  const first: number[] = [];
  if (count <= 0) return first;
  for (let n = 0; n < places.length; n++) {
    const candidate = places[n] as number;
    const isFull = first.length === count;
    if (isFull && !isBefore(candidate, first[count - 1] as number)) continue;
    if (!fits(candidate)) continue;
    let at = isFull ? count - 1 : first.length;
    for (; at > 0; at--) {
      const before = first[at - 1] as number;
      if (!isBefore(candidate, before)) break;
      first[at] = before;
    }
    first[at] = candidate;
  }
  return first;
}
