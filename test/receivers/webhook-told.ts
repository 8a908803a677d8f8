import { type Incident, incidentKey } from "#src/receiver/incident.ts";
import type { Told } from "#src/receiver/receiver.ts";
import { textOf } from "#src/receiver/text.ts";
import { vocabulary } from "#src/receiver/words.ts";
import { ALARM, SITE } from "../sample-events.ts";

/** One alarm as a receiver is told of it; what is given replaces parts of it. */
export function toldOf(changes: Partial<Incident> = {}): Told {
  const incident: Incident = {
    key: incidentKey("main", "alarm", "500001@2026-11-02T06:15:00.000Z"),
    kind: "alarm",
    status: "active",
    change: "raised",
    changeId: "alarm-raised.Zm9v",
    source: "main",
    site: SITE,
    priority: "A",
    startedAt: "2026-11-02T06:15:00.000Z",
    endedAt: null,
    alarm: ALARM,
    gateway: null,
    members: { total: 0, active: 0, shown: [] },
    link: "https://plenum.example.com/?alarm=500001",
    ...changes,
  };
  return { ...incident, text: textOf(incident, vocabulary("en", {}), "Europe/Oslo") };
}

/** The same when it is over. */
export function resolvedOf(changes: Partial<Incident> = {}): Told {
  return toldOf({
    status: "resolved",
    change: "resolved",
    changeId: "alarm-resolved.Zm9v",
    endedAt: "2026-11-02T07:03:00.000Z",
    ...changes,
  });
}

/** A storm of alarms with as many lines as there can be, each as long as it is told. */
export function stormOf(title: string): Told {
  const member = {
    title,
    site: SITE.displayName,
    priority: "B",
    status: "active",
    startedAt: "2026-11-02T06:15:00.000Z",
    endedAt: null,
  } as const;
  return toldOf({
    kind: "storm",
    change: "members",
    alarm: null,
    members: { total: 500, active: 400, shown: Array.from({ length: 20 }, () => member) },
  });
}

/** An alarm whose every text is this one. */
export function hostileOf(text: string, changes: Partial<Incident> = {}): Told {
  const site = { id: 1, displayName: text };
  return toldOf({
    site,
    alarm: {
      ...ALARM,
      site,
      source: text,
      description: `${text} `,
      trigger: { ...ALARM.trigger, displayName: text, description: text },
      acknowledged: true,
      acknowledgedBy: text,
      acknowledgedMessage: text,
    },
    ...changes,
  });
}
