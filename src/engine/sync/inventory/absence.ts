import { type Listing, listedCoverage } from "../listing.ts";
import type { Listed } from "../snapshot.ts";
import { isToBeRemoved } from "./diff.ts";

/**
 * Whether the scope has to say what an absence means: something is missing for the first time, has been for so long that
 * it is to be removed, or is at another site now.
 */
export function isAbsenceNews<T extends { readonly id: string | number }>(
  held: ReadonlyMap<string, Listed<T>>,
  seen: ReadonlyMap<number, Listing<T>>,
  doubted: ReadonlySet<number>,
  removal: Parameters<typeof isToBeRemoved>[1],
): boolean {
  if (showsAllHeld(held, seen)) return false;
  const places = new Map<string, Set<number>>();
  for (const [siteId, list] of seen)
    for (const { id } of listedCoverage(list))
      places.set(String(id), (places.get(String(id)) ?? new Set()).add(siteId));
  return held.entries().some(([id, known]) => {
    const { missingSince, siteId } = known;
    if (siteId === null || doubted.has(siteId) || seen.get(siteId)?.complete !== true) return false;
    const here = places.get(id);
    if (here?.has(siteId)) return false;
    return missingSince === null || here !== undefined || isToBeRemoved(known, removal);
  });
}

/** Whether the complete lists show everything that is held of their sites, as they do nearly always. */
function showsAllHeld<T extends { readonly id: string | number }>(
  held: ReadonlyMap<string, Listed<T>>,
  seen: ReadonlyMap<number, Listing<T>>,
): boolean {
  let shown = 0;
  for (const [siteId, list] of seen)
    if (list.complete) for (const { id } of list.items) if (held.get(String(id))?.siteId === siteId) shown += 1;
  for (const { siteId } of held.values()) if (siteId !== null && seen.get(siteId)?.complete === true) shown -= 1;
  return shown === 0;
}
