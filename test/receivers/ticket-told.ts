import { type Incident, incidentKey } from "#src/receiver/incident.ts";
import type { Told } from "#src/receiver/receiver.ts";
import { textOf } from "#src/receiver/text.ts";
import { vocabulary } from "#src/receiver/words.ts";
import { ALARM, SITE } from "../sample-events.ts";

/** An alarm as a receiver is told of it, in English and in Oslo's time. */
export function told(changes: Partial<Incident> = {}): Told {
  const incident: Incident = {
    key: incidentKey("main", "alarm", "500001@2026-11-02T06:15:00.000Z"),
    kind: "alarm",
    status: "active",
    change: "raised",
    changeId: "e1",
    source: "main",
    site: SITE,
    priority: "A",
    startedAt: "2026-11-02T06:15:00.000Z",
    endedAt: null,
    alarm: ALARM,
    gateway: null,
    members: { total: 0, active: 0, shown: [] },
    link: "https://plenum.example.com/#alarms",
    ...changes,
  };
  return { ...incident, text: textOf(incident, vocabulary("en", {}), "Europe/Oslo") };
}

/** The same when it is over: 5 minutes after it began. */
export function ended(changes: Partial<Incident> = {}): Told {
  return told({ status: "resolved", change: "resolved", endedAt: "2026-11-02T06:20:00.000Z", ...changes });
}

/** An alarm whose every text from the building is this one. */
export function named(name: string, changes: Partial<Incident> = {}): Told {
  const site = { id: 1, displayName: name };
  return told({
    site,
    alarm: {
      ...ALARM,
      site,
      trigger: { ...ALARM.trigger, displayName: name, description: `${name} again` },
      description: `${name} in words`,
      acknowledged: true,
      acknowledgedBy: name,
      acknowledgedMessage: name,
    },
    ...changes,
  });
}

/** A gateway with more behind it than is shown. */
export function gatewayTold(active: number, changes: Partial<Incident> = {}): Told {
  return told({
    key: incidentKey("main", "gateway", "7@1"),
    kind: "gateway",
    alarm: null,
    gateway: { id: "7", displayName: "Basement gateway" },
    members: {
      total: 30,
      active,
      shown: Array.from({ length: 20 }, (_, n) => ({
        title: `Supply temperature low ${n}`,
        site: SITE.displayName,
        priority: "A",
        status: "active",
        startedAt: "2026-11-02T06:15:00.000Z",
        endedAt: null,
      })),
    },
    ...changes,
  });
}

/** Names that would do something if anybody carried them out. */
export const HOSTILE_NAMES = [
  "<script>alert(1)</script> &lt;b&gt; &#91;",
  "*bold* _it_ -gone- +ins+ ^up^ ~down~ ??cite?? {color:red}red{color}",
  "[~admin] @channel <!here> @everyone [Click|https://evil.example] https://evil.example",
  "!https://evil.example/x.png! {html}<img src=x>{html} {code}x{code} \\\\ \\[x",
  "[code]<a href='https://evil.example'>x</a>[/code] @[6816f79cc0a8016401c5a33be04be441:Admin]",
  "h1. big\nbq. quote\n* item\n|| a || b ||\n---- \r\n# one",
  "right \u202e to left \u2066 and \u0000 control \u001b[31m red",
  "👩‍👩‍👧‍👦".repeat(200),
  '"'.repeat(5_000),
  "{[]}".repeat(3_000),
  "\ud800 half a character",
];
