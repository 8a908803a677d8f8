/**
 * Assigns sources to members. Pure, and equal in every member that sees the same tables: there is no leader.
 *
 * A source moves from a holder that does not reach its service to a member that does, and stays where no member reaches it. A member
 * that does not reach what others reach takes only sources that it has checked.
 *
 * Even: two members that can take all sources differ by at most one. Few moves: a source stays unless its holder must lose it or has
 * two more than another member. Of 10 sources at `a` and none at `b`, five move; of 3 and 2, none.
 */
export interface Sharer {
  readonly name: string;
  /** False: it holds nothing any more (it drains, or is about to leave). */
  readonly takes: boolean;
  /** Sources that it has tried to hold in vain a moment ago. */
  readonly unable: readonly string[];
  readonly reach?: Reached;
}

/**
 * By source, whether a member reaches its service, as far as that is in question: by its own requests for a source that it
 * holds (`true`), or by a health check.
 */
export type Reached = Readonly<Record<string, boolean | "checked">>;

/** A source and its current holder; null without one, or when the holder is gone. */
export type Holder = readonly [source: string, member: string | null];

/** Assigned member by source; null when no member can hold it. */
export type Shares = ReadonlyMap<string, string | null>;

interface Load {
  readonly name: string;
  readonly unable: ReadonlySet<string>;
  readonly reach: Reached;
  /** Another member reaches what it does not. */
  readonly isCut: boolean;
  /** Assigned sources; it gives away the last one first. */
  readonly sources: string[];
}

export function sharesOf(members: readonly Sharer[], holders: readonly Holder[]): Shares {
  const loads: readonly Load[] = members
    .filter(({ takes }) => takes)
    .toSorted((a, b) => compare(a.name, b.name))
    .map(({ name, unable, reach = {} }) => {
      const isCut = Object.keys(reach).some(
        (source) => reach[source] === false && members.some((other) => isReached(other.reach ?? {}, source)),
      );
      return { name, unable: new Set(unable), reach, isCut, sources: [] };
    });
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
    const isBetterElsewhere =
      holder?.reach[source] === false &&
      loads.some(({ unable, reach }) => isReached(reach, source) && !unable.has(source));
    if (holder === undefined || holder.unable.has(source) || isBetterElsewhere) moving.push(source);
    else holder.sources.push(source);
  }
  return moving;
}

const reaches = ({ reach, isCut }: Load, source: string) =>
  isReached(reach, source) || (reach[source] === undefined && !isCut);

/** False as well where it is not known. */
export function isReached(reach: Reached, source: string): boolean {
  return reach[source] === true || reach[source] === "checked";
}

/** To whom has least, of those that are able to; what came last is given away first, so that it moves at no cost. */
function give(loads: readonly Load[], source: string): boolean {
  const able = loads.filter(({ unable }) => !unable.has(source));
  const reaching = able.filter((load) => reaches(load, source));
  const [first, ...others] = reaching.length > 0 ? reaching : able;
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
      const at = from.sources.findLastIndex((source) => !to.unable.has(source) && reaches(to, source));
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
