import type { System, Tag } from "../../../core/model/building.ts";
import { type Event, makeEvent, subjectOf } from "../../../core/model/event.ts";
import type { TagSystemsFact } from "../../../core/model/tag-facts.ts";
import type { Listed, StoredTagSeen, StoredTagSystems } from "../snapshot.ts";
import { systemsBreak } from "./series-break.ts";

/** The tags of one system as its list was seen. */
export interface SystemObservation {
  readonly systemId: string;
  readonly siteId: number;
  readonly tagIds: readonly string[];
  /** True when what the list does not show is no tag of the system any more. */
  readonly complete: boolean;
}

export interface StoredSystemsOfTags {
  readonly tags: ReadonlyMap<string, Listed<Tag>>;
  readonly systems: ReadonlyMap<string, Listed<System>>;
  readonly places: ReadonlyMap<string, StoredTagSystems>;
  readonly seen: ReadonlyMap<string, StoredTagSeen>;
}

/** Document and events of one tag; both belong into one transaction. */
export interface TagSystemsStep {
  readonly id: string;
  /** Null: it is forgotten. */
  readonly place: StoredTagSystems | null;
  readonly events: readonly Event[];
}

/**
 * Yields the tags whose systems differ from the last event. A removed system has no tags; a missing system, or one whose list was
 * not read, keeps its tags. A tag that no list contains waits until one does. Pure.
 */
export function* tagSystemsSteps(
  observations: readonly SystemObservation[],
  held: StoredSystemsOfTags,
  options: { readonly source: string; readonly at: string },
): Generator<TagSystemsStep, void> {
  const { source, at } = options;
  const now = systemsByTag(observations, held);
  for (const [id, place] of held.places) {
    // The removal was emitted with the tag's; this entry is from an older version.
    if (!held.tags.has(id)) yield { id, place: null, events: [] };
    else if (!now.has(id) && place.systemIds.length > 0) now.set(id, new Set());
  }
  for (const [id, systems] of now) {
    const tag = held.tags.get(id);
    if (tag === undefined || tag.missingSince !== null) continue;
    const place = held.places.get(id);
    const systemIds = [...systems].sort();
    const told = place?.toldAt === undefined ? [] : place.systemIds;
    const isKnown = place !== undefined && place.systemIds.join() === systemIds.join();
    if (isKnown && (place.toldAt !== undefined || systemIds.length === 0)) continue;
    const { siteId, value } = tag;
    const lastBefore = held.seen.get(String(siteId))?.systems ?? place?.toldAt ?? tag.since;
    const broken = systemsBreak(value, told, systemIds, {
      source,
      siteId,
      since: { lastBefore, firstAfter: at },
    });
    yield {
      id,
      place: { systemIds, toldAt: at },
      events: [
        systemsEvent({ source, siteId, at, tag: value, systemIds, before: told, systems: held.systems }),
        ...(broken === null ? [] : [broken]),
      ],
    };
  }
}

/** Held and observed together, without the systems that were removed. */
function systemsByTag(
  observations: readonly SystemObservation[],
  { systems, places }: StoredSystemsOfTags,
): Map<string, Set<string>> {
  const complete = new Map(
    observations.filter((list) => list.complete).map((list) => [list.systemId, new Set(list.tagIds)]),
  );
  const byTag = new Map<string, Set<string>>();
  const add = (id: string, systemId: string) => {
    const known = byTag.get(id);
    if (known === undefined) byTag.set(id, new Set([systemId]));
    else known.add(systemId);
  };
  for (const [id, { systemIds }] of places)
    for (const systemId of systemIds)
      if (systems.has(systemId) && complete.get(systemId)?.has(id) !== false) add(id, systemId);
  for (const { systemId, tagIds } of observations) for (const id of tagIds) add(id, systemId);
  return byTag;
}

/** Last event about the systems of a removed tag; null when none was emitted. */
export function withoutSystems(
  tag: Tag,
  siteId: number | null,
  place: StoredTagSystems | undefined,
  options: { readonly source: string; readonly at: string },
): Event<"tag-systems-changed"> | null {
  if (place?.toldAt === undefined || place.systemIds.length === 0) return null;
  return systemsEvent({
    ...options,
    siteId,
    tag,
    systemIds: [],
    before: place.systemIds,
    systems: new Map(),
  });
}

function systemsEvent(told: {
  readonly source: string;
  readonly siteId: number | null;
  readonly at: string;
  readonly tag: Tag;
  readonly systemIds: readonly string[];
  readonly before: readonly string[];
  readonly systems: ReadonlyMap<string, Listed<System>>;
}): Event<"tag-systems-changed"> {
  const { source, siteId, at, tag, before } = told;
  return makeEvent({
    type: "tag-systems-changed",
    source,
    subject: subjectOf("tag", siteId, tag.id),
    time: at,
    siteId,
    data: { tag, systems: namedSystems(told.systemIds, (id) => told.systems.get(id)?.value), before },
    facts: [at],
  });
}

/** Systems by id, as far as they are known, in the words of an event. */
function namedSystems(ids: readonly string[], systemOf: (id: string) => System | undefined): TagSystemsFact["systems"] {
  return ids.flatMap((id) => {
    const system = systemOf(id);
    return system === undefined ? [] : [{ id, code: system.code, displayName: system.displayName }];
  });
}
