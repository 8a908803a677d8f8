import { isDeepStrictEqual } from "node:util";
import type { Gateway, Host, Site, System, Tag } from "../../../core/model/building.ts";
import { type Event, type EventData, type EventKind, eventSubject, makeEvent } from "../../../core/model/event.ts";
import type { EventFacts } from "../../../core/model/event-ids.ts";
import type { Listed } from "../snapshot.ts";

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
  readonly next: Listed<T> | null;
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
  stored: ReadonlyMap<string, Listed<InventoryKinds[N]>>,
  observations: readonly InventoryObservation<InventoryKinds[N]>[],
  options: InventoryDiffOptions,
): Generator<InventoryStep<InventoryKinds[N]> | null, void> {
  type T = InventoryKinds[N];
  const { at } = options;
  const event = (
    change: "added" | "changed" | "removed" | "online" | "offline",
    { siteId, value }: Pick<Listed<T>, "siteId" | "value">,
    facts: EventFacts,
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
  const complete = new Set(observations.filter((list) => list.complete).map((list) => list.siteId));
  const isOnlyOne = (id: string, siteId: number | null) =>
    [...stored].every(([other, known]) => other === id || known.siteId !== siteId || known.missingSince !== null) &&
    observations.every((list) => list.siteId !== siteId || list.items.every((item) => String(item.id) === id));
  let compared = 0;
  const isDueToYield = () => ++compared % COMPARISONS_PER_YIELD === 0;

  const { sightings, seenIds } = yield* findChanged(stored, observations, isDueToYield);
  for (const [id, found] of sightings) {
    const known = stored.get(id);
    const here = found.find(({ siteId }) => siteId === known?.siteId) ?? found[0];
    if (here === undefined) continue;
    const { siteId } = here;
    if (known === undefined) {
      const next: Listed<T> = { value: here.item, siteId, since: at, missingSince: null };
      yield { id, next, events: [event("added", next, [])] };
      continue;
    }
    // The object may still be in the list of its own site, which was not read.
    if (siteId !== known.siteId && !complete.has(known.siteId)) continue;
    const value = fillMissingFields(known.value, here.item);
    const next: Listed<T> = { ...known, value, siteId, missingSince: null };
    const before = formerValues(noun, known, next);
    const events = Object.keys(before).length > 0 ? [event("changed", next, [at], { before })] : [];
    if ("online" in known.value && "online" in value && known.value.online !== value.online) {
      const behind = { hosts: options.hostsBehind?.(id) ?? [], wholeSite: isOnlyOne(id, siteId) };
      events.push(event(value.online === true ? "online" : "offline", next, [at], behind));
    }
    if (!isDeepStrictEqual(next, known)) yield { id, next, events };
  }

  for (const [id, known] of complete.size === 0 ? [] : stored) {
    if (isDueToYield()) yield null;
    if (seenIds.has(id) || !complete.has(known.siteId)) continue;
    if (known.missingSince === null) yield { id, next: { ...known, missingSince: at }, events: [] };
    else if (isToBeRemoved(known, options))
      yield { id, next: null, events: [event("removed", known, [known.missingSince])] };
  }
}

interface ListedObject<T> {
  readonly siteId: number | null;
  readonly item: T;
}

function* findChanged<T extends { readonly id: string | number }>(
  stored: ReadonlyMap<string, Listed<T>>,
  observations: readonly InventoryObservation<T>[],
  isDueToYield: () => boolean,
) {
  const sightings = new Map<string, ListedObject<T>[]>();
  const seenIds = new Set<string>();
  const hasComplete = observations.some((list) => list.complete);
  for (const { siteId, items } of observations) {
    for (const item of items) {
      if (isDueToYield()) yield null;
      const id = String(item.id);
      if (hasComplete) seenIds.add(id);
      const known = stored.get(id);
      if (known?.value !== item || known.siteId !== siteId || known.missingSince !== null) sightings.set(id, []);
    }
  }
  if (sightings.size === 0) return { sightings, seenIds };
  for (const { siteId, items } of observations)
    for (const item of items) sightings.get(String(item.id))?.push({ siteId, item });
  return { sightings, seenIds };
}

export function isToBeRemoved(
  { missingSince }: Listed<unknown>,
  { at, removeAfterMs }: Pick<InventoryDiffOptions, "at" | "removeAfterMs">,
): boolean {
  return missingSince !== null && Date.parse(at) - Date.parse(missingSince) >= removeAfterMs;
}

/** Returns the former values of changed fields, except a gateway's `online`, which has its own events. */
function formerValues(noun: InventoryKind, known: Listed<object>, next: Listed<object>) {
  const now = new Map(Object.entries(next.value));
  const before = Object.entries(known.value).filter(
    ([name, value]) => !(noun === "gateway" && name === "online") && !isDeepStrictEqual(value, now.get(name)),
  );
  return Object.fromEntries(next.siteId === known.siteId ? before : [...before, ["siteId", known.siteId]]);
}

/** Returns the stored object for a record without attributes, and keeps a gateway's state if the record has none. */
function fillMissingFields<T extends object>(before: T, item: T): T {
  if (Object.entries(item).every(([name, value]) => name === "id" || value === null || value === "")) return before;
  const lacksState = "online" in item && item.online === null && "online" in before;
  return lacksState ? { ...item, online: before.online } : item;
}
