import type { Alarm } from "#src/building.ts";
import { type Incident, incidentKey } from "#src/receiver/incident.ts";
import type { Told } from "#src/receiver/receiver.ts";
import { textOf } from "#src/receiver/text.ts";
import { vocabulary } from "#src/receiver/words.ts";
import { ALARM } from "../sample-events.ts";

/** What a receiver is told of one alarm, as the sink tells it. */
export function toldOf(incident: Partial<Incident> = {}, alarm: Partial<Alarm> = {}): Told {
  const about: Alarm = { ...ALARM, ...alarm };
  const whole: Incident = {
    key: incidentKey("main", "alarm", `${about.id}@${about.triggeredAt}`),
    kind: "alarm",
    status: "active",
    change: "raised",
    changeId: "event-1",
    source: "main",
    site: about.site,
    priority: about.trigger.priority,
    startedAt: about.triggeredAt,
    endedAt: null,
    alarm: about,
    gateway: null,
    members: { total: 0, active: 0, shown: [] },
    link: null,
    ...incident,
  };
  return { ...whole, text: textOf(whole, vocabulary("en", {}), "Europe/Oslo") };
}

/** The same alarm when the service says that it is over. */
export function resolvedOf(incident: Partial<Incident> = {}, alarm: Partial<Alarm> = {}): Told {
  const end = "2026-11-02T06:20:00.000Z";
  return toldOf(
    { status: "resolved", change: "resolved", changeId: "event-2", endedAt: end, ...incident },
    { status: "resolved", resolvedAt: end, ...alarm },
  );
}
