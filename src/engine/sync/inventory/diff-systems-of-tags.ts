import type { System, Tag } from "../../../core/model/building.ts";
import { type Event, eventSubject, makeEvent } from "../../../core/model/event.ts";
import type { SeriesBreak } from "../../../core/model/tag-event-data.ts";
import type { DocumentChange } from "../../store/store.ts";
import type { StoredObject, StoredTagListTimes, StoredTagSystems } from "../stored-documents.ts";
import type { InventoryChange, InventoryDiffOptions } from "./diff.ts";

export interface ObservedSystemTags {
  readonly systemId: string;
  readonly siteId: number;
  readonly tagIds: readonly string[];
  readonly complete: boolean;
}

export interface StoredTagContext {
  readonly tags: ReadonlyMap<string, StoredObject<Tag>>;
  readonly systems: ReadonlyMap<string, StoredObject<System>>;
  readonly tagSystems: ReadonlyMap<string, StoredTagSystems>;
  readonly tagSystemSet: string;
  readonly listTimesBySite: ReadonlyMap<string, StoredTagListTimes>;
}

type TagEventOptions = Pick<InventoryDiffOptions, "source" | "at">;

export interface SystemsChange extends Omit<InventoryChange<Tag>, "next"> {
  readonly next: StoredTagSystems | null;
}

/** Yields tags whose systems differ from the last event. An incomplete list removes no tag from its system. */
export function* diffTagSystems(
  observations: readonly ObservedSystemTags[],
  { tags, systems, tagSystems, listTimesBySite }: StoredTagContext,
  { source, at }: TagEventOptions,
): Generator<SystemsChange, void> {
  const completeObservations = observations.filter(({ complete }) => complete);
  const completeLists = new Map(completeObservations.map(({ systemId, tagIds }) => [systemId, new Set(tagIds)]));
  const systemsByTag = new Map<string, Set<string>>();
  const addSystemOfTag = (id: string, systemId: string) =>
    systemsByTag.set(id, (systemsByTag.get(id) ?? new Set<string>()).add(systemId));
  for (const [id, { systemIds }] of tagSystems)
    for (const systemId of systemIds)
      if (systems.has(systemId) && completeLists.get(systemId)?.has(id) !== false) addSystemOfTag(id, systemId);
  for (const { systemId, tagIds } of observations) for (const id of tagIds) addSystemOfTag(id, systemId);
  for (const [id, { systemIds }] of tagSystems) {
    if (!tags.has(id)) yield { id, next: null, events: [] };
    else if (!systemsByTag.has(id) && systemIds.length > 0) systemsByTag.set(id, new Set());
  }
  for (const [id, systemIdsOfTag] of systemsByTag) {
    const tag = tags.get(id);
    if (tag === undefined || tag.missingSince !== null) continue;
    const storedTagSystems = tagSystems.get(id);
    const systemIds = [...systemIdsOfTag].sort();
    const areSystemsStored = storedTagSystems !== undefined && storedTagSystems.systemIds.join() === systemIds.join();
    if (areSystemsStored && (storedTagSystems.toldAt !== undefined || systemIds.length === 0)) continue;
    const { siteId, value } = tag;
    const formerSystemIds = storedTagSystems?.toldAt === undefined ? [] : storedTagSystems.systemIds;
    const lastSystemListAt = listTimesBySite.get(String(siteId))?.systems ?? storedTagSystems?.toldAt ?? tag.since;
    const breakTimes = { lastBefore: lastSystemListAt, firstAfter: at };
    const systemsOfTag = systemIds.flatMap((systemId) => systems.get(systemId)?.value ?? []);
    const events: Event[] = [buildSystemsEvent(tag, systemsOfTag, formerSystemIds, { source, at })];
    if (formerSystemIds.length > 0) {
      const systemChange = { what: ["system"], before: { systems: formerSystemIds }, systems: systemIds } as const;
      events.push(buildSeriesBreakEvent({ tag: value, ...systemChange, since: breakTimes }, source, siteId));
    }
    yield { id, next: { systemIds, toldAt: at }, events };
  }
}

/** Adds `series-break` after `tag-changed`, and an empty `tag-systems-changed` before `tag-removed`. */
export function addTagEvents(
  step: InventoryChange<Tag>,
  { tags, tagSystems, tagSystemSet, listTimesBySite }: Omit<StoredTagContext, "systems">,
  options: TagEventOptions,
): { readonly step: InventoryChange<Tag>; readonly documents: readonly DocumentChange[] } {
  const { id, next, events } = step;
  const storedTag = tags.get(id);
  if (storedTag === undefined) return { step, documents: [] };
  if (next === null) {
    const storedTagSystems = tagSystems.get(id);
    const wasEmitted = storedTagSystems?.toldAt !== undefined && storedTagSystems.systemIds.length > 0;
    const removalEvents = wasEmitted ? [buildSystemsEvent(storedTag, [], storedTagSystems.systemIds, options)] : [];
    const documents = storedTagSystems === undefined ? [] : [{ set: tagSystemSet, remove: [id] }];
    return { step: { ...step, events: [...removalEvents, ...events] }, documents };
  }
  const { lastSeen = listTimesBySite.get(String(storedTag.siteId))?.tags ?? storedTag.since, ...rest } = storedTag;
  if (next.missingSince !== null) return { step: { ...step, next: { ...next, lastSeen } }, documents: [] };
  const { siteId, value } = next;
  const seriesBreak = findSeriesBreak(storedTag.value, value, { lastBefore: lastSeen, firstAfter: options.at });
  const seriesBreakEvents = seriesBreak === null ? [] : [buildSeriesBreakEvent(seriesBreak, options.source, siteId)];
  const presentTag: StoredObject<Tag> = { ...rest, value, siteId, missingSince: null };
  return { step: { ...step, next: presentTag, events: [...events, ...seriesBreakEvents] }, documents: [] };
}

/** Returns the series break of a changed tag. From no unit to kWh is no break; from Wh to kWh or to no unit is. */
function findSeriesBreak(tagBefore: Tag, tag: Tag, since: SeriesBreak["since"]): SeriesBreak | null {
  const hasKnownTextChanged = (textBefore: string | null, textAfter: string | null) =>
    textBefore !== null && textBefore !== "" && textBefore !== textAfter;
  const isNewUnit = hasKnownTextChanged(tagBefore.unit, tag.unit);
  const isNewName = hasKnownTextChanged(tagBefore.displayName, tag.displayName);
  if (!isNewUnit && !isNewName) return null;
  const { unit, displayName } = tagBefore;
  return {
    tag,
    what: [...(isNewUnit ? (["unit"] as const) : []), ...(isNewName ? (["name"] as const) : [])],
    before: { ...(isNewUnit && { unit: unit ?? "" }), ...(isNewName && { displayName }) },
    since,
  };
}

function buildSeriesBreakEvent(data: SeriesBreak, source: string, siteId: number | null): Event<"series-break"> {
  const time = data.since.firstAfter;
  const subject = eventSubject("tag", siteId, data.tag.id);
  return makeEvent({ type: "series-break", source, subject, time, siteId, data, facts: [time, ...data.what] });
}

function buildSystemsEvent(
  { siteId, value: tag }: StoredObject<Tag>,
  systems: readonly System[],
  formerSystemIds: readonly string[],
  { source, at }: TagEventOptions,
): Event<"tag-systems-changed"> {
  const systemFacts = systems.map(({ id, code, displayName }) => ({ id, code, displayName }));
  const subject = eventSubject("tag", siteId, tag.id);
  const data = { tag, systems: systemFacts, before: formerSystemIds };
  return makeEvent({ type: "tag-systems-changed", source, subject, time: at, siteId, data, facts: [at] });
}
