import type { Transport } from "#src/engine/source/transport.ts";
import { envelope, GOOD, tagRecord } from "../source/source-harness.ts";
import type { VirtualClock } from "../virtual-clock.ts";

/** A service with as many sites and tags as a test wants; the simulator's world is too small for 50,000 tags. */
export interface LargeBuilding {
  readonly transport: (transport: Transport, clock: VirtualClock) => Transport;
  /** Every request in the order of its arrival; `atMs` on the monotonic clock. */
  readonly requests: readonly ListRequest[];
  /** Changes what a request is answered with; undefined leaves it as it is. */
  fail: ((requests: ListRequest) => { readonly status: number; readonly body: object } | undefined) | null;
}

export interface ListRequest {
  readonly endpoint: string;
  readonly query: URLSearchParams;
  readonly atMs: number;
}

export interface LargeBuildingOptions {
  readonly sites: number;
  /** Tags of each site. */
  readonly tags: number;
  readonly hosts?: number;
  readonly latencyMs?: number;
}

const LATENCY_MS = 50;

export function largeBuilding(options: LargeBuildingOptions): LargeBuilding {
  const { sites, tags, hosts = 20, latencyMs = LATENCY_MS } = options;
  const requests: ListRequest[] = [];
  const building: { -readonly [key in keyof LargeBuilding]: LargeBuilding[key] } = {
    requests,
    fail: null,
    transport: (_simulator, clock) => async (request, signal) => {
      await clock.sleep(latencyMs, signal);
      const [path = "", search = ""] = request.path.split("?");
      const query = new URLSearchParams(search);
      const asked = { endpoint: path.replace("/api/v1/", ""), query, atMs: clock.monotonic() };
      requests.push(asked);
      const failed = building.fail?.(asked);
      const { status, body } = failed ?? { status: 200, body: respond(asked, clock) };
      return { status, headers: {}, body: new TextEncoder().encode(JSON.stringify(body)) };
    },
  };

  function respond({ endpoint, query }: ListRequest, clock: VirtualClock): object {
    const siteId = Number(query.get("site_id"));
    const ids = (query.get("tags") ?? "").split(",");
    switch (endpoint) {
      case "me":
        return {
          data: {
            user: { id: 1, name: "Test", email: "test@example.com" },
            token: {
              ...{ name: "test", expires_at: "2030-01-01T00:00:00Z" },
              abilities: ["alarms", "tags", "gateways", "hosts", "systems"].map((list) => `read:${list}`),
              sites: Array.from({ length: sites }, (_, n) => siteRecord(n + 1)),
            },
          },
        };
      case "sites":
        return page(query, sites, (n) => siteRecord(n + 1));
      case "tags":
        return page(query, tags, (n) => tagRecord(String(siteId * 1_000_000 + n)));
      case "gateways":
        return page(query, 1, () => recordOf("gateways", String(siteId)));
      case "hosts":
        return page(query, hosts, (n) => recordOf("hosts", String(siteId * 1_000_000 + n)));
      case "alarms":
      case "systems":
        return page(query, 0, () => ({}));
      case "tags/read":
        return { data: ids.map((id) => ({ ...tagRecord(id), value: 21.5 })) };
      case "tags/history":
        return {
          data: ids.map((id) => ({ ...tagRecord(id), type: "logs", measurements: measurements(query, clock) })),
        };
      default:
        throw new Error(`This building does not answer ${endpoint}.`);
    }
  }

  return building;
}

const STEPS_MS: Readonly<Record<string, number>> = { "5m": 300_000, "1h": 3_600_000, "1d": 86_400_000 };
const MEASUREMENTS_MAX = 50;

/** The last closed buckets of the range, by UTC days. */
function measurements(query: URLSearchParams, clock: VirtualClock): readonly object[] {
  const stepMs = STEPS_MS[query.get("resolution") ?? ""];
  if (stepMs === undefined) return [{ timestamp: "2026-01-01T00:00:00Z", value: 1 }];
  const fromMs = Date.parse(query.get("from") ?? "");
  const lastMs = Math.min(Date.parse(query.get("to") ?? ""), clock.now()) - stepMs;
  const found: object[] = [];
  for (let atMs = Math.floor(lastMs / stepMs) * stepMs; atMs >= fromMs; atMs -= stepMs) {
    found.unshift({ timestamp: new Date(atMs).toISOString(), value: 1 });
    if (found.length === MEASUREMENTS_MAX) break;
  }
  return found;
}

function siteRecord(id: number) {
  return { id, display_name: `Site ${id}` };
}

/** A record as the interface describes it, with another id. */
function recordOf(list: "gateways" | "hosts", id: string): object {
  const { data } = GOOD[list] as { readonly data: readonly object[] };
  return { ...data[0], id };
}

function page(query: URLSearchParams, total: number, record: (n: number) => object): object {
  const size = Number(query.get("per_page") ?? "100");
  const number = Number(query.get("page") ?? "1");
  const last = Math.max(1, Math.ceil(total / size));
  const from = (number - 1) * size;
  const data = Array.from({ length: Math.max(0, Math.min(size, total - from)) }, (_, n) => record(from + n));
  const next = number < last ? `http://127.0.0.1/?page=${number + 1}` : null;
  return envelope(data, { current_page: number, last_page: last, per_page: size, total }, { next });
}
