import type { FleetStatus, MemberStatus } from "#src/scale/fleet/fleet-status.ts";
import type { AlarmResponse, AlarmSummary } from "#src/ui/status/alarm-api-responses.ts";
import type { CommandRow } from "#src/ui/status/command-list.ts";
import type { SinkResponse } from "#src/ui/status/sink-reports.ts";
import type { AlarmDayCounts, SiteResponse } from "#src/ui/status/site-responses.ts";
import type { SourceResponse } from "#src/ui/status/source-reports.ts";
import type { TagResponse } from "#src/ui/status/tag-api-response.ts";
import type { PlotResponse } from "#src/ui/status/tag-history-plot.ts";
import type { TagListResponse, TagRow } from "#src/ui/status/tag-index.ts";
import { ALARM } from "../sample-events.ts";
import { NOW } from "./status-building.ts";

/** Invented responses about a large building. */

const NOW_MS = Date.parse(NOW);
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const iso = (ms: number) => new Date(ms).toISOString();
const KINDS = ["RT601 Temperature Corridor", "JV401 Fan speed", "LR401 Pressure", "RY601 CO2", "OE001 Energy meter"];
const UNITS = ["°C", "%", "Pa", "ppm", "kWh"];

/** `names`: names of the tags, in turn. */
export function tagRow(n: number, names?: readonly string[]): TagRow {
  const state = n % 97 === 5 ? "bad" : n % 41 === 3 ? "stale" : n % 151 === 9 ? "unread" : "well";
  const kind = n % KINDS.length;
  const name = names?.[n % names.length] ?? `360.${String(n).padStart(5, "0")} ${KINDS[kind]}`;
  return {
    source: "north",
    siteId: 1,
    site: "north school",
    tag: { id: String(10_001 + n), displayName: name, description: name, unit: UNITS[kind] ?? null },
    value: state !== "well" ? null : Math.round(200 + 40 * Math.sin(n)) / 10,
    quality: state === "unread" ? null : state === "well" ? "good" : state,
    time: state === "unread" ? null : iso(NOW_MS - (state === "stale" ? 2 * HOUR : (n % 50) * 1000)),
    staleReason: state === "stale" ? "source-unavailable" : null,
    class: "comfort",
  };
}

export function tagList(query: URLSearchParams, size: number, names?: readonly string[]): TagListResponse {
  const search = (query.get("search") ?? "").toLowerCase();
  const all = Array.from({ length: size }, (_, n) => tagRow(n, names)).filter(({ tag }) =>
    `${tag.id} ${tag.displayName}`.toLowerCase().includes(search),
  );
  const filters = {
    all: () => true,
    bad: (row: TagRow) => row.quality === "bad",
    stale: (row: TagRow) => row.quality === "stale",
    unread: (row: TagRow) => row.time === null,
  };
  const filterName = (query.get("show") ?? "all") as keyof typeof filters;
  const sort = query.get("sort") ?? "name";
  const rows = all.filter(filters[filterName]);
  const key = (row: TagRow) => (sort.endsWith("value") ? Number(row.value) : row.tag.displayName);
  const sign = sort.startsWith("-") ? -1 : 1;
  const sortedRows = rows.toSorted((a, b) => (key(a) < key(b) ? -sign : key(a) > key(b) ? sign : 0));
  const offset = Number(query.get("offset") ?? 0);
  const count = (name: keyof typeof filters) => all.filter(filters[name]).length;
  return {
    total: rows.length,
    counts: { all: all.length, bad: count("bad"), stale: count("stale"), unread: count("unread") },
    rows: sortedRows.slice(offset, offset + Number(query.get("limit") ?? 100)),
  };
}

export function alarmBrief(n: number, name = "Supply temperature low"): AlarmSummary {
  const raisedMs = NOW_MS - (n + 1) * 9 * HOUR;
  return {
    ...{ source: "north", id: String(500_001 + n), episode: `e${n}`, name, site: "north school" },
    ...{ priority: "ABC"[n % 3] ?? "A", state: n === 0 ? "active" : "resolved", raisedAt: iso(raisedMs) },
    endedAt: n === 0 ? null : iso(raisedMs + 3 * HOUR),
  };
}

export function commandRow(n: number, text = "The tag holds the value."): CommandRow {
  const states = ["confirmed", "rejected", "mismatch", "expired", "sending"];
  return {
    ...{ id: `cmd-${n}`, tagId: "10001", source: "north", tag: tagRow(0).tag.displayName, by: "the status page" },
    requested: n % 2 === 0 ? 21.5 : true,
    at: iso(NOW_MS - n * 47 * MINUTE),
    state: states[n % states.length] ?? "confirmed",
    words: text,
  };
}

export function tagResponse(id: string, more: Partial<TagResponse> = {}): TagResponse {
  const row = tagRow(Number(id) - 10_001);
  return {
    ...row,
    systems: [{ id: "3", displayName: "360.001 Ventilation, main building" }],
    gatewayOffline: null,
    lastGood: { value: 19.5, time: iso(NOW_MS - HOUR) },
    everySeconds: 60,
    next: { at: iso(NOW_MS + 23_000), why: "the interval of its class is 60 s" },
    log: [
      { resolution: "5m", state: "followed", knownUntil: iso(NOW_MS - 5 * MINUTE), holes: 2 },
      { resolution: "1h", state: "not followed", knownUntil: null, holes: 0 },
    ],
    places: [
      { sink: "broker", connector: "mqtt", text: `plenum/north/site/1/tag/${id}/value` },
      { sink: "lake", connector: "influxdb", text: `from(bucket: "building") |> filter(tag_id == "${id}")` },
    ],
    alarms: [alarmBrief(0), alarmBrief(1), alarmBrief(2)],
    commands: [commandRow(0), commandRow(1), commandRow(2)],
    writable: { type: "number", min: 16, max: 24, step: 2, closed: null },
    ...more,
  };
}

const SPAN_STEPS: Readonly<Record<string, readonly [span: number, step: number]>> = {
  "6h": [6 * HOUR, MINUTE],
  "24h": [DAY, 2 * MINUTE],
  "7d": [7 * DAY, 30 * MINUTE],
  "30d": [30 * DAY, HOUR],
};

/** A day's curve with a hole, and a spread where a step holds several values. */
export function plotResponse(query: URLSearchParams): PlotResponse {
  const [span, step] = SPAN_STEPS[query.get("span") ?? "24h"] ?? [DAY, MINUTE];
  const fromMs = NOW_MS - span;
  const t = Array.from({ length: span / step }, (_, n) => (fromMs + n * step) / 1000);
  const isGap = (n: number) => n > t.length * 0.45 && n < t.length * 0.52;
  const waveAt = (seconds: number, n: number) =>
    20 + 2.5 * Math.sin((seconds / 86_400) * 2 * Math.PI) + 0.3 * Math.sin(n * 1.7) + 0.15 * Math.sin(n * 0.31);
  const value = t.map((seconds, n) => (isGap(n) ? null : Math.round(100 * waveAt(seconds, n)) / 100));
  const spread = (by: number) => value.map((each) => (each === null ? null : Math.round(100 * (each + by)) / 100));
  const isWide = step >= 30 * MINUTE;
  return {
    from: iso(fromMs),
    to: iso(NOW_MS),
    unit: "°C",
    stepSeconds: step / 1000,
    t,
    value,
    ...(isWide ? { low: spread(-0.6), high: spread(0.5) } : {}),
    origin: isWide ? "both" : "read",
    history: query.get("fetch") === "1" ? { state: "asked", why: null } : { state: "idle", why: null },
  };
}

export function dayBars(): AlarmDayCounts {
  const days = Array.from({ length: 30 }, (_, n) => iso(NOW_MS - (29 - n) * DAY).slice(0, 10));
  const countsBy = (by: number) =>
    days.map((_, n) => Math.max(0, Math.round(by * (1 + Math.sin(n * by)) + (n === 17 ? 4 * by : 0))));
  return { days, byPriority: { A: countsBy(0.6), B: countsBy(2.1), C: countsBy(1.3) } };
}

export function alarmResponse(more: Partial<AlarmResponse> = {}): AlarmResponse {
  const at = (hours: number) => iso(NOW_MS - hours * HOUR);
  return {
    brief: alarmBrief(0),
    alarm: { ...ALARM, id: "500001", acknowledged: true, acknowledgedBy: "Kari Nordmann" },
    life: [
      { at: at(9), what: "raised", words: "Supply temperature below 20 °C for 10 minutes" },
      { at: at(7.5), what: "acknowledged", words: "by Kari Nordmann: somebody is on the way" },
      { at: at(1), what: "recovering", words: "until it has been well for an hour" },
    ],
    tag: { source: "north", id: "10001", displayName: tagRow(0).tag.displayName },
    sinks: [
      { sink: "lake", connector: "influxdb", state: "delivered", words: "at 10:00:03", link: null },
      { sink: "tickets", connector: "jira", state: "delivered", words: "FM-1423", link: "https://jira.example/1" },
      { sink: "broker", connector: "mqtt", state: "waiting", words: "12 events are before it", link: null },
      { sink: "pager", connector: "webhook", state: "not for this sink", words: "only priority B", link: null },
    ],
    episodes: [alarmBrief(0), alarmBrief(1), alarmBrief(3)],
    ...more,
  };
}

export function siteResponse(more: Partial<SiteResponse> = {}): SiteResponse {
  return {
    source: "north",
    id: 1,
    displayName: "north school",
    alarms: [alarmBrief(0)],
    gateways: [false, true, null].map((online, n) => ({ id: String(7 + n), displayName: `Gateway ${n}`, online })),
    systems: Array.from({ length: 12 }, (_, n) => ({ id: String(n), displayName: `360.00${n} Air`, tags: 20 + n * 7 })),
    tags: { all: 3_000, bad: 31, stale: 73, unread: 20 },
    raised: dayBars(),
    ...more,
  };
}

const MINUTES = Array.from({ length: 1_440 }, (_, n) => (NOW_MS - (1_440 - n) * MINUTE) / 1000);

export function sinkResponse(name: string, more: Partial<SinkResponse> = {}): SinkResponse {
  return {
    sink: name,
    connector: "influxdb",
    state: "idle",
    problem: null,
    lag: { t: MINUTES, value: MINUTES.map((_, n) => (n > 400 && n < 520 ? (n - 400) * 31 : n % 3)) },
    rate: { t: MINUTES, value: MINUTES.map((_, n) => (n > 400 && n < 520 ? 0 : 310 + (n % 40))) },
    dead: ["RY601 CO2", "LR401 Pressure"].map((summary, n) => ({
      ...{ id: `d${n + 1}`, type: "tag-value", at: iso(NOW_MS - (3 - n) * HOUR), summary },
      reason: "422: field type conflict",
    })),
    deadTotal: 5,
    ...more,
  };
}

export function sourceResponse(name: string, more: Partial<SourceResponse> = {}): SourceResponse {
  const minuteCounts = (of: (n: number) => number) => MINUTES.map((_, n) => Math.max(0, Math.round(of(n))));
  return {
    source: name,
    t: MINUTES,
    lanes: {
      write: minuteCounts((n) => (n % 200 === 3 ? 1 : 0)),
      "on-demand": minuteCounts((n) => (n % 90 === 7 ? 2 : 0)),
      live: minuteCounts((n) => 8 + 1.2 * Math.sin(n / 30)),
      history: minuteCounts((n) => 2 + 2 * Math.sin(n / 100)),
      spare: minuteCounts((n) => 6 + 2 * Math.sin(n / 45)),
    },
    allowed: 20,
    refused: [
      { at: iso(NOW_MS - 5 * HOUR), what: "live", words: "429: too many requests; wait 30 s" },
      { at: iso(NOW_MS - 7 * HOUR), what: "history", words: "no answer within 30 s" },
    ],
    ...more,
  };
}

export function fleetResponse(): FleetStatus {
  const at = "2026-11-23T08:40:00.000Z";
  const reason = "lease-ran-out";
  const member = (name: string, more: Partial<MemberStatus> = {}): MemberStatus => ({
    name,
    state: "alive",
    host: `${name}.example.com`,
    version: "0.1.0",
    page: `http://${name}.example.com:8080/`,
    ...{ startedAt: "2026-11-20T06:00:00.000Z", seenAt: at, isDraining: false, sources: 2 },
    ...{ unable: [], unreached: [], digest: "9f86d081884c7d65" },
    ...more,
  });
  const holderName = (n: number) => (n % 2 === 0 ? "plant-a" : "plant-b");
  const sources = ["north", "south", "harbour", "school"];
  return {
    self: "plant-a",
    members: [
      member("plant-a"),
      member("plant-b", { unable: ["ring"] }),
      member("plant-c", { state: "lost", isDraining: true, sources: 0 }),
    ],
    sources: [
      ...sources.map((source, n) => ({ source, holder: holderName(n), epoch: n, since: at, reason }) as const),
      { source: "ring", holder: null, epoch: 7, since: null, reason: null },
    ],
    takeovers: sources.map((source, n) => ({
      ...({ source, from: "plant-c", to: holderName(n), epoch: n, at, reason } as const),
    })),
    database: {
      ...{ name: "db.example.com:5432/plenum", server: "db.example.com:5432, PostgreSQL 15.20", schemaVersion: 1 },
      ...{ bytes: 412_000_000, synchronousCommit: "off", dataChecksums: false, isReplica: false },
      doubts: ["The server has synchronous_commit = off, so it loses committed data in a crash."],
    },
    trouble: null,
  };
}
