import { isDeepStrictEqual } from "node:util";
import type { Gateway, Host, Site, System, Tag } from "../../../core/model/building.ts";
import {
  type Event,
  type EventData,
  type GatewayFact,
  type Kind,
  makeEvent,
  subjectOf,
} from "../../../core/model/event.ts";
import type { Listed } from "../snapshot.ts";

export interface InventoryNouns {
  readonly site: Site;
  readonly gateway: Gateway;
  readonly host: Host;
  readonly system: System;
  readonly tag: Tag;
}
export type InventoryNoun = keyof InventoryNouns;

/** One list as it was seen. */
export interface InventoryObservation<T> {
  /** The site whose list it is; null for the list of sites. */
  readonly siteId: number | null;
  readonly items: readonly T[];
  /** True when the list was complete and the token saw the site before and after: what it does not show is missing. */
  readonly complete: boolean;
}

export interface InventoryDiffOptions {
  readonly source: string;
  readonly at: string;
  /** Milliseconds that complete lists must be without a thing before it counts as removed. */
  readonly removeAfterMs: number;
  /** Hosts behind a gateway. */
  readonly hostsBehind?: (gatewayId: string) => GatewayFact["hosts"];
}

/** Document and events of one object; both belong into one transaction. */
export interface InventoryStep<T> {
  readonly id: string;
  /** Null: it is forgotten. */
  readonly held: Listed<T> | null;
  readonly events: readonly Event[];
}

/** How many things that are as they were are passed before null is answered. */
const LOOKED_AT = 10_000;

/**
 * The difference between what is held and what was seen, thing by thing, so that what was found may be committed before
 * the rest is looked at: 50,000 new tags take seconds. Null now and then, where much was looked at and nothing found.
 * Pure; of what is held only what a step says may change before the next one is taken.
 */
export function* inventorySteps<N extends InventoryNoun>(
  noun: N,
  held: ReadonlyMap<string, Listed<InventoryNouns[N]>>,
  observations: readonly InventoryObservation<InventoryNouns[N]>[],
  options: InventoryDiffOptions,
): Generator<InventoryStep<InventoryNouns[N]> | null, void> {
  type T = InventoryNouns[N];
  const tell = teller(noun, options);
  const complete = new Set(observations.filter((list) => list.complete).map((list) => list.siteId));
  /** Whether nothing else is known to be there. */
  const isAlone = (id: string, siteId: number | null) =>
    [...held].every(([other, known]) => other === id || known.siteId !== siteId || known.missingSince !== null) &&
    observations.every((list) => list.siteId !== siteId || list.items.every((item) => String(item.id) === id));
  let lookedAt = 0;
  const isMuch = () => ++lookedAt % LOOKED_AT === 0;

  const { ids, seen } = yield* unlikeHeld(held, observations, isMuch);
  for (const [id, sightings] of sightingsOf(ids, observations)) {
    const known = held.get(id);
    const here = sightings.find((one) => one.siteId === known?.siteId) ?? sightings[0];
    if (here === undefined) continue;
    if (known === undefined) {
      const begun = { value: here.item, siteId: here.siteId, since: options.at, missingSince: null };
      yield { id, held: begun, events: [tell("added", id, here.siteId, here.item, [])] };
      continue;
    }
    const moved = here.siteId !== known.siteId;
    if (moved && !complete.has(known.siteId)) continue; // Perhaps it is in both, and its own list was not seen.
    const events: Event[] = [];
    const item = withLastWord(known.value, here.item);
    const before = differences(noun, known, item, here.siteId);
    if (Object.keys(before).length > 0) events.push(tell("changed", id, here.siteId, item, [options.at], { before }));
    const switched = onlineSwitch(known.value, item);
    if (switched !== null) {
      const behind = { hosts: options.hostsBehind?.(id) ?? [], wholeSite: isAlone(id, here.siteId) };
      events.push(tell(switched, id, here.siteId, item, [options.at], behind));
    }
    const next: Listed<T> = { ...known, value: item, siteId: here.siteId, missingSince: null };
    if (!isDeepStrictEqual(next, known)) yield { id, held: next, events };
  }

  for (const [id, known] of complete.size === 0 ? [] : held) {
    if (isMuch()) yield null;
    if (seen.has(id) || !complete.has(known.siteId)) continue;
    if (known.missingSince === null) {
      yield { id, held: { ...known, missingSince: options.at }, events: [] };
    } else if (isToBeRemoved(known, options)) {
      yield {
        id,
        held: null,
        events: [tell("removed", id, known.siteId, known.value, [known.missingSince])],
      };
    }
  }
}

/**
 * Yields objects that a list shows with other contents or at another place, and all objects of a complete list. An object that is
 * identical to the stored one is unchanged.
 */
function* unlikeHeld<T extends { readonly id: string | number }>(
  held: ReadonlyMap<string, Listed<T>>,
  observations: readonly InventoryObservation<T>[],
  isMuch: () => boolean,
) {
  const ids = new Set<string>();
  const seen = new Set<string>();
  const isAbsenceSeen = observations.some((list) => list.complete);
  for (const { siteId, items } of observations) {
    for (const item of items) {
      if (isMuch()) yield null;
      const id = String(item.id);
      if (isAbsenceSeen) seen.add(id);
      const known = held.get(id);
      const isAsHeld =
        known !== undefined && known.value === item && known.siteId === siteId && known.missingSince === null;
      if (!isAsHeld) ids.add(id);
    }
  }
  return { ids, seen };
}

/** Whether something has been missing for so long that it is gone. */
export function isToBeRemoved(
  { missingSince }: Listed<unknown>,
  { at, removeAfterMs }: Pick<InventoryDiffOptions, "at" | "removeAfterMs">,
): boolean {
  return missingSince !== null && Date.parse(at) - Date.parse(missingSince) >= removeAfterMs;
}

interface Sighting<T> {
  readonly siteId: number | null;
  readonly item: T;
}

/** Listings that contain the object. */
function sightingsOf<T extends { readonly id: string | number }>(
  ids: ReadonlySet<string>,
  observations: readonly InventoryObservation<T>[],
): ReadonlyMap<string, readonly Sighting<T>[]> {
  const sightings = new Map<string, Sighting<T>[]>();
  if (ids.size === 0) return sightings;
  for (const { siteId, items } of observations) {
    for (const item of items) {
      const id = String(item.id);
      if (!ids.has(id)) continue;
      const known = sightings.get(id);
      if (known === undefined) sightings.set(id, [{ siteId, item }]);
      else known.push({ siteId, item });
    }
  }
  return sightings;
}

/** Fields that differ, with the value before; `online` has events of its own, and a move shows as `siteId`. */
function differences<N extends InventoryNoun>(
  noun: N,
  known: Listed<InventoryNouns[N]>,
  item: InventoryNouns[N],
  siteId: number | null,
): Readonly<Record<string, unknown>> {
  const before: Record<string, unknown> & { siteId?: unknown } = {};
  const old = Object.entries(known.value);
  const now: Readonly<Record<string, unknown>> = { ...item };
  for (const [name, value] of old) {
    if (noun === "gateway" && name === "online") continue;
    if (!isDeepStrictEqual(value, now[name])) before[name] = value;
  }
  if (siteId !== known.siteId) before.siteId = known.siteId;
  return before;
}

/** A gateway record without an online state keeps the stored one; the next state is emitted. */
function withLastWord<T extends object>(before: T, item: T): T {
  // Attributes that came empty, as PHP writes an object without members, say nothing: no name was taken away.
  const said = Object.entries(item).filter(([name, value]) => name !== "id" && value !== null && value !== "");
  if (said.length === 0) return before;
  const silent = "online" in item && item.online === null && "online" in before;
  return silent ? { ...item, online: before.online } : item;
}

function onlineSwitch(before: object, after: object): "online" | "offline" | null {
  if (!("online" in before && "online" in after) || before.online === after.online) return null;
  return after.online === true ? "online" : "offline";
}

type Happening = "added" | "changed" | "removed" | "online" | "offline";

function teller<N extends InventoryNoun>(noun: N, options: InventoryDiffOptions) {
  return (
    happening: Happening,
    id: string,
    siteId: number | null,
    item: InventoryNouns[N],
    facts: readonly (string | number | null)[],
    more: object = {},
  ): Event => {
    const data = { [noun]: item, ...more };
    return makeEvent({
      type: `${noun}-${happening}` as Kind,
      source: options.source,
      subject: subjectOf(noun, siteId, id),
      time: options.at,
      siteId: noun === "site" ? id : siteId,
      // The compiler cannot follow that the noun in the kind is the noun in the data.
      data: data as unknown as EventData[Kind],
      facts,
    });
  };
}
