import type { AlarmView, BuildingView } from "../../core/connector.ts";
import { type Event, type EventKind, eventSubject, makeEvent, sourceUri } from "../../core/model/event.ts";

/** Parts of the stored state in the order of sending: a site before its gateways. */
export const STATE_PARTS = ["site", "gateway", "host", "system", "tag", "tag-systems", "alarm", "value"] as const;
export type StatePart = (typeof STATE_PARTS)[number];

export interface StateEvent {
  readonly key: string;
  readonly event: Event;
}

/** Events marked `snapshot` of one part of the stored state, by key. `askedAt` makes ids stable across attempts. */
export async function stateEvents(
  building: BuildingView,
  part: StatePart,
  askedAt: string,
): Promise<readonly StateEvent[]> {
  const events = await eventsOf(building, part, askedAt);
  return events
    .map((event) => ({ key: `${event.source} ${event.subject}`, event }))
    .sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
}

async function eventsOf(building: BuildingView, part: StatePart, askedAt: string): Promise<readonly Event[]> {
  if (part === "alarm") return (await building.activeAlarms()).map((alarm) => alarmEvent(alarm, askedAt));
  if (part === "tag-systems") {
    return (await building.tagSystems()).map(({ source, siteId, tag, systems }) => {
      const data = { tag, systems, before: [] };
      const subject = eventSubject("tag", siteId, tag.id);
      return snapshotEvent({ type: "tag-systems-changed", source, subject, siteId, time: askedAt, data }, askedAt);
    });
  }
  if (part === "value") {
    return (await building.values()).map(({ source, siteId, lastGood, quality, tag, time, value }) => {
      const data = { tag, value, quality, time, latencyMs: 0, lastGood, behindGateway: null };
      const subject = eventSubject("tag", siteId, tag.id);
      return snapshotEvent({ type: "tag-value", source, subject, siteId, time, data }, askedAt);
    });
  }
  const listed = (await building.inventory(part)).filter(({ isThere }) => isThere);
  return listed.map(({ source, siteId: ofSite, value }) => {
    const siteId = part === "site" ? value.id : ofSite;
    const subject = eventSubject(part, ofSite, String(value.id));
    const data = { [part]: value } as never;
    return snapshotEvent({ type: `${part}-added`, source, subject, siteId, time: askedAt, data }, askedAt);
  });
}

function alarmEvent({ source, alarm, episode }: AlarmView, askedAt: string): Event {
  const siteId = alarm.site.id;
  const subject = eventSubject("alarm", siteId, alarm.id);
  const { priority } = alarm.trigger;
  const data = { alarm, episode, late: false, behindGateway: null, initial: true };
  const time = alarm.triggeredAt;
  return snapshotEvent({ type: "alarm-raised", source, subject, siteId, priority, time, data }, askedAt);
}

function snapshotEvent<K extends EventKind>(
  fields: Omit<Parameters<typeof makeEvent<K>>[0], "facts">,
  askedAt: string,
) {
  const event = makeEvent({ ...fields, source: sourceUri(fields.source), facts: ["snapshot", askedAt] });
  return { ...event, snapshot: true } as Event;
}
