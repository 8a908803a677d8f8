/**
 * Who should hold what. Pure, and the same in every member that sees the same tables: nobody leads, nobody asks anybody.
 *
 * Even: the numbers of sources of two members that can take all differ by one at most. Few moves: what is held stays
 * where it is, unless its holder has to lose it or has two more than another. Of 10 sources at `a` and none at `b`, five
 * move; of 3 and 2, none.
 */
export interface Sharer {
  readonly name: string;
  /** False: it holds nothing any more (it drains, or is about to leave). */
  readonly takes: boolean;
  /** Sources that it has tried to hold in vain a moment ago. */
  readonly unable: readonly string[];
}

/** A source and the member that holds it now; null where nobody does, or one that is not there any more. */
export type Holder = readonly [source: string, member: string | null];

/** By source, the member that should hold it; null where nobody can. */
export type Shares = ReadonlyMap<string, string | null>;

interface Load {
  readonly name: string;
  readonly unable: ReadonlySet<string>;
  /** What it should hold, in the order in which it gives away: the last one first. */
  readonly sources: string[];
}

export function sharesOf(members: readonly Sharer[], holders: readonly Holder[]): Shares {
  const loads: readonly Load[] = members
    .filter(({ takes }) => takes)
    .toSorted((a, b) => compare(a.name, b.name))
    .map(({ name, unable }) => ({ name, unable: new Set(unable), sources: [] }));
  const moving = keepHeld(loads, holders);
  const nobodys = moving.filter((source) => !give(loads, source));
  while (evenOut(loads));
  return new Map([
    ...loads.flatMap(({ name, sources }) => sources.map((source) => [source, name] as const)),
    ...nobodys.map((source) => [source, null] as const),
  ]);
}

/** Everybody keeps what it holds and can hold; the rest is answered, in order. */
function keepHeld(loads: readonly Load[], holders: readonly Holder[]): readonly string[] {
  const moving: string[] = [];
  for (const [source, member] of holders.toSorted(([a], [b]) => compare(a, b))) {
    const holder = loads.find(({ name }) => name === member);
    if (holder === undefined || holder.unable.has(source)) moving.push(source);
    else holder.sources.push(source);
  }
  return moving;
}

/** To whom has least, of those that are able to; what came last is given away first, so that it moves at no cost. */
function give(loads: readonly Load[], source: string): boolean {
  const able = loads.filter(({ unable }) => !unable.has(source));
  const [first, ...others] = able;
  if (first === undefined) return false;
  const least = others.reduce((a, b) => (b.sources.length < a.sources.length ? b : a), first);
  least.sources.push(source);
  return true;
}

/** Moves one source from a member with more to one that has two less; false when there is none. */
function evenOut(loads: readonly Load[]): boolean {
  const bySize = loads.toSorted((a, b) => b.sources.length - a.sources.length);
  for (const from of bySize) {
    for (const to of bySize.toReversed()) {
      if (from.sources.length - to.sources.length < 2) break;
      const at = from.sources.findLastIndex((source) => !to.unable.has(source));
      if (at < 0) continue;
      to.sources.push(...from.sources.splice(at, 1));
      return true;
    }
  }
  return false;
}

/** By code units, the same on every machine and in every language. */
function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
