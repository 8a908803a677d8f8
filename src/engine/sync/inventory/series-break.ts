import type { Tag } from "../../../core/model/building.ts";
import { type Event, makeEvent, subjectOf } from "../../../core/model/event.ts";
import type { SeriesBreak } from "../../../core/model/tag-facts.ts";

/** A tag as it is known: its record, and where it is. */
export interface BreakOptions {
  readonly source: string;
  readonly siteId: number | null;
  readonly since: SeriesBreak["since"];
}

/**
 * Series break that a new record causes; null without one. An empty unit before proves nothing about earlier values: from none to
 * kWh is no break; from Wh to kWh is one, and so is from Wh to none, because the new unit is unknown. Pure.
 */
export function recordBreak(before: Tag, tag: Tag, options: BreakOptions): Event<"series-break"> | null {
  const unit = isBroken(before.unit, tag.unit) ? { unit: before.unit ?? "" } : {};
  const name = isBroken(before.displayName, tag.displayName) ? { displayName: before.displayName } : {};
  const what: SeriesBreak["what"] = [
    ...("unit" in unit ? (["unit"] as const) : []),
    ...("displayName" in name ? (["name"] as const) : []),
  ];
  return what.length === 0 ? null : breakEvent({ tag, what, before: { ...unit, ...name } }, options);
}

/** The same where a tag has other systems than before; where it had none, nothing is broken. */
export function systemsBreak(
  tag: Tag,
  before: readonly string[],
  systems: readonly string[],
  options: BreakOptions,
): Event<"series-break"> | null {
  if (before.length === 0) return null;
  return breakEvent({ tag, what: ["system"], before: { systems: before }, systems }, options);
}

function isBroken(before: string | null, now: string | null): boolean {
  return before !== null && before !== "" && before !== now;
}

function breakEvent(data: Omit<SeriesBreak, "since">, { source, siteId, since }: BreakOptions): Event<"series-break"> {
  return makeEvent({
    type: "series-break",
    source,
    subject: subjectOf("tag", siteId, data.tag.id),
    time: since.firstAfter,
    siteId,
    data: { ...data, since },
    facts: [since.firstAfter, ...data.what],
  });
}
