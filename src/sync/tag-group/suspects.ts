/**
 * Finds the tags that make whole requests refused, without a request that delays anybody else. Deterministic; times
 * are monotonic milliseconds.
 *
 * The members of a refused group are suspected: from then on they travel in groups of their own, first one for each
 * site (a refusal of one site must not cost another), then in halves, until a group is answered (its tags are cleared)
 * or one tag is left. When one half is answered the other is divided without being asked whole, because it is likely
 * to hold the culprit; when one half is refused, the other joins those that are likely to be clean, who travel together.
 * Neither proves anything. A tag is set aside only after it was refused alone twice, a minute
 * apart at least, with the service's word in between that the token may read it: a scope, a view or a service that was
 * away for a moment condemns nobody.
 */
export interface Suspects {
  /** Tags with the same text travel together, apart from the others; null for tags that nobody suspects. */
  labelOf(id: string): string | null;
  /** Before this a tag is not asked again; a tag that was refused alone waits for its second look. */
  notBeforeMs(id: string): number;
  /** These were answered: nobody of them is to blame. */
  cleared(ids: readonly string[]): void;
  /**
   * These were refused together. Returns the tag that is proven now, or null. `named`: the place in the request that
   * the service blamed, if it did. `tokenSaidAtMs`: when the service last said that the token may read all of them.
   */
  refused(ids: readonly string[], refusal: Refusal): string | null;
  /** Nothing is proven against anybody. */
  forget(): void;
}

export interface Refusal {
  readonly atMs: number;
  readonly tokenSaidAtMs: number;
  readonly siteOf: (id: string) => number | undefined;
  readonly named: string | null;
}

/** Between the two looks at a tag that is refused alone, in milliseconds. */
const SECOND_LOOK_MS = 60_000;

/** Those who are likely to be clean: their sibling was refused. */
const LIKELY_CLEAN = "suspects, likely clean";

interface Suspicion {
  readonly label: string;
  /** The label of the other half, where there is one. */
  readonly sibling: string | null;
  /** When it was first refused alone; null while it never was. */
  readonly aloneAtMs: number | null;
}

export function createSuspects(): Suspects {
  const suspicions = new Map<string, Suspicion>();
  let groups = 0;

  const nextLabel = () => {
    groups += 1;
    return `suspects ${groups}`;
  };

  function part(ids: readonly string[], label: string, sibling: string | null): void {
    for (const id of ids) {
      const aloneAtMs = suspicions.get(id)?.aloneAtMs ?? null;
      suspicions.set(id, { label, sibling, aloneAtMs });
    }
  }

  function divide(ids: readonly string[]): void {
    const middle = Math.ceil(ids.length / 2);
    const [first, second] = [nextLabel(), nextLabel()];
    part(ids.slice(0, middle), first, second);
    part(ids.slice(middle), second, first);
  }

  const members = (label: string) =>
    [...suspicions].filter(([, each]) => each.label === label).map(([id]) => id);

  return {
    labelOf: (id) => suspicions.get(id)?.label ?? null,
    notBeforeMs(id) {
      const aloneAtMs = suspicions.get(id)?.aloneAtMs ?? null;
      return aloneAtMs === null ? Number.NEGATIVE_INFINITY : aloneAtMs + SECOND_LOOK_MS;
    },
    cleared(ids) {
      const siblings = new Set(ids.map((id) => suspicions.get(id)?.sibling ?? null));
      for (const id of ids) suspicions.delete(id);
      for (const sibling of siblings) {
        if (sibling === null) continue;
        const rest = members(sibling);
        if (rest.length > 1) divide(rest);
      }
    },
    refused(ids, { atMs, tokenSaidAtMs, siteOf, named }) {
      const [only] = ids;
      if (ids.length === 1 && only !== undefined) {
        const aloneAtMs = suspicions.get(only)?.aloneAtMs ?? null;
        const isProven =
          aloneAtMs !== null && atMs - aloneAtMs >= SECOND_LOOK_MS && tokenSaidAtMs >= aloneAtMs;
        if (isProven) {
          suspicions.delete(only);
          return only;
        }
        const sibling = suspicions.get(only)?.sibling ?? null;
        if (sibling !== null) part(members(sibling), LIKELY_CLEAN, null);
        // Without the token's word the first look does not count; it is looked at for the first time again.
        const counts = aloneAtMs !== null && atMs - aloneAtMs < SECOND_LOOK_MS;
        suspicions.set(only, {
          label: suspicions.get(only)?.label ?? nextLabel(),
          sibling: null,
          aloneAtMs: counts ? aloneAtMs : atMs,
        });
        return null;
      }
      for (const sibling of new Set(ids.map((id) => suspicions.get(id)?.sibling ?? null))) {
        if (sibling !== null) part(members(sibling), LIKELY_CLEAN, null);
      }
      const bySite = Map.groupBy(ids, siteOf);
      if (bySite.size > 1) {
        for (const group of bySite.values()) part(group, nextLabel(), null);
      } else if (named !== null && ids.includes(named)) {
        part([named], nextLabel(), null);
        part(
          ids.filter((id) => id !== named),
          nextLabel(),
          null,
        );
      } else {
        divide(ids);
      }
      return null;
    },
    forget: () => suspicions.clear(),
  };
}
