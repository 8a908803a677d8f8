import type { System, Tag } from "../../../core/model/building.ts";
import { type Event, eventSubject, makeEvent } from "../../../core/model/event.ts";
import type { SeriesBreak, TagSystemsFact } from "../../../core/model/tag-facts.ts";
import type { DocumentChange } from "../../store/store.ts";
import type { Listed, StoredTagSeen, StoredTagSystems } from "../snapshot.ts";
import type { InventoryStep } from "./diff.ts";

export interface SystemObservation {
  readonly systemId: string;
  readonly siteId: number;
  readonly tagIds: readonly string[];
  readonly complete: boolean;
}

export interface StoredTagContext {
  readonly tags: ReadonlyMap<string, Listed<Tag>>;
  readonly systems: ReadonlyMap<string, Listed<System>>;
  readonly tagSystems: ReadonlyMap<string, StoredTagSystems>;
  readonly tagSystemSet: string;
  readonly seen: ReadonlyMap<string, StoredTagSeen>;
}

interface TagEventOptions {
  readonly source: string;
  readonly at: string;
}

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
  const complete = new Map(
    observations.filter((list) => list.complete).map((list) => [list.systemId, new Set(list.tagIds)]),
  );
  const systemsOf = new Map<string, Set<string>>();
  const add = (id: string, systemId: string) =>
    systemsOf.set(id, (systemsOf.get(id) ?? new Set<string>()).add(systemId));
  for (const [id, { systemIds }] of tagSystems)
    for (const systemId of systemIds)
      if (systems.has(systemId) && complete.get(systemId)?.has(id) !== false) add(id, systemId);
  for (const { systemId, tagIds } of observations) for (const id of tagIds) add(id, systemId);

  for (const [id, { systemIds }] of tagSystems) {
    if (!tags.has(id)) yield { id, next: null, events: [] };
    else if (!systemsOf.has(id) && systemIds.length > 0) systemsOf.set(id, new Set());
  }
  for (const [id, now] of systemsOf) {
    const tag = tags.get(id);
    if (tag === undefined || tag.missingSince !== null) continue;
    const stored = tagSystems.get(id);
    const systemIds = [...now].sort();
    const isStored = stored !== undefined && stored.systemIds.join() === systemIds.join();
    if (isStored && (stored.toldAt !== undefined || systemIds.length === 0)) continue;
    const { siteId, value } = tag;
    const before = stored?.toldAt === undefined ? [] : stored.systemIds;
    const lastBefore = seen.get(String(siteId))?.systems ?? stored?.toldAt ?? tag.since;
    const since = { lastBefore, firstAfter: at };
    const named = systemIds.flatMap((systemId) => systems.get(systemId)?.value ?? []);
    const events: Event[] = [buildSystemsEvent(tag, named, before, { source, at })];
    if (before.length > 0) {
      const what = { tag: value, what: ["system"], before: { systems: before }, systems: systemIds, since } as const;
      events.push(buildBreakEvent(what, source, siteId));
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
  const known = tags.get(id);
  if (known === undefined) return { step, documents: [] };
  if (next === null) {
    const stored = tagSystems.get(id);
    const isEmitted = stored?.toldAt !== undefined && stored.systemIds.length > 0;
    const last = isEmitted ? [buildSystemsEvent(known, [], stored.systemIds, options)] : [];
    const documents = stored === undefined ? [] : [{ set: tagSystemSet, remove: [id] }];
    return { step: { ...step, events: [...last, ...events] }, documents };
  }
  const { lastSeen = seen.get(String(known.siteId))?.tags ?? known.since, ...rest } = known;
  if (next.missingSince !== null) return { step: { ...step, next: { ...next, lastSeen } }, documents: [] };
  const { siteId, value } = next;
  const broken = findSeriesBreak(known.value, value, { lastBefore: lastSeen, firstAfter: options.at });
  const breaks = broken === null ? [] : [buildBreakEvent(broken, options.source, siteId)];
  const present: Listed<Tag> = { ...rest, value, siteId, missingSince: null };
  return { step: { ...step, next: present, events: [...events, ...breaks] }, documents: [] };
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
  { siteId, value: tag }: Listed<Tag>,
  systems: readonly System[],
  before: readonly string[],
  { source, at }: TagEventOptions,
): Event<"tag-systems-changed"> {
  const named: TagSystemsFact["systems"] = systems.map(({ id, code, displayName }) => ({ id, code, displayName }));
  const subject = eventSubject("tag", siteId, tag.id);
  const data = { tag, systems: named, before };
  return makeEvent({ type: "tag-systems-changed", source, subject, time: at, siteId, data, facts: [at] });
}
