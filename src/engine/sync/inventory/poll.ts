import type { Host, Site, Tag } from "../../../core/model/building.ts";
import { sourceUri } from "../../../core/model/event.ts";
import { DIFFERENCE_BOUND_MS } from "../../../core/runtime/clock-check.ts";
import { yieldIfMany, yieldUnlessAborted } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { Page, Known as Shown } from "../../source/source.ts";
import { type DocumentChange, documentSet } from "../../store/store.ts";
import { incomplete, type JobOutcome } from "../job.ts";
import { collect, type Listing } from "../listing.ts";
import { outcomeOf, perSite } from "../per-site.ts";
import type { PollParts } from "../poll-parts.ts";
import { type Listed, type StoredTagSeen, type StoredTagSystems, syncSet } from "../snapshot.ts";
import { isAbsenceNews } from "./absence.ts";
import { hostsBehind } from "./behind-gateway.ts";
import {
  type InventoryNoun,
  type InventoryNouns,
  type InventoryObservation,
  type InventoryStep,
  inventorySteps,
} from "./diff.ts";
import { createDropCheck, type Drop } from "./drop-check.ts";
import { commitSeen } from "./sight.ts";
import { type StoredTagNeighbours, withTagCompany } from "./tag-neighbours.ts";

export interface Poll {
  run(signal: AbortSignal): Promise<JobOutcome>;
}

type SiteNoun = Exclude<InventoryNoun, "site">;
type Read<T> = (
  siteId: number,
  signal: AbortSignal,
  held: Shown<T>,
  /** Before other lists, because alarms wait for it. */
  isUrgent: boolean,
) => AsyncIterable<Page<T>>;

/** So many things at most are looked through, and so many changed in one transaction, before others have their turn. */
export const SLICE = 250;

/** The list of sites; one list for everything. */
export function createSitePoll(parts: PollParts): Poll {
  const { source, scope } = parts;
  const heldSite = listedAsStored<Site>(parts, "site");
  return {
    async run(signal) {
      const list = await readList(() => source.sites({}, signal, heldSite));
      const shown = list.complete ? list.items : (list.shown ?? []);
      // All readers of a site's tags use the scope.
      const known = scope.known();
      const isOther = shown.some(({ id }) => !scope.sees(id)) || (list.complete && known?.size !== shown.length);
      if (isOther) await scope.tryRefresh(signal);
      const sites = { siteId: null, items: shown, complete: list.complete };
      await commitDiff(parts, "sites", "site", [sites], signal);
      return list.complete ? outcomeOf(new Map()) : incomplete(list.reason);
    },
  };
}

/** A poll of one list for each site. */
export interface InventoryPoll extends Poll {
  /** Reads the list of one site between two polls and commits what it shows; what it does not show is left to the polls. */
  pollSite(siteId: number, signal: AbortSignal): Promise<void>;
}

/** Gateways, hosts, systems or tags: one list for each site. */
export function createInventoryPoll<N extends SiteNoun>(
  parts: PollParts,
  job: string,
  noun: N,
  read: Read<InventoryNouns[N]>,
): InventoryPoll {
  const { source, scope, syncState: holding, clock } = parts;
  const held = () => holding.get<Listed<InventoryNouns[N]>>(documentSet(noun, source.name));
  const shown = listedAsStored<InventoryNouns[N]>(parts, noun);
  const isDropDoubted = createDropCheck(clock, parts.log);
  const isDoubted = (siteId: number, items: readonly { readonly id: string | number }[]) =>
    isDropDoubted(String(siteId), dropOf(held(), siteId, items), { job, site: siteId, shown: items.length });

  /** Sites that `pollSite` read after the poll that is running: the older list must not revert what it found. */
  const polledSince = new Set<number>();

  /**
   * Pages of one list. Pages of tags are committed when they arrive: the complete list takes minutes, and tags are read as soon as they
   * are known. A page proves no absence.
   */
  async function* pagesOf(
    siteId: number,
    signal: AbortSignal,
    at: { readonly site: number; readonly sites: number } | null,
  ): AsyncGenerator<Page<InventoryNouns[N]>, void> {
    for await (const page of read(siteId, signal, shown, at === null)) {
      if (noun === "tag") await commitShown(parts, job, noun, siteId, page.items, signal);
      if (at !== null) parts.firstInventory.page(job, at, page);
      yield page;
    }
  }

  async function visit(
    siteId: number,
    signal: AbortSignal,
    at: Parameters<typeof pagesOf>[2] = null,
  ): Promise<Listing<InventoryNouns[N]>> {
    const list = await readList(() => pagesOf(siteId, signal, at));
    polledSince.delete(siteId);
    // Emit what this list shows now: the lists of all sites take minutes. What it does not show is missing only
    // when the token's scope confirms it, after all lists.
    if (list.complete && noun !== "tag") await commitShown(parts, job, noun, siteId, list.items, signal);
    return list;
  }

  /** Records the time of a complete list of a site's objects. */
  async function rememberSight(
    seen: ReadonlyMap<number, Listing<InventoryNouns[N]>>,
    begunAt: ReadonlyMap<number, string>,
  ): Promise<void> {
    const whole = [...seen].filter(([siteId, list]) => list.complete && dropOf(held(), siteId, list.items).gone === 0);
    await commitSeen(parts, job, "tags", new Map(whole.map(([siteId]) => [siteId, begunAt.get(siteId) ?? null])));
  }

  return {
    async pollSite(siteId, signal) {
      await visit(siteId, signal);
      polledSince.add(siteId);
    },
    async run(signal) {
      const sites = followedSites(parts);
      if (sites.length === 0) return incomplete("No site is known yet.");
      const begunAt = new Map<number, string>();
      const visits = await perSite(
        sites,
        async (siteId) => {
          begunAt.set(siteId, isoUtc(clock.now()));
          const list = await visit(siteId, signal, { site: begunAt.size, sites: sites.length });
          if (noun !== "tag") return list;
          parts.listedSites.add(siteId);
          const seen = holding.get<StoredTagSeen>(syncSet("tag-seen", source.name)).get(String(siteId));
          // After a crash in the midst of the first lists it is known which sites were listed.
          if (seen == null) await rememberSight(new Map([[siteId, list]]), begunAt);
          return list;
        },
        signal,
      );
      const doubted = new Set(
        [...visits.seen].flatMap(([siteId, list]) => (list.complete && isDoubted(siteId, list.items) ? [siteId] : [])),
      );
      const misses = isAbsenceNews(held(), visits.seen, doubted, {
        at: isoUtc(clock.now()),
        removeAfterMs: removeAfterMs(parts),
      });
      const seenScope = misses ? await scope.tryRefresh(signal) : null;
      const latest = [...visits.seen].filter(([siteId]) => !polledSince.has(siteId));
      const observations: InventoryObservation<InventoryNouns[N]>[] = latest.map(([siteId, list]) => ({
        siteId,
        items: list.complete ? list.items : (list.shown ?? []),
        complete:
          list.complete &&
          !doubted.has(siteId) &&
          (seenScope?.before.has(siteId) ?? false) &&
          (seenScope?.after.has(siteId) ?? false),
      }));
      await commitDiff(parts, job, noun, observations, signal);
      await yieldIfMany(held().size);
      if (noun === "tag") await rememberSight(visits.seen, begunAt);
      await yieldIfMany(held().size);
      const reasons = [...visits.seen.values()].flatMap((list) => (list.complete ? [] : [list.reason]));
      const doubts = [...doubted].map((siteId) => `Most of the ${job} of site ${siteId} are gone at once.`);
      return outcomeOf(visits.failures, [...doubts, ...reasons]);
    },
  };
}

/** Sites whose inventory is followed: those the token sees, as far as the configuration wants them. */
export function followedSites(parts: PollParts): readonly number[] {
  const wanted = parts.config.inventory.sites;
  return [...parts.syncState.get<Listed<Site>>(documentSet("site", parts.source.name)).values()]
    .filter((held) => held.missingSince === null)
    .map((held) => held.value.id)
    .filter((siteId) => wanted === undefined || wanted.includes(siteId));
}

/** Returns the stored objects of one kind, for a list that contains them again. */
export function listedAsStored<T>({ syncState: holding, source }: PollParts, noun: InventoryNoun): Shown<T> {
  return (id) => holding.get<Listed<T>>(documentSet(noun, source.name)).get(id)?.value;
}

/**
 * Commits what a list contains, without absences. A long list is committed in parts: each object depends only on its stored
 * state, except a gateway, which may be the only one of its site.
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
    if (from > 0) await yieldUnlessAborted(parts.clock, signal);
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
  const commit = (found: readonly InventoryStep<InventoryNouns[N]>[]) => {
    const { steps, documents } = inCompany(parts, noun, found, at);
    return parts.commit(job, {
      documents: [
        {
          set,
          put: steps.flatMap(({ id, held }) => (held === null ? [] : [[id, held] as const])),
          remove: steps.flatMap(({ id, held }) => (held === null ? [id] : [])),
        },
        ...documents,
      ],
      events: steps.flatMap(({ events }) => events),
    });
  };
  let found: InventoryStep<InventoryNouns[N]>[] = [];
  const steps = inventorySteps(noun, parts.syncState.get<Listed<InventoryNouns[N]>>(set), observations, {
    source: sourceUri(parts.source.name),
    at,
    removeAfterMs: removeAfterMs(parts),
    hostsBehind: (gatewayId) =>
      hostsBehind(parts.syncState.get<Listed<Host>>(documentSet("host", parts.source.name)), gatewayId),
  });
  for (const step of steps) {
    if (step !== null) found.push(step);
    if (step !== null && found.length < SLICE) continue;
    if (found.length >= SLICE) {
      await commit(found);
      found = [];
    }
    await yieldUnlessAborted(parts.clock, signal);
  }
  await commit(found);
}

/** Adds the events that tags need in addition to their records. */
function inCompany<N extends InventoryNoun>(
  { syncState: holding, source: { name } }: PollParts,
  noun: N,
  steps: readonly InventoryStep<InventoryNouns[N]>[],
  at: string,
): { readonly steps: typeof steps; readonly documents: readonly DocumentChange[] } {
  if (noun !== "tag") return { steps, documents: [] };
  const placeSet = syncSet("tag-system", name);
  const seen = holding.get<StoredTagSeen>(syncSet("tag-seen", name));
  const held: StoredTagNeighbours = {
    tags: holding.get<Listed<Tag>>(documentSet("tag", name)),
    places: holding.get<StoredTagSystems>(placeSet),
    placeSet,
    seenAt: (siteId) => seen.get(String(siteId))?.tags ?? null,
  };
  const company = (steps as readonly InventoryStep<Tag>[]).map((step) =>
    withTagCompany(step, held, { source: sourceUri(name), at }),
  );
  return {
    steps: company.map(({ step }) => step) as unknown as typeof steps,
    documents: company.flatMap(({ documents }) => documents),
  };
}

/** Without a verified clock, the duration of an absence is unknown. */
function removeAfterMs({ config, source }: PollParts): number {
  const isInDoubt = Math.abs(source.clockSkewMs() ?? 0) > DIFFERENCE_BOUND_MS;
  return isInDoubt ? Number.POSITIVE_INFINITY : config.inventory.remove_after;
}

/** A list that moved while it was read is read once more; inventories rarely move twice. */
export async function readList<T extends { readonly id: string | number }>(
  read: () => AsyncIterable<Page<T>>,
): Promise<Listing<T>> {
  const options = { idOf: (item: T) => String(item.id) };
  const first = await collect(read(), options);
  return first.complete || first.shown === null ? first : await collect(read(), options);
}

/** Objects of a site, and how many of them its list no longer contains. */
function dropOf<T>(
  held: ReadonlyMap<string, Listed<T>>,
  siteId: number,
  items: readonly { readonly id: string | number }[],
): Drop {
  const isPresent = (known: Listed<T> | undefined) => known?.siteId === siteId && known.missingSince === null;
  let before = 0;
  for (const known of held.values()) if (isPresent(known)) before += 1;
  let there = 0;
  for (const { id } of items) if (isPresent(held.get(String(id)))) there += 1;
  return { before, gone: before - there };
}
