import type { System, Tag } from "../../../core/model/building.ts";
import { type Event, eventSubject, makeEvent } from "../../../core/model/event.ts";
import type { SeriesBreak } from "../../../core/model/tag-event-data.ts";
import type { DocumentChange } from "../../store/store.ts";
import type { StoredItem, StoredTagSeen, StoredTagSystems } from "../snapshot.ts";
import type { InventoryDiffOptions, InventoryStep } from "./diff.ts";

export interface SystemObservation {
  readonly systemId: string;
  readonly siteId: number;
  readonly tagIds: readonly string[];
  readonly complete: boolean;
}

export interface StoredTagContext {
  readonly tags: ReadonlyMap<string, StoredItem<Tag>>;
  readonly systems: ReadonlyMap<string, StoredItem<System>>;
  readonly tagSystems: ReadonlyMap<string, StoredTagSystems>;
  readonly tagSystemSet: string;
  readonly seen: ReadonlyMap<string, StoredTagSeen>;
}

type TagEventOptions = Pick<InventoryDiffOptions, "source" | "at">;

export interface TagSystemsStep {
  readonly id: string;
  readonly next: StoredTagSystems | null;
  readonly events: readonly Event[];
}

/** Yields tags whose systems differ from the last event. Tags keep systems that are missing or unread. Pure. */
export function* diffTagSystems(
  observations: readonly SystemObservation[],
  { tags, systems, tagSystems, seen }: StoredTagContext,
  { source, at }: TagEventOptions,
): Generator<TagSystemsStep, void> {
  const completeLists = new Map(
    observations.filter((list) => list.complete).map((list) => [list.systemId, new Set(list.tagIds)]),
  );
  const systemsByTag = new Map<string, Set<string>>();
  const addSystem = (id: string, systemId: string) =>
    systemsByTag.set(id, (systemsByTag.get(id) ?? new Set<string>()).add(systemId));
  for (const [id, { systemIds }] of tagSystems)
    for (const systemId of systemIds)
      if (systems.has(systemId) && completeLists.get(systemId)?.has(id) !== false) addSystem(id, systemId);
  for (const { systemId, tagIds } of observations) for (const id of tagIds) addSystem(id, systemId);
  for (const [id, { systemIds }] of tagSystems) {
    if (!tags.has(id)) yield { id, next: null, events: [] };
    else if (!systemsByTag.has(id) && systemIds.length > 0) systemsByTag.set(id, new Set());
  }
  for (const [id, now] of systemsByTag) {
    const tag = tags.get(id);
    if (tag === undefined || tag.missingSince !== null) continue;
    const storedSystems = tagSystems.get(id);
    const systemIds = [...now].sort();
    const isStored = storedSystems !== undefined && storedSystems.systemIds.join() === systemIds.join();
    if (isStored && (storedSystems.toldAt !== undefined || systemIds.length === 0)) continue;
    const { siteId, value } = tag;
    const oldIds = storedSystems?.toldAt === undefined ? [] : storedSystems.systemIds;
    const lastListBefore = seen.get(String(siteId))?.systems ?? storedSystems?.toldAt ?? tag.since;
    const since = { lastBefore: lastListBefore, firstAfter: at };
    const namedSystems = systemIds.flatMap((systemId) => systems.get(systemId)?.value ?? []);
    const events: Event[] = [buildSystemsEvent(tag, namedSystems, oldIds, { source, at })];
    if (oldIds.length > 0) {
      const change = { what: ["system"], before: { systems: oldIds }, systems: systemIds } as const;
      events.push(buildBreakEvent({ tag: value, ...change, since }, source, siteId));
    }
    yield { id, next: { systemIds, toldAt: at }, events };
  }
}

/** Adds `series-break` after `tag-changed`, and an empty `tag-systems-changed` before `tag-removed`. Pure. */
export function addTagEvents(
  step: InventoryStep<Tag>,
  { tags, tagSystems, tagSystemSet, seen }: Omit<StoredTagContext, "systems">,
  options: TagEventOptions,
): { readonly step: InventoryStep<Tag>; readonly documents: readonly DocumentChange[] } {
  const { id, next, events } = step;
  const storedTag = tags.get(id);
  if (storedTag === undefined) return { step, documents: [] };
  if (next === null) {
    const storedSystems = tagSystems.get(id);
    const isEmitted = storedSystems?.toldAt !== undefined && storedSystems.systemIds.length > 0;
    const lastEvents = isEmitted ? [buildSystemsEvent(storedTag, [], storedSystems.systemIds, options)] : [];
    const documents = storedSystems === undefined ? [] : [{ set: tagSystemSet, remove: [id] }];
    return { step: { ...step, events: [...lastEvents, ...events] }, documents };
  }
  const { lastSeen = seen.get(String(storedTag.siteId))?.tags ?? storedTag.since, ...rest } = storedTag;
  if (next.missingSince !== null) return { step: { ...step, next: { ...next, lastSeen } }, documents: [] };
  const { siteId, value } = next;
  const seriesBreak = findSeriesBreak(storedTag.value, value, { lastBefore: lastSeen, firstAfter: options.at });
  const breakEvents = seriesBreak === null ? [] : [buildBreakEvent(seriesBreak, options.source, siteId)];
  const presentTag: StoredItem<Tag> = { ...rest, value, siteId, missingSince: null };
  return { step: { ...step, next: presentTag, events: [...events, ...breakEvents] }, documents: [] };
}

/** Returns the series break of a changed tag. From no unit to kWh is no break; from Wh to kWh or to no unit is. */
function findSeriesBreak(before: Tag, tag: Tag, since: SeriesBreak["since"]): SeriesBreak | null {
  const hasChanged = (from: string | null, to: string | null) => from !== null && from !== "" && from !== to;
  const hasUnit = hasChanged(before.unit, tag.unit);
  const hasName = hasChanged(before.displayName, tag.displayName);
  if (!hasUnit && !hasName) return null;
  return {
    tag,
    what: [...(hasUnit ? (["unit"] as const) : []), ...(hasName ? (["name"] as const) : [])],
    before: { ...(hasUnit && { unit: before.unit ?? "" }), ...(hasName && { displayName: before.displayName }) },
    since,
  };
}

function buildBreakEvent(data: SeriesBreak, source: string, siteId: number | null): Event<"series-break"> {
  const time = data.since.firstAfter;
  const subject = eventSubject("tag", siteId, data.tag.id);
  return makeEvent({ type: "series-break", source, subject, time, siteId, data, facts: [time, ...data.what] });
}

function buildSystemsEvent(
  { siteId, value: tag }: StoredItem<Tag>,
  systems: readonly System[],
  before: readonly string[],
  { source, at }: TagEventOptions,
): Event<"tag-systems-changed"> {
  const systemFacts = systems.map(({ id, code, displayName }) => ({ id, code, displayName }));
  const subject = eventSubject("tag", siteId, tag.id);
  const data = { tag, systems: systemFacts, before };
  return makeEvent({ type: "tag-systems-changed", source, subject, time: at, siteId, data, facts: [at] });
}
