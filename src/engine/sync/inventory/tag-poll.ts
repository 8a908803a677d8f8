import type { System } from "../../../core/model/building.ts";
import { sourceUri } from "../../../core/model/event.ts";
import { rejectOnAbort, yieldUnlessAborted } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import type { JobOutcome } from "../job.ts";
import { type Listing, recordsIn } from "../listing.ts";
import { buildOutcome, visitSites } from "../per-site.ts";
import type { PollParts } from "../poll-parts.ts";
import {
  commitTimes,
  createDropCheck,
  createInventoryPoll,
  followedSites,
  type InventoryJob,
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
export function createTagPoll(parts: PollParts, systemsRead: Promise<void>): InventoryJob {
  const { source, config, clock, scope } = parts;
  const tags = createInventoryPoll(parts, "tags", "tag", source.tags);
  const stored = readTagContext(parts);
  const isDropDoubted = createDropCheck(clock, parts.log);

  async function pollTagsOfSystems(signal: AbortSignal): Promise<JobOutcome> {
    const systems = [...stored.systems.values()].filter(({ missingSince }) => missingSince === null);
    const begunAt = new Map<number, string>();
    const visit = async (siteId: number) => {
      begunAt.set(siteId, isoUtc(clock.now()));
      const lists = new Map<string, TagList>();
      for (const { value } of systems.filter((system) => system.siteId === siteId))
        lists.set(value.id, await readSystem(siteId, value, signal));
      return lists;
    };
    const { seen, failures } = await visitSites(followedSites(parts), visit, signal);
    const drops = getDrops(new Map([...seen.values()].flatMap((lists) => [...lists])), stored);
    const hasAbsent = [...drops.values()].some(({ gone }) => gone > 0);
    const seenScope = hasAbsent ? await scope.tryRefresh(signal) : null;
    const reasons: string[] = [];
    const observations: SystemObservation[] = [];
    for (const [siteId, lists] of seen) {
      for (const [systemId, list] of lists) {
        if (!list.complete) reasons.push(list.reason);
        const drop = drops.get(systemId) ?? { before: 0, gone: 0 };
        const isDoubted = isDropDoubted(systemId, drop, { job: "tags", site: siteId, system: systemId });
        if (isDoubted) reasons.push(`Most of the tags of system ${systemId} are gone at once.`);
        const tagIds = recordsIn(list).map(({ id }) => id);
        const complete = list.complete && !isDoubted && (drop.gone === 0 || staysVisible(seenScope, siteId));
        observations.push({ systemId, siteId, tagIds, complete });
      }
    }
    await commitSteps(observations, signal);
    const partial = new Set(observations.filter((list) => !list.complete).map(({ siteId }) => siteId));
    const whole = [...seen.keys()].filter((siteId) => !partial.has(siteId));
    await commitTimes(parts, "tags", "systems", new Map(whole.map((siteId) => [siteId, begunAt.get(siteId) ?? null])));
    return buildOutcome(failures, reasons);
  }

  function readSystem(siteId: number, { id: systemId }: System, signal: AbortSignal): Promise<TagList> {
    return readList(() => source.tags({ siteId, systemId }, signal, storedObjects(parts, "tag")));
  }

  async function commitSteps(observations: readonly SystemObservation[], signal: AbortSignal): Promise<void> {
    const commit = async (steps: readonly TagSystemsStep[]) => {
      const put = steps.flatMap(({ id, next }) => (next === null ? [] : [[id, next] as const]));
      const remove = steps.flatMap(({ id, next }) => (next === null ? [id] : []));
      const documents = [{ set: stored.tagSystemSet, put, remove }];
      await parts.commit("tags", { documents, events: steps.flatMap(({ events }) => events) });
    };
    const found: TagSystemsStep[] = [];
    const options = { source: sourceUri(source.name), at: isoUtc(clock.now()) };
    for (const step of diffTagSystems(observations, stored, options)) {
      found.push(step);
      if (found.length < OBJECTS_PER_COMMIT) continue;
      await commit(found.splice(0));
      await yieldUnlessAborted(clock, signal);
    }
    await commit(found);
  }

  return {
    async run(signal) {
      const outcome = await tags.run(signal);
      if (!config.inventory.tags_of_systems) return outcome;
      await rejectOnAbort(systemsRead, signal);
      const ofSystems = await pollTagsOfSystems(signal);
      return outcome.kind === "ok" ? ofSystems : outcome;
    },
  };
}

function getDrops(lists: ReadonlyMap<string, TagList>, { tags, tagSystems }: StoredTagContext) {
  const complete = [...lists].filter(([, list]) => list.complete);
  const members = new Map(complete.map(([id, list]) => [id, new Set(recordsIn(list).map((tag) => tag.id))]));
  const drops = new Map<string, ListDrop>();
  for (const [id, { systemIds }] of tagSystems) {
    if (tags.get(id)?.missingSince !== null) continue;
    for (const systemId of systemIds) {
      const isMember = members.get(systemId)?.has(id);
      if (isMember === undefined) continue;
      const { before, gone } = drops.get(systemId) ?? { before: 0, gone: 0 };
      drops.set(systemId, { before: before + 1, gone: gone + (isMember ? 0 : 1) });
    }
  }
  return drops;
}
