import type { AlarmView, BuildingView } from "../../core/connector.ts";
import { type Event, type EventKind, eventSubject, makeEvent, sourceUri } from "../../core/model/event.ts";

/** Parts of the stored state in the order of sending: a site before its gateways. */
export const SNAPSHOT_PARTS = ["site", "gateway", "host", "system", "tag", "tag-systems", "alarm", "value"] as const;
export type SnapshotPart = (typeof SNAPSHOT_PARTS)[number];

export interface SnapshotEvent {
  readonly key: string;
  readonly event: Event;
}

/** Events marked `snapshot` of one part of the stored state, by key. `askedAt` makes ids stable across attempts. */
export async function buildSnapshotEvents(
  building: BuildingView,
  part: SnapshotPart,
  askedAt: string,
): Promise<readonly SnapshotEvent[]> {
  const events = await buildEventsOfPart(building, part, askedAt);
  return events
    .map((event) => ({ key: `${event.source} ${event.subject}`, event }))
    .sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
}

async function buildEventsOfPart(
  building: BuildingView,
  part: SnapshotPart,
  askedAt: string,
): Promise<readonly Event[]> {
  if (part === "alarm") return (await building.activeAlarms()).map((alarm) => buildAlarmEvent(alarm, askedAt));
  if (part === "tag-systems") {
    return (await building.tagSystems()).map(({ source, siteId, tag, systems }) => {
      const data = { tag, systems, before: [] };
      const subject = eventSubject("tag", siteId, tag.id);
      return makeSnapshotEvent({ type: "tag-systems-changed", source, subject, siteId, time: askedAt, data }, askedAt);
    });
  }
  if (part === "value") {
    return (await building.values()).map(({ source, siteId, lastGood, quality, tag, time, value }) => {
      const data = { tag, value, quality, time, latencyMs: 0, lastGood, behindGateway: null };
      const subject = eventSubject("tag", siteId, tag.id);
      return makeSnapshotEvent({ type: "tag-value", source, subject, siteId, time, data }, askedAt);
    });
  }
  const presentObjects = (await building.inventory(part)).filter(({ isThere }) => isThere);
  return presentObjects.map(({ source, siteId: ofSite, value }) => {
    const siteId = part === "site" ? value.id : ofSite;
    const subject = eventSubject(part, ofSite, String(value.id));
    const data = { [part]: value } as never;
    return makeSnapshotEvent({ type: `${part}-added`, source, subject, siteId, time: askedAt, data }, askedAt);
  });
}

function buildAlarmEvent({ source, alarm, episode }: AlarmView, askedAt: string): Event {
  const siteId = alarm.site.id;
  const subject = eventSubject("alarm", siteId, alarm.id);
  const { priority } = alarm.trigger;
  const data = { alarm, episode, late: false, behindGateway: null, initial: true };
  const time = alarm.triggeredAt;
  return makeSnapshotEvent({ type: "alarm-raised", source, subject, siteId, priority, time, data }, askedAt);
}

function makeSnapshotEvent<K extends EventKind>(
  fields: Omit<Parameters<typeof makeEvent<K>>[0], "facts">,
  askedAt: string,
) {
  const event = makeEvent({ ...fields, source: sourceUri(fields.source), facts: ["snapshot", askedAt] });
  return { ...event, snapshot: true } as Event;
}
