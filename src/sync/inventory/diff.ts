import { isDeepStrictEqual } from "node:util";
import type { Gateway, Host, Site, System, Tag } from "../../building.ts";
import {
  type Event,
  type EventData,
  type GatewayFact,
  type Kind,
  makeEvent,
  subjectOf,
} from "../../event.ts";
import type { Held } from "../snapshot.ts";

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
  /** What hangs on a gateway. */
  readonly hostsBehind?: (gatewayId: string) => GatewayFact["hosts"];
}

export interface InventoryDiff<T> {
  readonly put: ReadonlyMap<string, Held<T>>;
  readonly remove: readonly string[];
  readonly events: readonly Event[];
}

/** The difference between what is held and what was seen. Pure. */
export function diffInventory<N extends InventoryNoun>(
  noun: N,
  held: ReadonlyMap<string, Held<InventoryNouns[N]>>,
  observations: readonly InventoryObservation<InventoryNouns[N]>[],
  options: InventoryDiffOptions,
): InventoryDiff<InventoryNouns[N]> {
  type T = InventoryNouns[N];
  const put = new Map<string, Held<T>>();
  const remove: string[] = [];
  const events: Event[] = [];
  const tell = teller(noun, options, events);
  const complete = new Set(observations.filter((list) => list.complete).map((list) => list.siteId));
  /** Whether nothing else is known to be there. */
  const isAlone = (id: string, siteId: number | null) =>
    [...held].every(
      ([other, known]) => other === id || known.siteId !== siteId || known.missingSince !== null,
    ) &&
    observations.every(
      (list) => list.siteId !== siteId || list.items.every((item) => String(item.id) === id),
    );

  for (const [id, sightings] of sightingsById(observations)) {
    const known = held.get(id);
    const here = sightings.find((one) => one.siteId === known?.siteId) ?? sightings[0];
    if (here === undefined) continue;
    if (known === undefined) {
      put.set(id, { value: here.item, siteId: here.siteId, since: options.at, missingSince: null });
      tell("added", id, here.siteId, here.item, []);
      continue;
    }
    const moved = here.siteId !== known.siteId;
    if (moved && !complete.has(known.siteId)) continue; // Perhaps it is in both, and its own list was not seen.
    const item = withLastWord(known.value, here.item);
    const before = differences(noun, known, item, here.siteId);
    if (Object.keys(before).length > 0) tell("changed", id, here.siteId, item, [options.at], { before });
    const switched = onlineSwitch(known.value, item);
    if (switched !== null) {
      const behind = { hosts: options.hostsBehind?.(id) ?? [], wholeSite: isAlone(id, here.siteId) };
      tell(switched, id, here.siteId, item, [options.at], behind);
    }
    const next: Held<T> = { ...known, value: item, siteId: here.siteId, missingSince: null };
    if (!isDeepStrictEqual(next, known)) put.set(id, next);
  }

  const seen = new Set(observations.flatMap((list) => list.items.map((item) => String(item.id))));
  for (const [id, known] of held) {
    if (seen.has(id) || !complete.has(known.siteId)) continue;
    if (known.missingSince === null) {
      put.set(id, { ...known, missingSince: options.at });
    } else if (isToBeRemoved(known, options)) {
      remove.push(id);
      tell("removed", id, known.siteId, known.value, [known.missingSince]);
    }
  }
  return { put, remove, events };
}

/** Whether something has been missing for so long that it is gone. */
export function isToBeRemoved(
  { missingSince }: Held<unknown>,
  { at, removeAfterMs }: Pick<InventoryDiffOptions, "at" | "removeAfterMs">,
): boolean {
  return missingSince !== null && Date.parse(at) - Date.parse(missingSince) >= removeAfterMs;
}

interface Sighting<T> {
  readonly siteId: number | null;
  readonly item: T;
}

function sightingsById<T extends { readonly id: string | number }>(
  observations: readonly InventoryObservation<T>[],
): ReadonlyMap<string, readonly Sighting<T>[]> {
  const all = observations.flatMap((list) => list.items.map((item) => ({ siteId: list.siteId, item })));
  return Map.groupBy(all, (one) => String(one.item.id));
}

/** Fields that differ, with the value before; `online` has events of its own, and a move shows as `siteId`. */
function differences<N extends InventoryNoun>(
  noun: N,
  known: Held<InventoryNouns[N]>,
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

/** A gateway whose record does not say whether it is online is as it was; the next word about it is told. */
function withLastWord<T extends object>(before: T, item: T): T {
  // Attributes that came empty, as PHP writes an object without members, say nothing: no name was taken away.
  const said = Object.entries(item).filter(
    ([name, value]) => name !== "id" && value !== null && value !== "",
  );
  if (said.length === 0) return before;
  const silent = "online" in item && item.online === null && "online" in before;
  return silent ? { ...item, online: before.online } : item;
}

function onlineSwitch(before: object, after: object): "online" | "offline" | null {
  if (!("online" in before && "online" in after) || before.online === after.online) return null;
  return after.online === true ? "online" : "offline";
}

type Happening = "added" | "changed" | "removed" | "online" | "offline";

function teller<N extends InventoryNoun>(noun: N, options: InventoryDiffOptions, events: Event[]) {
  return (
    happening: Happening,
    id: string,
    siteId: number | null,
    item: InventoryNouns[N],
    facts: readonly (string | number | null)[],
    more: object = {},
  ): void => {
    const data = { [noun]: item, ...more };
    events.push(
      makeEvent({
        type: `${noun}-${happening}` as Kind,
        source: options.source,
        subject: subjectOf(noun, siteId, id),
        time: options.at,
        siteId: noun === "site" ? id : siteId,
        // The compiler cannot follow that the noun in the kind is the noun in the data.
        data: data as unknown as EventData[Kind],
        facts,
      }),
    );
  };
}
