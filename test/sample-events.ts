import type { Alarm, Gateway, Host, Site, System, Tag } from "#src/core/model/building.ts";
import type { CommandResult } from "#src/core/model/command-event-data.ts";
import {
  type AlarmFact,
  type Event,
  type EventData,
  type EventKind,
  makeEvent,
  SERVICE_SUBJECT,
  sourceUri,
  WORKER_SUBJECT,
} from "#src/core/model/event.ts";
import type { DayBucketCounts, SiteCompleteFact } from "#src/core/model/history-event-data.ts";

export const SITE: Site = { id: 1, displayName: "Kvarnholmen 4" };
export const TAG: Tag = { id: "10042", displayName: "VS1-GT11", description: "Supply temperature", unit: "°C" };
export const GATEWAY: Gateway = {
  ...{ id: "7", displayName: "Basement gateway", online: true, version: "4.2.1", hardware: "GW-2" },
  ...{ ipAddress: "192.0.2.7", location: "Room 012" },
};

const HOST: Host = {
  ...{ id: "31", displayName: "DUC 1", description: null, type: "modbus", modelName: "EX-8", ip: "192.0.2.31" },
  ...{ macAddress: null, gateway: { id: 7, displayName: "Basement gateway" } },
};

const BEHIND = [{ id: HOST.id, displayName: HOST.displayName }];
export const SYSTEM: System = {
  ...{ id: "5", code: "VS1", displayName: "Heating 1", discipline: "heating", description: "Radiator circuit" },
  ...{ location: "Basement", manufacturer: "Example AB", installedYear: 2016, maintenanceNotes: null },
  datapointsCount: 18,
};

const SILENCE = {
  ...{ id: "s1", source: null, site: 1, priorities: ["C"], name: "VS1*", alarm: null },
  ...{ from: "2026-11-02T06:00:00.000Z", to: "2026-11-02T10:00:00.000Z", reason: "The pump is exchanged." },
  madeBy: "cli",
};

export const ALARM: Alarm = {
  ...{ id: "500001", site: SITE },
  ...{ trigger: { id: 88, displayName: "Supply temperature low", description: null, priority: "A", enabled: true } },
  ...{ status: "active", source: "VS1-GT11", description: "Supply temperature below 20 °C for 10 minutes" },
  ...{ triggeredAt: "2026-11-02T06:15:00.000Z", triggeredAtRaw: "2026-11-02T07:15:00+01:00", resolvedAt: null },
  ...{ resolvedAtRaw: null, recoveringUntil: null, acknowledged: false, acknowledgedBy: null },
  ...{ acknowledgedMessage: null, acknowledgedAt: null },
  lastActiveEvent: {
    ...{ id: 9001, source: "VS1-GT11", type: "limit", triggeredOn: "value", value: 18.4, textlistValue: null },
    triggeredAt: "2026-11-02T06:15:00.000Z",
  },
};

const TIME = "2026-11-02T06:20:00.000Z";
const SOURCE = sourceUri("main");
const alarmFact: AlarmFact = {
  ...{ alarm: ALARM, episode: "500001@2026-11-02T06:15:00.000Z", late: false, behindGateway: null },
};
const resolvedFact: AlarmFact = {
  ...alarmFact,
  alarm: { ...ALARM, status: "resolved", resolvedAt: TIME, resolvedAtRaw: "2026-11-02T07:20:00+01:00" },
};
const commandResult: CommandResult = {
  ...{ commandId: "cmd-1", tagId: TAG.id, outcome: "confirmed", reason: null, message: "The tag holds the value." },
  ...{ requested: 21.5, before: 20, readBack: 21.5, rehearsal: false, correlation: null, replyTo: null },
};

const ACCOUNT: DayBucketCounts = {
  ...{ expected: 24, had: 22, null: 1, absent: 1 },
  ...{ withoutLog: 0, refused: 0, pending: 0, notWanted: 0 },
};

const SITE_COMPLETE: SiteCompleteFact = {
  ...{ site: SITE, resolution: "1h", timeZone: "Europe/Stockholm", total: false },
  ...{ from: "2026-10-02", until: "2026-11-01", series: 320, waitingCount: 1 },
  waiting: [
    {
      ...{ tagId: TAG.id, displayName: TAG.displayName, why: "refused" },
      ...{ said: "Internal Server Error", at: "2026-11-02T05:10:00.000Z" },
    },
  ],
};

const ALARM_SUBJECT = "site/1/alarm/500001";
const TAG_SUBJECT = "site/1/tag/10042";
const DATA: { readonly [K in EventKind]: { readonly subject: string; readonly data: EventData[K] } } = {
  "site-added": { subject: "site/1", data: { site: SITE } },
  "site-changed": { subject: "site/1", data: { site: SITE, before: { displayName: "Kvarnholmen" } } },
  "site-removed": { subject: "site/1", data: { site: SITE } },
  "site-status-changed": {
    subject: "site/1",
    data: { site: SITE, status: "offline", reason: "The only gateway (GW-1) is offline.", since: TIME },
  },
  "gateway-added": { subject: "site/1/gateway/7", data: { gateway: GATEWAY } },
  "gateway-changed": { subject: "site/1/gateway/7", data: { gateway: GATEWAY, before: { version: "4.2.0" } } },
  "gateway-removed": { subject: "site/1/gateway/7", data: { gateway: GATEWAY } },
  "gateway-online": { subject: "site/1/gateway/7", data: { gateway: GATEWAY, hosts: BEHIND, wholeSite: true } },
  "gateway-offline": {
    subject: "site/1/gateway/7",
    data: { gateway: { ...GATEWAY, online: false }, hosts: BEHIND, wholeSite: true },
  },
  "host-added": { subject: "site/1/host/31", data: { host: HOST } },
  "host-changed": { subject: "site/1/host/31", data: { host: HOST, before: { ip: "192.0.2.30" } } },
  "host-removed": { subject: "site/1/host/31", data: { host: HOST } },
  "system-added": { subject: "site/1/system/5", data: { system: SYSTEM } },
  "system-changed": { subject: "site/1/system/5", data: { system: SYSTEM, before: { datapointsCount: 17 } } },
  "system-removed": { subject: "site/1/system/5", data: { system: SYSTEM } },
  "tag-added": { subject: TAG_SUBJECT, data: { tag: TAG } },
  "tag-changed": { subject: TAG_SUBJECT, data: { tag: TAG, before: { unit: null } } },
  "tag-removed": { subject: TAG_SUBJECT, data: { tag: TAG } },
  "tag-systems-changed": {
    subject: TAG_SUBJECT,
    data: { tag: TAG, systems: [{ id: SYSTEM.id, code: SYSTEM.code, displayName: SYSTEM.displayName }], before: ["4"] },
  },
  "series-break": {
    subject: TAG_SUBJECT,
    data: {
      ...{ tag: TAG, what: ["unit"], before: { unit: "K" } },
      ...{ since: { lastBefore: "2026-11-02T00:20:00.000Z", firstAfter: TIME } },
    },
  },
  "alarm-raised": { subject: ALARM_SUBJECT, data: { ...alarmFact, initial: false } },
  "alarm-resolved": { subject: ALARM_SUBJECT, data: resolvedFact },
  "alarm-acknowledged": {
    subject: ALARM_SUBJECT,
    data: { ...alarmFact, alarm: { ...ALARM, acknowledged: true, acknowledgedBy: "Ann Nilsson" } },
  },
  "alarm-unacknowledged": { subject: ALARM_SUBJECT, data: alarmFact },
  "alarm-recovering": {
    subject: ALARM_SUBJECT,
    data: { ...alarmFact, alarm: { ...ALARM, recoveringUntil: "2026-11-02T06:30:00.000Z" } },
  },
  "alarm-retriggered": { subject: ALARM_SUBJECT, data: alarmFact },
  "alarm-changed": {
    subject: ALARM_SUBJECT,
    data: { ...alarmFact, before: { description: "Supply temperature low" } },
  },
  "alarm-vanished": { subject: ALARM_SUBJECT, data: alarmFact },
  "alarm-out-of-scope": { subject: ALARM_SUBJECT, data: alarmFact },
  "tag-value": {
    subject: TAG_SUBJECT,
    data: {
      ...{ tag: TAG, value: 21.5, quality: "good", time: TIME, latencyMs: 120 },
      ...{ lastGood: { value: 21.5, time: TIME }, behindGateway: null },
    },
  },
  "tag-history": {
    subject: "site/1/tag/10042/history/1h",
    data: {
      tag: TAG,
      resolution: "1h",
      timeZone: "Europe/Stockholm",
      points: [
        { time: "2026-11-02T04:00:00Z", value: 20.5 },
        { time: "2026-11-02T05:00:00Z", value: null },
        { time: "2026-11-02T06:00:00Z", value: 21 },
      ],
      origin: "live",
      revised: false,
    },
  },
  "tag-total": {
    subject: "site/1/tag/10042/total/1d",
    data: {
      ...{ tag: { ...TAG, unit: "kWh" }, resolution: "1d", timeZone: "Europe/Stockholm" },
      ...{ from: "2026-10-31T23:00:00Z", to: "2026-11-01T23:00:00Z", total: 412.5, reset: false },
    },
  },
  "history-complete": {
    subject: "site/1/tag/10042/history/1h",
    data: {
      ...{ tag: TAG, resolution: "1h", timeZone: "Europe/Stockholm", total: false },
      ...{ firstDate: "2026-11-01", lastDate: "2026-11-01" },
      ...ACCOUNT,
    },
  },
  "day-sealed": {
    subject: "site/1",
    data: {
      ...{ site: SITE, date: "2026-11-01", timeZones: ["Europe/Stockholm"], revision: 1, revised: 0 },
      ...{ series: 1, ...ACCOUNT },
      byResolution: [{ resolution: "1h", timeZone: "Europe/Stockholm", total: false, series: 1, ...ACCOUNT }],
      ...{ seriesWithoutLog: [], seriesWithoutLogCount: 0, seriesRefused: [], seriesRefusedCount: 0 },
    },
  },
  "command-accepted": {
    subject: TAG_SUBJECT,
    data: {
      ...{ commandId: "cmd-1", tagId: TAG.id, requested: 21.5, waitMs: 200, messageRequests: 2 },
      ...{ messageSeconds: 3, expiresAt: TIME, forMs: null },
      ...{ needsSecond: false, correlation: null, replyTo: null },
    },
  },
  "command-result": { subject: TAG_SUBJECT, data: commandResult },
  "command-not-restored": {
    subject: TAG_SUBJECT,
    data: {
      ...{ commandId: "cmd-1", tagId: TAG.id, inForce: 22, since: TIME, wanted: 20, dueAt: TIME },
      reason: "expired",
      message: "It was too late to put 20 back; nothing was written. The gateway is offline.",
    },
  },
  "audit-head": { subject: "audit", data: { records: 12, head: "ab".repeat(32) } },
  "silence-started": { subject: "silence/s1", data: { silence: SILENCE, by: "cli" } },
  "silence-ended": { subject: "silence/s1", data: { silence: SILENCE, by: null } },
  "token-expiring": { subject: SERVICE_SUBJECT, data: { expiresAt: "2026-12-01T00:00:00Z", daysLeft: 28 } },
  "source-unavailable": { subject: SERVICE_SUBJECT, data: { reason: "maintenance (503)", since: TIME } },
  "source-available": { subject: SERVICE_SUBJECT, data: { unavailableSince: TIME } },
  "worker-alive": {
    subject: WORKER_SUBJECT,
    data: { intervalSeconds: 60, version: "0.1.0", alarmsPolledAt: "2026-11-02T06:19:30.000Z" },
  },
  "configuration-changed": {
    subject: "configuration",
    data: {
      by: "file",
      changes: [
        {
          ...{ path: "sources.main.read.rooms.every", before: "10m", after: "5m", effect: "alone" },
          how: "with the next request",
        },
      ],
      pending: [],
    },
  },
  "delivery-gap": {
    subject: "sink/influx",
    data: { sink: "influx", reason: "size", firstTime: TIME, lastTime: TIME, count: 12 },
  },
};

const OF_THE_WORKER: ReadonlySet<EventKind> = new Set([
  "configuration-changed",
  "delivery-gap",
  "audit-head",
  "silence-started",
  "silence-ended",
]);

/** The sample of one kind; `overrides` replaces envelope fields, and `facts` keeps the ids of samples apart. */
export function sampleEvent<K extends EventKind>(
  type: K,
  overrides: Partial<Omit<Event<K>, "type">> = {},
  fact: string | number = 0,
): Event<K> {
  const sample: { readonly subject: string; readonly data: EventData[K] } = DATA[type];
  return {
    ...makeEvent({
      type,
      source: OF_THE_WORKER.has(type) ? "/plenum" : SOURCE,
      subject: sample.subject,
      time: TIME,
      siteId: sample.subject.startsWith("site/") || "silence" in sample.data ? SITE.id : null,
      ...(type.startsWith("alarm-") ? { priority: ALARM.trigger.priority } : {}),
      data: sample.data,
      facts: [TIME, fact],
    }),
    ...overrides,
  };
}

export function sampleOfEveryKind(): readonly Event[] {
  return (Object.keys(DATA) as EventKind[]).map((kind) => sampleEvent(kind));
}

export function sampleOfEveryForm(): readonly Event[] {
  const siteComplete = sampleEvent("history-complete", { subject: "site/1", data: SITE_COMPLETE }, "site");
  const ofSite = { subject: "site/1", siteid: "1" };
  const sourceUnavailable = sampleEvent(
    "source-unavailable",
    { ...ofSite, data: { reason: "The token does not see site 1 any more.", since: TIME } },
    "site",
  );
  const sourceAvailable = sampleEvent("source-available", ofSite, "site");
  const others: Partial<Record<EventKind, Event>> = {
    "tag-value": staleEvent(),
    "history-complete": siteComplete,
    "source-unavailable": sourceUnavailable,
    "source-available": sourceAvailable,
  };
  return sampleOfEveryKind().flatMap((event) => [event, others[event.type] ?? []].flat());
}

export function staleEvent(): Event<"tag-value"> {
  const { data } = DATA["tag-value"];
  const staleData = { ...data, value: null, quality: "stale", latencyMs: 0, staleReason: "out-of-scope" } as const;
  return sampleEvent("tag-value", { data: staleData }, "stale");
}

/** Value number `n` of a tag; values are one millisecond apart. */
export function valueEvent(n: number, tagId = TAG.id, value: number | boolean | null = n): Event<"tag-value"> {
  const time = new Date(Date.parse(TIME) + n).toISOString();
  return makeEvent({
    type: "tag-value",
    source: SOURCE,
    subject: `site/1/tag/${tagId}`,
    time,
    siteId: SITE.id,
    data: {
      ...{ tag: { ...TAG, id: tagId }, value, quality: value === null ? "bad" : "good", time, latencyMs: 80 },
      lastGood: value === null ? null : { value, time },
      behindGateway: null,
    },
    facts: [time],
  });
}

export const AWKWARD_TEXTS: readonly string[] = [
  "Översättning på svenska – 温度 🌡️",
  "double \"quotes\" and 'single' ones",
  "two\nlines and\r\nmore\u2028lines\u2029still",
  "a,b=c d",
  "C:\\plant\\",
  "NUL \u0000 bell \u0007 escape \u001b[31m delete \u007f",
  "topic/+/#/$SYS",
  "<script>alert(1)</script> $(id) {{x}}",
  "lone surrogate \ud800 inside",
  "__proto__",
  "",
  " ",
  "x".repeat(10_000),
];
