import { pino } from "pino";
import { systemClock } from "#src/core/runtime/clock.ts";
import { readClocks } from "#src/core/runtime/elapsed-time.ts";
import { createMetrics } from "#src/core/runtime/metrics.ts";
import { createSource, type SourceOptions } from "#src/engine/source/client.ts";
import { SourceConfig } from "#src/engine/source/config.ts";
import type { QuotaLimiter } from "#src/engine/source/quota/quota.ts";
import { LANES, type ListPage, type QueueLane, type Source } from "#src/engine/source/source.ts";
import type { Transport, TransportReply, TransportRequest } from "#src/engine/source/transport.ts";

export const TOKEN = "17|kanarienvogel/geheim+0123456789";

export interface Harness {
  readonly source: Source;
  readonly metrics: ReturnType<typeof createMetrics>;
  readonly requests: TransportRequest[];
  readonly pauses: { readonly forMs: number; readonly scope: string }[];
  readonly runs: { readonly lane: QueueLane; readonly endpoint: string }[];
  readonly observed: { readonly limit: number | null; readonly remaining: number | null }[];
}

export type ReplyFunction = (
  request: TransportRequest,
  signal: AbortSignal,
) => TransportReply | Promise<TransportReply>;

export function openHarness(respond: ReplyFunction, more: Partial<SourceOptions> = {}): Harness {
  const requests: TransportRequest[] = [];
  const pauses: Harness["pauses"] = [];
  const runs: Harness["runs"] = [];
  const observed: Harness["observed"] = [];
  const metrics = createMetrics();
  const transport: Transport = async (request, signal) => {
    requests.push(request);
    return respond(request, signal);
  };
  const limiter = passThrough({ pauses, runs, observed });
  const source = createSource({
    name: "trial",
    config: testConfig("https://service.example/base"),
    limiter,
    clock: systemClock,
    metrics,
    log: pino({ level: "silent" }),
    transport,
    environment: { PLENUM_TOKEN: TOKEN },
    random: () => 0.5,
    ...more,
  });
  return { source, metrics, requests, pauses, runs, observed };
}

export function testConfig(baseUrl: string, more: object = {}): SourceConfig {
  return SourceConfig.parse({
    base_url: baseUrl,
    token: { env: "PLENUM_TOKEN" },
    time_zone: "Europe/Stockholm",
    quota: { list_requests_per_minute: 600 },
    ...more,
  });
}

export function passThrough(seen: Pick<Harness, "pauses" | "runs" | "observed">): QuotaLimiter {
  return {
    run(lane, endpoint, task) {
      seen.runs.push({ lane, endpoint });
      return task(readClocks(systemClock));
    },
    pauseRequests(forMs, scope) {
      seen.pauses.push({ forMs, scope });
    },
    endPause() {},
    permitTrial() {},
    observeHeaders(_endpoint, headers) {
      seen.observed.push(headers);
    },
    status: () => ({
      buckets: [
        {
          ...{ name: "tags", perMinute: 20, pacedPerMinute: 20, lastingPerMinute: 20, used: 0, nextSlotInMs: 0 },
          waiting: Object.fromEntries(LANES.map((lane) => [lane, 0])) as Record<QueueLane, number>,
          ...{ heldUntilMs: null, throttled: 0, foreign: null },
        },
      ],
      heldUntilMs: null,
    }),
  };
}

export function reply(status: number, body: unknown, headers: Record<string, string> = {}): TransportReply {
  const text = typeof body === "string" ? body : JSON.stringify(body);
  return { status, headers: { "content-type": "application/json", ...headers }, body: new TextEncoder().encode(text) };
}

export const never = () => new AbortController().signal;

export async function allPages<T>(pages: AsyncIterable<ListPage<T>>): Promise<ListPage<T>[]> {
  const all: ListPage<T>[] = [];
  for await (const page of pages) all.push(page);
  return all;
}

export async function allItems<T>(pages: AsyncIterable<ListPage<T>>): Promise<T[]> {
  return (await allPages(pages)).flatMap((page) => page.items);
}

/** Returns the rejection of a promise; fails the test without one. */
export async function errorOf(promise: Promise<unknown>): Promise<Error & { kind?: string }> {
  const outcome = await promise.then(
    () => null,
    (error: unknown) => error,
  );
  if (outcome instanceof Error) return outcome;
  throw new Error("It should have failed.");
}

const RANGE = {
  tagIds: ["1", "2"],
  from: "2026-06-01T00:00:00.000Z",
  to: "2026-06-02T00:00:00Z",
  resolution: "1h",
  timeZone: "Europe/Stockholm",
} as const;

export const CALLS: Readonly<Record<string, (source: Source) => Promise<unknown>>> = {
  sites: (source) => allItems(source.sites({}, never())),
  alarms: (source) => allItems(source.alarms({ status: "active" }, never())),
  tags: (source) => allItems(source.tags({ siteId: 1 }, never())),
  gateways: (source) => allItems(source.gateways({ siteId: 1 }, never())),
  hosts: (source) => allItems(source.hosts({ siteId: 1 }, never())),
  systems: (source) => allItems(source.systems({ siteId: 1 }, never())),
  read: (source) => source.read(["1", "2"], "live", never()),
  write: (source) => source.write(async () => [{ tagId: "1", value: 21.5 }], never()),
  history: (source) => source.history(RANGE, "history", never()),
  totals: (source) => source.totals(RANGE, "history", never()),
  me: (source) => source.me(never()),
};

export const GOOD: Readonly<Record<string, unknown>> = {
  sites: envelope([{ id: 1, display_name: "House" }]),
  alarms: envelope([alarmRecord("a1")]),
  tags: envelope([tagRecord("1")]),
  gateways: envelope([
    record("gateways", "9", {
      display_name: "G",
      online: true,
      version: "1.2",
      hardware: "hw",
      ip_address: "10.0.0.9",
      location: "Cellar",
    }),
  ]),
  hosts: envelope([
    record("hosts", "7", {
      ...{ display_name: "H", description: null, type: "modbus", model_name: "M", ip: "10.0.0.7", mac_address: null },
      gateway: { id: 9, display_name: "G" },
    }),
  ]),
  systems: envelope([
    record("systems", "5", {
      ...{ code: "320.01", display_name: "Heating", discipline: "HVAC", description: "d", location: "l" },
      ...{ manufacturer: "m", installed_year: 2004, maintenance_notes: null, datapoints_count: 12 },
    }),
  ]),
  read: {
    data: [
      { ...tagRecord("1"), value: 21.5 },
      { ...tagRecord("2"), value: null },
    ],
  },
  write: { data: [{ ...tagRecord("1"), value: 21.5 }] },
  history: {
    data: [
      { ...tagRecord("1"), type: "logs", measurements: [{ timestamp: "2026-06-01T00:00:00Z", value: 20 }] },
      { ...tagRecord("2"), type: "logs", measurements: [] },
    ],
  },
  totals: { data: [{ ...tagRecord("1"), type: "logs", measurements: [42.5] }] },
  me: {
    data: {
      user: { id: 3, name: "Ada", email: "ada@example.com" },
      token: {
        ...{ name: "plenum", abilities: ["read:tags"], expires_at: "2027-01-01T00:00:00Z" },
        sites: [{ id: 1, display_name: "House" }],
      },
    },
  },
};

function record<T extends object>(type: string, id: string, attributes: T) {
  return { type, id, attributes };
}

export function tagRecord(id: string) {
  return record("tags", id, { display_name: `Tag ${id}`, description: null, unit: "°C" });
}

export function alarmRecord(id: string) {
  const triggered_at = "2026-06-01T12:00:00+02:00";
  const event = { id: 8, source: "tag", type: "threshold", triggered_on: "Tag 1", value: 31.5, textlist_value: null };
  return record("alarms", id, {
    site: { id: 1, display_name: "House" },
    trigger: { id: 4, display_name: "Too hot", description: null, priority: "A", enabled: true },
    ...{ status: "active", source: "trigger", description: "It is too hot", triggered_at },
    ...{ resolved_at: null, recovering_until: null },
    ...{ acknowledged: false, acknowledged_by: null, acknowledged_message: null, acknowledged_at: null },
    last_active_event: { ...event, triggered_at },
  });
}

export function envelope(data: readonly unknown[], meta: object = {}, links: object = {}) {
  const path = "https://service.example/base/api/v1/list";
  return {
    data,
    links: { first: `${path}?page=1`, last: `${path}?page=1`, prev: null, next: null, ...links },
    meta: {
      ...{ current_page: 1, from: 1, last_page: 1, path, per_page: data.length, to: data.length, total: data.length },
      ...meta,
    },
  };
}
