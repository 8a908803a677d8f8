import type { Tag } from "../../../core/model/building.ts";
import type { Event } from "../../../core/model/event.ts";
import type { DocumentChange } from "../../store/store.ts";
import type { Listed, StoredTagSystems } from "../snapshot.ts";
import type { InventoryStep } from "./diff.ts";
import { recordBreak } from "./series-break.ts";
import { withoutSystems } from "./tag-systems.ts";

/** Stored facts about tags in addition to their records. */
export interface StoredTagNeighbours {
  readonly tags: ReadonlyMap<string, Listed<Tag>>;
  readonly places: ReadonlyMap<string, StoredTagSystems>;
  /** Set of the places. */
  readonly placeSet: string;
  /** Before the last listing of a site that showed all its tags began, UTC; null before the first. */
  readonly seenAt: (siteId: number | null) => string | null;
}

/** Additional documents and events of a tag's transaction. */
export interface TagCompany {
  readonly step: InventoryStep<Tag>;
  readonly documents: readonly DocumentChange[];
}

/**
 * Adds the events that follow when a tag changes or is removed: `series-break` after `tag-changed`, and an empty
 * `tag-systems-changed` before `tag-removed`. Pure; computed before the commit.
 */
export function withTagCompany(
  step: InventoryStep<Tag>,
  held: StoredTagNeighbours,
  options: { readonly source: string; readonly at: string },
): TagCompany {
  const { id } = step;
  const known = held.tags.get(id);
  if (known === undefined) return { step, documents: [] };
  if (step.held === null) {
    const place = held.places.get(id);
    const last = withoutSystems(known.value, known.siteId, place, options);
    const documents = place === undefined ? [] : [{ set: held.placeSet, remove: [id] }];
    return { step: { ...step, events: [...eventsIn(last), ...step.events] }, documents };
  }
  const { lastSeen = held.seenAt(known.siteId) ?? known.since, ...rest } = known;
  if (step.held.missingSince !== null) return { step: { ...step, held: { ...step.held, lastSeen } }, documents: [] };
  const since = { lastBefore: lastSeen, firstAfter: options.at };
  const { source } = options;
  const { siteId, value } = step.held;
  const broken = recordBreak(known.value, value, { source, siteId, since });
  const there: Listed<Tag> = { ...rest, value, siteId, missingSince: null };
  return { step: { ...step, held: there, events: [...step.events, ...eventsIn(broken)] }, documents: [] };
}

function eventsIn(event: Event | null): readonly Event[] {
  return event === null ? [] : [event];
}
