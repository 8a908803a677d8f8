import type { AlarmView, BuildingView, ListedObject, TagSystemsView, ValueView } from "../../core/connector.ts";
import { type Event, type Kind, makeEvent, type Noun, sourceUri, subjectOf } from "../../core/model/event.ts";

/** Parts of the stored state in the order of sending: a site before its gateways. */
export const STATE_PARTS = ["site", "gateway", "host", "system", "tag", "tag-systems", "alarm", "value"] as const;
export type StatePart = (typeof STATE_PARTS)[number];

/** An event and the key by which a part is ordered. */
export interface StateEvent {
  readonly key: string;
  readonly event: Event;
}

/**
 * Events marked `snapshot` for one part of the stored state, ordered by key. `askedAt` is the time of the request (UTC): it
 * makes the ids stable across attempts and different between snapshots.
 */
export async function stateEvents(
  picture: BuildingView,
  part: StatePart,
  askedAt: string,
): Promise<readonly StateEvent[]> {
  const events = await eventsOf(picture, part, askedAt);
  return events
    .map((event) => ({ key: `${event.source} ${event.subject}`, event }))
    .sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
}

async function eventsOf(picture: BuildingView, part: StatePart, askedAt: string): Promise<readonly Event[]> {
  if (part === "alarm") return (await picture.activeAlarms()).map((alarm) => alarmEvent(alarm, askedAt));
  if (part === "tag-systems") return (await picture.tagSystems()).map((each) => systemsEvent(each, askedAt));
  if (part === "value") return (await picture.values()).map((value) => valueEvent(value, askedAt));
  const there = (await picture.inventory(part)).filter(({ isThere }) => isThere);
  return there.map((each) => inventoryEvent(part, each, askedAt));
}

type InventoryPart = Exclude<StatePart, "tag-systems" | "alarm" | "value">;

function inventoryEvent(
  noun: InventoryPart & Noun,
  { source, siteId, value }: ListedObject<{ readonly id: string | number }>,
  askedAt: string,
): Event {
  const type: Kind = `${noun}-added`;
  return marked({
    type,
    source,
    subject: subjectOf(noun, siteId, String(value.id)),
    siteId: noun === "site" ? value.id : siteId,
    time: askedAt,
    data: { [noun]: value },
    askedAt,
  });
}

function systemsEvent({ source, siteId, tag, systems }: TagSystemsView, askedAt: string): Event {
  return marked({
    type: "tag-systems-changed",
    source,
    subject: subjectOf("tag", siteId, tag.id),
    siteId,
    time: askedAt,
    data: { tag, systems, before: [] },
    askedAt,
  });
}

function alarmEvent({ source, alarm, episode }: AlarmView, askedAt: string): Event {
  return marked({
    type: "alarm-raised",
    source,
    subject: subjectOf("alarm", alarm.site.id, alarm.id),
    siteId: alarm.site.id,
    priority: alarm.trigger.priority,
    time: alarm.triggeredAt,
    data: { alarm, episode, late: false, behindGateway: null, initial: true },
    askedAt,
  });
}

function valueEvent({ source, siteId, ...read }: ValueView, askedAt: string): Event {
  const { lastGood, quality, tag, time, value } = read;
  return marked({
    type: "tag-value",
    source,
    subject: subjectOf("tag", siteId, tag.id),
    siteId,
    time,
    data: { tag, value, quality, time, latencyMs: 0, lastGood, behindGateway: null },
    askedAt,
  });
}

function marked(fields: {
  readonly type: Kind;
  readonly source: string;
  readonly subject: string;
  readonly siteId: number | string | null;
  readonly priority?: string;
  readonly time: string;
  readonly data: unknown;
  readonly askedAt: string;
}): Event {
  const { askedAt, source, data, ...rest } = fields;
  const event = makeEvent({
    ...rest,
    source: sourceUri(source),
    data: data as never,
    facts: ["snapshot", askedAt],
  });
  return { ...event, snapshot: true };
}
