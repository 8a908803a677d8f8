import type { IncidentMessage, IncidentReference } from "../../shared/receiver/receiver.ts";
import { memberOf } from "./format.ts";
import { bodyOf, headingOf, textOf } from "./shown.ts";

/** What `{{…}}` can name of the place; known only after the opening. */
export const PLACE_FIELDS = ["place.id", "place.ticket", "place.link"] as const;

/** What `{{…}}` can name. */
export const FIELDS: readonly string[] = [
  ...["title", "heading", "text", "statusText", "list", "curves"],
  ...["key", "kind", "status", "change", "changeId", "source", "priority", "startedAt", "endedAt", "link"],
  ...["site", "site.id", "site.displayName"],
  ...["gateway", "gateway.id", "gateway.displayName"],
  ...["members", "members.total", "members.active", "members.shown"],
  ...["alarm", "alarm.id", "alarm.status", "alarm.source", "alarm.description"],
  ...["alarm.site", "alarm.site.id", "alarm.site.displayName"],
  ...["alarm.triggeredAt", "alarm.resolvedAt", "alarm.recoveringUntil"],
  ...["alarm.acknowledged", "alarm.acknowledgedBy", "alarm.acknowledgedMessage", "alarm.acknowledgedAt"],
  ...["alarm.trigger", "alarm.trigger.id", "alarm.trigger.displayName", "alarm.trigger.description"],
  ...["alarm.trigger.priority", "alarm.trigger.enabled"],
  ...["alarm.lastActiveEvent", "alarm.lastActiveEvent.source", "alarm.lastActiveEvent.type"],
  ...["alarm.lastActiveEvent.triggeredOn", "alarm.lastActiveEvent.triggeredAt"],
  ...["alarm.lastActiveEvent.value", "alarm.lastActiveEvent.textlistValue"],
  ...PLACE_FIELDS,
];

/** The value of a field: anything that JSON can say, null where there is none. */
export type Fields = (name: string) => unknown;

export function fieldsOf(told: IncidentMessage, place: IncidentReference | null): Fields {
  const text = textOf(told);
  const root = {
    ...told,
    title: text.title,
    heading: headingOf(text),
    text: bodyOf(text),
    statusText: text.status,
    list: text.list,
    curves: text.curves,
    place: place === null ? null : { id: idOf(place), ticket: place.ticket, link: place.link },
  };
  return (name) => {
    let value: unknown = root;
    for (const step of name.split(".")) value = memberOf(value, step);
    return value ?? null;
  };
}

/** The id that the answer to the opening held; null when the receiver gives none. */
function idOf(place: IncidentReference): unknown {
  return memberOf(place.ref, "id");
}
