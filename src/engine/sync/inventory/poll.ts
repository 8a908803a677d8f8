import type { ObjectByNoun } from "../../../core/connector.ts";
import type { Host, Site, System, Tag } from "../../../core/model/building.ts";
import { type Event, sourceUri } from "../../../core/model/event.ts";
import type { Clock } from "../../../core/runtime/clock.ts";
import { MAX_CLOCK_DIFFERENCE_MS } from "../../../core/runtime/clock-check.ts";
import type { Log } from "../../../core/runtime/log.ts";
import { yieldIfManyObjects, yieldUnlessAborted } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { ListPage, FindRecord as StoredObjects } from "../../source/source.ts";
import { documentSet } from "../../store/store.ts";
import { incompleteJobOutcome, type JobOutcome, type RunnableJob } from "../job.ts";
import type { PollContext } from "../poll-context.ts";
import { buildJobOutcome, pollEachSite } from "../poll-each-site.ts";
import { type Listing, listItems, readPages } from "../read-list-pages.ts";
import { type StoredObject, type StoredTagListTimes, type StoredTagSystems, syncSet } from "../stored-documents.ts";
import {
  compareInventory,
  type InventoryChange,
  type InventoryObjectKind,
  isAbsentObjectExpired,
  type ObservedInventoryList,
  type RemovalOptions,
} from "./diff.ts";
import { addTagEvents, type StoredTagContext } from "./diff-systems-of-tags.ts";
import { findHostsBehind } from "./gateways.ts";

type SiteObjectKind = Exclude<InventoryObjectKind, "site">;
/** Reads one site's list of objects. `isUrgent`: alarms wait for the list, so it is read before other lists. */
type ReadSiteList<T> = (
  filter: { readonly siteId: number; readonly isUrgent?: true },
  signal: AbortSignal,
  storedObjects: StoredObjects<T>,
) => AsyncIterable<ListPage<T>>;
interface WithId {
  readonly id: string | number;
}
type TokenScopeChange = Awaited<ReturnType<PollContext["scope"]["tryRefresh"]>>;

const INVENTORY_OBJECTS_PER_COMMIT = 250;

export function createSiteListPoll(pollContext: PollContext): RunnableJob {
  const { source, scope } = pollContext;
  return {
    async run(signal) {
      const siteList = await readInventoryList(() =>
        source.sites({}, signal, storedObjects<Site>(pollContext, "site")),
      );
      const sites = listItems(siteList);
      const differsFromTokenScope =
        sites.some(({ id }) => !scope.sees(id)) || (siteList.complete && scope.known()?.size !== sites.length);
      if (differsFromTokenScope) await scope.tryRefresh(signal);
      const observedSites = { siteId: null, items: sites, complete: siteList.complete };
      await commitDiff(pollContext, "sites", "site", [observedSites], signal);
      return siteList.complete ? buildJobOutcome(new Map()) : incompleteJobOutcome(siteList.reason);
    },
  };
}

export type InventoryPoll = ReturnType<typeof createInventoryPoll>;

export function createInventoryPoll<N extends SiteObjectKind>(
  pollContext: PollContext,
  job: string,
  noun: N,
  readSiteList: ReadSiteList<ObjectByNoun[N]>,
) {
  type T = ObjectByNoun[N];
  const { source, scope, syncState, clock, log } = pollContext;
  const storedItems = syncState.get<StoredObject<T>>(documentSet(noun, source.name));
  const isDropPending = createListDropCheck(clock, log);
  /** Sites that `pollSite` read during the present poll. The poll's older lists must not revert these changes. */
  const sitesPolledMeanwhile = new Set<number>();

  /** Reads one site's list and commits its objects; tags page by page. Absences count after all lists are read. */
  async function readListOfSite(
    siteId: number,
    signal: AbortSignal,
    progress: { readonly site: number; readonly sites: number } | null = null,
  ): Promise<Listing<T>> {
    const siteListFilter = { siteId, ...(progress === null && { isUrgent: true as const }) };
    async function* readSitePages(): AsyncGenerator<ListPage<T>, void> {
      for await (const page of readSiteList(siteListFilter, signal, storedObjects<T>(pollContext, noun))) {
        if (noun === "tag") await commitList(pollContext, job, noun, siteId, page.items, signal);
        if (progress !== null) pollContext.firstInventory.page(job, progress, page);
        yield page;
      }
    }
    const siteList = await readInventoryList(readSitePages);
    sitesPolledMeanwhile.delete(siteId);
    if (siteList.complete && noun !== "tag") await commitList(pollContext, job, noun, siteId, siteList.items, signal);
    return siteList;
  }

  async function commitCompleteListTimes(
    lists: ReadonlyMap<number, Listing<T>>,
    startTimesBySite: ReadonlyMap<number, string>,
  ) {
    const completeListTimes = [...lists].flatMap(([siteId, list]) => {
      const hasAllObjects = list.complete && findDrop(storedItems, siteId, list.items).goneCount === 0;
      return hasAllObjects ? [[siteId, startTimesBySite.get(siteId) ?? null] as const] : [];
    });
    await commitListTimes(pollContext, job, "tags", new Map(completeListTimes));
  }

  return {
    async pollSite(siteId: number, signal: AbortSignal): Promise<void> {
      await readListOfSite(siteId, signal);
      sitesPolledMeanwhile.add(siteId);
    },
    async run(signal: AbortSignal): Promise<JobOutcome> {
      const siteIdsToPoll = getFollowedSiteIds(pollContext);
      if (siteIdsToPoll.length === 0) return incompleteJobOutcome("No site is known yet.");
      const startTimes = new Map<number, string>();
      const readListOfVisitedSite = async (siteId: number) => {
        startTimes.set(siteId, isoUtc(clock.now()));
        const siteList = await readListOfSite(siteId, signal, { site: startTimes.size, sites: siteIdsToPoll.length });
        if (noun !== "tag") return siteList;
        pollContext.sitesWithTagList.add(siteId);
        const isFirstTagList = !syncState.get<StoredTagListTimes>(syncSet("tag-seen", source.name)).has(String(siteId));
        if (isFirstTagList) await commitCompleteListTimes(new Map([[siteId, siteList]]), startTimes);
        return siteList;
      };
      const { results: listsBySite, failures } = await pollEachSite(siteIdsToPoll, readListOfVisitedSite, signal);
      const unconfirmedSites = new Set<number>();
      for (const [siteId, list] of listsBySite) {
        if (!list.complete) continue;
        const drop = findDrop(storedItems, siteId, list.items);
        const details = { job, site: siteId, shown: list.items.length };
        if (isDropPending(String(siteId), drop, details)) unconfirmedSites.add(siteId);
      }
      const removalOptions = { at: isoUtc(clock.now()), removeAfterMs: absenceUntilRemovalMs(pollContext) };
      const newScope = needsScopeRefresh(storedItems, listsBySite, unconfirmedSites, removalOptions)
        ? await scope.tryRefresh(signal)
        : null;
      const latestSiteLists = [...listsBySite].filter(([siteId]) => !sitesPolledMeanwhile.has(siteId));
      const observedLists = latestSiteLists.map(([siteId, list]): ObservedInventoryList<T> => {
        const isListComplete = list.complete && !unconfirmedSites.has(siteId) && staysVisible(newScope, siteId);
        return { siteId, items: listItems(list), complete: isListComplete };
      });
      await commitDiff(pollContext, job, noun, observedLists, signal);
      await yieldIfManyObjects(storedItems.size);
      if (noun === "tag") await commitCompleteListTimes(listsBySite, startTimes);
      await yieldIfManyObjects(storedItems.size);
      const incompleteReasons = [...listsBySite.values()].flatMap((list) => (list.complete ? [] : [list.reason]));
      const dropReasons = [...unconfirmedSites].map((id) => `Most of the ${job} of site ${id} are gone at once.`);
      return buildJobOutcome(failures, [...dropReasons, ...incompleteReasons]);
    },
  };
}

export function getFollowedSiteIds({ config, source, syncState }: PollContext): readonly number[] {
  const configuredSiteIds = config.inventory.sites;
  return [...syncState.get<StoredObject<Site>>(documentSet("site", source.name)).values()]
    .filter(({ missingSince, value }) => missingSince === null && configuredSiteIds?.includes(value.id) !== false)
    .map(({ value }) => value.id);
}

export function storedObjects<T>({ syncState, source }: PollContext, noun: InventoryObjectKind): StoredObjects<T> {
  return (id) => syncState.get<StoredObject<T>>(documentSet(noun, source.name)).get(id)?.value;
}

export function staysVisible(scope: TokenScopeChange, siteId: number): boolean {
  return scope?.before.has(siteId) === true && scope.after.has(siteId);
}

export async function commitListTimes(
  { syncState, source, commit }: PollContext,
  job: string,
  field: keyof StoredTagListTimes,
  timesBySite: ReadonlyMap<number, string | null>,
): Promise<void> {
  const documentSetName = syncSet("tag-seen", source.name);
  const storedTimes = syncState.get<StoredTagListTimes>(documentSetName);
  const put = [...timesBySite].map(([siteId, at]) => {
    const listTimesOfSite = storedTimes.get(String(siteId)) ?? { tags: null, systems: null };
    return [String(siteId), { ...listTimesOfSite, [field]: at }] as const;
  });
  await commit(job, { documents: [{ set: documentSetName, put }] });
}

/** Commits listed objects in parts. A site's gateways share one commit, because alarms depend on their number. */
async function commitList<N extends InventoryObjectKind>(
  pollContext: PollContext,
  job: string,
  noun: N,
  siteId: number,
  items: readonly ObjectByNoun[N][],
  signal: AbortSignal,
): Promise<void> {
  const nowIso = isoUtc(pollContext.clock.now());
  const objectsPerPart = noun === "gateway" ? Math.max(items.length, 1) : INVENTORY_OBJECTS_PER_COMMIT;
  for (let partStart = 0; partStart === 0 || partStart < items.length; partStart += objectsPerPart) {
    if (partStart > 0) await yieldUnlessAborted(pollContext.clock, signal);
    const partOfList = { siteId, items: items.slice(partStart, partStart + objectsPerPart), complete: false };
    await commitDiff(pollContext, job, noun, [partOfList], signal, nowIso);
  }
}

/** Commits `tag-changed` for each stored tag whose names differ from the names file. */
export async function commitChangedTagNames(pollContext: PollContext, signal: AbortSignal): Promise<void> {
  const { nameTag } = pollContext.tagNaming;
  const renamedTags = [...getStoredTagContext(pollContext).tags.values()].flatMap(({ value, siteId, missingSince }) => {
    const item = nameTag(value, value);
    return item === value || missingSince !== null ? [] : [{ siteId, item }];
  });
  const renamedLists = [...Map.groupBy(renamedTags, ({ siteId }) => siteId)].map(([siteId, tags]) => ({
    ...{ siteId, items: tags.map(({ item }) => item), complete: false },
  }));
  await commitDiff(pollContext, "tags", "tag", renamedLists, signal);
}

function commitDiff<N extends InventoryObjectKind>(...args: Parameters<typeof commitDiffNow<N>>): Promise<void> {
  const [pollContext, , noun] = args;
  return noun === "tag" ? pollContext.tagNaming.runSerially(() => commitDiffNow(...args)) : commitDiffNow(...args);
}

/** Commits the differences in parts. Commits at least once, because a commit records that the job succeeded. */
async function commitDiffNow<N extends InventoryObjectKind>(
  pollContext: PollContext,
  job: string,
  noun: N,
  observations: readonly ObservedInventoryList<ObjectByNoun[N]>[],
  signal: AbortSignal,
  nowIso = isoUtc(pollContext.clock.now()),
): Promise<void> {
  type T = ObjectByNoun[N];
  const { syncState } = pollContext;
  const { name } = pollContext.source;
  const documentSetName = documentSet(noun, name);
  const eventSourceUri = sourceUri(name);
  const storedTagContext = noun === "tag" ? getStoredTagContext(pollContext) : null;
  const commitPart = async (steps: readonly InventoryChange<T>[]) => {
    const changes = steps.map((step) =>
      storedTagContext === null
        ? { step, documents: [] }
        : addTagEvents(step as InventoryChange<Tag>, storedTagContext, { source: eventSourceUri, at: nowIso }),
    );
    const changedSteps = changes.map(({ step }) => step);
    const { document, events } = joinSteps(documentSetName, changedSteps);
    const tagDocuments = changes.flatMap(({ documents }) => documents);
    await pollContext.commit(job, { documents: [document, ...tagDocuments], events });
  };
  const inventoryChanges = compareInventory(noun, syncState.get<StoredObject<T>>(documentSetName), observations, {
    source: eventSourceUri,
    at: nowIso,
    removeAfterMs: absenceUntilRemovalMs(pollContext),
    nameTag: pollContext.tagNaming.nameTag,
    hostsBehind: (gatewayId) =>
      findHostsBehind(syncState.get<StoredObject<Host>>(documentSet("host", name)), gatewayId),
  });
  await commitInParts(inventoryChanges, commitPart, () => yieldUnlessAborted(pollContext.clock, signal));
}

/** Commits 250 changes at a time, then the rest. Yields after each part, and at each null in `steps`. */
export async function commitInParts<S>(
  steps: Iterable<S | null>,
  commitPart: (steps: readonly S[]) => Promise<void>,
  yieldNow: () => Promise<void>,
): Promise<void> {
  const pendingSteps: S[] = [];
  for (const step of steps) {
    if (step !== null) pendingSteps.push(step);
    const isPartFull = pendingSteps.length >= INVENTORY_OBJECTS_PER_COMMIT;
    if (isPartFull) await commitPart(pendingSteps.splice(0));
    if (isPartFull || step === null) await yieldNow();
  }
  await commitPart(pendingSteps);
}

interface CommittedStep {
  readonly id: string;
  readonly next: unknown;
  readonly events: readonly Event[];
}

/** Joins changes of objects into one change of a document set. An object whose `next` is null is removed. */
export function joinSteps(set: string, steps: readonly CommittedStep[]) {
  const put = steps.flatMap(({ id, next }) => (next === null ? [] : [[id, next] as const]));
  const remove = steps.flatMap(({ id, next }) => (next === null ? [id] : []));
  return { document: { set, put, remove }, events: steps.flatMap(({ events }) => events) };
}

export function getStoredTagContext({ syncState, source: { name } }: PollContext): StoredTagContext {
  const tagSystemSet = syncSet("tag-system", name);
  return {
    tags: syncState.get<StoredObject<Tag>>(documentSet("tag", name)),
    systems: syncState.get<StoredObject<System>>(documentSet("system", name)),
    tagSystems: syncState.get<StoredTagSystems>(tagSystemSet),
    tagSystemSet,
    listTimesBySite: syncState.get<StoredTagListTimes>(syncSet("tag-seen", name)),
  };
}

function absenceUntilRemovalMs({ config, source }: PollContext): number {
  const isClockWrong = Math.abs(source.clockSkewMs() ?? 0) > MAX_CLOCK_DIFFERENCE_MS;
  return isClockWrong ? Number.POSITIVE_INFINITY : config.inventory.remove_after;
}

export async function readInventoryList<T extends WithId>(read: () => AsyncIterable<ListPage<T>>): Promise<Listing<T>> {
  const listOptions = { idOf: (item: T) => String(item.id) };
  const firstReading = await readPages(read(), listOptions);
  if (firstReading.complete || firstReading.readItems === null) return firstReading;
  return readPages(read(), listOptions);
}

/** True if the token's scope may explain absences: an object is newly missing, to be removed, or at another site. */
function needsScopeRefresh<T extends WithId>(
  stored: ReadonlyMap<string, StoredObject<T>>,
  listsBySite: ReadonlyMap<number, Listing<T>>,
  unconfirmedSiteIds: ReadonlySet<number>,
  removalOptions: RemovalOptions,
): boolean {
  const isListRead = (siteId: number | null) => siteId !== null && listsBySite.get(siteId)?.complete === true;
  let absentCount = stored.values().reduce((count, { siteId }) => count + (isListRead(siteId) ? 1 : 0), 0);
  for (const [siteId, list] of listsBySite)
    if (list.complete) for (const { id } of list.items) if (stored.get(String(id))?.siteId === siteId) absentCount -= 1;
  if (absentCount === 0) return false;
  const siteIds = new Map<string, Set<number>>();
  for (const [siteId, list] of listsBySite)
    for (const { id } of listItems(list)) siteIds.set(String(id), (siteIds.get(String(id)) ?? new Set()).add(siteId));
  return stored.entries().some(([id, storedObject]) => {
    const { missingSince, siteId } = storedObject;
    if (siteId === null || unconfirmedSiteIds.has(siteId) || !isListRead(siteId) || siteIds.get(id)?.has(siteId))
      return false;
    return missingSince === null || siteIds.has(id) || isAbsentObjectExpired(storedObject, removalOptions);
  });
}

export interface ListDrop {
  readonly countBefore: number;
  readonly goneCount: number;
}

/** If a list lacks 5 or more objects and over half of those stored, Plenum accepts the absences after ten minutes. */
const MIN_DROPPED_OBJECTS = 5;
const LIST_DROP_CONFIRMATION_MS = 600_000;

export function createListDropCheck(
  clock: Pick<Clock, "monotonic">,
  log: Pick<Log, "warn">,
): (key: string, drop: ListDrop, details: object) => boolean {
  const listDropTimesMs = new Map<string, number>();
  return (key, { countBefore, goneCount }, details) => {
    if (goneCount < MIN_DROPPED_OBJECTS || goneCount <= countBefore / 2) {
      listDropTimesMs.delete(key);
      return false;
    }
    if (!listDropTimesMs.has(key))
      log.warn(details, "most objects of a list disappeared at once: absences count after ten minutes");
    const listDroppedSinceMs = listDropTimesMs.get(key) ?? clock.monotonic();
    listDropTimesMs.set(key, listDroppedSinceMs);
    return clock.monotonic() - listDroppedSinceMs < LIST_DROP_CONFIRMATION_MS;
  };
}

function findDrop<T>(stored: ReadonlyMap<string, StoredObject<T>>, siteId: number, items: readonly WithId[]): ListDrop {
  const isPresent = (storedObject: StoredObject<T> | undefined) =>
    storedObject?.siteId === siteId && storedObject.missingSince === null;
  const countBefore = stored.values().reduce((count, object) => count + (isPresent(object) ? 1 : 0), 0);
  const listedCount = items.reduce((count, { id }) => count + (isPresent(stored.get(String(id))) ? 1 : 0), 0);
  return { countBefore, goneCount: countBefore - listedCount };
}
