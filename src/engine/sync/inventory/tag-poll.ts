import { sourceUri } from "../../../core/model/event.ts";
import { rejectOnAbort, yieldUnlessAborted } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { JobOutcome, RunnableJob } from "../job.ts";
import { type Listing, listItems } from "../listing.ts";
import type { PollParts } from "../poll-dependencies.ts";
import { buildOutcome, visitSites } from "../site-visits.ts";
import {
  commitTimes,
  createDropCheck,
  createInventoryPoll,
  followedSites,
  type ListDrop,
  OBJECTS_PER_COMMIT,
  readList,
  readTagContext,
  staysVisible,
  storedObjects,
} from "./poll.ts";
import { diffTagSystems, type StoredTagContext, type SystemObservation, type TagSystemsStep } from "./tag-systems.ts";

type TagList = Listing<{ readonly id: string }>;

/** Polls tags and, when configured, the tags of each system after the first list of systems (`systemsRead`). */
export function createTagPoll(parts: PollParts, systemsRead: Promise<void>): RunnableJob {
  const { source, config, clock, scope } = parts;
  const tags = createInventoryPoll(parts, "tags", "tag", source.tags);
  const storedContext = readTagContext(parts);
  const isDropDoubted = createDropCheck(clock, parts.log);

  async function pollTagsOfSystems(signal: AbortSignal): Promise<JobOutcome> {
    const systems = [...storedContext.systems.values()].filter(({ missingSince }) => missingSince === null);
    const listBegun = new Map<number, string>();
    const visitSite = async (siteId: number) => {
      listBegun.set(siteId, isoUtc(clock.now()));
      const lists = new Map<string, TagList>();
      for (const { value } of systems.filter((system) => system.siteId === siteId)) {
        const readTags = () => source.tags({ siteId, systemId: value.id }, signal, storedObjects(parts, "tag"));
        lists.set(value.id, await readList(readTags));
      }
      return lists;
    };
    const { seen, failures } = await visitSites(followedSites(parts), visitSite, signal);
    const dropsBySystem = getDrops(new Map([...seen.values()].flatMap((lists) => [...lists])), storedContext);
    const hasAbsent = [...dropsBySystem.values()].some(({ gone }) => gone > 0);
    const seenScope = hasAbsent ? await scope.tryRefresh(signal) : null;
    const reasons: string[] = [];
    const observations: SystemObservation[] = [];
    for (const [siteId, lists] of seen) {
      for (const [systemId, list] of lists) {
        if (!list.complete) reasons.push(list.reason);
        const listDrop = dropsBySystem.get(systemId) ?? { before: 0, gone: 0 };
        const isDoubted = isDropDoubted(systemId, listDrop, { job: "tags", site: siteId, system: systemId });
        if (isDoubted) reasons.push(`Most of the tags of system ${systemId} are gone at once.`);
        const tagIds = listItems(list).map(({ id }) => id);
        const isListComplete = list.complete && !isDoubted && (listDrop.gone === 0 || staysVisible(seenScope, siteId));
        observations.push({ systemId, siteId, tagIds, complete: isListComplete });
      }
    }
    await commitSteps(observations, signal);
    const incompleteSites = new Set(observations.filter((list) => !list.complete).map(({ siteId }) => siteId));
    const completeSites = [...listBegun].filter(([siteId]) => seen.has(siteId) && !incompleteSites.has(siteId));
    await commitTimes(parts, "tags", "systems", new Map(completeSites));
    return buildOutcome(failures, reasons);
  }

  async function commitSteps(observations: readonly SystemObservation[], signal: AbortSignal): Promise<void> {
    const commitPart = async (steps: readonly TagSystemsStep[]) => {
      const put = steps.flatMap(({ id, next }) => (next === null ? [] : [[id, next] as const]));
      const remove = steps.flatMap(({ id, next }) => (next === null ? [id] : []));
      const documents = [{ set: storedContext.tagSystemSet, put, remove }];
      await parts.commit("tags", { documents, events: steps.flatMap(({ events }) => events) });
    };
    const pendingSteps: TagSystemsStep[] = [];
    const options = { source: sourceUri(source.name), at: isoUtc(clock.now()) };
    for (const tagStep of diffTagSystems(observations, storedContext, options)) {
      pendingSteps.push(tagStep);
      if (pendingSteps.length < OBJECTS_PER_COMMIT) continue;
      await commitPart(pendingSteps.splice(0));
      await yieldUnlessAborted(clock, signal);
    }
    await commitPart(pendingSteps);
  }

  return {
    async run(signal) {
      const tagOutcome = await tags.run(signal);
      if (!config.inventory.tags_of_systems) return tagOutcome;
      await rejectOnAbort(systemsRead, signal);
      const systemsOutcome = await pollTagsOfSystems(signal);
      return tagOutcome.kind === "ok" ? systemsOutcome : tagOutcome;
    },
  };
}

function getDrops(lists: ReadonlyMap<string, TagList>, { tags, tagSystems }: StoredTagContext) {
  const completeLists = [...lists].filter(([, list]) => list.complete);
  const memberIds = new Map(completeLists.map(([id, list]) => [id, new Set(listItems(list).map((tag) => tag.id))]));
  const dropsBySystem = new Map<string, ListDrop>();
  for (const [id, { systemIds }] of tagSystems) {
    if (tags.get(id)?.missingSince !== null) continue;
    for (const systemId of systemIds) {
      const isMember = memberIds.get(systemId)?.has(id);
      if (isMember === undefined) continue;
      const { before, gone } = dropsBySystem.get(systemId) ?? { before: 0, gone: 0 };
      dropsBySystem.set(systemId, { before: before + 1, gone: gone + (isMember ? 0 : 1) });
    }
  }
  return dropsBySystem;
}
