import { sourceUri } from "../../../core/model/event.ts";
import { rejectOnAbort, yieldUnlessAborted } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { JobOutcome, RunnableJob } from "../job.ts";
import type { PollContext } from "../poll-context.ts";
import { buildJobOutcome, pollEachSite } from "../poll-each-site.ts";
import { type Listing, listItems } from "../read-list-pages.ts";
import {
  diffTagSystems,
  type ObservedSystemTags,
  type StoredTagContext,
  type SystemsChange,
} from "./diff-systems-of-tags.ts";
import {
  commitInParts,
  commitListTimes,
  createInventoryPoll,
  createListDropCheck,
  getFollowedSiteIds,
  getStoredTagContext,
  joinSteps,
  type ListDrop,
  readInventoryList,
  staysVisible,
  storedObjects,
} from "./poll.ts";

type SystemTagList = Listing<{ readonly id: string }>;

/** Polls tags and, when configured, the tags of each system after the first list of systems (`systemsReadPromise`). */
export function createTagPoll(pollContext: PollContext, systemsReadPromise: Promise<void>): RunnableJob {
  const { source, config, clock, scope } = pollContext;
  const tagListPoll = createInventoryPoll(pollContext, "tags", "tag", source.tags);
  const storedTagContext = getStoredTagContext(pollContext);
  const isDropPending = createListDropCheck(clock, pollContext.log);

  async function pollTagsOfSystems(signal: AbortSignal): Promise<JobOutcome> {
    const presentSystems = [...storedTagContext.systems.values()].filter(({ missingSince }) => missingSince === null);
    const startTimes = new Map<number, string>();
    const readTagListsOfSite = async (siteId: number) => {
      startTimes.set(siteId, isoUtc(clock.now()));
      const tagListsBySystem = new Map<string, SystemTagList>();
      for (const { value } of presentSystems.filter((system) => system.siteId === siteId)) {
        const filter = { siteId, systemId: value.id };
        const readTags = () => source.tags(filter, signal, storedObjects(pollContext, "tag"));
        tagListsBySystem.set(value.id, await readInventoryList(readTags));
      }
      return tagListsBySystem;
    };
    const { results, failures } = await pollEachSite(getFollowedSiteIds(pollContext), readTagListsOfSite, signal);
    const listsBySystem = new Map([...results.values()].flatMap((lists) => [...lists]));
    const listDropsBySystem = findDrops(listsBySystem, storedTagContext);
    const hasAbsentTags = [...listDropsBySystem.values()].some(({ goneCount }) => goneCount > 0);
    const newScope = hasAbsentTags ? await scope.tryRefresh(signal) : null;
    const incompleteReasons: string[] = [];
    const observations: ObservedSystemTags[] = [];
    for (const [siteId, lists] of results) {
      for (const [systemId, list] of lists) {
        if (!list.complete) incompleteReasons.push(list.reason);
        const listDrop = listDropsBySystem.get(systemId) ?? { countBefore: 0, goneCount: 0 };
        const isPending = isDropPending(systemId, listDrop, { job: "tags", site: siteId, system: systemId });
        if (isPending) incompleteReasons.push(`Most of the tags of system ${systemId} are gone at once.`);
        const tagIds = listItems(list).map(({ id }) => id);
        const complete = list.complete && !isPending && (listDrop.goneCount === 0 || staysVisible(newScope, siteId));
        observations.push({ systemId, siteId, tagIds, complete });
      }
    }
    await commitChanges(observations, signal);
    const incompleteSiteIds = new Set(observations.filter((list) => !list.complete).map(({ siteId }) => siteId));
    const isSiteComplete = (siteId: number) => results.has(siteId) && !incompleteSiteIds.has(siteId);
    const completeSiteTimes = [...startTimes].filter(([siteId]) => isSiteComplete(siteId));
    await commitListTimes(pollContext, "tags", "systems", new Map(completeSiteTimes));
    return buildJobOutcome(failures, incompleteReasons);
  }

  async function commitChanges(observations: readonly ObservedSystemTags[], signal: AbortSignal): Promise<void> {
    const commitPart = async (steps: readonly SystemsChange[]) => {
      const { document, events } = joinSteps(storedTagContext.tagSystemSet, steps);
      await pollContext.commit("tags", { documents: [document], events });
    };
    const tagEventOptions = { source: sourceUri(source.name), at: isoUtc(clock.now()) };
    const changes = diffTagSystems(observations, storedTagContext, tagEventOptions);
    await commitInParts(changes, commitPart, () => yieldUnlessAborted(clock, signal));
  }

  return {
    async run(signal) {
      const tagPollOutcome = await tagListPoll.run(signal);
      if (!config.inventory.tags_of_systems) return tagPollOutcome;
      await rejectOnAbort(systemsReadPromise, signal);
      const systemPollOutcome = await pollTagsOfSystems(signal);
      return tagPollOutcome.kind === "ok" ? systemPollOutcome : tagPollOutcome;
    },
  };
}

function findDrops(lists: ReadonlyMap<string, SystemTagList>, { tags, tagSystems }: StoredTagContext) {
  const completeTagLists = [...lists].filter(([, list]) => list.complete);
  const memberIds = new Map(completeTagLists.map(([id, list]) => [id, new Set(listItems(list).map((tag) => tag.id))]));
  const listDropsBySystem = new Map<string, ListDrop>();
  for (const [id, { systemIds }] of tagSystems) {
    if (tags.get(id)?.missingSince !== null) continue;
    for (const systemId of systemIds) {
      const isTagListed = memberIds.get(systemId)?.has(id);
      if (isTagListed === undefined) continue;
      const { countBefore, goneCount } = listDropsBySystem.get(systemId) ?? { countBefore: 0, goneCount: 0 };
      listDropsBySystem.set(systemId, { countBefore: countBefore + 1, goneCount: goneCount + (isTagListed ? 0 : 1) });
    }
  }
  return listDropsBySystem;
}
