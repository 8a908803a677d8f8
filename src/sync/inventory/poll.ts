import type { Host, Site, System, Tag } from "../../building.ts";
import { isoUtc } from "../../clock.ts";
import { DIFFERENCE_BOUND_MS } from "../../clock-doubt.ts";
import { sourceUri } from "../../event.ts";
import type { Page, Held as Shown } from "../../source/source.ts";
import { documentSet } from "../../store/store.ts";
import { othersTurn } from "../../waiting.ts";
import { incomplete, type JobOutcome } from "../job.ts";
import { collect, type Listing, shownBy } from "../listing.ts";
import { outcomeOf, perSite } from "../per-site.ts";
import type { PollParts } from "../poll-parts.ts";
import { type Held, type HeldTagPlace, syncSet } from "../snapshot.ts";
import { hostsBehind } from "./behind-gateway.ts";
import {
  type InventoryNoun,
  type InventoryNouns,
  type InventoryObservation,
  type InventoryStep,
  inventorySteps,
  isToBeRemoved,
} from "./diff.ts";

export interface Poll {
  run(signal: AbortSignal): Promise<JobOutcome>;
}

/** A list that lost more than half, and so many at least, is read again for this long before it is believed, milliseconds. */
const DROP_LEAST = 5;
const DROP_BELIEVED_MS = 600_000;

type SiteNoun = Exclude<InventoryNoun, "site">;
type Read<T> = (siteId: number, signal: AbortSignal, held: Shown<T>) => AsyncIterable<Page<T>>;

/** So many things at most are looked through, and so many changed in one transaction, before others have their turn. */
const SLICE = 250;

/** The list of sites; one list for everything. */
export function createSitePoll(parts: PollParts): Poll {
  const { source, scope } = parts;
  const heldSite = shownAsHeld<Site>(parts, "site");
  return {
    async run(signal) {
      const list = await readList(() => source.sites({}, signal, heldSite));
      const shown = list.complete ? list.items : (list.shown ?? []);
      // Everybody who reads a site's tags goes by the scope.
      const known = scope.known();
      const isOther =
        shown.some(({ id }) => !scope.sees(id)) || (list.complete && known?.size !== shown.length);
      if (isOther) await scope.tryRefresh(signal);
      const sites = { siteId: null, items: shown, complete: list.complete };
      await commitDiff(parts, "sites", "site", [sites], signal);
      return list.complete ? outcomeOf(new Map()) : incomplete(list.reason);
    },
  };
}

/** Gateways, hosts, systems or tags: one list for each site. */
export function createInventoryPoll<N extends SiteNoun>(
  parts: PollParts,
  job: string,
  noun: N,
  read: Read<InventoryNouns[N]>,
): Poll {
  const { source, scope, holding, clock, log } = parts;
  const held = () => holding.get<Held<InventoryNouns[N]>>(documentSet(noun, source.name));
  const shown = shownAsHeld<InventoryNouns[N]>(parts, noun);
  /** By site, since when its list has been without most of what it showed, on the monotonic clock. */
  const dropped = new Map<number, number>();

  /** Whether a list that is much shorter than before is not believed yet: it is read again, for some minutes. */
  function isDoubted(siteId: number, items: readonly { readonly id: string | number }[]): boolean {
    if (!hasDropped(held(), siteId, items)) {
      dropped.delete(siteId);
      return false;
    }
    const sinceMs = dropped.get(siteId) ?? clock.monotonic();
    if (!dropped.has(siteId))
      log.warn(
        { job, site: siteId, shown: items.length },
        "most of a list is gone at once: it is read again",
      );
    dropped.set(siteId, sinceMs);
    return clock.monotonic() - sinceMs < DROP_BELIEVED_MS;
  }

  return {
    async run(signal) {
      const sites = followedSites(parts);
      if (sites.length === 0) return incomplete("No site is known yet.");
      const visits = await perSite(
        sites,
        async (siteId) => {
          const list = await readList(() => read(siteId, signal, shown));
          // What a list shows is told at once, because the lists of many sites take minutes at their pace. What it
          // does not show is missing only where the scope says so, after all of them.
          if (list.complete) await commitShown(parts, job, noun, siteId, list.items, signal);
          return list;
        },
        signal,
      );
      const doubted = new Set(
        [...visits.seen].flatMap(([siteId, list]) =>
          list.complete && isDoubted(siteId, list.items) ? [siteId] : [],
        ),
      );
      const misses = isAbsenceNews(parts, held(), visits.seen, doubted);
      const seenScope = misses ? await scope.tryRefresh(signal) : null;
      const observations: InventoryObservation<InventoryNouns[N]>[] = [...visits.seen].map(
        ([siteId, list]) => ({
          siteId,
          items: list.complete ? list.items : (list.shown ?? []),
          complete:
            list.complete &&
            !doubted.has(siteId) &&
            (seenScope?.before.has(siteId) ?? false) &&
            (seenScope?.after.has(siteId) ?? false),
        }),
      );
      await commitDiff(parts, job, noun, observations, signal);
      const reasons = [...visits.seen.values()].flatMap((list) => (list.complete ? [] : [list.reason]));
      const doubts = [...doubted].map((siteId) => `Most of the ${job} of site ${siteId} are gone at once.`);
      return outcomeOf(visits.failures, [...doubts, ...reasons]);
    },
  };
}

/** As the list of tags, and after it, where wanted, which tags each system has: one list for each system. */
export function createTagPoll(parts: PollParts): Poll {
  const { source, config, holding } = parts;
  const tags = createInventoryPoll(parts, "tags", "tag", (siteId, signal, held) =>
    source.tags({ siteId }, signal, held),
  );
  const shown = shownAsHeld<Tag>(parts, "tag");
  const placeSet = syncSet("tag-system", source.name);

  async function learnPlaces(signal: AbortSignal): Promise<JobOutcome> {
    const systems = [...holding.get<Held<System>>(documentSet("system", source.name)).values()].filter(
      (held) => held.missingSince === null,
    );
    const visits = await perSite(
      followedSites(parts),
      async (siteId) => {
        const members: (readonly [systemId: string, list: Listing<{ id: string }>])[] = [];
        for (const system of systems.filter((held) => held.siteId === siteId)) {
          const systemId = system.value.id;
          members.push([systemId, await readList(() => source.tags({ siteId, systemId }, signal, shown))]);
        }
        return members;
      },
      signal,
    );
    const known = holding.get<HeldTagPlace>(placeSet);
    const places = new Map([...known].map(([id, place]) => [id, new Set(place.systemIds)]));
    const reasons: string[] = [];
    for (const [systemId, list] of [...visits.seen.values()].flat()) {
      if (!list.complete) {
        reasons.push(list.reason);
        continue;
      }
      const members = new Set(list.items.map((tag) => tag.id));
      for (const [id, systemIds] of places) if (!members.has(id)) systemIds.delete(systemId);
      for (const id of members) places.set(id, (places.get(id) ?? new Set()).add(systemId));
    }
    const put = [...places].flatMap(([id, systemIds]) => {
      const next: HeldTagPlace = { systemIds: [...systemIds].sort() };
      const same = next.systemIds.join() === (known.get(id)?.systemIds ?? []).join();
      return same ? [] : [[id, next] as const];
    });
    await parts.commit("tags", { documents: [{ set: placeSet, put }] });
    return outcomeOf(visits.failures, reasons);
  }

  return {
    async run(signal) {
      const outcome = await tags.run(signal);
      if (!config.inventory.tags_of_systems) return outcome;
      const places = await learnPlaces(signal);
      return outcome.kind === "ok" ? places : outcome;
    },
  };
}

/** Sites whose inventory is followed: those the token sees, as far as the configuration wants them. */
export function followedSites(parts: PollParts): readonly number[] {
  const wanted = parts.config.inventory.sites;
  return [...parts.holding.get<Held<Site>>(documentSet("site", parts.source.name)).values()]
    .filter((held) => held.missingSince === null)
    .map((held) => held.value.id)
    .filter((siteId) => wanted === undefined || wanted.includes(siteId));
}

/** What is held of one kind, for the list that shows it again. */
function shownAsHeld<T>({ holding, source }: PollParts, noun: InventoryNoun): Shown<T> {
  return (id) => holding.get<Held<T>>(documentSet(noun, source.name)).get(id)?.value;
}

/**
 * What one list shows, without what it does not show. Of a long one a part after the other: each thing is judged by what is
 * held of it alone, but for a gateway, which may be the only one.
 */
async function commitShown<N extends InventoryNoun>(
  parts: PollParts,
  job: string,
  noun: N,
  siteId: number,
  items: readonly InventoryNouns[N][],
  signal: AbortSignal,
): Promise<void> {
  const at = isoUtc(parts.clock.now());
  const size = noun === "gateway" ? Math.max(items.length, 1) : SLICE;
  for (let from = 0; from === 0 || from < items.length; from += size) {
    if (from > 0) await othersTurn(parts.clock, signal);
    const slice = { siteId, items: items.slice(from, from + size), complete: false };
    await commitDiff(parts, job, noun, [slice], signal, at);
  }
}

/** Tells the difference, and says that the job is well even where there is none. */
async function commitDiff<N extends InventoryNoun>(
  parts: PollParts,
  job: string,
  noun: N,
  observations: readonly InventoryObservation<InventoryNouns[N]>[],
  signal: AbortSignal,
  at = isoUtc(parts.clock.now()),
): Promise<void> {
  const set = documentSet(noun, parts.source.name);
  const commit = (steps: readonly InventoryStep<InventoryNouns[N]>[]) =>
    parts.commit(job, {
      documents: [
        {
          set,
          put: steps.flatMap(({ id, held }) => (held === null ? [] : [[id, held] as const])),
          remove: steps.flatMap(({ id, held }) => (held === null ? [id] : [])),
        },
      ],
      events: steps.flatMap(({ events }) => events),
    });
  let found: InventoryStep<InventoryNouns[N]>[] = [];
  const steps = inventorySteps(noun, parts.holding.get<Held<InventoryNouns[N]>>(set), observations, {
    source: sourceUri(parts.source.name),
    at,
    removeAfterMs: removeAfterMs(parts),
    hostsBehind: (gatewayId) =>
      hostsBehind(parts.holding.get<Held<Host>>(documentSet("host", parts.source.name)), gatewayId),
  });
  for (const step of steps) {
    if (step !== null) found.push(step);
    if (step !== null && found.length < SLICE) continue;
    if (found.length >= SLICE) {
      await commit(found);
      found = [];
    }
    await othersTurn(parts.clock, signal);
  }
  await commit(found);
}

/** By a clock that differs from the service's nobody knows how long something has been missing. */
function removeAfterMs({ config, source }: PollParts): number {
  const isInDoubt = Math.abs(source.clockSkewMs() ?? 0) > DIFFERENCE_BOUND_MS;
  return isInDoubt ? Number.POSITIVE_INFINITY : config.inventory.remove_after;
}

/** A list that moved while it was read is read once more; inventories rarely move twice. */
async function readList<T extends { readonly id: string | number }>(
  read: () => AsyncIterable<Page<T>>,
): Promise<Listing<T>> {
  const options = { idOf: (item: T) => String(item.id) };
  const first = await collect(read(), options);
  return first.complete || first.shown === null ? first : await collect(read(), options);
}

/** Whether more than half of what a site showed, and five at least (fewer go in everyday life), is gone at once. */
function hasDropped<T>(
  held: ReadonlyMap<string, Held<T>>,
  siteId: number,
  items: readonly { readonly id: string | number }[],
): boolean {
  const isPresent = (known: Held<T> | undefined) => known?.siteId === siteId && known.missingSince === null;
  let present = 0;
  for (const known of held.values()) if (isPresent(known)) present += 1;
  let there = 0;
  for (const { id } of items) if (isPresent(held.get(String(id)))) there += 1;
  const gone = present - there;
  return gone >= DROP_LEAST && gone > present / 2;
}

/**
 * Whether the scope has to say what an absence means: something is missing for the first time, has been for so long that
 * it is to be removed, or is at another site now.
 */
function isAbsenceNews<T extends { readonly id: string | number }>(
  parts: PollParts,
  held: ReadonlyMap<string, Held<T>>,
  seen: ReadonlyMap<number, Listing<T>>,
  doubted: ReadonlySet<number>,
): boolean {
  if (showsAllHeld(held, seen)) return false;
  const removal = { at: isoUtc(parts.clock.now()), removeAfterMs: removeAfterMs(parts) };
  const places = new Map<string, Set<number>>();
  for (const [siteId, list] of seen)
    for (const { id } of shownBy(list))
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
  held: ReadonlyMap<string, Held<T>>,
  seen: ReadonlyMap<number, Listing<T>>,
): boolean {
  let shown = 0;
  for (const [siteId, list] of seen)
    if (list.complete)
      for (const { id } of list.items) if (held.get(String(id))?.siteId === siteId) shown += 1;
  for (const { siteId } of held.values())
    if (siteId !== null && seen.get(siteId)?.complete === true) shown -= 1;
  return shown === 0;
}
