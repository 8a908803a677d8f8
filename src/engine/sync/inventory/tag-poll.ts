import type { System, Tag } from "../../../core/model/building.ts";
import { sourceUri } from "../../../core/model/event.ts";
import { abortable, yieldUnlessAborted } from "../../../core/runtime/waiting.ts";
import { isoUtc } from "../../../core/values/iso-utc.ts";
import { documentSet } from "../../store/store.ts";
import type { JobOutcome } from "../job.ts";
import { type Listing, listedCoverage } from "../listing.ts";
import { outcomeOf, perSite } from "../per-site.ts";
import type { PollParts } from "../poll-parts.ts";
import { type Listed, type StoredTagSeen, type StoredTagSystems, syncSet } from "../snapshot.ts";
import { createDropCheck, type Drop } from "./drop-check.ts";
import { createInventoryPoll, followedSites, listedAsStored, type Poll, readList, SLICE } from "./poll.ts";
import { commitSeen } from "./sight.ts";
import { type SystemObservation, type TagSystemsStep, tagSystemsSteps } from "./tag-systems.ts";

/**
 * Lists tags, and then, when configured, the tags of each system with one list per system. `systemsRead` resolves after the first
 * list of systems.
 */
export function createTagPoll(parts: PollParts, systemsRead: Promise<void>): Poll {
  const { source, config, syncState: holding, clock, scope } = parts;
  const tags = createInventoryPoll(parts, "tags", "tag", (siteId, signal, held) =>
    source.tags({ siteId }, signal, held),
  );
  const shown = listedAsStored<Tag>(parts, "tag");
  const placeSet = syncSet("tag-system", source.name);
  const isDropDoubted = createDropCheck(clock, parts.log);

  async function learnPlaces(signal: AbortSignal): Promise<JobOutcome> {
    const systems = [...holding.get<Listed<System>>(documentSet("system", source.name)).values()].filter(
      (held) => held.missingSince === null,
    );
    const begunAt = new Map<number, string>();
    const visits = await perSite(
      followedSites(parts),
      async (siteId) => {
        begunAt.set(siteId, isoUtc(clock.now()));
        const members: (readonly [systemId: string, list: Listing<{ id: string }>])[] = [];
        for (const system of systems.filter((held) => held.siteId === siteId)) {
          const systemId = system.value.id;
          members.push([systemId, await readList(() => source.tags({ siteId, systemId }, signal, shown))]);
        }
        return members;
      },
      signal,
    );
    const drops = dropsOf(
      [...visits.seen.values()].flat(),
      holding.get<StoredTagSystems>(placeSet),
      holding.get<Listed<Tag>>(documentSet("tag", source.name)),
    );
    const isNews = [...drops.values()].some(({ gone }) => gone > 0);
    const seenScope = isNews ? await scope.tryRefresh(signal) : null;
    const reasons: string[] = [];
    const observations: SystemObservation[] = [];
    for (const [siteId, lists] of visits.seen) {
      const isInSight = (seenScope?.before.has(siteId) ?? false) && (seenScope?.after.has(siteId) ?? false);
      for (const [systemId, list] of lists) {
        if (!list.complete) reasons.push(list.reason);
        const drop = drops.get(systemId) ?? { before: 0, gone: 0 };
        const isDoubted = isDropDoubted(systemId, drop, { job: "tags", site: siteId, system: systemId });
        if (isDoubted) reasons.push(`Most of the tags of system ${systemId} are gone at once.`);
        const tagIds = listedCoverage(list).map(({ id }) => id);
        const complete = list.complete && !isDoubted && (drop.gone === 0 || isInSight);
        observations.push({ systemId, siteId, tagIds, complete });
      }
    }
    await commitSystems(observations, signal);
    const whole = [...visits.seen.keys()].filter((siteId) =>
      observations.every((list) => list.siteId !== siteId || list.complete),
    );
    const seen = new Map(whole.map((siteId) => [siteId, begunAt.get(siteId) ?? null]));
    await commitSeen(parts, "tags", "systems", seen);
    return outcomeOf(visits.failures, reasons);
  }

  async function commitSystems(observations: readonly SystemObservation[], signal: AbortSignal): Promise<void> {
    const { name } = source;
    const held = {
      tags: holding.get<Listed<Tag>>(documentSet("tag", name)),
      systems: holding.get<Listed<System>>(documentSet("system", name)),
      places: holding.get<StoredTagSystems>(placeSet),
      seen: holding.get<StoredTagSeen>(syncSet("tag-seen", name)),
    };
    const steps = tagSystemsSteps(observations, held, {
      source: sourceUri(name),
      at: isoUtc(clock.now()),
    });
    const commit = async (found: readonly TagSystemsStep[]) => {
      const put = found.flatMap(({ id, place }) => (place === null ? [] : [[id, place] as const]));
      const remove = found.flatMap(({ id, place }) => (place === null ? [id] : []));
      const events = found.flatMap((step) => step.events);
      await parts.commit("tags", { documents: [{ set: placeSet, put, remove }], events });
    };
    let found: TagSystemsStep[] = [];
    for (const step of steps) {
      found.push(step);
      if (found.length < SLICE) continue;
      await commit(found);
      found = [];
      await yieldUnlessAborted(clock, signal);
    }
    await commit(found);
  }

  return {
    async run(signal) {
      const outcome = await tags.run(signal);
      if (!config.inventory.tags_of_systems) return outcome;
      await abortable(systemsRead, signal);
      const places = await learnPlaces(signal);
      return outcome.kind === "ok" ? places : outcome;
    },
  };
}

/** By system, how much of what its list showed is not on it now though it is there; of lists that say so. */
function dropsOf(
  lists: readonly (readonly [systemId: string, list: Listing<{ id: string }>])[],
  places: ReadonlyMap<string, StoredTagSystems>,
  tags: ReadonlyMap<string, Listed<Tag>>,
): ReadonlyMap<string, Drop> {
  const complete = new Map(
    lists.flatMap(([systemId, list]) =>
      list.complete ? [[systemId, new Set(list.items.map(({ id }) => id))] as const] : [],
    ),
  );
  const drops = new Map<string, Drop>();
  for (const [id, { systemIds }] of places) {
    if (tags.get(id)?.missingSince !== null) continue;
    for (const systemId of systemIds) {
      const members = complete.get(systemId);
      if (members === undefined) continue;
      const { before, gone } = drops.get(systemId) ?? { before: 0, gone: 0 };
      drops.set(systemId, { before: before + 1, gone: gone + (members.has(id) ? 0 : 1) });
    }
  }
  return drops;
}
