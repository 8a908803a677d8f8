import { isDeepStrictEqual } from "node:util";
import type { ObjectByNoun } from "../../../core/connector.ts";
import type { Tag, TagNames } from "../../../core/model/building.ts";
import { type Event, type EventData, type EventKind, eventSubject, makeEvent } from "../../../core/model/event.ts";
import type { EventIdFacts } from "../../../core/model/event-ids.ts";
import type { StoredObject } from "../stored-documents.ts";

export type InventoryObjectKind = keyof ObjectByNoun;

export interface ObservedInventoryList<T> {
  readonly siteId: number | null;
  readonly items: readonly T[];
  /** True if an absent object is really missing: the list was complete, and the token saw the site before and after. */
  readonly complete: boolean;
}

export interface InventoryDiffOptions {
  readonly source: string;
  readonly at: string;
  readonly removeAfterMs: number;
  readonly hostsBehind?: (gatewayId: string) => EventData["gateway-offline"]["hosts"];
  readonly nameTag?: (tag: Tag, storedTag: Tag | undefined) => Tag;
}

export interface InventoryChange<T> {
  readonly id: string;
  readonly next: StoredObject<T> | null;
  readonly events: readonly Event[];
}

const OBJECTS_COMPARED_PER_YIELD = 10_000;

/**
 * Compares stored objects with the service's lists. Yields each change at once, so that callers can commit it, and null
 * after many unchanged objects. Between two steps, callers may change only the stored object of the last step.
 */
export function* compareInventory<N extends InventoryObjectKind>(
  kind: N,
  storedObjects: ReadonlyMap<string, StoredObject<ObjectByNoun[N]>>,
  observations: readonly ObservedInventoryList<ObjectByNoun[N]>[],
  options: InventoryDiffOptions,
): Generator<InventoryChange<ObjectByNoun[N]> | null, void> {
  type T = ObjectByNoun[N];
  const { at, nameTag } = options;
  const addNames = (value: T, storedValue?: T): T =>
    kind === "tag" && nameTag ? (nameTag(value as Tag, storedValue as Tag | undefined) as T) : value;
  const buildEvent = (
    change: "added" | "changed" | "removed" | "online" | "offline",
    { siteId, value }: Pick<StoredObject<T>, "siteId" | "value">,
    facts: EventIdFacts,
    extraData: object = {},
  ): Event =>
    makeEvent({
      type: `${kind}-${change}` as EventKind,
      source: options.source,
      subject: eventSubject(kind, siteId, String(value.id)),
      time: at,
      siteId: kind === "site" ? value.id : siteId,
      data: { [kind]: value, ...extraData } as unknown as EventData[EventKind],
      facts,
    });
  const sitesWithCompleteList = new Set(observations.filter((list) => list.complete).map((list) => list.siteId));
  const isOnlyObjectOfSite = (id: string, siteId: number | null) =>
    [...storedObjects].every(
      ([storedId, storedObject]) =>
        storedId === id || storedObject.siteId !== siteId || storedObject.missingSince !== null,
    ) && observations.every((list) => list.siteId !== siteId || list.items.every((item) => String(item.id) === id));
  let comparedObjects = 0;
  const isDueToYield = () => ++comparedObjects % OBJECTS_COMPARED_PER_YIELD === 0;
  const { changedListings, seenIds } = yield* findChangedListings(storedObjects, observations, isDueToYield);
  for (const [id, listingsOfObject] of changedListings) {
    const storedObject = storedObjects.get(id);
    const currentListing =
      listingsOfObject.find(({ siteId }) => siteId === storedObject?.siteId) ?? listingsOfObject[0];
    if (currentListing === undefined) continue;
    const { siteId } = currentListing;
    if (storedObject === undefined) {
      const addedValue = addNames(currentListing.item);
      const addedObject: StoredObject<T> = { value: addedValue, siteId, since: at, missingSince: null };
      yield { id, next: addedObject, events: [buildEvent("added", addedObject, [])] };
      continue;
    }
    // The object may still be in the list of its stored site, which this poll did not read completely.
    if (siteId !== storedObject.siteId && !sitesWithCompleteList.has(storedObject.siteId)) continue;
    const newValue = addNames(fillMissingFields(storedObject.value, currentListing.item), storedObject.value);
    const updatedObject: StoredObject<T> = { ...storedObject, value: newValue, siteId, missingSince: null };
    const oldValues = findFormerFieldValues(kind, storedObject, updatedObject);
    const events =
      Object.keys(oldValues).length > 0 ? [buildEvent("changed", updatedObject, [at], { before: oldValues })] : [];
    if ("online" in storedObject.value && "online" in newValue && storedObject.value.online !== newValue.online) {
      const gatewayFacts = {
        hosts: options.hostsBehind?.(id) ?? [],
        wholeSite: isOnlyObjectOfSite(id, siteId),
      } satisfies Omit<EventData["gateway-offline" | "gateway-online"], "gateway">;
      events.push(buildEvent(newValue.online === true ? "online" : "offline", updatedObject, [at], gatewayFacts));
    }
    if (!isDeepStrictEqual(updatedObject, storedObject)) yield { id, next: updatedObject, events };
  }

  for (const [id, storedObject] of sitesWithCompleteList.size === 0 ? [] : storedObjects) {
    if (isDueToYield()) yield null;
    if (seenIds.has(id) || !sitesWithCompleteList.has(storedObject.siteId)) continue;
    if (storedObject.missingSince === null) yield { id, next: { ...storedObject, missingSince: at }, events: [] };
    else if (isAbsentObjectExpired(storedObject, options))
      yield { id, next: null, events: [buildEvent("removed", storedObject, [storedObject.missingSince])] };
  }
}

function* findChangedListings<T extends { readonly id: string | number }>(
  storedObjects: ReadonlyMap<string, StoredObject<T>>,
  observations: readonly ObservedInventoryList<T>[],
  isDueToYield: () => boolean,
) {
  const listings = new Map<string, { readonly siteId: number | null; readonly item: T }[]>();
  const listedObjectIds = new Set<string>();
  const hasCompleteList = observations.some((list) => list.complete);
  for (const { siteId, items } of observations) {
    for (const item of items) {
      if (isDueToYield()) yield null;
      const id = String(item.id);
      if (hasCompleteList) listedObjectIds.add(id);
      const storedObject = storedObjects.get(id);
      if (storedObject?.value !== item || storedObject.siteId !== siteId || storedObject.missingSince !== null)
        listings.set(id, []);
    }
  }
  if (listings.size === 0) return { changedListings: listings, seenIds: listedObjectIds };
  for (const { siteId, items } of observations)
    for (const item of items) listings.get(String(item.id))?.push({ siteId, item });
  return { changedListings: listings, seenIds: listedObjectIds };
}

export type RemovalOptions = Pick<InventoryDiffOptions, "at" | "removeAfterMs">;

export function isAbsentObjectExpired({ missingSince }: StoredObject<unknown>, { at, removeAfterMs }: RemovalOptions) {
  return missingSince !== null && Date.parse(at) - Date.parse(missingSince) >= removeAfterMs;
}

/** Returns the former values of changed fields, except a gateway's `online`, which has its own events. */
function findFormerFieldValues(
  noun: InventoryObjectKind,
  storedObject: StoredObject<object>,
  next: StoredObject<object>,
) {
  const newValues = new Map<string, unknown>(Object.entries(next.value));
  const formerValue = noun === "tag" ? { ...storedObject.value, ...getNames(storedObject.value) } : storedObject.value;
  const hasChanged = ([name, value]: readonly [string, unknown]) =>
    !(noun === "gateway" && name === "online") && !isDeepStrictEqual(value, newValues.get(name) ?? null);
  const oldValues = Object.fromEntries(Object.entries(formerValue).filter(hasChanged));
  return next.siteId === storedObject.siteId ? oldValues : { ...oldValues, siteId: storedObject.siteId };
}

function getNames({ alias = null, path = null, unitCode = null }: { readonly [K in keyof TagNames]?: string | null }) {
  return { alias, path, unitCode };
}

/** Returns the stored object for a record without attributes, and keeps a gateway's state if the record has none. */
function fillMissingFields<T extends object>(storedValue: T, item: T): T {
  if (Object.entries(item).every(([name, value]) => name === "id" || value === null || value === ""))
    return storedValue;
  const lacksOnlineState = "online" in item && item.online === null && "online" in storedValue;
  return lacksOnlineState ? { ...item, online: storedValue.online } : item;
}
