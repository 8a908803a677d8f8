import { firstMatch, type Selection, selects } from "../select.ts";
import type { Mismatch, SeenBuilding } from "./building.ts";
import { selectionMismatches } from "./selections.ts";

/** One entry of `read`, or of those of `history` for the same series. */
export interface NamedSelection {
  readonly name: string;
  readonly select: Selection;
}

export interface ClassComparison {
  readonly name: string;
  /** Tags that it has: those that it selects and no earlier one does. */
  readonly tags: number;
  readonly mismatches: readonly Mismatch[];
}

/**
 * What each class of a list has in a building, in the order of the list, and what of it means nothing there: words of
 * its selection, or the class itself where earlier ones take all its tags. Paths begin below the class.
 */
export function compareClasses(
  classes: readonly NamedSelection[],
  building: SeenBuilding,
): readonly ClassComparison[] {
  const members = Map.groupBy(building.tags, firstMatch(classes));
  return classes.map((each, index) => {
    const { name, select } = each;
    const tags = members.get(each)?.length ?? 0;
    const words = selectionMismatches(select, building).map(({ path, message }) => ({
      path: ["select", ...path],
      message,
    }));
    const earlier = tags > 0 ? null : takenBefore(each, classes.slice(0, index), building);
    return { name, tags, mismatches: earlier === null ? words : [...words, { path: [], message: earlier }] };
  });
}

function takenBefore(
  { select }: NamedSelection,
  before: readonly NamedSelection[],
  { tags: all }: SeenBuilding,
): string | null {
  const own = all.filter(selects(select));
  if (own.length === 0) return null;
  const taken = [...Map.groupBy(own, firstMatch(before))];
  const takers = taken.map(([taker, tags]) => `${taker?.name} (${tags.length})`).join(", ");
  const which = taken.length === 1 ? "which stands" : "which stand";
  return `All ${own.length} tags of this class are taken by ${takers}, ${which} before it: put the more specific one first.`;
}
