import { type Event, eventSubject, makeEvent, sourceUri } from "../../../core/model/event.ts";
import type { StaleReason, TagValueFact } from "../../../core/model/tag-event-data.ts";
import type { SiteTag } from "../inventory/requestable-tags.ts";
import { lastGoodOf, type StoredValue } from "../snapshot.ts";

/** Builds the event that a value is no longer confirmed, and the document that replaces the value. */
export function buildStaleValueEvent(
  { tag, siteId }: SiteTag,
  before: StoredValue,
  reason: StaleReason,
  { source, time, behindGateway }: { source: string; time: string; behindGateway: string | null },
): { readonly stored: StoredValue; readonly event: Event<"tag-value"> } {
  const lastGood = lastGoodOf(before);
  const staleReading = { value: null, quality: "stale", time, lastGood, staleReason: reason } as const;
  const data: TagValueFact = { tag, ...staleReading, latencyMs: 0, behindGateway };
  const eventFields = { source: sourceUri(source), subject: eventSubject("tag", siteId, tag.id), time, siteId };
  return {
    stored: {
      ...staleReading,
      ...(before.typeDoubt !== undefined && { typeDoubt: before.typeDoubt }),
      told: "this",
      ...(behindGateway !== null && { behindGateway }),
    },
    event: makeEvent({ type: "tag-value", ...eventFields, data, facts: ["stale"] }),
  };
}
