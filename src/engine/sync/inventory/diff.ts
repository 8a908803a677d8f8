import { isDeepStrictEqual } from "node:util";
import type { Gateway, Host, Site, System, Tag } from "../../../core/model/building.ts";
import { type Event, type EventData, type EventKind, eventSubject, makeEvent } from "../../../core/model/event.ts";
import type { EventIdFacts } from "../../../core/model/event-ids.ts";
import type { StoredItem } from "../snapshot.ts";

export interface InventoryKinds {
  readonly site: Site;
  readonly gateway: Gateway;
  readonly host: Host;
  readonly system: System;
  readonly tag: Tag;
}
export type InventoryKind = keyof InventoryKinds;

export interface InventoryObservation<T> {
  readonly siteId: number | null;
  readonly items: readonly T[];
  /** True when the list was complete and the token saw the site before and after: an absent object is missing. */
  readonly complete: boolean;
}

export interface InventoryDiffOptions {
  readonly source: string;
  readonly at: string;
  readonly removeAfterMs: number;
  readonly hostsBehind?: (gatewayId: string) => EventData["gateway-offline"]["hosts"];
}

export interface InventoryStep<T> {
  readonly id: string;
  readonly next: StoredItem<T> | null;
  readonly events: readonly Event[];
}

/** Number of compared objects after which the generator yields null, so that other work can run. */
const COMPARISONS_PER_YIELD = 10_000;

/**
 * Compares stored objects with lists, object by object, so that changes can be committed before the rest is compared: 50,000
 * new tags take seconds. Yields null after many unchanged objects. Pure; before the next step is taken, only the stored
 * object of the last step may change.
 */
export function* compareInventory<N extends InventoryKind>(
  noun: N,
  stored: ReadonlyMap<string, StoredItem<InventoryKinds[N]>>,
  observations: readonly InventoryObservation<InventoryKinds[N]>[],
  options: InventoryDiffOptions,
): Generator<InventoryStep<InventoryKinds[N]> | null, void> {
  type T = InventoryKinds[N];
  const { at } = options;
  const toEvent = (
    change: "added" | "changed" | "removed" | "online" | "offline",
    { siteId, value }: Pick<StoredItem<T>, "siteId" | "value">,
    facts: EventIdFacts,
    more: object = {},
  ): Event =>
    makeEvent({
      type: `${noun}-${change}` as EventKind,
      source: options.source,
      subject: eventSubject(noun, siteId, String(value.id)),
      time: at,
      siteId: noun === "site" ? value.id : siteId,
      data: { [noun]: value, ...more } as unknown as EventData[EventKind],
      facts,
    });
  const completeSites = new Set(observations.filter((list) => list.complete).map((list) => list.siteId));
  const isOnlyOne = (id: string, siteId: number | null) =>
    [...stored].every(([other, known]) => other === id || known.siteId !== siteId || known.missingSince !== null) &&
    observations.every((list) => list.siteId !== siteId || list.items.every((item) => String(item.id) === id));
  let comparedObjects = 0;
  const isDueToYield = () => ++comparedObjects % COMPARISONS_PER_YIELD === 0;
  const { sightings, seenIds } = yield* findChanged(stored, observations, isDueToYield);
  for (const [id, found] of sightings) {
    const storedObject = stored.get(id);
    const currentListing = found.find(({ siteId }) => siteId === storedObject?.siteId) ?? found[0];
    if (currentListing === undefined) continue;
    const { siteId } = currentListing;
    if (storedObject === undefined) {
      const addedObject: StoredItem<T> = { value: currentListing.item, siteId, since: at, missingSince: null };
      yield { id, next: addedObject, events: [toEvent("added", addedObject, [])] };
      continue;
    }
    // The object may still be in the list of its own site, which was not read.
    if (siteId !== storedObject.siteId && !completeSites.has(storedObject.siteId)) continue;
    const value = fillMissingFields(storedObject.value, currentListing.item);
    const newObject: StoredItem<T> = { ...storedObject, value, siteId, missingSince: null };
    const oldValues = formerValues(noun, storedObject, newObject);
    const events =
      Object.keys(oldValues).length > 0 ? [toEvent("changed", newObject, [at], { before: oldValues })] : [];
    if ("online" in storedObject.value && "online" in value && storedObject.value.online !== value.online) {
      const gatewayReach = { hosts: options.hostsBehind?.(id) ?? [], wholeSite: isOnlyOne(id, siteId) };
      events.push(toEvent(value.online === true ? "online" : "offline", newObject, [at], gatewayReach));
    }
    if (!isDeepStrictEqual(newObject, storedObject)) yield { id, next: newObject, events };
  }

  for (const [id, known] of completeSites.size === 0 ? [] : stored) {
    if (isDueToYield()) yield null;
    if (seenIds.has(id) || !completeSites.has(known.siteId)) continue;
    if (known.missingSince === null) yield { id, next: { ...known, missingSince: at }, events: [] };
    else if (isToBeRemoved(known, options))
      yield { id, next: null, events: [toEvent("removed", known, [known.missingSince])] };
  }
}

interface ListedObject<T> {
  readonly siteId: number | null;
  readonly item: T;
}

function* findChanged<T extends { readonly id: string | number }>(
  stored: ReadonlyMap<string, StoredItem<T>>,
  observations: readonly InventoryObservation<T>[],
  isDueToYield: () => boolean,
) {
  const listings = new Map<string, ListedObject<T>[]>();
  const seenIds = new Set<string>();
  const hasComplete = observations.some((list) => list.complete);
  for (const { siteId, items } of observations) {
    for (const item of items) {
      if (isDueToYield()) yield null;
      const id = String(item.id);
      if (hasComplete) seenIds.add(id);
      const oldItem = stored.get(id);
      if (oldItem?.value !== item || oldItem.siteId !== siteId || oldItem.missingSince !== null) listings.set(id, []);
    }
  }
  if (listings.size === 0) return { sightings: listings, seenIds };
  for (const { siteId, items } of observations)
    for (const item of items) listings.get(String(item.id))?.push({ siteId, item });
  return { sightings: listings, seenIds };
}

export function isToBeRemoved(
  { missingSince }: StoredItem<unknown>,
  { at, removeAfterMs }: Pick<InventoryDiffOptions, "at" | "removeAfterMs">,
): boolean {
  return missingSince !== null && Date.parse(at) - Date.parse(missingSince) >= removeAfterMs;
}

/** Returns the former values of changed fields, except a gateway's `online`, which has its own events. */
function formerValues(noun: InventoryKind, known: StoredItem<object>, next: StoredItem<object>) {
  const newValues = new Map(Object.entries(next.value));
  const oldValues = Object.entries(known.value).filter(
    ([name, value]) => !(noun === "gateway" && name === "online") && !isDeepStrictEqual(value, newValues.get(name)),
  );
  return Object.fromEntries(next.siteId === known.siteId ? oldValues : [...oldValues, ["siteId", known.siteId]]);
}

/** Returns the stored object for a record without attributes, and keeps a gateway's state if the record has none. */
function fillMissingFields<T extends object>(before: T, item: T): T {
  if (Object.entries(item).every(([name, value]) => name === "id" || value === null || value === "")) return before;
  const lacksState = "online" in item && item.online === null && "online" in before;
  return lacksState ? { ...item, online: before.online } : item;
}
