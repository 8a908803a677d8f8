import type { Host, Site, System, Tag } from "../../../core/model/building.ts";
import { sourceUri } from "../../../core/model/event.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import { MAX_CLOCK_DIFFERENCE_MS } from "../../../core/runtime/clock-check.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { yieldIfManyObjects, yieldUnlessAborted } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { Page, FindStored as StoredObjects } from "../../source/source.ts";
import { documentSet } from "../../store/store.ts";
import { incompleteOutcome, type JobOutcome, type RunnableJob } from "../job.ts";
import { type Listing, listItems, readPages } from "../listing.ts";
import type { PollParts } from "../poll-dependencies.ts";
import { buildOutcome, visitSites } from "../site-visits.ts";
import { type StoredItem, type StoredTagSeen, type StoredTagSystems, syncSet } from "../snapshot.ts";
import {
  compareInventory,
  type InventoryKind,
  type InventoryKinds,
  type InventoryObservation,
  type InventoryStep,
  isToBeRemoved,
} from "./diff.ts";
import { findHostsBehind } from "./gateways.ts";
import { addTagEvents, type StoredTagContext } from "./tag-systems.ts";

type SiteObjectKind = Exclude<InventoryKind, "site">;
/** Reads one site's list of objects. `isUrgent`: alarms wait for the list, so it is read before other lists. */
type ReadSiteList<T> = (
  filter: { readonly siteId: number; readonly isUrgent?: true },
  signal: AbortSignal,
  stored: StoredObjects<T>,
) => AsyncIterable<Page<T>>;
interface WithId {
  readonly id: string | number;
}
type ScopeChange = Awaited<ReturnType<PollParts["scope"]["tryRefresh"]>>;

export const OBJECTS_PER_COMMIT = 250;

export function createSitePoll(parts: PollParts): RunnableJob {
  const { source, scope } = parts;
  return {
    async run(signal) {
      const siteList = await readList(() => source.sites({}, signal, storedObjects<Site>(parts, "site")));
      const items = listItems(siteList);
      const differsFromScope =
        items.some(({ id }) => !scope.sees(id)) || (siteList.complete && scope.known()?.size !== items.length);
      if (differsFromScope) await scope.tryRefresh(signal);
      await commitDiff(parts, "sites", "site", [{ siteId: null, items, complete: siteList.complete }], signal);
      return siteList.complete ? buildOutcome(new Map()) : incompleteOutcome(siteList.reason);
    },
  };
}

export type InventoryPoll = ReturnType<typeof createInventoryPoll>;

export function createInventoryPoll<N extends SiteObjectKind>(
  parts: PollParts,
  job: string,
  noun: N,
  read: ReadSiteList<InventoryKinds[N]>,
) {
  type T = InventoryKinds[N];
  const { source, scope, syncState, clock, log } = parts;
  const items = syncState.get<StoredItem<T>>(documentSet(noun, source.name));
  const isDropDoubted = createDropCheck(clock, log);
  /** Sites that `pollSite` read during the present poll, whose older lists must not revert its changes. */
  const polledSince = new Set<number>();

  /** Reads one site's list and commits its objects; tags page by page. Absences wait until all lists are read. */
  async function readSite(
    siteId: number,
    signal: AbortSignal,
    progress: { readonly site: number; readonly sites: number } | null = null,
  ): Promise<Listing<T>> {
    const filter = { siteId, ...(progress === null && { isUrgent: true as const }) };
    async function* pages(): AsyncGenerator<Page<T>, void> {
      for await (const page of read(filter, signal, storedObjects<T>(parts, noun))) {
        if (noun === "tag") await commitListed(parts, job, noun, siteId, page.items, signal);
        if (progress !== null) parts.firstInventory.page(job, progress, page);
        yield page;
      }
    }
    const list = await readList(pages);
    polledSince.delete(siteId);
    if (list.complete && noun !== "tag") await commitListed(parts, job, noun, siteId, list.items, signal);
    return list;
  }

  async function commitCompleteLists(lists: ReadonlyMap<number, Listing<T>>, begunAt: ReadonlyMap<number, string>) {
    const isFull = (siteId: number, list: Listing<T>) => list.complete && getDrop(items, siteId, list.items).gone === 0;
    const siteIds = [...lists].flatMap(([siteId, list]) => (isFull(siteId, list) ? [siteId] : []));
    await commitTimes(parts, job, "tags", new Map(siteIds.map((siteId) => [siteId, begunAt.get(siteId) ?? null])));
  }

  return {
    /** Reads the list of one site between two polls and commits the listed objects, without absences. */
    async pollSite(siteId: number, signal: AbortSignal): Promise<void> {
      await readSite(siteId, signal);
      polledSince.add(siteId);
    },
    async run(signal: AbortSignal): Promise<JobOutcome> {
      const sites = followedSites(parts);
      if (sites.length === 0) return incompleteOutcome("No site is known yet.");
      const listBegun = new Map<number, string>();
      const visitSite = async (siteId: number) => {
        listBegun.set(siteId, isoUtc(clock.now()));
        const list = await readSite(siteId, signal, { site: listBegun.size, sites: sites.length });
        if (noun !== "tag") return list;
        parts.listedSites.add(siteId);
        const isFirstTagList = !syncState.get<StoredTagSeen>(syncSet("tag-seen", source.name)).has(String(siteId));
        if (isFirstTagList) await commitCompleteLists(new Map([[siteId, list]]), listBegun);
        return list;
      };
      const { seen, failures } = await visitSites(sites, visitSite, signal);
      const doubtedSites = new Set<number>();
      for (const [siteId, list] of seen) {
        if (!list.complete) continue;
        const dropDetails = { job, site: siteId, shown: list.items.length };
        if (isDropDoubted(String(siteId), getDrop(items, siteId, list.items), dropDetails)) doubtedSites.add(siteId);
      }
      const removal = { at: isoUtc(clock.now()), removeAfterMs: removeAfterMs(parts) };
      const seenScope = needsScope(items, seen, doubtedSites, removal) ? await scope.tryRefresh(signal) : null;
      const latestLists = [...seen].filter(([siteId]) => !polledSince.has(siteId));
      const observations = latestLists.map(([siteId, list]): InventoryObservation<T> => {
        const isListComplete = list.complete && !doubtedSites.has(siteId) && staysVisible(seenScope, siteId);
        return { siteId, items: listItems(list), complete: isListComplete };
      });
      await commitDiff(parts, job, noun, observations, signal);
      await yieldIfManyObjects(items.size);
      if (noun === "tag") await commitCompleteLists(seen, listBegun);
      await yieldIfManyObjects(items.size);
      const reasons = [...seen.values()].flatMap((list) => (list.complete ? [] : [list.reason]));
      const dropReasons = [...doubtedSites].map((siteId) => `Most of the ${job} of site ${siteId} are gone at once.`);
      return buildOutcome(failures, [...dropReasons, ...reasons]);
    },
  };
}

export function followedSites({ config, source, syncState }: PollParts): readonly number[] {
  const configuredSites = config.inventory.sites;
  return [...syncState.get<StoredItem<Site>>(documentSet("site", source.name)).values()]
    .filter(({ missingSince, value }) => missingSince === null && configuredSites?.includes(value.id) !== false)
    .map(({ value }) => value.id);
}

export function storedObjects<T>({ syncState, source }: PollParts, noun: InventoryKind): StoredObjects<T> {
  return (id) => syncState.get<StoredItem<T>>(documentSet(noun, source.name)).get(id)?.value;
}

export function staysVisible(scope: ScopeChange, siteId: number): boolean {
  return scope?.before.has(siteId) === true && scope.after.has(siteId);
}

export async function commitTimes(
  { syncState, source, commit }: PollParts,
  job: string,
  field: keyof StoredTagSeen,
  sites: ReadonlyMap<number, string | null>,
): Promise<void> {
  const set = syncSet("tag-seen", source.name);
  const storedTimes = syncState.get<StoredTagSeen>(set);
  const put = [...sites].map(([siteId, at]) => {
    const storedListTimes = storedTimes.get(String(siteId)) ?? { tags: null, systems: null };
    return [String(siteId), { ...storedListTimes, [field]: at }] as const;
  });
  await commit(job, { documents: [{ set, put }] });
}

/** Commits a list in parts, without absences. Gateways are one part: a gateway may be the only gateway of its site. */
async function commitListed<N extends InventoryKind>(
  parts: PollParts,
  job: string,
  noun: N,
  siteId: number,
  items: readonly InventoryKinds[N][],
  signal: AbortSignal,
): Promise<void> {
  const at = isoUtc(parts.clock.now());
  const partSize = noun === "gateway" ? Math.max(items.length, 1) : OBJECTS_PER_COMMIT;
  for (let partStart = 0; partStart === 0 || partStart < items.length; partStart += partSize) {
    if (partStart > 0) await yieldUnlessAborted(parts.clock, signal);
    const partOfList = { siteId, items: items.slice(partStart, partStart + partSize), complete: false };
    await commitDiff(parts, job, noun, [partOfList], signal, at);
  }
}

/** Commits the differences in parts. Commits at least once, because a commit records that the job succeeded. */
async function commitDiff<N extends InventoryKind>(
  parts: PollParts,
  job: string,
  noun: N,
  observations: readonly InventoryObservation<InventoryKinds[N]>[],
  signal: AbortSignal,
  at = isoUtc(parts.clock.now()),
): Promise<void> {
  type T = InventoryKinds[N];
  const { syncState } = parts;
  const { name } = parts.source;
  const set = documentSet(noun, name);
  const source = sourceUri(name);
  const tagContext = noun === "tag" ? readTagContext(parts) : null;
  const commitSteps = async (steps: readonly InventoryStep<T>[]) => {
    const stepsWithTagEvents = steps.map((step) =>
      tagContext === null
        ? { step, documents: [] }
        : addTagEvents(step as InventoryStep<Tag>, tagContext, { source, at }),
    );
    const put = stepsWithTagEvents.flatMap(({ step: { id, next } }) => (next === null ? [] : [[id, next] as const]));
    const remove = stepsWithTagEvents.flatMap(({ step: { id, next } }) => (next === null ? [id] : []));
    await parts.commit(job, {
      documents: [{ set, put, remove }, ...stepsWithTagEvents.flatMap(({ documents }) => documents)],
      events: stepsWithTagEvents.flatMap(({ step }) => step.events),
    });
  };
  const inventorySteps = compareInventory(noun, syncState.get<StoredItem<T>>(set), observations, {
    source,
    at,
    removeAfterMs: removeAfterMs(parts),
    hostsBehind: (gatewayId) => findHostsBehind(syncState.get<StoredItem<Host>>(documentSet("host", name)), gatewayId),
  });
  const pendingSteps: InventoryStep<T>[] = [];
  for (const inventoryStep of inventorySteps) {
    if (inventoryStep !== null) pendingSteps.push(inventoryStep);
    if (inventoryStep !== null && pendingSteps.length < OBJECTS_PER_COMMIT) continue;
    if (pendingSteps.length >= OBJECTS_PER_COMMIT) await commitSteps(pendingSteps.splice(0));
    await yieldUnlessAborted(parts.clock, signal);
  }
  await commitSteps(pendingSteps);
}

export function readTagContext({ syncState, source: { name } }: PollParts): StoredTagContext {
  const tagSystemSet = syncSet("tag-system", name);
  return {
    tags: syncState.get<StoredItem<Tag>>(documentSet("tag", name)),
    systems: syncState.get<StoredItem<System>>(documentSet("system", name)),
    tagSystems: syncState.get<StoredTagSystems>(tagSystemSet),
    tagSystemSet,
    seen: syncState.get<StoredTagSeen>(syncSet("tag-seen", name)),
  };
}

/** Returns the absence after which an object is removed; infinite if this machine's clock is wrong. */
function removeAfterMs({ config, source }: PollParts): number {
  const isClockWrong = Math.abs(source.clockSkewMs() ?? 0) > MAX_CLOCK_DIFFERENCE_MS;
  return isClockWrong ? Number.POSITIVE_INFINITY : config.inventory.remove_after;
}

export async function readList<T extends WithId>(read: () => AsyncIterable<Page<T>>): Promise<Listing<T>> {
  const options = { idOf: (item: T) => String(item.id) };
  const firstListing = await readPages(read(), options);
  return firstListing.complete || firstListing.shown === null ? firstListing : await readPages(read(), options);
}

/** True if the token's scope may explain absences: an object is newly missing, to be removed, or at another site. */
function needsScope<T extends WithId>(
  stored: ReadonlyMap<string, StoredItem<T>>,
  seen: ReadonlyMap<number, Listing<T>>,
  doubted: ReadonlySet<number>,
  removal: Parameters<typeof isToBeRemoved>[1],
): boolean {
  const isListedAt = (siteId: number | null) => siteId !== null && seen.get(siteId)?.complete === true;
  let absentCount = stored.values().reduce((count, { siteId }) => count + (isListedAt(siteId) ? 1 : 0), 0);
  for (const [siteId, list] of seen)
    if (list.complete) for (const { id } of list.items) if (stored.get(String(id))?.siteId === siteId) absentCount -= 1;
  if (absentCount === 0) return false;
  const idSites = new Map<string, Set<number>>();
  for (const [siteId, list] of seen)
    for (const { id } of listItems(list)) idSites.set(String(id), (idSites.get(String(id)) ?? new Set()).add(siteId));
  return stored.entries().some(([id, known]) => {
    const { missingSince, siteId } = known;
    if (siteId === null || doubted.has(siteId) || !isListedAt(siteId) || idSites.get(id)?.has(siteId)) return false;
    return missingSince === null || idSites.has(id) || isToBeRemoved(known, removal);
  });
}

export interface ListDrop {
  readonly before: number;
  readonly gone: number;
}

/** Least objects of a drop: a list that lost over half of its objects, and at least 5, counts after ten minutes. */
const MIN_DROPPED_OBJECTS = 5;
const DROP_CONFIRMATION_MS = 600_000;

export function createDropCheck(
  clock: Pick<Clock, "monotonic">,
  log: Pick<Log, "warn">,
): (key: string, drop: ListDrop, details: object) => boolean {
  const droppedMs = new Map<string, number>();
  return (key, { before, gone }, details) => {
    if (gone < MIN_DROPPED_OBJECTS || gone <= before / 2) {
      droppedMs.delete(key);
      return false;
    }
    if (!droppedMs.has(key)) log.warn(details, "most of a list is gone at once: it is read again");
    const droppedSinceMs = droppedMs.get(key) ?? clock.monotonic();
    droppedMs.set(key, droppedSinceMs);
    return clock.monotonic() - droppedSinceMs < DROP_CONFIRMATION_MS;
  };
}

function getDrop<T>(stored: ReadonlyMap<string, StoredItem<T>>, siteId: number, items: readonly WithId[]): ListDrop {
  const isPresent = (known: StoredItem<T> | undefined) => known?.siteId === siteId && known.missingSince === null;
  const presentCountBefore = stored.values().reduce((count, known) => count + (isPresent(known) ? 1 : 0), 0);
  const stillListedCount = items.reduce((count, { id }) => count + (isPresent(stored.get(String(id))) ? 1 : 0), 0);
  return { before: presentCountBefore, gone: presentCountBefore - stillListedCount };
}
