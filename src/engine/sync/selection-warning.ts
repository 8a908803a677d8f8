import type { Log } from "../../core/runtime/log.ts";
import { yieldIfMany } from "../../core/runtime/waiting.ts";
import type { Store } from "../store/store.ts";
import { compareClasses, type NamedSelection } from "./compare.ts";
import { visibleSites } from "./inventory/located-tags.ts";
import { buildingFromState } from "./seen-building.ts";

/** Lists of classes by their displayed name; the first class of a list that selects a tag has it. */
export type ClassLists = ReadonlyMap<string, readonly NamedSelection[]>;

/** Logs classes without a tag, with the reason, after each complete list of tags; repeats a warning only when it changes. */
export function createSelectionWarning(options: {
  readonly source: string;
  readonly lists: ClassLists;
  readonly followed: readonly number[] | null;
  readonly log: Log;
}): (store: Store) => Promise<void> {
  const { source, lists, followed, log } = options;
  let logged: ReadonlySet<string> = new Set();

  return async (store) => {
    const sites = await visibleSites(store, source);
    const building = await buildingFromState(store, source, sites, { followed, systems: [], gateways: false });
    if (building === null || building.tags.length === 0) return;
    await yieldIfMany(building.tags.length);
    const next = new Set<string>();
    for (const [list, classes] of lists) {
      for (const { name, tags, mismatches } of compareClasses(classes, building)) {
        if (tags > 0) continue;
        const reason = mismatches.map(({ message }) => message).join(" ");
        const key = `${list} ${name} ${reason}`;
        next.add(key);
        if (!logged.has(key)) log.warn({ list, class: name, reason }, "a class selects no tag");
      }
    }
    logged = next;
  };
}
