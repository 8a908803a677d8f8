import { buildIncidentText, chooseMessagePhrases } from "#connectors/shared/receiver/message-texts.ts";
import {
  computeIncidentKey,
  type Incident,
  type IncidentMessage,
} from "#connectors/shared/receiver/receiver-interface.ts";
import type { Alarm } from "#src/core/model/building.ts";
import { ALARM, SITE } from "../sample-events.ts";

export function alarmMessage(incident: Partial<Incident> = {}, alarm: Partial<Alarm> = {}): IncidentMessage {
  const about: Alarm = { ...ALARM, ...alarm };
  const whole: Incident = {
    key: computeIncidentKey("main", "alarm", `${about.id}@${about.triggeredAt}`),
    kind: "alarm",
    status: "active",
    change: "raised",
    changeId: "alarm-raised.Zm9v",
    source: "main",
    site: about.site,
    priority: about.trigger.priority,
    startedAt: about.triggeredAt,
    endedAt: null,
    alarm: about,
    gateway: null,
    members: { total: 0, active: 0, shown: [] },
    link: "https://plenum.example.com/#alarm/main/500001",
    ...incident,
  };
  return { ...whole, text: buildIncidentText(whole, chooseMessagePhrases("en", {}), "Europe/Oslo") };
}

export function endMessage(incident: Partial<Incident> = {}, alarm: Partial<Alarm> = {}): IncidentMessage {
  const end = "2026-11-02T06:20:00.000Z";
  return alarmMessage(
    { status: "resolved", change: "resolved", changeId: "alarm-resolved.Zm9v", endedAt: end, ...incident },
    { status: "resolved", resolvedAt: end, ...alarm },
  );
}

export function namedMessage(text: string, incident: Partial<Incident> = {}): IncidentMessage {
  return alarmMessage(incident, {
    site: { id: 1, displayName: text },
    source: text,
    description: `${text} in words`,
    trigger: { ...ALARM.trigger, displayName: text, description: `${text} again` },
    acknowledged: true,
    acknowledgedBy: text,
    acknowledgedMessage: text,
  });
}

export function gatewayMessage(active: number, incident: Partial<Incident> = {}): IncidentMessage {
  return alarmMessage({
    key: computeIncidentKey("main", "gateway", "7@1"),
    kind: "gateway",
    alarm: null,
    gateway: { id: "7", displayName: "Basement gateway" },
    members: { total: 30, active, shown: listedMembers((n) => `Supply temperature low ${n}`) },
    ...incident,
  });
}

export function stormMessage(title: string): IncidentMessage {
  return alarmMessage({
    kind: "storm",
    change: "members",
    alarm: null,
    members: { total: 500, active: 400, shown: listedMembers(() => title) },
  });
}

function listedMembers(titleOf: (n: number) => string): Incident["members"]["shown"] {
  return Array.from({ length: 20 }, (_, n) => ({
    title: titleOf(n),
    site: SITE.displayName,
    priority: "A",
    status: "active",
    startedAt: ALARM.triggeredAt,
    endedAt: null,
  }));
}

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
